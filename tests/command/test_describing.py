"""`docs/commands.md` is what the commands say."""

import re
from pathlib import Path

import pytest
from giveway_command.describing import describe
from giveway_command.main import SUBCOMMANDS, main

DOCUMENT = Path(__file__).parents[2] / "docs" / "commands.md"


def test_commands_document_equals_what_is_made_from_the_commands() -> None:
    """Whoever changes a flag runs `make docs`."""
    assert DOCUMENT.read_text("utf-8") == describe(), "run make docs"


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_flag_that_help_names_is_in_the_document(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a meaning, in the command's own section."""
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = capsys.readouterr().out
    flags = set(re.findall(r"^  (?:-\w(?: \S+)?, )?(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"}
    section = describe().split(f"## giveway {name}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE)
    documented = {flag for said, _ in rows for flag in re.findall(r"--[a-z-]+", said)}
    assert flags <= documented
    assert all(meaning.strip() for _, meaning in rows)
