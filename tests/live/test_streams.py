"""Does what the engine writes reach the client as it was written, and is it charged as it says?"""

import asyncio
import hashlib
from collections.abc import Callable

import pytest

from tests.support import recordings
from tests.support.proxy_fixtures import Stand
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes
from tests.support.scripted_engine import (
    Exchange,
    Script,
    answering,
    chatting,
    in_pieces,
    probes_first,
)
from tests.support.vllm_answers import (
    DONE,
    LAST_CHUNK,
    chat_chunk,
    chat_events,
    chunk,
    chunked,
    error_answer,
    json_response,
    stream_head,
    usage,
)
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"


def _whole(data: bytes) -> list[bytes]:
    return [data]


def _bytewise(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


def _in_sevens(data: bytes) -> list[bytes]:
    return [data[index : index + 7] for index in range(0, len(data), 7)]


def _path_of(name: str) -> tuple[str, object]:
    """The request that a recording answers."""
    kind = next((kind for kind in ("completions", "responses", "messages") if kind in name), "chat")
    path = {"completions": "/v1/completions", "responses": "/v1/responses"}.get(kind, CHAT)
    if name.startswith("embeddings"):
        return "/v1/embeddings", {"model": "tiny", "input": ["Hello", "you"]}
    if kind == "messages" and "missing" not in name:
        path = "/v1/messages"
    body = chat_body(stream="stream" in name)
    if "usage" in name:
        body["stream_options"] = {"include_usage": True}
    if path in ("/v1/completions", "/v1/responses"):
        del body["messages"]
        body |= {"prompt": "Hello", "input": "Hello"}
    return path, body


@pytest.mark.parametrize("cut", [_whole, _in_sevens], ids=["whole", "in-sevens"])
@pytest.mark.parametrize("name", [name for name in recordings.names() if name != "models"])
async def test_a10_a12_recorded_answers_pass_byte_identical(
    stand: Stand, name: str, cut: Callable[[bytes], list[bytes]]
) -> None:
    """A10, A12: status, type and body of a real engine's answers do not depend on cut points."""
    recorded = recordings.answer(name)
    stand.engine.script = in_pieces(cut(recordings.raw(name)), gap_s=0.0002)
    path, body = _path_of(name)
    if name == "chat-stream":
        body = chat_body(stream=True) | {"stream_options": {"include_usage": False}}
    answer = await ask(stand.proxy.url, path, body)
    assert answer.status == recorded.status
    assert answer.header("content-type") == recorded.header("content-type")
    assert answer.body == recorded.body


async def test_a10_characters_cut_into_bytes_stay_whole(stand: Stand) -> None:
    """A10: text of CJK and emoji sent one byte per write arrives with the same hash."""
    events = chat_events(["日本語", "🙂👩‍👩‍👧", "ÿ\u2028"])
    stand.engine.script = in_pieces(_bytewise(stream_head() + chunked(events)), gap_s=0)
    answer = await ask(stand.proxy.url, CHAT, chat_body(stream=True))
    wanted = hashlib.sha256(b"".join(events)).hexdigest()
    assert hashlib.sha256(answer.body).hexdigest() == wanted


def _cut_in_usage() -> list[bytes]:
    """The usage event's JSON is cut between two HTTP chunks and between two writes."""
    *before, asked, done = chat_events(["a", "b"], prompt_tokens=10, include_usage=True)
    middle = asked.index(b'"total_tokens"') + 5
    first, second = chunk(asked[:middle]), chunk(asked[middle:])
    head = stream_head() + b"".join(chunk(item) for item in before)
    return [head, first[:-20], first[-20:], second, chunk(done) + LAST_CHUNK]


def _last_three_in_one_chunk() -> list[bytes]:
    """Last delta, usage and DONE are one HTTP chunk and one write."""
    events = chat_events(["a", "b"], prompt_tokens=10, include_usage=True)
    first = b"".join(chunk(item) for item in events[:-3])
    return [stream_head() + first, chunk(b"".join(events[-3:])) + LAST_CHUNK]


def _done_without_blank_line() -> list[bytes]:
    """The stream ends with a DONE that lacks its final blank line."""
    events = chat_events(["a", "b"], prompt_tokens=10, include_usage=True)
    return [stream_head() + b"".join(map(chunk, events[:-1])), chunk(DONE.rstrip()) + LAST_CHUNK]


@pytest.mark.parametrize(
    "pieces",
    [_cut_in_usage(), _last_three_in_one_chunk(), _done_without_blank_line()],
    ids=["usage-cut", "three-in-one", "done-without-end"],
)
async def test_a12_the_charge_is_the_usage_however_it_is_cut(
    stand: Stand, pieces: list[bytes]
) -> None:
    """A12: usage cut or glued over chunks is charged exactly, and the bytes are unchanged."""
    stand.engine.script = in_pieces(pieces, gap_s=0.002)
    body = chat_body(stream=True, stream_options={"include_usage": True})
    answer, prompt, completion = await stand.charge_of(CHAT, body)
    sent = b"".join(pieces).partition(b"\r\n\r\n")[2]
    assert answer.body == b"".join(recordings.chunks(sent))
    assert (prompt, completion) == (10, 2)


async def test_a13_events_are_not_held_back(stand: Stand) -> None:
    """A13: the head comes before the first event, and each small event before the next is made.

    In lock-step: the engine makes an event when the client has read the one before, so what is
    held back for a fuller buffer never comes.
    """
    events = [chat_chunk(text=f"event {number}") for number in range(30)]
    turn = asyncio.Semaphore(0)

    async def in_turn(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        for event in events:
            await turn.acquire()
            await exchange.send(chunk(event))
        await turn.acquire()
        await exchange.end()

    stand.engine.script = probes_first(in_turn)
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(request("POST", CHAT, body=chat_body(stream=True)))
        assert (await client.read_head()).status == 200
        for event in events:
            turn.release()
            assert await client.read_chunk() == event
        turn.release()
        assert await client.read_chunk() == b""


@pytest.mark.parametrize("count", [1, 4], ids=["after-role", "after-three"])
async def test_a22_a_broken_stream_is_cut_and_never_tidied(stand: Stand, count: int) -> None:
    """A22: after a reset the client sees no finish_reason and no DONE; outcome engine_failed."""
    events = chat_events(["a", "b", "c", "d"])[:count]

    async def breaking(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        await exchange.send_events(events)
        await arrived.wait()
        exchange.reset()

    arrived = asyncio.Event()
    stand.engine.script = probes_first(breaking)
    before = (await outcomes(stand.proxy.admin_url)).get("engine_failed", 0)
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(request("POST", CHAT, body=chat_body(stream=True)))
        await client.read_head()
        got = b""
        while len(got) < len(b"".join(events)):
            got += await client.read_chunk()
        arrived.set()
        rest = await client.read_until_close()
    assert got == b"".join(events)
    assert b'"stop"' not in rest
    assert b"DONE" not in rest
    assert not rest.endswith(LAST_CHUNK)

    async def counted() -> bool:
        return (await outcomes(stand.proxy.admin_url)).get("engine_failed", 0) == before + 1

    await until(counted, what="the outcome engine_failed is counted once")


STATUSES = (
    (400, "Bad Request"),
    (401, "Unauthorized"),
    (404, "Not Found"),
    (422, "Unprocessable Entity"),
    (429, "Too Many Requests"),
    (500, "Internal Server Error"),
    (503, "Service Unavailable"),
)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize(("status", "reason"), STATUSES)
async def test_a23_the_engines_errors_pass_as_they_are(
    stand: Stand, status: int, reason: str, stream: bool
) -> None:
    """A23: status, body, type and Retry-After of the engine's own error reach the client."""
    sent = error_answer(status, reason, "this model's maximum is 5", retry_after="7")
    stand.engine.script = answering(sent)
    ours_before = (await outcomes(stand.proxy.admin_url)).get("rate_limited", 0)
    answer = await ask(stand.proxy.url, CHAT, chat_body(stream=stream))
    assert answer.status == status
    assert answer.body == sent.partition(b"\r\n\r\n")[2]
    assert answer.header("content-type") == "application/json"
    assert answer.header("retry-after") == "7"
    assert (await outcomes(stand.proxy.admin_url)).get("rate_limited", 0) == ours_before


@pytest.mark.parametrize(
    ("options", "shown"),
    [(None, False), ({"include_usage": False}, False), ({"include_usage": True}, True)],
    ids=["absent", "false", "true"],
)
async def test_a25_usage_that_the_client_did_not_ask_for_stays_hidden(
    stand: Stand, options: dict[str, bool] | None, shown: bool
) -> None:
    """A25: clients see what a direct run shows; the charge is exact in all three cases."""
    stand.engine.script = chatting(("a", "b", "c"))
    body = chat_body(stream=True)
    if options is not None:
        body["stream_options"] = options
    answer, prompt, completion = await stand.charge_of(CHAT, body)
    assert answer.body == b"".join(chat_events(["a", "b", "c"], include_usage=shown))
    assert (prompt, completion) == (10, 3)


async def test_b03_running_totals_are_not_added_up(stand: Stand) -> None:
    """B03: with a running total on each of 50 chunks the charge is the last total."""
    events = [
        chat_chunk(
            text="x", with_usage=usage(10, count), finish_reason="stop" if count == 50 else None
        )
        for count in range(1, 51)
    ]
    events += [chat_chunk(choices=False, with_usage=usage(10, 50)), DONE]
    stand.engine.script = answering(stream_head() + chunked(events))
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer, prompt, completion = await stand.charge_of(
        CHAT, chat_body(stream=True, stream_options=options)
    )
    assert answer.body == b"".join(events)
    assert (prompt, completion) == (10, 50)


async def test_a30_multipart_audio_passes_unread(stand: Stand) -> None:
    """A30: an 8 MB multipart upload reaches the engine with identical bytes and boundary."""
    boundary = "----giveway-test"
    part = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
        "Content-Type: audio/wav\r\n\r\n"
    )
    audio = bytes(range(256)) * (8 * 4096)
    body = part.encode() + audio + f"\r\n--{boundary}--\r\n".encode()
    stand.engine.script = answering(json_response({"text": "hello"}))
    seen = len(stand.engine.work)
    kind = f"multipart/form-data; boundary={boundary}"
    path = "/v1/audio/transcriptions"
    answer = await ask(stand.proxy.url, path, body, headers={"Content-Type": kind})
    assert answer.json() == {"text": "hello"}
    assert answer.header("x-giveway-class")
    (upload,) = stand.engine.work[seen:]
    assert upload.header("content-type") == kind
    assert hashlib.sha256(upload.body).digest() == hashlib.sha256(body).digest()


def _refusing_repeated_ids(running: set[str]) -> Script:
    """An engine that cannot have two running requests of one id."""

    async def run(exchange: Exchange) -> None:
        identity = exchange.request.header("x-request-id") or ""
        if identity and identity in running:
            await exchange.send(error_answer(500, "Internal Server Error", "repeated id"))
            return
        running.add(identity)
        await exchange.send(stream_head())
        await exchange.pause(0.2)
        await exchange.send_events(chat_events(["a"]))
        await exchange.end()
        running.discard(identity)

    return probes_first(run)


async def test_a39_two_requests_with_one_id_do_not_collide(stand: Stand) -> None:
    """A39: the engine is never asked with the same id twice at once; both clients get answers."""
    stand.engine.script = _refusing_repeated_ids(set())
    headers = {"X-Request-Id": "same-id"}
    body = chat_body(stream=True)
    answers = await asyncio.gather(
        *(ask(stand.proxy.url, CHAT, body, headers=headers) for _ in range(3))
    )
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert all(answer.header("x-request-id") for answer in answers)
