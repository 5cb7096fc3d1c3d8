"""What do clients, engine and proxy see when one of them dies, or is told to end?"""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.support.policies import policy, service_class, write_policy
from tests.support.processes import Emulator, Proxy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import Answer, ClosedError, RawClient, ask, chat_body, request
from tests.support.scraping import is_idle, outcomes, queue_has, scrape
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first, silent
from tests.support.vllm_answers import (
    DONE,
    chat_chunk,
    chat_events,
    chunk,
    stream_head,
)
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"


async def _stream(url: str, max_tokens: int) -> tuple[int, bytes, bool]:
    """Status, data, and whether the stream ended as HTTP says (False: it was cut)."""
    client = await RawClient.open(url)
    body = chat_body(stream=True, max_tokens=max_tokens, ignore_eos=True)
    data = bytearray()
    try:
        await client.send(request("POST", CHAT, body=body))
        head = await client.read_head()
        if not head.is_chunked:
            return head.status, await client.read_body(head), True
        async for _, piece in client.chunks():
            data += piece
    except ConnectionError:
        return 200, bytes(data), False
    finally:
        await client.close()
    return head.status, bytes(data), True


async def test_killed_engine_cuts_what_runs_and_keeps_what_waits(
    start_proxy: ProxyStarter, tmp_path: Path
) -> None:
    """kill -9 of the engine: running streams are cut, waiting ones are served after its return."""
    options = ("--max-num-seqs", "4", "--model", "scripted")
    async with Emulator(*options, logs=tmp_path) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4)])
        running = [asyncio.create_task(_stream(proxy.url, 20_000)) for _ in range(4)]
        await until(lambda: _running(proxy, 4), what="four run")
        waiting = [asyncio.create_task(_stream(proxy.url, 5)) for _ in range(12)]
        await until(lambda: queue_has(proxy.admin_url, 12), what="twelve wait")
        await until(lambda: _first_tokens(proxy, 4), what="tokens flow")
        await engine.kill()
        cut = await asyncio.gather(*running)
        assert [ended for _, _, ended in cut] == [False] * 4
        assert all(DONE not in data for _, data, _ in cut)
        assert await queue_has(proxy.admin_url, 12)
        port = int(engine.url.rsplit(":", 1)[1])
        async with Emulator(*options, logs=tmp_path, port=port, name="emulate-again"):
            answers = await asyncio.gather(*waiting)
            assert [(status, ended) for status, _, ended in answers] == [(200, True)] * 12
            assert all(data.endswith(DONE) for _, data, _ in answers)
            await until(lambda: is_idle(proxy.admin_url), what="no seat leaks")
            assert await outcomes(proxy.admin_url) == {"engine_failed": 4, "completed": 12}


async def _running(proxy: Proxy, count: int) -> bool:
    return (await scrape(proxy.admin_url)).total("giveway_running_requests") == count


async def _first_tokens(proxy: Proxy, count: int) -> bool:
    samples = await scrape(proxy.admin_url)
    return samples.total("giveway_time_to_first_token_seconds_count") >= count


async def test_killed_proxy_frees_the_engine_and_starts_clean(start_proxy: ProxyStarter) -> None:
    """kill -9 of the proxy: clients see an error, the engine is free, the next one works."""
    async with ScriptedEngine(silent(stream_head())) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=2)])
        running = [asyncio.create_task(_stream(proxy.url, 10)) for _ in range(2)]
        await until(lambda: engine.busy == 2, what="two run")
        waiting = [asyncio.create_task(_stream_or_error(proxy.url)) for _ in range(3)]
        await until(lambda: queue_has(proxy.admin_url, 3), what="three wait")
        data_port, admin_port = (int(url.rsplit(":", 1)[1]) for url in (proxy.url, proxy.admin_url))
        await proxy.kill()
        assert [ended for _, _, ended in await asyncio.gather(*running)] == [False, False]
        assert all(isinstance(got, ClosedError) for got in await asyncio.gather(*waiting))
        await until(lambda: engine.busy == 0, what="the engine is free", within_s=2)
        engine.script = chatting()
        again = await start_proxy(engine.url, port=data_port, admin_port=admin_port)
        assert (await ask(again.url, CHAT, chat_body())).status == 200


