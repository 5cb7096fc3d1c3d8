"""What does a command say where giveway is installed without its operator's part?"""

import sys


def tell_missing_part(command: str, error: ImportError) -> int:
    """Say what to install. The exit code."""
    sys.stderr.write(
        f"giveway {command}: {error.name} is missing: install giveway with its operator's part, "
        "pip install 'giveway[operator]'\n"
    )
    return 1
