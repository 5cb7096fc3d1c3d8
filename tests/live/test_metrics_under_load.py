"""Do the metrics tell what goes on while it goes on, and end where they began?"""

import asyncio
import random

import pytest

from tests.support.policies import THREE_CLASSES, policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import Samples, outcomes, queue_has, scrape
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first
from tests.support.vllm_answers import chat_events, stream_head
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
GAUGES = ("giveway_queue_requests", "giveway_running_requests", "giveway_unprefilled_tokens")


async def test_y11_the_picture_of_interactive_and_batch_is_there(
    start_proxy: ProxyStarter,
) -> None:
    """Y11: seats in use and in all, backlog and latency can be read for each class."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4, reserved_seats=1)])
        tasks = [
            asyncio.create_task(
                ask(proxy.url, CHAT, chat_body(stream=True), headers={"X-Giveway-Class": name})
            )
            for name in ["realtime"] + ["batch"] * 6
        ]
        await until(lambda: queue_has(proxy.admin_url, 3), what="three wait")
        busy = await scrape(proxy.admin_url)
        gate.set()
        assert {answer.status for answer in await asyncio.gather(*tasks)} == {200}
        after = await scrape(proxy.admin_url)
    of = {name: {"class": name} for name in ("realtime", "batch")}
    assert busy.value("giveway_running_requests", **of["realtime"]) == 1
    assert busy.value("giveway_running_requests", **of["batch"]) == 3
    assert busy.value("giveway_queue_requests", **of["batch"]) == 3
    assert (busy.value("giveway_seats"), busy.value("giveway_batch_seats")) == (4, 3)
    assert after.value("giveway_time_to_first_token_seconds_count", **of["batch"]) == 6
    assert after.value("giveway_request_duration_seconds_count", **of["realtime"]) == 1
    assert after.value("giveway_requests_total", outcome="completed", **of["batch"]) == 6


@pytest.mark.slow
async def test_c26_gauges_stay_true_through_every_kind_of_end(start_proxy: ProxyStarter) -> None:
    """C26: completions, cancels, resets, refusals, expiries: no gauge below 0, sums add up."""
    generator = random.Random(26)
    count = 240

    async def any_end(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        await exchange.pause(generator.random() * 0.05)
        await exchange.send_events(chat_events(["a", "b"])[: generator.randint(1, 4)])
        if generator.random() < 0.2:
            exchange.reset()
            return
        await exchange.end()

    async def one(number: int) -> None:
        client = await RawClient.open(proxy.url)
        name = str(generator.choice(THREE_CLASSES)["name"])
        headers = {"X-Giveway-Class": name, "X-Giveway-Timeout-Ms": "400", "Connection": "close"}
        body = chat_body(stream=True, text=f"number {number}")
        await client.send(request("POST", CHAT, body=body, headers=headers))
        if generator.random() < 0.3:
            await client.pause(generator.random() * 0.3)
            client.reset()
            return
        await client.read_until_close()
        await client.close()

    async with ScriptedEngine(probes_first(any_end)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=6, queue={"capacity": 60})])
        work = asyncio.gather(*(one(number) for number in range(count)))
        scrapes: list[Samples] = []
        while not work.done():
            scrapes.append(await scrape(proxy.admin_url))
        await work

        async def all_ended() -> bool:
            return sum((await outcomes(proxy.admin_url)).values()) >= count - 10

        await until(all_ended, what="every request has its outcome")
        ends = await outcomes(proxy.admin_url)
    lowest = [min(samples.matching(name)) for samples in scrapes for name in GAUGES]
    assert min(lowest) >= 0
    assert sum(ends.values()) <= count
    assert {"client_left", "engine_failed"} <= set(ends)
    assert "invalid_request" not in ends
