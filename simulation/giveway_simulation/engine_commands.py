"""What do the commands that load an engine have in common?

Which engine, which packages they need beside the proxy's own, and how SIGTERM ends them.
"""

import argparse
import asyncio
import signal
from collections.abc import Coroutine, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM, as shells count it."""

Result = TypeVar("Result")


def add_engine_arguments(parser: argparse.ArgumentParser, *, upstream: str, required: bool) -> None:
    """`--upstream` with its help, `--model`, `--engine-api-key-file`."""
    parser.add_argument("--upstream", metavar="URL", required=required, help=upstream)
    parser.add_argument(
        "--model", metavar="NAME", help="its model (default: the first that it names)"
    )
    parser.add_argument(
        "--engine-api-key-file", type=Path, metavar="FILE", help="holds the key that it asks for"
    )


def explain_missing(command: str, packages: Sequence[str]) -> str | None:
    """What to do where one of the packages is not installed. None: all are."""
    missing = [name for name in packages if find_spec(name) is None]
    if not missing:
        return None
    return (
        f"{command} needs the packages of the simulation extra ({missing[0]} is missing): "
        "in giveway's repository, pip install '.[simulation]'"
    )


async def ended_by_sigterm(work: Coroutine[None, None, Result]) -> Result:
    """Do the work; SIGTERM ends it like Ctrl-C, so that what it started is stopped in order."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
