"""What can be said to each command, for people? Prints `docs/commands.md`:

    python -m giveway_command.describing > docs/commands.md

The flags come from the parsers, so that the page says what the commands do. A test keeps the file
up to date.
"""

import argparse
import importlib
import re
import sys
from collections.abc import Iterator

from giveway_command.main import SUBCOMMANDS

_INTRODUCTION = """\
# Commands

`giveway COMMAND --help` says the same. Results go to standard output, messages to standard error;
colours and bars are for terminals alone.

| Exit code | Meaning |
|---|---|
| 0 | good; for `serve`, `operate` and `emulate`: ended by SIGTERM or SIGINT |
| 1 | the answer is no: faults in a policy, a port that is taken, an engine that fails |
| 2 | wrong use: an unknown flag, or a value that can't be |
| 130 | Ctrl-C; `demo` and `calibrate`: also SIGTERM; `serve`: before it serves |

## Environment

Each flag of `serve` and `operate` is also an environment variable: `GIVEWAY_` and its name in
capitals with underscores, `GIVEWAY_ADMIN_PORT` for `--admin-port`. A flag counts more than its
variable.
`GIVEWAY_ACCESS_LOG` is `true` or `false`. Values that Kubernetes sets for a Service called giveway
(`GIVEWAY_PORT=tcp://...`) are left out of account.

Seconds may have a fraction; sizes are bytes, or with `k`, `M`, `G` (1000) or `Ki`, `Mi`, `Gi`
(1024).

## Files

- **Policies**: `--policy` names a file, or a folder whose `.yaml`, `.yml` and `.json` files count;
  [what is in them](policy.md).
- **Tenants' API keys**: `keyFile` of a TenantPriority, relative to its file. One key a line, read
  again when it changes.
- **Compiled policies**: `--policy-document` names a folder whose `.json` and `.gz` files count, as
  mounted from a ConfigMap. The highest valid number is in force.
- **The engine's API key**: the first line of `--engine-api-key-file`, read at the start.
- **Tickets**: `tickets.sqlite` in the folder of `--tickets`;
  [what is in it](tickets.md#what-is-on-the-disk).
- **The demonstration's plot**: `.run/giveway-demo.png`.

Nothing else is written. Logs go to standard error, one JSON object a line (`--log-format text` for
people); the addresses of both ports go to standard output when they are open.

This page is made from the commands: `python -m giveway_command.describing > docs/commands.md`.
"""


def describe() -> str:
    """All of `docs/commands.md`."""
    return "\n".join([_INTRODUCTION, *(_section(name) for name in SUBCOMMANDS)])


def _section(name: str) -> str:
    command = argparse.ArgumentParser(prog=f"giveway {name}")
    importlib.import_module(SUBCOMMANDS[name].module).add_arguments(command)
    text = re.sub(r"\n(?=\S)", " ", (command.description or "").strip())
    return "\n".join(
        [
            f"## giveway {name}\n",
            f"{text}\n",
            "| flag | meaning (default) |",
            "|---|---|",
            *_rows(command),
            "",
            f"```\n{(command.epilog or '').strip()}\n```\n",
        ]
    )


def _rows(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:  # noqa: SLF001 - argparse has no other way to ask
        if "--help" in action.option_strings:
            continue
        if isinstance(action.choices, tuple | list):
            value = "|".join(str(each) for each in action.choices)
        else:
            value = str(action.metavar or "")
        said = " ".join(each for each in (", ".join(action.option_strings), value) if each)
        help_text = command._get_formatter()._expand_help(action)  # noqa: SLF001
        cells = [each.replace("|", "\\|") for each in (f"`{said}`", help_text)]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(describe())