async def _stream_or_error(url: str) -> Answer | ConnectionError:
    try:
        return await ask(url, CHAT, chat_body())
    except ConnectionResetError as error:
        return ClosedError(*error.args)
    except ConnectionError as error:
        return error


async def test_an_engine_that_stays_down_is_named_in_the_end(start_proxy: ProxyStarter) -> None:
    """Down for longer than the time to live: 503 engine_unavailable with a hint, or its 504."""
    classes = [service_class("only", time_to_live_s=1)]
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(classes=classes)])
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200
        await engine.stop()
        sent_s = time.monotonic()
        answer = await ask(proxy.url, CHAT, chat_body())
        assert 0.9 < time.monotonic() - sent_s < 3
        assert (answer.status, answer.error["code"]) == (503, "engine_unavailable")
        assert int(answer.header("retry-after") or 0) >= 1


async def test_drain_lets_running_streams_end_and_tells_the_rest(
    start_proxy: ProxyStarter,
) -> None:
    """SIGTERM under load: running streams are whole, queued ones 503 draining, exit 0."""
    gate = asyncio.Event()

    async def half_now(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        await exchange.send(chunk(chat_chunk(role="assistant", text="")))
        await gate.wait()
        await exchange.send_events(chat_events(["a", "b"])[1:])
        await exchange.end()

    async with ScriptedEngine(probes_first(half_now)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=8)])
        running = [asyncio.create_task(_stream(proxy.url, 10)) for _ in range(8)]
        await until(lambda: engine.busy == 8, what="eight run")
        waiting = [asyncio.create_task(ask(proxy.url, CHAT, chat_body())) for _ in range(30)]
        await until(lambda: queue_has(proxy.admin_url, 30), what="thirty wait")
        idle = await RawClient.open(proxy.url)
        proxy.signal(signal.SIGTERM)
        told = await asyncio.gather(*waiting)
        assert {(answer.status, answer.error["code"]) for answer in told} == {(503, "draining")}
        assert all(int(answer.header("retry-after") or 0) >= 1 for answer in told)
        assert proxy.exit_code is None
        assert not any(task.done() for task in running)
        late = await _late(proxy.url)
        gate.set()
        answers = await asyncio.gather(*running)
        whole = b"".join(chat_events(["a", "b"]))
        assert answers == [(200, whole, True)] * 8
        assert await proxy.exited(within_s=10) == 0
        assert late in ("refused", "draining")
        await idle.close()


async def _late(url: str) -> str:
    """What happens to a request that comes while the proxy drains."""
    try:
        return str((await ask(url, CHAT, chat_body())).error["code"])
    except ConnectionError:
        return "refused"


async def test_drain_endpoint_answers_when_drained(
    start_proxy: ProxyStarter, tmp_path: Path
) -> None:
    """/drain asks for its token, answers when the last stream ended, and may be called again."""
    gate = asyncio.Event()
    path = write_policy(tmp_path, policy(), name="drain.yaml")
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, "--drain-token", "secret", policy_path=path)
        running = asyncio.create_task(_stream(proxy.url, 10))
        await until(lambda: engine.busy == 1, what="one runs")
        refused = await ask(proxy.admin_url, "/drain")
        assert refused.status in (401, 403)
        assert (await ask(proxy.admin_url, "/readyz")).status == 200
        token = {"X-Giveway-Drain-Token": "secret"}
        soon = await ask(proxy.admin_url, "/drain?timeout=0.2", headers=token)
        assert soon.status != 200
        assert (await ask(proxy.admin_url, "/readyz")).status == 503
        drained = asyncio.create_task(ask(proxy.admin_url, "/drain", headers=token))
        gate.set()
        assert (await drained).status == 200
        assert (await running)[2]
