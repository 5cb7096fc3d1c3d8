"""What does a client that reads slowly cost the proxy, the engine and everybody else?"""

import asyncio
import contextlib
import socket
import time

import pytest

from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first
from tests.support.vllm_answers import DONE, chunk, stream_head
from tests.support.waiting import holds_for, until

CHAT = "/v1/chat/completions"
MIB = 2**20


async def _push(exchange: Exchange) -> None:
    """Write 500 MB of events as fast as the proxy takes them; small answers to others."""
    if not exchange.request.json().get("stream"):
        await chatting()(exchange)
        return
    await exchange.send(stream_head())
    event = chunk(b"data: " + b"x" * 65536 + b"\n\n")
    for _ in range(8000):
        if not exchange.connection.is_open:
            return
        await exchange.send(event)


async def _stalled(url: str) -> RawClient:
    """A client that reads the head of a stream and then nothing."""
    client = await RawClient.open(url, receive_buffer=4096)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(request("POST", CHAT, body=chat_body(stream=True)))
    return client


@pytest.mark.slow
async def test_c06_a_client_that_pauses_is_no_silence_of_the_engine(
    start_proxy: ProxyStarter,
) -> None:
    """C06: who reads on after longer than the engine's idle time gets the rest of the stream."""
    document = policy(engine={"idleTimeoutSeconds": 1})
    async with ScriptedEngine(probes_first(_push)) as engine:
        proxy = await start_proxy(engine.url, documents=[document])
        client = await _stalled(proxy.url)
        await until(lambda: engine.busy == 1, what="the stream runs")
        await holds_for(lambda: engine.busy == 1, what="the stream is not cut", for_s=2.5)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        read = 0
        while read < 20 * MIB:
            read += len(await client.reader.readexactly(MIB))
        await client.close()
        await until(lambda: engine.busy == 0, what="the engine is free")
        assert await outcomes(proxy.admin_url) == {"client_left": 1}


@pytest.mark.slow
async def test_a37_c06_a_reader_that_stalls_costs_little_and_is_cut(
    start_proxy: ProxyStarter,
) -> None:
    """A37, C06: back-pressure reaches the engine, memory stays, the seat comes back, others run."""
    async with ScriptedEngine(probes_first(_push)) as engine:
        proxy = await start_proxy(engine.url, "--write-timeout", "3", documents=[policy(seats=4)])
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200
        memory = proxy.rss_bytes
        clients = [await _stalled(proxy.url) for _ in range(3)]
        await until(lambda: engine.busy == 3, what="three streams run")
        started_s = time.monotonic()
        worst_s = 0.0
        highest = memory
        while engine.busy and time.monotonic() - started_s < 20:
            asked_s = time.monotonic()
            assert (await ask(proxy.url, CHAT, chat_body())).status == 200
            worst_s = max(worst_s, time.monotonic() - asked_s)
            highest = max(highest, proxy.rss_bytes)
        cut_s = time.monotonic() - started_s
        for client in clients:
            client.reset()
        assert 2 < cut_s < 12
        assert highest - memory < 20 * MIB
        assert worst_s < 0.5
        pushed = [seen.sent_bytes for seen in engine.connections if seen.sent_bytes > MIB]
        assert all(count < 40 * MIB for count in pushed)
        ends = await outcomes(proxy.admin_url)
        assert ends["client_left"] == 3


@pytest.mark.slow
async def test_a_reader_that_is_slow_but_reads_gets_everything(start_proxy: ProxyStarter) -> None:
    """Longer than the write time-out in all, and so slowly that megabytes which the system holds
    last for longer than it: nothing is lost."""
    size, count = 65536, 80

    async def finite(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        for _ in range(count):
            await exchange.send(chunk(b"data: " + b"y" * (size - 8) + b"\n\n"))
        await exchange.send(chunk(DONE))
        await exchange.end()

    async with ScriptedEngine(probes_first(finite)) as engine:
        proxy = await start_proxy(engine.url, "--write-timeout", "1")
        async with await RawClient.open(proxy.url, receive_buffer=32768) as client:
            close = {"Connection": "close"}
            await client.send(request("POST", CHAT, body=chat_body(stream=True), headers=close))
            started_s = time.monotonic()
            data = await client.read_slowly(piece_bytes=16384, pause_s=0.015)
        assert time.monotonic() - started_s > 2
        assert data.count(b"y") >= (size - 8) * count
        assert data.endswith(b"0\r\n\r\n")
        assert await outcomes(proxy.admin_url) == {"completed": 1}


@pytest.mark.slow
async def test_c06_a_reader_that_drips_is_cut(start_proxy: ProxyStarter) -> None:
    """C06: a few bytes now and then do not hold a seat for ever, unless that is asked for."""
    async with ScriptedEngine(probes_first(_push)) as engine:
        for rate, cut in (("1Mi", True), ("0", False)):
            options = ("--write-timeout", "1", "--min-read-rate", rate)
            proxy = await start_proxy(engine.url, *options)
            async with await _stalled(proxy.url) as client:
                await until(lambda: engine.busy == 1, what="the stream runs")
                sock: socket.socket = client.writer.get_extra_info("socket")
                with sock.dup() as beneath:  # past the event loop, which reads nothing
                    dripping = asyncio.ensure_future(_drip(beneath))
                    if cut:
                        await until(lambda: engine.busy == 0, what="the seat is free")
                    else:
                        await holds_for(lambda: engine.busy == 1, what="it runs", for_s=3.5)
                    dripping.cancel()
                client.reset()
            await until(lambda: engine.busy == 0, what="the engine is free")
            assert await outcomes(proxy.admin_url) == {"client_left": 1}


async def _drip(beneath: socket.socket) -> None:
    """A few kilobytes, again and again."""
    beneath.setblocking(False)
    while True:
        with contextlib.suppress(BlockingIOError):
            beneath.recv(4096)
        await asyncio.sleep(0.05)
