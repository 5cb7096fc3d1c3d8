"""Which subcommand is meant?"""

import importlib.metadata
import resource
import subprocess
import sys

import pytest
from giveway_command.main import SUBCOMMANDS, main

NAMES = (*SUBCOMMANDS, "version")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "giveway_command.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_names_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    """With an example, on standard output."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    output = capsys.readouterr().out
    assert "example:" in output
    named = {line.split()[0] for line in output.splitlines() if line.startswith("    ")}
    assert named >= set(NAMES)


@pytest.mark.parametrize("name", [None, *SUBCOMMANDS])
def test_help_has_an_example_and_imports_nothing_heavy(name: str | None) -> None:
    """Help of anything answers without the packages that the work itself needs."""
    arguments = ["--help"] if name is None else [name, "--help"]
    code = (
        "import sys\n"
        "from giveway_command.main import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "heavy = {'aiohttp', 'pydantic', 'uvloop', 'matplotlib', 'yaml', 'rich'}\n"
        "found = heavy & set(sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "usage: giveway" in done.stdout
    assert "example" in done.stdout.lower()


@pytest.mark.slow
def test_help_answers_at_once() -> None:
    """For less than ten times the CPU that starting Python needs, the best of five. It is about
    five times; pydantic alone would be twelve."""

    def used_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def measured(*arguments: str) -> float:
        before_s = used_s()
        subprocess.run([sys.executable, *arguments], capture_output=True, timeout=60, check=True)
        return used_s() - before_s

    bare_s = min(measured("-c", "pass") for _ in range(5))
    help_s = min(measured("-m", "giveway_command.main", "serve", "--help") for _ in range(5))
    assert help_s < 10 * bare_s


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    """As a subcommand and as a flag."""
    wanted = f"giveway {importlib.metadata.version('giveway')}\n"
    assert main(["version"]) == 0
    assert capsys.readouterr().out == wanted
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == wanted


@pytest.mark.parametrize("arguments", [[], ["fly"], ["serve", "--wings"]])
def test_wrong_use_ends_with_2(arguments: list[str]) -> None:
    """And what is right is said on standard error."""
    done = command(*arguments)
    assert done.returncode == 2
    assert "usage: giveway" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "module", ["giveway_admission.settings", "uvloop", "giveway_admission.serving"]
)
def test_ctrl_c_during_the_start_ends_it_with_one_line(module: str) -> None:
    """130, as shells expect it, and no traceback: here it comes while `module` is imported."""
    code = (
        "import os, signal, sys\n"
        "from giveway_command.main import main\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.exit(main(['serve', '--upstream', 'http://127.0.0.1:1', '--port', '0']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 130
    assert done.stderr == "giveway: interrupted\n"
    assert done.stdout == ""
