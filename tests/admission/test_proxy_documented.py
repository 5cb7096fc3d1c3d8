"""docs/proxy.md says which paths, headers and errors there are, and names no other."""

import re
from pathlib import Path

from giveway_admission.admin import make_admin_application
from giveway_admission.endpoints import ENDPOINTS
from giveway_admission.outcomes import STATUS

from tests.admission.admin_support import MadeUpState

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "proxy.md").read_text("utf-8")
SOURCES = "\n".join(
    path.read_text("utf-8") for path in (ROOT / "admission/giveway_admission").glob("*.py")
)
OTHERS_NAMES = re.compile(
    r'"((?:x-request-id|x-api-key|x-vllm-priority|x-forwarded-for|authorization|prefer|'
    r'idempotency-key|retry-after|retry-after-ms)(?=["%:]))',
    re.IGNORECASE,
)
"""Headers with a meaning to giveway that are not of its own naming."""


def test_every_header_of_ours_is_documented_and_no_other() -> None:
    """In either direction and any case, by what stands in the sources."""
    ours = re.compile(r"x-giveway-[a-z]+(?:-[a-z]+)*", re.IGNORECASE)
    in_code = {name.lower() for name in ours.findall(SOURCES)}
    documented = {name.lower() for name in ours.findall(TEXT)}
    assert len(in_code) >= 9
    assert documented == in_code


def test_every_other_header_that_is_looked_at_is_documented() -> None:
    """Keys, ids, priorities, tickets and hints."""
    read = {name.lower() for name in OTHERS_NAMES.findall(SOURCES)}
    assert len(read) >= 6
    assert {name for name in read if f"`{name}" not in TEXT.lower()} == set()
    assert "`x-ratelimit-*`" in TEXT


def test_every_error_is_documented_with_its_status() -> None:
    """Each code once, and none that does not exist."""
    rows = re.findall(r"^\| `([a-z_]+)` \| (\d{3}) \|", TEXT, re.MULTILINE)
    assert len(rows) == len(dict(rows))
    assert {code: int(status) for code, status in rows} == {
        outcome.value: status for outcome, status in STATUS.items()
    }


def test_every_path_of_both_ports_is_documented() -> None:
    """Of the engine's those that clients may reach, and the admin port's."""
    admin = {
        resource.canonical
        for resource in make_admin_application(MadeUpState()).router.resources()
        if resource.canonical != "/"
    }
    assert len(admin) == 5
    assert [path for path in (*ENDPOINTS, *admin) if f"`{path}`" not in TEXT] == []
    paths = TEXT.split("## Paths")[1].split("## ")[0]
    named = set(re.findall(r"`(/[^`{]*)`", paths)) - {"/cancel"}
    assert named == set(ENDPOINTS)
