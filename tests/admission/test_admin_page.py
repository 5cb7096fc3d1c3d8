"""The page: self-contained, locked down, and complete."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib.resources import files

from aiohttp.test_utils import TestClient, TestServer
from giveway_admission.admin import content_security_policy, make_admin_application
from giveway_admission.outcomes import Outcome
from giveway_policy.enumerations import Indicator
from giveway_scheduler import DispatchReason, RejectReason

from tests.admission.admin_support import MadeUpState

PAGE = files("giveway_admission").joinpath("admin_page.html").read_text("utf-8")
VOID = {"meta", "link", "br", "input"}


def script() -> str:
    (found,) = re.findall(r"<script>(.*?)</script>", PAGE, re.DOTALL)
    return str(found)


class Reader(HTMLParser):
    """Notes tags, ids and attributes, and what was not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            self.attributes.append((name, value or ""))
            if name == "id":
                self.ids.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")


def read() -> Reader:
    reader = Reader()
    reader.feed(PAGE)
    return reader


async def test_page_is_served_with_a_policy_that_allows_its_own_parts_alone() -> None:
    """No script but this one can run, nothing can be loaded from elsewhere or sent there."""
    async with TestClient(TestServer(make_admin_application(MadeUpState()))) as client:
        answer = await client.get("/")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert await answer.text() == PAGE
        policy = answer.headers["Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "connect-src 'self'" in policy


def test_policy_follows_the_content() -> None:
    """Another script has another hash."""
    one = content_security_policy(b"<style>a</style><script>1</script>")
    other = content_security_policy(b"<style>a</style><script>2</script>")
    assert one != other


def test_page_needs_nothing_from_elsewhere() -> None:
    """It works in a cluster without a way out."""
    reader = read()
    sources = [value for name, value in reader.attributes if name in ("src", "href", "action")]
    assert [value for value in sources if not value.startswith("data:")] == []
    named = set(re.findall(r"https?://[^\"' )>]+", PAGE))
    assert named == {"http://www.w3.org/2000/svg"}  # a name space, which nobody fetches
    assert "@import" not in PAGE
    assert "url(" not in PAGE


def test_page_never_reads_text_as_markup() -> None:
    """What the proxy reports was partly chosen by clients: it is only ever text."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc"
    assert re.findall(forbidden, PAGE) == []
    reader = read()
    assert [name for name, _ in reader.attributes if name.startswith("on") or name == "style"] == []


def test_page_is_well_formed() -> None:
    """Every element is closed, every id is there once."""
    reader = read()
    assert reader.faults == []
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))


def test_everything_the_script_looks_for_is_there() -> None:
    """`$("...")` finds its element."""
    ids = set(read().ids)
    looked_for = set(re.findall(r"\$\(\"([\w-]+)\"\)", script()))
    filled = set(re.findall(r"(?:head|fill)\(\"([\w-]+)\"", script()))
    assert len(looked_for) > 10
    assert (looked_for | filled) - ids == set()


def test_page_names_every_reason_and_indicator() -> None:
    """A person reads words, not codes."""
    for reason in (*DispatchReason, *RejectReason):
        assert re.search(rf"\b{reason.value}: \"", script()), reason
    for indicator in Indicator:
        assert re.search(rf"\b{indicator.value}: \"", script()), indicator
    refusals = re.findall(r"REFUSALS = \[(.*?)\]", script())[0]
    for word in re.findall(r"\"(\w+)\"", refusals):
        assert word in set(Outcome)


def test_page_is_for_everybody() -> None:
    """Language, title, both colour schemes, tables with headings and roles."""
    assert '<html lang="en">' in PAGE
    assert "<title>" in PAGE
    assert "prefers-color-scheme: dark" in PAGE
    assert 'name="viewport"' in PAGE
    assert PAGE.count('role="table"') == PAGE.count("<table")
    labelled = re.findall(r'aria-labelledby="([\w-]+)"', PAGE)
    assert set(labelled) <= set(read().ids)
    assert "<noscript>" in PAGE


def test_page_rests_while_nobody_looks() -> None:
    """A forgotten tab costs the proxy nothing."""
    assert "document.hidden" in script()
    assert "visibilitychange" in script()


def test_page_is_small() -> None:
    """One small file."""
    assert len(PAGE.encode()) < 48 * 1024
