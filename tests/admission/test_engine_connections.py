"""How does an answer of the engine come back, whatever the engine does?"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.admission.data_plane import CHAT, LOCAL, is_empty, posted, running
from tests.support.policies import policy
from tests.support.raw_client import ClosedError, RawClient, ask, chat_body, request
from tests.support.scripted_engine import (
    Exchange,
    ScriptedEngine,
    answering,
    chatting,
    in_pieces,
    probes_first,
    silent,
)
from tests.support.vllm_answers import chat_answer, chat_events, chunked, stream_head
from tests.support.waiting import until


async def test_informational_answers_stay_here(tmp_path: Path) -> None:
    """A 103 of the engine is not taken for the answer."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with (
        ScriptedEngine(answering(early + chat_answer())) as engine,
        running(engine.url, tmp_path) as server,
    ):
        answer = await ask(server.data_url, CHAT, chat_body())
        assert answer.status == 200
        assert answer.header("link") is None


async def test_informational_answers_without_end_are_a_502(tmp_path: Path) -> None:
    """Each is a sign of life; an engine that sends nothing else does not keep the seat."""
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"

    async def hinting(exchange: Exchange) -> None:
        while True:
            await exchange.send(early)
            await asyncio.sleep(0)

    async with (
        ScriptedEngine(probes_first(hinting)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        answer = await ask(server.data_url, CHAT, chat_body())
        assert (answer.status, answer.error["code"]) == (502, "engine_failed")
        await is_empty(server)
        engine.script = answering(early * 16 + chat_answer())
        assert (await ask(server.data_url, CHAT, chat_body())).status == 200


async def test_an_engine_that_ends_after_an_informational_answer_has_begun(tmp_path: Path) -> None:
    """It has seen the request: on a kept connection too this is a loss, not a stale connection."""

    async def leaving(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        exchange.close()

    async with (
        ScriptedEngine(answering(chat_answer())) as engine,
        running(engine.url, tmp_path) as server,
    ):
        assert (await ask(server.data_url, CHAT, chat_body())).status == 200
        engine.script = probes_first(leaving)
        answer = await ask(server.data_url, CHAT, chat_body())
        assert (answer.status, answer.error["code"]) == (502, "engine_failed")
        assert len(engine.work) == 1 + 2, "a loss is borne once"
        await is_empty(server)


async def test_an_answer_without_length_ends_with_the_connection(tmp_path: Path) -> None:
    """A body that ends with the engine's connection ends with the client's."""

    async def closing(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it")
        exchange.close()

    async with (
        ScriptedEngine(probes_first(closing)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        async with await posted(server.data_url) as client:
            answer = await client.answer()
            assert answer.body == b"all of it"
            assert answer.header("connection") == "close"
        await is_empty(server)


@pytest.mark.parametrize(
    "extra",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"garbage"],
    ids=["answer", "bytes"],
)
async def test_what_comes_behind_an_answer_is_not_passed_on(tmp_path: Path, extra: bytes) -> None:
    """An engine that says more than it was asked is cut off; nobody gets another's answer."""
    async with (
        ScriptedEngine(answering(chat_answer() + extra)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        async with await posted(server.data_url) as client:
            got = await client.read_until_close()
        assert b"evil" not in got
        assert b"garbage" not in got
        await is_empty(server)
        engine.script = chatting()
        assert (await ask(server.data_url, CHAT, chat_body())).status == 200


@pytest.mark.parametrize("chunked_body", [False, True], ids=["length", "chunked"])
async def test_line_ends_behind_an_answer_are_not_passed_on(
    tmp_path: Path, *, chunked_body: bool
) -> None:
    """The parser skips them; to the client they would begin its next answer."""
    whole = chat_answer()
    if chunked_body:
        head, _, body = whole.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"content-length")]
        lines.append(b"Transfer-Encoding: chunked")
        whole = b"\r\n".join(lines) + b"\r\n\r\n" + chunked([body])
    async with (
        ScriptedEngine(answering(whole + b"\r\n\n")) as engine,
        running(engine.url, tmp_path) as server,
    ):
        async with await posted(server.data_url) as client:
            assert (await client.answer()).status == 200
            engine.script = answering(chat_answer())
            await client.send(request("POST", CHAT, body=chat_body()))
            assert (await client.reader.read(9)) == b"HTTP/1.1 "
        await is_empty(server)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000 + b"\r\n\r\n",
    ],
    ids=["two-framings", "upgrade", "not-http", "huge"],
)
async def test_an_answer_that_is_not_http_is_a_502(tmp_path: Path, head: bytes) -> None:
    """The client hears engine_failed, and no byte of the nonsense."""
    async with ScriptedEngine(answering(head)) as engine, running(engine.url, tmp_path) as server:
        answer = await ask(server.data_url, CHAT, chat_body())
        assert answer.status == 502
        assert answer.error["code"] == "engine_failed"
        await is_empty(server)


async def test_a32_hop_by_hop_headers_cross_in_neither_direction(tmp_path: Path) -> None:
    """A32: neither the usual ones nor those that Connection names."""
    answer_head = (
        b"HTTP/1.1 200 OK\r\nDate: today\r\nServer: uvicorn\r\nConnection: keep-alive, X-Inner\r\n"
        b"Keep-Alive: timeout=5\r\nX-Inner: 1\r\nProxy-Authenticate: Basic\r\nX-Outer: 2\r\n"
        b"X-Giveway-Class: forged\r\nContent-Length: 2\r\n\r\n{}"
    )
    headers = {
        "Connection": "keep-alive, X-Foo",
        "X-Foo": "1",
        "X-Bar": "2",
        "TE": "trailers",
        "Trailer": "X-T",
        "Keep-Alive": "timeout=9",
        "Proxy-Authorization": "Basic x",
    }
    async with (
        ScriptedEngine(answering(answer_head)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        answer = await ask(server.data_url, CHAT, chat_body(), headers=headers)
        seen = engine.work[0]
    for name in ("connection", "x-foo", "te", "trailer", "keep-alive", "proxy-authorization"):
        assert seen.header(name) is None, name
    assert seen.header("x-bar") == "2"
    for name in ("connection", "keep-alive", "x-inner", "proxy-authenticate", "transfer-encoding"):
        assert answer.header(name) is None, name
    assert answer.header("x-outer") == "2"
    assert answer.header("x-giveway-class") == "realtime"
    names = [name for name, _ in answer.head.headers]
    assert names.count("date") == names.count("server") == names.count("content-length") == 1


async def test_a20_a_connection_that_the_engine_just_closed_costs_a_retry_and_no_error(
    tmp_path: Path,
) -> None:
    """A20: each request is executed exactly once, though every second finds a closed connection."""

    async def once(exchange: Exchange) -> None:
        if exchange.connection.requests[0] is not exchange.request:
            exchange.reset()  # as if it had been idle for too long when this one came
            return
        served.append(exchange.request.header("x-request-id"))
        await exchange.send(chat_answer())

    served: list[str | None] = []
    async with (
        ScriptedEngine(probes_first(once)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        async with await RawClient.open(server.data_url) as client:
            answers = [await client.post(CHAT, chat_body()) for _ in range(20)]
        assert [answer.status for answer in answers] == [200] * 20
        assert len(served) == len(set(served)) == 20
        assert server.engine_up


async def test_an_idle_connection_is_closed_before_the_engine_would(tmp_path: Path) -> None:
    """A free connection lives for the set time, and a request after it opens a new one."""
    settings = replace(LOCAL, engine_idle_pool_s=0.05)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        for _ in range(2):
            assert (await ask(server.data_url, CHAT, chat_body())).status == 200
            await until(
                lambda: server.proxy.pool.statistics().open == 0, what="no connection is left"
            )
        used = [
            seen for seen in engine.connections if any(r.method == "POST" for r in seen.requests)
        ]
        assert len(used) == 2


@pytest.mark.slow
@pytest.mark.parametrize("head", [b"", stream_head()], ids=["no-head", "head"])
async def test_a_silent_engine_is_given_up(tmp_path: Path, head: bytes) -> None:
    """No byte for the idle time-out: 504 engine_timeout, as an event if the head is out."""
    document = policy(engine={"idleTimeoutSeconds": 1})
    async with (
        ScriptedEngine(silent(head)) as engine,
        running(engine.url, tmp_path, document) as server,
    ):
        async with await posted(server.data_url, chat_body(stream=True)) as client:
            got = await client.answer()
        assert got.status == (200 if head else 504)
        assert b'"code":"engine_timeout"' in got.body
        await is_empty(server)
        assert server.metrics.progress("realtime").outcomes == {"engine_timeout": 1}


async def test_a_stream_that_begins_with_nonsense_is_tried_again_behind_one_head(
    tmp_path: Path,
) -> None:
    """The head was good, what came with it was not: the client sees one head and one answer."""
    asked = 0

    async def nonsense_first(exchange: Exchange) -> None:
        nonlocal asked
        asked += 1
        await exchange.send(stream_head() + (b"zz\r\n" if asked == 1 else chunked(events)))

    events = chat_events(["a"])
    async with (
        ScriptedEngine(probes_first(nonsense_first)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        answer = await ask(server.data_url, CHAT, chat_body(stream=True))
        assert answer.status == 200
        assert answer.body == b"".join(events)
        assert asked == 2


async def test_a_cut_plain_answer_is_cut_for_the_client(tmp_path: Path) -> None:
    """A22: a length that was promised and not kept is not filled up."""

    async def cutting(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        exchange.close()

    async with (
        ScriptedEngine(probes_first(cutting)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        async with await posted(server.data_url) as client:
            with pytest.raises(ClosedError, match="closed after 4 of 100 bytes"):
                await client.answer()
        await is_empty(server)
        assert server.metrics.progress("realtime").outcomes == {"engine_failed": 1}


async def test_one_broken_stream_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """An answer that breaks off in the middle says nothing about the engine: it stays in use."""

    async def breaking(exchange: Exchange) -> None:
        await exchange.send(stream_head() + chunked(chat_events(["a"])[:1])[:-5])
        exchange.close()

    async with (
        ScriptedEngine(probes_first(breaking)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        async with await posted(server.data_url, chat_body(stream=True)) as client:
            assert b"DONE" not in await client.read_until_close()
        assert server.engine_up
        engine.script = chatting()
        assert (await ask(server.data_url, CHAT, chat_body())).status == 200
        assert server.metrics.progress("realtime").outcomes == {
            "engine_failed": 1,
            "completed": 1,
        }


async def test_a_stream_cut_anywhere_passes_unchanged(tmp_path: Path) -> None:
    """All at once, in halves or byte by byte: the client gets the same body."""
    events = chat_events(["日本", "語", "🙂"])
    data = stream_head() + chunked(events)
    bodies = set()
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        for size in (len(data), len(data) // 2, 7, 1):
            engine.script = in_pieces(
                [data[at : at + size] for at in range(0, len(data), size)], gap_s=0
            )
            answer = await ask(server.data_url, CHAT, chat_body(stream=True))
            assert answer.status == 200
            bodies.add(answer.body)
    assert bodies == {b"".join(events)}


async def test_the_engine_is_not_read_while_its_client_does_not_read(tmp_path: Path) -> None:
    """A37: back-pressure reaches the engine; another stream beside it is not slowed."""
    piece = b"data: " + b"z" * 60_000 + b"\n\n"

    async def pouring(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        for _ in range(1_000):
            await exchange.send_events([piece])
        await exchange.end()

    async with (
        ScriptedEngine(probes_first(pouring)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        client = await RawClient.open(server.data_url, receive_buffer=4096)
        sent_before = 0
        async with client, asyncio.timeout(20):
            stalled = await posted(server.data_url, chat_body(stream=True))
            head = await stalled.read_head()
            assert head.status == 200
            engine.script = chatting()
            assert (await ask(server.data_url, CHAT, chat_body(stream=True))).status == 200
            sent_before = max(seen.sent_bytes for seen in engine.connections)
            assert sent_before < 60_000_000
            await stalled.close()
        await is_empty(server)
