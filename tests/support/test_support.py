"""Do the scripted engine and the raw client do what the tests take for granted?"""

import asyncio

import pytest

from tests.support import recordings
from tests.support.raw_client import ClosedError, RawClient, ask, chat_body, request
from tests.support.scraping import parse_samples
from tests.support.scripted_engine import Exchange, ScriptedEngine, answering, chatting, silent
from tests.support.vllm_answers import chat_answer
from tests.support.waiting import NotInTimeError, pause_s, until


async def test_requests_are_logged_whole_and_connections_are_reused() -> None:
    """Two requests on one connection are two entries of one connection."""
    async with ScriptedEngine(answering(chat_answer())) as engine:
        async with await RawClient.open(engine.url) as client:
            pieces = [bytes([byte]) for byte in request("POST", "/v1/x", body=b"ab", chunked=True)]
            await client.send_pieces(pieces, gap_s=0)
            first = await client.answer()
            second = await client.post("/v1/y", {"a": 1})
        await until(lambda: engine.open_connections == 0, what="the connection is seen closed")
    assert (first.status, second.status) == (200, 200)
    assert [(seen.target, seen.body) for seen in engine.work] == [
        ("/v1/x", b"ab"),
        ("/v1/y", b'{"a": 1}'),
    ]
    assert len(engine.connections) == 1
    assert engine.busy == 0


async def test_a_stream_arrives_event_by_event_behind_its_gate() -> None:
    """The head comes at once, events only after the gate opens."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(("a", "b"), gate=gate)) as engine,
        await RawClient.open(engine.url) as client,
    ):
        await client.send(request("POST", "/v1/chat/completions", body=chat_body(stream=True)))
        head = await client.read_head()
        gate.set()
        events = [data async for _, data in client.chunks()]
    assert head.is_chunked
    assert len(events) == 4
    assert events[-1] == b"data: [DONE]\n\n"


async def test_a_reset_and_a_vanished_client_are_seen() -> None:
    """RST reaches the client as an error; a client's close ends a silent script."""

    async def resetting(exchange: Exchange) -> None:
        exchange.reset()

    async with ScriptedEngine(resetting) as engine:
        with pytest.raises((ConnectionError, ClosedError)):
            await ask(engine.url, "/x", {})
        engine.script = silent()
        client = await RawClient.open(engine.url)
        await client.send(request("POST", "/x", body={}))
        await until(lambda: engine.busy == 1, what="the script runs")
        client.reset()
        await until(lambda: engine.open_connections == 0, what="the reset is seen")
    assert engine.busy == 0


async def test_a_fault_in_a_script_fails_the_test() -> None:
    """An exception of a script is not swallowed."""

    async def faulty(exchange: Exchange) -> None:
        raise LookupError("fault of the test")

    async def run() -> None:
        async with ScriptedEngine(faulty) as engine, await RawClient.open(engine.url) as client:
            await client.send(request("POST", "/x", body={}))
            await client.read_until_close()

    with pytest.raises(LookupError):
        await run()


async def test_waiting_has_a_bound() -> None:
    """A condition that never holds fails with its name."""
    with pytest.raises(NotInTimeError, match="never"):
        await until(lambda: False, what="never", within_s=0.02)


def test_what_takes_long_is_asked_less_often() -> None:
    """At first a hundred times a second, after 2.5 s four times; never later than a tenth."""
    assert [pause_s(waited_s) for waited_s in (0.0, 0.05, 1.0, 2.5, 100.0)] == [
        *(0.01, 0.01, 0.1, 0.25, 0.25)
    ]


def test_samples_can_be_asked_for_by_labels() -> None:
    """Sums over labels that are not named."""
    samples = parse_samples(
        "# TYPE a_total counter\n"
        'a_total{class="x",outcome="completed"} 2\n'
        'a_total{class="y",outcome="completed"} 3\n'
    )
    assert samples.total("a_total", outcome="completed") == 5.0
    assert samples.value("a_total", **{"class": "x"}) == 2.0


@pytest.mark.parametrize("name", recordings.names())
def test_every_transcript_is_a_whole_answer(name: str) -> None:
    """Each has a status, and a body as long as its head says."""
    answer = recordings.answer(name)
    assert 200 <= answer.status < 500
    if not answer.head.is_chunked:
        assert len(answer.body) == int(answer.header("content-length") or -1)
    assert answer.body
