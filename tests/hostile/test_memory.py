"""How much memory does a crowd take that sends a lot and gets nothing yet?"""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import scrape
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first, silent
from tests.support.vllm_answers import chat_answer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
MIB = 2**20
ONE_SEAT = policy(seats=1)


async def queued(admin_url: str) -> float:
    return (await scrape(admin_url)).total("giveway_queue_requests")


async def crowd(
    stack: AsyncExitStack, url: str, data: bytes, *, count: int
) -> list[asyncio.Future[None]]:
    """So many clients that send this; what of it is not read stays with them."""
    sending: list[asyncio.Future[None]] = []
    for _ in range(count):
        client = await stack.enter_async_context(await RawClient.open(url))
        sending.append(asyncio.ensure_future(client.send(data)))
    return sending


@pytest.mark.parametrize(
    ("path", "body", "count", "most_mib"),
    [
        (CHAT, chat_body(text="x" * 1900), 1000, 16),
        (CHAT, chat_body(text="x" * 10_000_000), 100, 80),
        ("/v1/embeddings", {"model": "m", "input": "x" * 10_000_000}, 100, 80),
    ],
    ids=["thousand-short", "hundred-long", "hundred-long-embeddings"],
)
async def test_what_waits_takes_little(
    start_proxy: ProxyStarter, path: str, body: object, count: int, most_mib: int
) -> None:
    """1,000 requests of 2 KB: 16 MB at most; 100 of 10 MB: 80 MB at most, whatever the engine
    needs changed in them."""
    async with ScriptedEngine(silent()) as engine:
        proxy = await start_proxy(engine.url, documents=[ONE_SEAT])
        async with AsyncExitStack() as stack:
            await crowd(stack, proxy.url, request("POST", CHAT, body=chat_body()), count=1)
            await until(lambda: engine.busy == 1, what="the seat is taken")
            memory = proxy.rss_bytes
            sending = await crowd(stack, proxy.url, request("POST", path, body=body), count=count)

            async def all_wait() -> bool:
                return await queued(proxy.admin_url) == count

            await until(all_wait, what="all of them wait")
            grown = proxy.rss_bytes - memory
            for one in sending:
                one.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        assert grown < most_mib * MIB, f"{grown / MIB:.1f} MiB"


async def test_names_that_clients_make_up_are_not_remembered(start_proxy: ProxyStarter) -> None:
    """20,000 header names, each seen once, after as many that had come before: nothing is added."""

    async def make_up(proxy_url: str, turn: int, connection: int) -> None:
        async with await RawClient.open(proxy_url) as client:
            for sent in range(50):
                headers = {f"X-{turn}-{connection}-{sent}-{number}": "1" for number in range(100)}
                assert (await client.post(CHAT, chat_body(), headers=headers)).status == 200

    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url)
        held_bytes = []
        for turn in range(2):
            await asyncio.gather(*(make_up(proxy.url, turn, each) for each in range(4)))
            held_bytes.append(proxy.rss_bytes)
        assert held_bytes[1] - held_bytes[0] < MIB  # 20,000 strings and their places take 2


async def test_bodies_that_never_end_are_bounded_together(start_proxy: ProxyStarter) -> None:
    """800 clients with 200 KiB each of a body that goes on: 16 MiB of room, a quarter more in the
    hands of those that wait, and small requests are served as if nobody else were there."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, "--max-arriving", "16Mi", "--arriving-wait", "60")
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200
        memory = proxy.rss_bytes
        data = request("POST", CHAT, body=b'{"a":"%b"}' % (b"x" * 250_000))[:200_000]
        async with AsyncExitStack() as stack:
            sending = await crowd(stack, proxy.url, data, count=800)
            slowest_s = 0.0
            highest = memory
            for _ in range(20):
                asked_s = time.monotonic()
                assert (await ask(proxy.url, CHAT, chat_body())).status == 200
                slowest_s = max(slowest_s, time.monotonic() - asked_s)
                highest = max(highest, proxy.rss_bytes)
            for one in sending:
                one.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        assert highest - memory < 64 * MIB, f"{(highest - memory) / MIB:.1f} MiB"
        assert slowest_s < 1.0


async def test_an_engine_that_does_not_read_holds_the_clients_body_back(
    start_proxy: ProxyStarter,
) -> None:
    """30 MB stay with the client, and come whole when the engine reads on."""
    go_on = asyncio.Event()
    data = request("POST", CHAT, body=chat_body(text="x" * 30_000_000))

    async def reluctant(exchange: Exchange) -> None:
        exchange.stop_reading()
        await go_on.wait()
        exchange.go_on_reading()
        connection = exchange.connection
        await until(lambda: connection.received_bytes > 30_000_000, what="all has come")
        await exchange.send(chat_answer())

    async with ScriptedEngine(chatting(), early=probes_first(reluctant)) as engine:
        proxy = await start_proxy(engine.url)
        memory = proxy.rss_bytes
        async with await RawClient.open(proxy.url) as client:
            sending = asyncio.ensure_future(client.send(data))
            await until(lambda: engine.busy == 1, what="it has begun")
            asked = [
                (await ask(proxy.admin_url, "/livez")).status for _ in range(50)
            ]  # time in which the body would come
            assert set(asked) == {200}
            assert not sending.done()
            assert proxy.rss_bytes - memory < 20 * MIB
            go_on.set()
            assert (await client.answer()).status == 200
            await sending
