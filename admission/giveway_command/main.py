"""`giveway`: which subcommand is meant?

A table of names; the module behind a name is imported only when it is asked for, so that `--help`
of anything answers at once whatever the others need.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NoReturn

VERSION = "version"
INTERRUPTED = 130
"""What shells say of a command that Ctrl-C has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcommand:
    """One entry of the table. `module` has `run(arguments) -> int` and `add_arguments(parser)`,
    which also gives the parser its description, and an example as its epilog."""

    help: str
    module: str


SUBCOMMANDS = {
    "serve": Subcommand(
        help="stand before an engine: classify, limit, queue, pick, gate",
        module="giveway_admission.command_serve",
    ),
    "operate": Subcommand(
        help="publish policies of a cluster to its proxies, and keep their objectives",
        module="giveway_operator.command_operate",
    ),
    "lint": Subcommand(
        help="check policy files without applying them",
        module="giveway_policy.command_lint",
    ),
    "render": Subcommand(
        help="print what the operator would publish for policy files",
        module="giveway_operator.command_render",
    ),
    "status": Subcommand(
        help="how the policies of a cluster stand",
        module="giveway_operator.command_status",
    ),
    "emulate": Subcommand(
        help="an engine that speaks vLLM's HTTP and needs no GPU",
        module="giveway_simulation.command_emulate",
    ),
    "demo": Subcommand(
        help="the same load on an engine without and with giveway",
        module="giveway_simulation.command_demo",
    ),
    "calibrate": Subcommand(
        help="measure an engine, and print a policy with its numbers",
        module="giveway_simulation.command_calibrate",
    ),
}

EXAMPLE = """\
example:
  giveway serve --upstream http://127.0.0.1:8000 --policy policy.yaml

Exit codes: 0 good, 1 the answer is no, 2 wrong use, 130 interrupted.
"""


def make_parser(chosen: str | None) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """The parser with the arguments of the subcommand `chosen`, and its module."""
    parser = argparse.ArgumentParser(
        prog="giveway",
        description="Priority, fairness and SLOs for LLM inference.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="print the version")
    group = parser.add_subparsers(dest="subcommand", metavar="COMMAND", title="commands")
    module: ModuleType | None = None
    for name, entry in SUBCOMMANDS.items():
        if name == chosen:
            module = importlib.import_module(entry.module)
            module.add_arguments(group.add_parser(name, help=entry.help))
        else:
            group.add_parser(name, help=entry.help, add_help=False)
    group.add_parser(VERSION, help="print the version")
    return parser, module


class _ShowVersion(argparse.Action):
    """argparse's own would look the version up for every command."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        sys.stdout.write(f"giveway {version()}\n")
        parser.exit()


def version() -> str:
    """With "(compiled)" if what runs at each request is machine code here (`make wheel`)."""
    import importlib.metadata  # as slow to load as all the rest together
    import importlib.util

    module = importlib.util.find_spec("giveway_scheduler.scheduling")
    is_compiled = module is not None and str(module.origin).endswith(".so")
    return importlib.metadata.version("giveway") + (" (compiled)" if is_compiled else "")


def open_standard_streams() -> None:
    """Whoever starts us may have closed them. Then the next files and sockets would get their
    numbers, and the event loop aborts the process when it closes such a one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # where nothing was to be ended in order: a start, a short command
        sys.stderr.write("giveway: interrupted\n")
        return INTERRUPTED


def _run(arguments: Sequence[str] | None) -> int:
    open_standard_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = given[0] if given else None
    parser, module = make_parser(chosen if chosen in SUBCOMMANDS else None)
    if chosen is None:
        parser.print_help(sys.stderr)
        return 2
    parsed = parser.parse_args(given)
    if parsed.subcommand == VERSION:
        sys.stdout.write(f"giveway {version()}\n")
        return 0
    assert module is not None
    return int(module.run(parsed))


if __name__ == "__main__":
    sys.exit(main())
