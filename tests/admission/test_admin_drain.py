"""`/drain`: who may, how long it takes, and what it answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer
from giveway_admission.admin import (
    DRAIN_TOKEN_HEADER,
    drain_timeout_s,
    make_admin_application,
    may_drain,
)

from tests.admission.admin_support import MadeUpState
from tests.support.waiting import until


@asynccontextmanager
async def asking(state: MadeUpState) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    async with TestClient(TestServer(make_admin_application(state))) as client:
        yield client


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_answers_when_all_has_ended(method: str) -> None:
    """A kubelet's hook can only GET; it waits for the answer."""
    state = MadeUpState()
    async with asking(state) as client:
        asked = asyncio.create_task(client.request(method, "/drain?timeout=60"))
        await until(lambda: state.drains, what="the drain")
        assert not asked.done()
        state.drained.set()
        answer = await asked
        assert answer.status == 200
        assert await answer.json() == {"drained": True, "running": 0, "queued": 0}
    assert state.drains == [60.0]


async def test_answers_when_the_time_is_over() -> None:
    """504, so that a hook that failed shows; draining goes on."""
    async with asking(MadeUpState()) as client:
        answer = await client.get("/drain?timeout=0")
        assert answer.status == 504
        assert (await answer.json())["drained"] is False


async def test_without_a_timeout_it_waits_until_all_has_ended() -> None:
    """The grace period of the pod is the limit then."""
    state = MadeUpState()
    state.drained.set()
    async with asking(state) as client:
        assert (await client.get("/drain")).status == 200
    assert state.drains == [None]


async def test_may_be_called_again_and_at_once() -> None:
    """A hook that is retried is no fault."""
    state = MadeUpState()
    async with asking(state) as client:
        calls = [asyncio.create_task(client.get("/drain?timeout=60")) for _ in range(5)]
        await until(lambda: len(state.drains) == 5, what="all calls")
        state.drained.set()
        answers = await asyncio.gather(*calls)
    assert [answer.status for answer in answers] == [200] * 5


async def test_other_pages_answer_while_it_waits() -> None:
    """Probes and metrics go on to the end."""
    state = MadeUpState()
    async with asking(state) as client:
        waiting = asyncio.create_task(client.get("/drain?timeout=60"))
        await until(lambda: state.drains, what="the drain")
        assert (await client.get("/livez")).status == 200
        assert (await client.get("/metrics")).status == 200
        state.drained.set()
        await waiting


@pytest.mark.parametrize(
    "query",
    [
        "timeout=abc",
        "timeout=",
        "timeout=-1",
        "timeout=nan",
        "timeout=inf",
        "timeout=1e9",
        "timeout=86401",
        "timeout=1&timeout=2",
        "time=1",
        "timeout=1&force=yes",
        "timeout=%00",
        "timeout=1s",
    ],
)
async def test_bad_query_is_refused_and_nothing_is_drained(query: str) -> None:
    """400, and the proxy goes on as if nobody had asked."""
    state = MadeUpState()
    async with asking(state) as client:
        answer = await client.get(f"/drain?{query}")
        assert answer.status == 400
        assert "timeout" in (await answer.json())["error"]
    assert state.drains == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ([], None),
        ([("timeout", "0")], 0.0),
        ([("timeout", "2.5")], 2.5),
        ([("timeout", "86400")], 86400.0),
    ],
)
def test_timeout_is_a_number_of_seconds(
    query: list[tuple[str, str]], expected: float | None
) -> None:
    """Absent: no limit."""
    assert drain_timeout_s(query) == expected


TOKEN = "a long random token"


@pytest.mark.parametrize(
    ("token", "presented", "site", "allowed"),
    [
        (None, [], None, True),
        (None, ["anything"], None, True),
        (TOKEN, [TOKEN], None, True),
        (TOKEN, [], None, False),
        (TOKEN, [""], None, False),
        (TOKEN, [TOKEN[:-1]], None, False),
        (TOKEN, [TOKEN + "x"], None, False),
        (TOKEN, [TOKEN.upper()], None, False),
        (TOKEN, [TOKEN, TOKEN], None, False),
        (TOKEN, ["wrong", TOKEN], None, False),
        ("tökén", ["tökén"], None, True),
        ("tökén", ["t\udcf6kén"], None, False),
        ("", [""], None, True),
        (None, [], "none", True),
        (None, [], "same-origin", True),
        (None, [], "same-site", False),
        (None, [], "cross-site", False),
        (TOKEN, [TOKEN], "cross-site", False),
    ],
)
def test_who_may_drain(
    token: str | None, presented: list[str], site: str | None, allowed: bool
) -> None:
    """The token, if one is set, exactly and once; never a page of another site."""
    assert may_drain(token=token, presented=presented, site=site) is allowed


@pytest.mark.parametrize("headers", [{}, {DRAIN_TOKEN_HEADER: "wrong"}])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_wrong_token_drains_nothing(
    headers: dict[str, str], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """403, counted in the log without what was presented."""
    state = MadeUpState(drain_token=TOKEN)
    async with asking(state) as client:
        answer = await client.request(method, "/drain?timeout=0", headers=headers)
        assert answer.status == 403
        assert TOKEN not in await answer.text()
    assert state.drains == []
    assert "drain refused" in caplog.text
    assert "wrong" not in caplog.text


async def test_right_token_drains() -> None:
    """The header's name does not care for case."""
    state = MadeUpState(drain_token=TOKEN)
    state.drained.set()
    async with asking(state) as client:
        answer = await client.get("/drain", headers={DRAIN_TOKEN_HEADER.lower(): TOKEN})
        assert answer.status == 200


async def test_page_of_another_site_drains_nothing() -> None:
    """An image tag on some web page must not end the proxy of whoever looks at it."""
    state = MadeUpState()
    async with asking(state) as client:
        answer = await client.get("/drain?timeout=0", headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status == 403
    assert state.drains == []


async def test_head_does_not_drain() -> None:
    """Somebody who only looks whether it is there changes nothing."""
    state = MadeUpState()
    async with asking(state) as client:
        assert (await client.head("/drain")).status == 405
    assert state.drains == []
