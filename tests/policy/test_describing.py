"""`docs/policy.md` is what the models say."""

import re
from pathlib import Path

import yaml
from giveway_policy.compiling import compile_policies
from giveway_policy.describing import describe
from giveway_policy.loading import load_path

DOCUMENT = Path(__file__).parents[2] / "docs" / "policy.md"


def test_policy_document_equals_what_is_made_from_the_models() -> None:
    """Whoever changes a field runs `make docs`."""
    assert DOCUMENT.read_text("utf-8") == describe(), "run make docs"


def test_links_inside_the_policy_document_lead_to_its_headings() -> None:
    """Every `below` has a heading, and no heading stands twice."""
    text = describe()
    headings = [_anchor(each) for each in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(links) > 25
    assert set(links) - set(headings) == set()
    assert len(headings) == len(set(headings))


def test_every_row_has_four_cells_and_a_meaning() -> None:
    """A field without a description, or with a bar in it, would break its table."""
    rows = [
        re.split(r"(?<!\\)\|", line)[1:-1]
        for line in describe().splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) > 80
    assert [row for row in rows if len(row) != 4 or not row[0].strip() or not row[3].strip()] == []


def test_policies_of_the_introduction_are_good(tmp_path: Path) -> None:
    """The smallest policy is one, and stays one with the block that lets clients choose."""
    smallest, choice = re.findall(r"```yaml\n(.*?)```", describe(), re.DOTALL)
    for number, text in enumerate((smallest, smallest + choice)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, "utf-8")
        loading = load_path(path)
        compilation = compile_policies(loading.policies, loading.tenants)
        assert [*loading.faults, *compilation.faults] == []
        assert len(compilation.documents) == 1
    assert yaml.safe_load(smallest + choice)["spec"]["identity"]["fallbackClass"] == "chat"


def _anchor(heading: str) -> str:
    """As GitHub makes it: lower case, dashes for spaces, no other signs."""
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))
