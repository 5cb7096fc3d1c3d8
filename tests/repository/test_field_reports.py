"""Every field report has a test, and every test of a report names one that there is."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
FOLDERS = ("field", "live", "clients")


def _named_in_tests() -> dict[str, list[str]]:
    """Ids in names of tests (`test_a37_c06_...`) and where they are."""
    found: dict[str, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((TESTS / folder).glob("test_*.py")):
            names = re.findall(r"def (test_(?:[a-g]\d\d_)+)", path.read_text("utf-8"))
            for report in re.findall(r"[a-g]\d\d", " ".join(names)):
                found.setdefault(report.upper(), []).append(path.name)
    return found


def _listed() -> list[str]:
    text = (TESTS / "field/README.md").read_text("utf-8")
    return re.findall(r"^\| ([A-G]\d\d) \|", text, re.MULTILINE)


def test_every_report_has_a_test() -> None:
    """An id in the list without a test is a fault that may come back."""
    listed = _listed()
    assert len(listed) == len(set(listed)) == 80
    named = _named_in_tests()
    assert [report for report in listed if report not in named] == []


def test_no_test_names_a_report_that_is_not_listed() -> None:
    """Mistyped ids would count as proof of nothing."""
    assert sorted(set(_named_in_tests()) - set(_listed())) == []
