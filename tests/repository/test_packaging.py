"""The wheel holds the product, all of it and nothing else."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "giveway_scheduler",
    "giveway_policy",
    "giveway_admission",
    "giveway_command",
    "giveway_operator",
    "giveway_simulation",
}


@pytest.fixture(scope="module")
def wheel_files(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel that is built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
def test_wheel_holds_every_tracked_file_of_the_packages(wheel_files: set[str]) -> None:
    """Modules, the admin page and the trace sample are there; tests are not."""
    tracked = subprocess.run(
        [
            "git",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "admission",
            "operator",
            "simulation",
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    ).stdout.split()
    expected = {str(Path(*Path(name).parts[1:])) for name in tracked if (ROOT / name).exists()}
    assert len(expected) > 30
    assert expected - wheel_files == set()
    assert {name.split("/")[0] for name in wheel_files if "dist-info" not in name} == PACKAGES


@pytest.mark.slow
def test_wheel_marks_every_package_as_typed(wheel_files: set[str]) -> None:
    """Users' type checkers see our annotations."""
    assert {f"{package}/py.typed" for package in PACKAGES} <= wheel_files


def test_no_operator_package_shadows_the_standard_library() -> None:
    """A folder `operator` with an __init__ would be imported instead of Python's own module."""
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_every_dependency_has_an_upper_and_a_lower_bound() -> None:
    """A pin that is open above breaks a user's installation some day; one below, today."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(item for extra in extras for item in extra)]
    assert [item for item in wanted if ">=" not in item or "<" not in item] == []


def test_versions_used_in_tests_are_pinned() -> None:
    """constraints.txt fixes every direct dependency, so that a test run can be repeated."""
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    }
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = document["project"]["optional-dependencies"].values()
    wanted = [
        *document["project"]["dependencies"],
        *(item for extra in extras for item in extra),
        *document["dependency-groups"]["dev"],
    ]
    names = {item.split(">")[0].split("<")[0].lower().replace("_", "-") for item in wanted}
    assert names - pinned == set()


def test_every_module_to_compile_is_there() -> None:
    """Else `make wheel` fails, which nobody would see before a release."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    assert (ROOT / hook["path"]).is_file()
    assert [each for each in hook["compiled"] if not (ROOT / "admission" / each).exists()] == []
