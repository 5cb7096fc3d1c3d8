"""What if the proxy itself stands still for a while, as in a suspended machine?"""

import asyncio
import signal
import time

import pytest

from tests.support.policies import policy
from tests.support.processes import Proxy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes, queue_has
from tests.support.scripted_engine import ScriptedEngine, chatting
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
STANDS_S = 2.3
"""Longer than every time-out of the tests here, and so that timers are far too late."""


async def _stand_still(proxy: Proxy, *, meanwhile: asyncio.Event) -> None:
    proxy.signal(signal.SIGSTOP)
    until_s = time.monotonic() + STANDS_S
    meanwhile.set()
    await until(lambda: time.monotonic() > until_s, what="the time is over")
    proxy.signal(signal.SIGCONT)


async def test_what_the_engine_sent_while_the_proxy_stood_still_is_in_time(
    start_proxy: ProxyStarter,
) -> None:
    """After standing still, sockets are read before anybody is called silent."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        spec = policy(seats=2, engine={"idleTimeoutSeconds": 1})
        proxy = await start_proxy(engine.url, documents=[spec])
        plain = asyncio.create_task(ask(proxy.url, CHAT, chat_body()))
        stream = asyncio.create_task(ask(proxy.url, CHAT, chat_body(stream=True)))
        await until(lambda: engine.busy == 2, what="both are at the engine")
        waiting = [asyncio.create_task(ask(proxy.url, CHAT, chat_body())) for _ in range(3)]
        await until(lambda: queue_has(proxy.admin_url, 3), what="three wait")
        await _stand_still(proxy, meanwhile=gate)
        answers = await asyncio.gather(plain, stream, *waiting)
        assert [answer.status for answer in answers] == [200] * 5
        assert await outcomes(proxy.admin_url) == {"completed": 5}


async def test_what_a_client_sent_while_the_proxy_stood_still_is_in_time(
    start_proxy: ProxyStarter,
) -> None:
    """The rest of a head and of a body come late for us, not for those who sent them."""
    rest = asyncio.Event()
    begun = asyncio.Semaphore(0)
    whole = request("POST", CHAT, body=chat_body())
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, "--header-timeout", "1", "--body-timeout", "1")

        async def send_in_two(first_bytes: int) -> int:
            async with await RawClient.open(proxy.url) as client:
                await client.send(whole[:first_bytes])
                begun.release()
                await rest.wait()
                await client.send(whole[first_bytes:])
                return (await client.answer()).status

        halves = [asyncio.create_task(send_in_two(count)) for count in (20, len(whole) - 5)]
        for _ in halves:
            await begun.acquire()
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200  # what came before is read
        await _stand_still(proxy, meanwhile=rest)
        assert await asyncio.gather(*halves) == [200, 200]
