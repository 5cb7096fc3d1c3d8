"""What becomes of a request whose client is gone?"""

import asyncio
import random
import time

import pytest

from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter, Stand
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import is_idle, outcomes, queue_has
from tests.support.scripted_engine import (
    Exchange,
    Script,
    ScriptedEngine,
    chatting,
    probes_first,
    silent,
)
from tests.support.vllm_answers import chat_chunk, chunk, stream_head
from tests.support.waiting import holds_for, until

CHAT = "/v1/chat/completions"
FREED_WITHIN_S = 2.0
"""From the client's close to the engine's connection being closed. The reports ask for 2 s; it
takes milliseconds, and a loaded machine the rest."""


def endless(gap_s: float = 0.1) -> Script:
    """One event per `gap_s` until the proxy closes."""

    async def run(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        while exchange.connection.is_open:
            await exchange.send(chunk(chat_chunk(text="x")))
            await exchange.pause(gap_s)

    return probes_first(run)


async def sent(url: str, *, stream: bool = True, **headers: str) -> RawClient:
    """A client that has sent a chat request and reads nothing yet."""
    client = await RawClient.open(url)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    await client.send(request("POST", CHAT, body=chat_body(stream=stream), headers=names))
    return client


async def test_a01_stopped_streams_are_closed_at_the_engine(start_proxy: ProxyStarter) -> None:
    """A01: 8 running streams are cut; all 8 engine connections close, the next goes at once."""
    async with ScriptedEngine(endless()) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=8)])
        clients = [await sent(proxy.url) for _ in range(8)]
        for client in clients:
            await client.read_head()
            await client.read_chunk()
        queued = asyncio.create_task(ask(proxy.url, CHAT, chat_body()))
        await until(lambda: queue_has(proxy.admin_url, 1), what="the ninth waits")
        assert engine.busy == 8
        engine.script = chatting()
        for client in clients:
            await client.close()
        closed_s = time.monotonic()
        await until(lambda: engine.busy == 0, what="freed", within_s=FREED_WITHIN_S)
        answer = await queued
        assert answer.status == 200
        assert time.monotonic() - closed_s < FREED_WITHIN_S
        assert (await outcomes(proxy.admin_url)) == {"client_left": 8, "completed": 1}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("head", [b"", stream_head()], ids=["no-head", "head-only"])
@pytest.mark.parametrize("leave", ["close", "reset"])
async def test_a03_leaving_while_no_byte_flows_is_seen(
    stand: Stand, head: bytes, leave: str
) -> None:
    """A03: the engine is silent; a client that leaves frees its connection at once."""
    engine, admin_url = stand.engine, stand.proxy.admin_url
    engine.script = silent(head)
    before = (await outcomes(admin_url)).get("client_left", 0)
    client = await sent(stand.proxy.url)
    await until(lambda: engine.busy == 1, what="the engine has it")
    if leave == "close":
        await client.close()
    else:
        client.reset()
    await until(lambda: engine.busy == 0, what="freed", within_s=FREED_WITHIN_S)
    await until(lambda: is_idle(admin_url), what="no gauge is left")
    assert await outcomes(admin_url) == {"client_left": before + 1}


@pytest.mark.slow
async def test_a04_resets_at_any_moment_leave_nothing(start_proxy: ProxyStarter) -> None:
    """A04: 400 clients send a request and reset 0 to 50 ms later; nothing stays behind."""
    generator = random.Random(4)

    async def come_and_go() -> None:
        client = await sent(proxy.url, stream=generator.random() < 0.5)
        await client.pause(generator.random() * 0.05)
        client.reset()

    async with ScriptedEngine(endless(gap_s=0.005)) as engine:
        proxy = await start_proxy(engine.url)
        assert (await ask(proxy.url, "/v1/models")).status == 200
        files = proxy.open_files
        for _ in range(8):
            await asyncio.gather(*(come_and_go() for _ in range(50)))
        await until(lambda: is_idle(proxy.admin_url), what="no gauge is left", within_s=5)
        await until(lambda: engine.busy == 0, what="the engine is free", within_s=5)
        await until(lambda: proxy.open_files <= files + 10, what="files are closed", within_s=10)
        assert set(await outcomes(proxy.admin_url)) <= {"client_left", "completed"}


