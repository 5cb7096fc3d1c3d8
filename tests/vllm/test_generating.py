"""Does the proxy before a real vLLM change nothing, order everything and free what is left?"""

import asyncio
import json
import time

import pytest

from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, request
from tests.support.recordings import chunks
from tests.support.scraping import outcomes, scrape
from tests.support.waiting import until
from tests.vllm.asking import PATHS, Stream, body_of, text_of, without_what_varies
from tests.vllm.conftest import EngineWish
from tests.vllm.real_engine import RealEngine
from tests.vllm.tee import Tee

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(2400),
    pytest.mark.asyncio(loop_scope="module"),
]

ENGINE = EngineWish(["--scheduling-policy", "priority", "--max-num-seqs", "4"])
KINDS = ("chat", "completions", "responses", "messages")
IGNORED_HEADERS = {"date", "transfer-encoding", "content-length", "connection", "keep-alive"}


def _sent_body(answer: bytes) -> bytes:
    """The body in an answer's bytes as they came from the engine."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return b"".join(chunks(body)) if b"transfer-encoding: chunked" in head.lower() else body


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("kind", KINDS)
async def test_bodies_are_what_the_engine_sent(
    tee: Tee, start_proxy: ProxyStarter, kind: str, stream: bool
) -> None:
    """A10: what the client reads is, byte for byte, what the engine wrote in the same run.

    But for the usage event that the proxy asked for and the client did not (A25).
    """
    proxy = await start_proxy(tee.url)
    body = json.dumps(body_of(kind, stream=stream)).encode()
    tee.clear()
    answer = await ask(proxy.url, PATHS[kind], body)
    sent, received = tee.last_post()
    expected = _sent_body(received)
    if stream and kind in ("chat", "completions"):
        usage_events = [event for event in expected.split(b"\n\n") if b'"choices":[],' in event]
        assert len(usage_events) == 1
        expected = expected.replace(usage_events[0] + b"\n\n", b"")
        assert b'"include_usage"' in sent
    else:
        assert sent.partition(b"\r\n\r\n")[2] == body
    assert answer.status == 200
    assert answer.body == expected


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("kind", KINDS)
async def test_answers_equal_those_of_a_direct_run(
    engine: RealEngine, start_proxy: ProxyStarter, kind: str, stream: bool
) -> None:
    """The same request to the engine and through the proxy: same text, same headers, same end."""
    proxy = await start_proxy(engine.url)
    body = body_of(kind, stream=stream)
    direct = await ask(engine.url, PATHS[kind], body)
    through = await ask(proxy.url, PATHS[kind], body)
    assert through.status == direct.status == 200
    assert text_of(through.body) == text_of(direct.body) != ""
    kept = [
        {key: value for key, value in answer.head.headers if key not in IGNORED_HEADERS}
        for answer in (direct, through)
    ]
    assert kept[0].items() <= kept[1].items()
    if stream:
        assert through.body[-14:] == direct.body[-14:]
    else:
        assert without_what_varies(through.body) == without_what_varies(direct.body)


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_equal_those_of_a_direct_run(
    engine: RealEngine, start_proxy: ProxyStarter, kind: str
) -> None:
    """A23: an unknown model is refused by the engine, in its own words and status."""
    proxy = await start_proxy(engine.url)
    body = body_of(kind) | {"model": "nope"}
    direct = await ask(engine.url, PATHS[kind], body)
    through = await ask(proxy.url, PATHS[kind], body)
    assert (through.status, through.body) == (direct.status, direct.body)
    assert direct.status == 404


async def test_usage_charged_is_what_the_engine_counted(
    engine: RealEngine, start_proxy: ProxyStarter
) -> None:
    """B01: over all endpoints, plain and streamed, the charge equals the engine's own counters."""
    proxy = await start_proxy(engine.url)
    before = await engine.metrics()
    count = 0
    for kind in KINDS:
        for stream in (False, True):
            for tokens in (3, 40):
                body = body_of(kind, stream=stream, tokens=tokens, text=f"{kind} {tokens} " * 9)
                assert (await ask(proxy.url, PATHS[kind], body)).status == 200
                count += 1
    after = await engine.metrics()
    assert await outcomes(proxy.admin_url) == {"completed": count}
    charged = await scrape(proxy.admin_url)
    for kind, name in (("prompt", "vllm:prompt_tokens_total"), ("completion", GENERATED)):
        counted = after.total(name) - before.total(name)
        mine = charged.total("giveway_tenant_tokens_total", kind=kind)
        assert counted > 0
        assert mine == counted, kind


GENERATED = "vllm:generation_tokens_total"


async def _running(engine: RealEngine) -> float:
    samples = await engine.metrics()
    return samples.total("vllm:num_requests_running") + samples.total("vllm:num_requests_waiting")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_leaves_frees_its_seat(
    engine: RealEngine, start_proxy: ProxyStarter, kind: str, stream: bool
) -> None:
    """A01, A03: requests of thousands of tokens are cut; the engine stops within moments."""
    proxy = await start_proxy(engine.url, documents=[policy(seats=2)])
    clients = [await RawClient.open(proxy.url) for _ in range(2)]
    for client in clients:
        body = body_of(kind, stream=stream, tokens=3900)
        await client.send(request("POST", PATHS[kind], body=body))
    await until(lambda: _is(engine, 2), what="two run at the engine")
    waiting = asyncio.create_task(ask(proxy.url, PATHS["chat"], body_of("chat", tokens=2)))
    for client in clients:
        client.reset()
    left_s = time.monotonic()
    await until(lambda: _is(engine, 0), what="the engine is free")
    assert (await waiting).status == 200
    assert time.monotonic() - left_s < 2
    assert await outcomes(proxy.admin_url) == {"client_left": 2, "completed": 1}


async def _is(engine: RealEngine, count: int) -> bool:
    return await _running(engine) == count


@pytest.mark.parametrize("kind", KINDS)
async def test_the_engine_serves_in_our_order(
    engine: RealEngine, tee: Tee, start_proxy: ProxyStarter, kind: str
) -> None:
    """Y9: with the seats of the engine full of queued batch work, a realtime request is next.

    The proxy holds nothing back here (64 seats), so the order is that of the priority which it
    sends; the client's own wish for a priority counts nothing.
    """
    proxy = await start_proxy(
        tee.url, documents=[policy(seats=64, prompt_gate_tokens=1_000_000, batch_maximum=60)]
    )
    batch = [
        await Stream.open(
            proxy.url,
            "chat",
            body_of("chat", stream=True, tokens=600),
            {"X-Giveway-Class": "batch", "X-Vllm-Priority": "-1000"},
        )
        for _ in range(16)
    ]
    await until(lambda: _is(engine, 16), what="sixteen are at the engine")
    ends: list[float] = []
    reading = [asyncio.create_task(_end_of(stream, ends)) for stream in batch]
    urgent = await Stream.open(
        proxy.url,
        kind,
        body_of(kind, stream=True, tokens=3) | {"priority": 1000},
        {"X-Giveway-Class": "realtime"},
    )
    await urgent.until_text()
    first_s = time.monotonic()
    await urgent.to_end()
    await asyncio.gather(*reading)
    finished_before = sum(end_s < first_s for end_s in ends)
    assert finished_before <= 8, f"{finished_before} of 16 batch streams had ended"


async def _end_of(stream: Stream, ends: list[float]) -> None:
    await stream.until_text()
    await stream.to_end()
    ends.append(time.monotonic())
