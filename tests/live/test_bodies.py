"""Which bodies and how many connections does the proxy carry, and how does it refuse?"""

import asyncio
import hashlib
import json
import time

import pytest

from tests.support.policies import policy, service_class
from tests.support.proxy_fixtures import ProxyStarter, Stand
from tests.support.raw_client import Answer, RawClient, ask, chat_body, request
from tests.support.scraping import scrape
from tests.support.scripted_engine import ScriptedEngine, answering, chatting
from tests.support.vllm_answers import chat_answer
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
MIB = 2**20


@pytest.mark.slow
async def test_a07_no_hidden_cap_on_connections(start_proxy: ProxyStarter) -> None:
    """A07: with 300 seats 250 streams run at the engine at once; only the seats ever queue."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=300)])
        tasks = [
            asyncio.create_task(ask(proxy.url, CHAT, chat_body(stream=True))) for _ in range(250)
        ]
        await until(lambda: engine.busy == 250, what="250 run at once")
        assert (await scrape(proxy.admin_url)).total("giveway_queue_requests") == 0
        gate.set()
        assert {answer.status for answer in await asyncio.gather(*tasks)} == {200}


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [5 * MIB, 20 * MIB], ids=["5MiB", "20MiB"])
async def test_a08_large_prompts_arrive_byte_for_byte(
    start_proxy: ProxyStarter, size: int, chunked: bool
) -> None:
    """A08: a prompt of many MiB is forwarded as it is, with a length and in chunks."""
    body = json.dumps(chat_body(text="a word " * (size // 7))).encode()
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url)
        async with await RawClient.open(proxy.url) as client:
            await client.send(request("POST", CHAT, body=body, chunked=chunked))
            answer = await client.answer()
        assert answer.status == 200
        (seen,) = engine.work
        assert hashlib.sha256(seen.body).digest() == hashlib.sha256(body).digest()


async def test_a08_a_body_over_the_limit_is_refused_as_json(start_proxy: ProxyStarter) -> None:
    """A08: above the set limit 413 in JSON; other connections do not notice; nothing forwarded."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, "--max-body", "1Mi")
        async with await RawClient.open(proxy.url) as other:
            assert (await other.post(CHAT, chat_body())).status == 200
            refused = await ask(proxy.url, CHAT, chat_body(text="x" * (2 * MIB)))
            assert refused.status == 413
            assert refused.error["code"] == "request_too_large"
            async with await RawClient.open(proxy.url) as chunks:
                await chunks.send(
                    request("POST", CHAT, body=chat_body(text="x" * (2 * MIB)), chunked=True)
                )
                assert (await chunks.answer()).status == 413
            assert (await other.post(CHAT, chat_body())).status == 200
        assert len(engine.work) == 2


DRAINED = policy(
    classes=[service_class("only", limits={"requestsPerSecond": 1, "requestBurst": 1})]
)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [300_000, 3_000_000], ids=["300kB", "3MB"])
async def test_a19_a_refused_body_does_not_spoil_the_connection(
    start_proxy: ProxyStarter, size: int, chunked: bool
) -> None:
    """A19: after an early 429 the next request on it works, or it was closed cleanly."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, documents=[DRAINED])
        async with await RawClient.open(proxy.url) as client:
            assert (await client.post(CHAT, chat_body())).status == 200
            data = request("POST", CHAT, body=chat_body(text="y" * size), chunked=chunked)
            sending = asyncio.create_task(client.send(data))
            refused = await client.answer()
            await sending
            assert refused.status == 429
            if refused.header("connection") == "close":
                assert await client.read_until_close() == b""
                return
            wait_s = float(refused.header("retry-after") or 1)
            await _at(time.monotonic() + wait_s)
            assert (await client.post(CHAT, chat_body())).status == 200


@pytest.mark.parametrize("reason", ["unknown-key", "queue-full", "too-large"])
async def test_a19_whatever_refuses_a_body_does_not_spoil_the_connection(
    start_proxy: ProxyStarter, reason: str
) -> None:
    """A19: 401, 429 `queue_full` and 413 of 300 kB: the next request works, or a clean close."""
    status = {"unknown-key": 401, "queue-full": 429, "too-large": 413}[reason]
    classes = [service_class("only", capacity=0)]
    document = policy(classes=classes, seats=1, identity={"unknownCredential": "Reject"})
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        options = ("--max-body", "100Ki") if reason == "too-large" else ()
        proxy = await start_proxy(engine.url, *options, documents=[document])
        holding: list[asyncio.Task[Answer]] = []
        if reason == "queue-full":
            holding.append(asyncio.create_task(ask(proxy.url, CHAT, chat_body())))
            await until(lambda: engine.busy == 1, what="the seat is taken")
        headers = {"X-Api-Key": "sk-nobody"} if reason == "unknown-key" else {}
        async with await RawClient.open(proxy.url) as client:
            data = request("POST", CHAT, body=chat_body(text="y" * 300_000), headers=headers)
            sending = asyncio.create_task(client.send(data))
            refused = await client.answer()
            await sending
            assert refused.status == status
            gate.set()
            await asyncio.gather(*holding)
            if refused.header("connection") == "close":
                assert await client.read_until_close() == b""
            else:
                assert (await client.post(CHAT, chat_body())).status == 200


async def _at(moment_s: float) -> None:
    """A client that honours Retry-After."""
    await until(lambda: time.monotonic() >= moment_s, what="the hint is over", within_s=70)


DEEP = {
    "arrays-20k": b'{"model":"m","messages":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "arrays-1M": b'{"model":"m","messages":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
    "objects-100k-unclosed": b'{"a":' * 100_000,
    "many-keys": b"{" + b",".join(b'"k%d":1' % index for index in range(100_000)) + b"}",
    "long-number": b'{"model":"m","messages":[],"max_tokens":' + b"9" * 10_000_000 + b"}",
    "long-tool-schema": json.dumps(
        chat_body(tools=[{"type": "function", "function": {"name": "f" * 200_000}}])
    ).encode(),
}


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", DEEP)
async def test_g11_hostile_json_costs_a_400_at_most(stand: Stand, name: str) -> None:
    """G11: 400 or passed on, never a 500; others are answered within 200 ms meanwhile.

    The best of three, since a busy machine stalls now and then and hostile input always.
    """
    stand.engine.script = answering(chat_answer())
    tries = [await _slowest_beside(stand.proxy.url, DEEP[name]) for _ in range(3)]
    assert stand.proxy.exit_code is None
    assert min(tries) < 0.2


async def _slowest_beside(url: str, body: bytes) -> float:
    """The slowest answer on another connection while this body is dealt with."""
    async with await RawClient.open(url) as other:
        assert (await other.get("/v1/models")).status == 200
        hostile = asyncio.create_task(ask(url, CHAT, body))
        slowest_s = 0.0
        while not hostile.done():
            asked_s = time.monotonic()
            assert (await other.get("/v1/models")).status == 200
            slowest_s = max(slowest_s, time.monotonic() - asked_s)
        answer = await hostile
    assert answer.status in (200, 400, 413), answer.body[:200]
    return slowest_s
