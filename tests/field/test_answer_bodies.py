"""Are bodies and what is said about them still one, whatever the proxy changed?"""

import gzip
import json

import pytest

from tests.support.lines import CHAT
from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter, Stand
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scripted_engine import Exchange, ScriptedEngine, answering, probes_first
from tests.support.vllm_answers import (
    EVENT_STREAM_TYPE,
    chat_answer,
    chat_events,
    chunked,
    embeddings_answer,
    response,
    stream_head,
    wants_usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

GZIP = {"Content-Encoding": "gzip"}


@pytest.mark.parametrize(
    "accepted", [None, "gzip, br"], ids=["asked-for-nothing", "asked-for-gzip"]
)
@pytest.mark.parametrize(
    ("status", "reason"), [(200, "OK"), (400, "Bad Request"), (503, "Service Unavailable")]
)
async def test_a15_compressed_bodies_pass_with_their_header(
    stand: Stand, status: int, reason: str, accepted: str | None
) -> None:
    """Body, encoding and length are the engine's own, whatever the status."""
    text = json.dumps({"choices": [], "text": "x" * 3000}).encode()
    packed = gzip.compress(text)
    stand.engine.script = answering(response(packed, status=status, reason=reason, headers=GZIP))
    headers = {} if accepted is None else {"Accept-Encoding": accepted}
    answer = await ask(stand.proxy.url, CHAT, chat_body(), headers=headers)
    assert answer.status == status
    assert answer.header("content-encoding") == "gzip"
    assert answer.header("content-length") == str(len(packed))
    assert gzip.decompress(answer.body) == text


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a15_an_engine_that_packs_if_asked_is_not_asked(stand: Stand, stream: bool) -> None:
    """What is compressed can be neither charged nor freed of our usage event: it is not wanted."""

    async def packing(exchange: Exchange) -> None:
        packs = "gzip" in (exchange.request.header("accept-encoding") or "")
        if not stream:
            body = chat_answer(prompt_tokens=7, completion_tokens=11).partition(b"\r\n\r\n")[2]
            data = response(gzip.compress(body), headers=GZIP) if packs else response(body)
        else:
            events = chat_events(
                ["x"] * 11, prompt_tokens=7, include_usage=wants_usage(exchange.request.body)
            )
            body = gzip.compress(b"".join(events))
            data = stream_head(GZIP if packs else None)
            data += chunked([body] if packs else events)
        await exchange.send(data)

    stand.engine.script = probes_first(packing)
    async with await RawClient.open(stand.proxy.url) as client:
        before = await stand.charged()
        body = chat_body(stream=stream)
        answer = await client.post(CHAT, body, headers={"Accept-Encoding": "gzip"})
    packed = answer.header("content-encoding") == "gzip"
    text = gzip.decompress(answer.body) if packed else answer.body
    assert b'"choices": []' not in text
    after = await stand.charged()
    assert after["prompt"] - before["prompt"] == 7
    assert after["completion"] - before["completion"] == 11


@pytest.mark.parametrize("length", [True, False], ids=["with-length", "chunked"])
async def test_a17_a_stream_without_its_usage_event_has_no_stale_length(
    stand: Stand, length: bool
) -> None:
    """The event that we asked for is taken out; the client reads to the end and asks again."""
    events = chat_events(["a", "b"], include_usage=True)
    whole = b"".join(events)
    if length:
        data = response(whole, content_type=EVENT_STREAM_TYPE)
    else:
        data = stream_head() + chunked(events)
    stand.engine.script = answering(data)
    async with await RawClient.open(stand.proxy.url) as client:
        for _ in range(2):
            answer = await client.post(CHAT, chat_body(stream=True))
            assert answer.header("content-length") is None
            assert answer.body == b"".join(chat_events(["a", "b"]))


@pytest.mark.parametrize(
    ("path", "body", "added"),
    [
        (CHAT, chat_body(stream=True), "stream_options"),
        ("/v1/completions", {"model": "m", "prompt": "é", "stream": True}, "stream_options"),
        ("/v1/embeddings", {"model": "m", "input": "é"}, "priority"),
        ("/v1/embeddings", {"model": "m", "input": "é", "priority": -9}, "priority"),
    ],
    ids=["usage-chat", "usage-completions", "priority-added", "priority-replaced"],
)
async def test_a17_a_changed_request_has_the_length_of_what_is_sent(
    stand: Stand, path: str, body: dict[str, object], added: str
) -> None:
    """The engine reads exactly one JSON object, and the next request on its connection too."""
    stand.engine.script = answering(
        embeddings_answer() if "embeddings" in path else stream_head() + chunked(chat_events(["a"]))
    )
    for _ in range(2):
        assert (await ask(stand.proxy.url, path, body)).status == 200
        seen = stand.engine.work[-1]
        sent = seen.json()
        assert int(seen.header("content-length") or -1) == len(seen.body)
        assert added in sent
        assert sent.get("priority") != -9
        assert {name: sent[name] for name in body if name != "priority"} == {
            name: value for name, value in body.items() if name != "priority"
        }


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"], ids=["1.0", "1.1"])
async def test_a17_an_old_client_gets_a_stream_that_ends_with_the_connection(
    stand: Stand, version: bytes
) -> None:
    """HTTP/1.0 knows no chunks: no length, no framing, all the events, and a close."""
    events = chat_events(["a", "b"])
    stand.engine.script = answering(stand_stream(events))
    data = request("POST", CHAT, body=chat_body(stream=True), headers={"Connection": "close"})
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(data.replace(b"HTTP/1.1", version, 1))
        head = await client.read_head()
        body = await client.read_body(head)
    assert head.is_chunked is (version == b"HTTP/1.1")
    assert head.header("content-length") is None
    assert body == b"".join(events)


def stand_stream(events: list[bytes]) -> bytes:
    """The whole answer with those events."""
    return stream_head() + chunked(events)


@pytest.mark.asyncio(loop_scope="function")
async def test_a17_a_priority_that_is_taken_out_leaves_a_true_length(
    start_proxy: ProxyStarter,
) -> None:
    """With `priority: None` the client's own field goes, and the rest is as it was."""
    async with ScriptedEngine(answering(chat_answer())) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(engine={"priority": "None"})])
        body = chat_body(priority=-5, text="é")
        assert (await ask(proxy.url, CHAT, body)).status == 200
        seen = engine.work[-1]
        del body["priority"]
        assert seen.json() == body
        assert int(seen.header("content-length") or -1) == len(seen.body)
        assert seen.header("x-vllm-priority") is None


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [(CHAT, b"{", 400), ("/v1/nothing", b"{}", 404), ("/v1/messages", b"[]", 400)],
    ids=["not-json", "no-path", "messages"],
)
async def test_a17_our_own_errors_have_true_lengths(
    stand: Stand, path: str, body: bytes, status: int
) -> None:
    """Two refusals on one connection: the second head begins where the first body ends."""
    async with await RawClient.open(stand.proxy.url) as client:
        for _ in range(2):
            answer = await client.post(path, body)
            assert answer.status == status
            assert answer.json()["error"]
            assert int(answer.header("content-length") or -1) == len(answer.body)
