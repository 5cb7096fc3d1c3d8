"""How does the proxy use connections to an engine that closes them when it likes?"""

import asyncio
import random
import time

import pytest

from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter, Stand
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes
from tests.support.scripted_engine import Exchange, Script, ScriptedEngine, chatting, probes_first
from tests.support.vllm_answers import LAST_CHUNK, chat_answer
from tests.support.waiting import until

CHAT = "/v1/chat/completions"


def closing_when_idle(idle_s: float) -> Script:
    """Answers, then closes the connection if nothing came on it for a while."""

    async def run(exchange: Exchange) -> None:
        await exchange.send(chat_answer())
        answered = len(exchange.connection.requests)
        loop = asyncio.get_running_loop()

        def close_if_idle() -> None:
            unused = len(exchange.connection.requests) == answered
            if unused and exchange.connection.is_open and not exchange.has_unread_bytes:
                exchange.close()

        loop.call_later(idle_s, close_if_idle)

    return probes_first(run)


@pytest.mark.slow
async def test_a20_reuse_races_with_the_engines_close_and_wins(start_proxy: ProxyStarter) -> None:
    """A20: 300 requests come just as the idle connection is closed: no error, each done once."""
    idle_s = 0.03
    generator = random.Random(20)
    async with ScriptedEngine(closing_when_idle(idle_s)) as engine:
        proxy = await start_proxy(engine.url)
        async with await RawClient.open(proxy.url) as client:
            statuses = []
            for index in range(300):
                due_s = time.monotonic() + idle_s + generator.uniform(-0.002, 0.002)
                answer = await client.post(CHAT, chat_body(text=f"number {index}"))
                statuses.append(answer.status)
                await client.pause(max(0.0, due_s - time.monotonic()))
        assert statuses == [200] * 300
        seen = [request.body for request in engine.work]
        assert len(seen) == len(set(seen)) == 300
        assert len(engine.connections) > 10
        assert await outcomes(proxy.admin_url) == {"completed": 300}


async def test_connections_are_reused(start_proxy: ProxyStarter) -> None:
    """50 requests one after the other need one connection, or two beside a probe."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url)
        for _ in range(50):
            assert (await ask(proxy.url, CHAT, chat_body())).status == 200
        methods = [{one.method for one in seen.requests} for seen in engine.connections]
        assert sum("POST" in used for used in methods) <= 2


@pytest.mark.parametrize(("resets", "status"), [(1, 200), (2, 502)])
async def test_a_reset_before_the_answer_is_tried_once_more(
    start_proxy: ProxyStarter, resets: int, status: int
) -> None:
    """A reset before the first byte is tried again once; a second one is 502 engine_failed."""
    left = resets

    async def resetting(exchange: Exchange) -> None:
        nonlocal left
        if left:
            left -= 1
            exchange.reset()
        else:
            await exchange.send(chat_answer())

    async with ScriptedEngine(probes_first(resetting)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=1)])
        answer = await ask(proxy.url, CHAT, chat_body())
        assert answer.status == status
        assert len(engine.work) == 2
        assert await outcomes(proxy.admin_url) == {
            "completed" if status == 200 else "engine_failed": 1
        }


async def test_an_engine_that_says_nothing_is_given_up(start_proxy: ProxyStarter) -> None:
    """No byte for the idle time: 504 engine_timeout, and the engine's connection is closed."""

    async def never(exchange: Exchange) -> None:
        await exchange.never()

    engine_settings = {"idleTimeoutSeconds": 1}
    async with ScriptedEngine(probes_first(never)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(engine=engine_settings)])
        answer = await ask(proxy.url, CHAT, chat_body())
        assert (answer.status, answer.error["code"]) == (504, "engine_timeout")
        await until(lambda: engine.busy == 0, what="the connection is closed")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "nonsense",
    [
        b"SMTP ready\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 99999 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
        b"\0" * 1000,
    ],
    ids=["no-http", "two-lengths", "odd-length", "odd-chunk", "odd-status", "endless-head", "nuls"],
)
async def test_an_engine_that_talks_nonsense_is_a_502(stand: Stand, nonsense: bytes) -> None:
    """Whatever the engine says that is not HTTP: 502 or a cut, and the next request works."""

    async def talk(exchange: Exchange) -> None:
        await exchange.send(nonsense)
        await exchange.never()

    stand.engine.script = probes_first(talk)
    stand.proxy.expected_errors = ("engine",)
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(request("POST", CHAT, body=chat_body(), headers={"Connection": "close"}))
        got = await client.read_until_close()
    if b"chunked" in nonsense:
        assert got.startswith(b"HTTP/1.1 200")
        assert not got.endswith(LAST_CHUNK)
    else:
        assert got.startswith(b"HTTP/1.1 502")
        assert b'"engine_failed"' in got
    stand.engine.script = chatting()
    assert (await ask(stand.proxy.url, CHAT, chat_body())).status == 200
