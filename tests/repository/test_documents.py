"""What the documents say about the repository is true."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FOLDERS = (
    "admission",
    "benchmarks",
    "crds",
    "docs",
    "examples",
    "operator",
    "simulation",
    "tests",
)
SOURCES = [ROOT / "admission", ROOT / "operator", ROOT / "simulation"]


def test_there_are_documents_to_check() -> None:
    """An empty list would make the other tests pass for nothing."""
    assert ROOT / "README.md" in DOCUMENTS
    assert len(DOCUMENTS) >= 4


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(document: Path) -> None:
    """Every relative link and image of a document exists."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text("utf-8"))
    local = [target for target in targets if "://" not in target and "mailto:" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_folders_named_in_documents_exist(document: Path) -> None:
    """`giveway_scheduler.picking` and `tests/field/` in code quotes are real modules and paths."""
    quoted = re.findall(r"`([^`\n]+)`", document.read_text("utf-8"))
    modules = [name for name in quoted if re.fullmatch(r"giveway_\w+(\.[a-z_]+)+", name)]
    paths = [name for name in quoted if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./-]*", name)]
    missing = [name for name in modules if not _is_module(name)]
    missing += [name for name in paths if not (ROOT / name).exists()]
    assert missing == []


def test_every_mechanism_is_named_by_a_test() -> None:
    """An id in docs/mechanisms.md that no test names is a claim without proof."""
    rows = re.findall(
        r"^\| ([HYA]\d+) \|", (ROOT / "docs/mechanisms.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) > 20
    tests = "\n".join(path.read_text("utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    assert [mechanism for mechanism in rows if not re.search(rf"\b{mechanism}\b", tests)] == []


def test_make_targets_named_in_documents_exist() -> None:
    """`make run` and the others can be typed as written."""
    targets = set(
        re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    )
    named = {
        target
        for document in DOCUMENTS
        for target in re.findall(
            r"(?:^    |`)make ([a-z-]+)", document.read_text("utf-8"), re.MULTILINE
        )
    }
    assert {"run", "test"} <= named
    assert named - targets == set()


def _is_module(name: str) -> bool:
    """Is `name` a module or package of ours, or an attribute of one?"""
    path = Path(*name.split("."))
    for source in SOURCES:
        for candidate in (path, path.parent):
            if len(candidate.parts) and (
                (source / candidate).with_suffix(".py").exists()
                or (source / candidate / "__init__.py").exists()
            ):
                return candidate == path or _defines(source / candidate, path.name)
    return False


def _defines(module: Path, attribute: str) -> bool:
    file = (
        module.with_suffix(".py") if module.with_suffix(".py").exists() else module / "__init__.py"
    )
    return (
        re.search(
            rf"^(class|def|async def) {attribute}\b|^{attribute}\b", file.read_text(), re.MULTILINE
        )
        is not None
    )