@pytest.mark.slow
async def test_c04_cut_streams_give_their_seat_back(start_proxy: ProxyStarter) -> None:
    """C04: one seat, 50 streams cut one after the other; then a call goes without waiting."""
    async with ScriptedEngine(endless(gap_s=0.01)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=1)])
        for _ in range(50):
            client = await sent(proxy.url)
            await client.read_head()
            await client.read_chunk()
            await client.close()
        engine.script = chatting()
        answer = await ask(proxy.url, CHAT, chat_body())
        assert answer.status == 200
        assert answer.header("x-giveway-decision") in ("immediate", "queued")
        assert engine.most_busy == 1


async def test_c07_who_left_the_queue_never_reaches_the_engine(start_proxy: ProxyStarter) -> None:
    """C07: of 20 queued requests 15 leave; when seats come free the engine sees the other 5."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=1)])
        running = asyncio.create_task(ask(proxy.url, CHAT, chat_body(text="running")))
        await until(lambda: engine.busy == 1, what="the seat is taken")
        leavers = [await sent(proxy.url) for _ in range(15)]
        stayers = [
            asyncio.create_task(ask(proxy.url, CHAT, chat_body(text=f"stay {index}")))
            for index in range(5)
        ]
        await until(lambda: queue_has(proxy.admin_url, 20), what="20 wait")
        for client in leavers:
            await client.close()
        await until(lambda: queue_has(proxy.admin_url, 5), what="5 wait")
        gate.set()
        answers = await asyncio.gather(running, *stayers)
        assert [answer.status for answer in answers] == [200] * 6
        assert len(engine.work) == 6


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["close", "reset"])
async def test_a_thousand_clients_vanish_and_everything_returns(
    start_proxy: ProxyStarter, leave: str
) -> None:
    """1,000 clients, 16 of them running, vanish: connections, gauges, files and memory return."""
    async with ScriptedEngine(silent(stream_head())) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=16)])
        await _thousand(proxy.url, proxy.admin_url, engine, leave)
        files, memory = proxy.open_files, proxy.rss_bytes
        freed_s = await _thousand(proxy.url, proxy.admin_url, engine, leave)
        assert freed_s < FREED_WITHIN_S
        await until(lambda: proxy.open_files <= files + 10, what="files are closed")
        assert proxy.rss_bytes - memory < 10 * 2**20
        engine.script = chatting()
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200


async def _thousand(url: str, admin_url: str, engine: ScriptedEngine, leave: str) -> float:
    """1,000 come and vanish; how long it took until the engine was free of them."""
    clients = [await sent(url) for _ in range(1000)]
    await until(lambda: queue_has(admin_url, 984), what="984 wait")
    assert engine.busy == 16
    for client in clients:
        if leave == "close":
            client.writer.close()
        else:
            client.reset()
    gone_s = time.monotonic()
    await until(lambda: engine.busy == 0, what="the engine is free")
    freed_s = time.monotonic() - gone_s
    await until(lambda: is_idle(admin_url), what="no gauge is left")
    return freed_s


async def test_a_half_closed_client_still_counts_as_gone_or_is_answered(
    start_proxy: ProxyStarter,
) -> None:
    """A client that shuts its write side never makes the proxy half-close towards the engine."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url)
        client = await sent(proxy.url)
        client.half_close()
        data = await client.read_until_close()
        await client.close()
        assert data == b"" or data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        await until(
            lambda: all(
                seen.half_closed_s is None or not seen.is_open for seen in engine.connections
            ),
            what="what ended on our side ended wholly",
        )
        await until(lambda: is_idle(proxy.admin_url), what="no gauge is left")


async def test_a_running_stream_is_not_disturbed_by_others_that_leave(
    start_proxy: ProxyStarter,
) -> None:
    """While clients beside it come and go, a stream's events go on."""
    async with ScriptedEngine(endless(gap_s=0.02)) as engine:
        proxy = await start_proxy(engine.url)
        async with await sent(proxy.url) as staying:
            await staying.read_head()
            for _ in range(20):
                other = await sent(proxy.url)
                other.reset()
                assert await staying.read_chunk()
            await holds_for(lambda: engine.busy >= 1, what="it runs", for_s=0.1)
            assert await staying.read_chunk()
