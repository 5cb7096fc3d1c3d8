"""Runs the comparison."""

import sys

from giveway_benchmarks.main import main

if __name__ == "__main__":
    sys.exit(main())
