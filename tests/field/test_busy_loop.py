"""Do large prompts hold up those who send small ones, stream, or probe?"""

import asyncio
import time

import pytest

from tests.support.lines import CHAT
from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, chat_body, request
from tests.support.scripted_engine import Exchange, ScriptedEngine, probes_first
from tests.support.vllm_answers import chat_answer, chat_chunk, chunk, stream_head

LARGE_BYTES = 5_000_000
AS_REPORTED = pytest.param(50, 200, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])


@pytest.mark.slow
@pytest.mark.parametrize(("large_ones", "stream_count"), [(24, 40), AS_REPORTED])
async def test_f12_large_prompts_hold_nobody_up(
    start_proxy: ProxyStarter, large_ones: int, stream_count: int
) -> None:
    """Many prompts of 5 MB at once beside streams: probes and streams go on within their bounds.

    How long they took is compared with the engine asked directly by the same client at the same
    time, so that a busy machine or test does not count.
    """
    ended = asyncio.Event()

    async def run(exchange: Exchange) -> None:
        if len(exchange.request.body) > LARGE_BYTES:
            await exchange.send(chat_answer())
            return
        await exchange.send(stream_head())
        while not ended.is_set():
            await exchange.send(chunk(chat_chunk(text=f"{time.monotonic()}")))
            await exchange.pause(0.05)
        await exchange.end()

    async def delays(url: str, path: str) -> list[float]:
        found: list[float] = []
        async with await RawClient.open(url) as client:
            while not ended.is_set():
                asked_s = time.monotonic()
                assert (await client.get(path)).status == 200
                found.append(time.monotonic() - asked_s)
                await client.pause(0.005)
        return sorted(found)

    async def stream_delays() -> list[float]:
        """From an event's writing at the engine to its reading here."""
        found: list[float] = []
        async with await RawClient.open(proxy.url) as client:
            await client.send(request("POST", CHAT, body=chat_body(stream=True)))
            await client.read_head()
            async for seen_s, data in client.chunks():
                found.append(seen_s - float(data.split(b'"content": "')[1].split(b'"')[0]))
        return found

    async def large(data: bytes) -> int:
        async with await RawClient.open(proxy.url) as client:
            sending = asyncio.create_task(client.send(data))
            status = (await client.answer()).status
            await sending
            return status

    async with ScriptedEngine(probes_first(run)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=300)])
        proxy.allowed_growth_bytes = 128 * 2**20
        streams = [asyncio.create_task(stream_delays()) for _ in range(stream_count)]
        probes = asyncio.create_task(delays(proxy.admin_url, "/livez"))
        direct = asyncio.create_task(delays(engine.url, "/health"))
        data = request("POST", CHAT, body=chat_body(text="x" * LARGE_BYTES, max_tokens=1))
        statuses = await asyncio.gather(*(large(data) for _ in range(large_ones)))
        ended.set()
        assert set(statuses) == {200}
        late = sorted(delay for found in await asyncio.gather(*streams) for delay in found)
        of_client = (await direct)[-1]
        probed = await probes
        assert probed[int(0.99 * len(probed))] < 0.5 + of_client
        # An event's engine and its reader are both in this process: it is late twice.
        assert late[int(0.99 * len(late))] < 0.2 + 2 * of_client
