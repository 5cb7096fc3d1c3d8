"""Who reaches the engine when, and how many at once?

A scripted engine shows the order of arrival: with the seats taken, requests are queued in a known
order, then the seats come free one by one.
"""

import asyncio
import time

import pytest

from tests.support.lines import CHAT, Line, arrivals, holders, identity, named
from tests.support.policies import Spec, policy, service_class
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes, queue_has
from tests.support.scripted_engine import (
    ScriptedEngine,
    chatting,
    silent,
)
from tests.support.vllm_answers import stream_head
from tests.support.waiting import holds_for, until


@pytest.mark.slow
async def test_c15_an_urgent_request_goes_next(start_proxy: ProxyStarter) -> None:
    """C15, Y1: one seat, ten batch requests wait, one realtime comes: it is next, 20 times.

    Batch has had more than its floor by then: the holder of the seat is a batch request too.
    """
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=1)])
        for _ in range(20):
            gate = asyncio.Event()
            engine.script = chatting(gate=gate)
            holding = await holders(proxy, engine, 1, class_name="batch")
            line = Line(proxy)
            low = [f"low {index}" for index in range(10)]
            await line.add_all(low, class_name="batch")
            await line.add("urgent", class_name="realtime")
            gate.set()
            await asyncio.gather(*holding)
            await line.answers()
            assert arrivals(engine)[-11] == "urgent"


@pytest.mark.slow
async def test_c21_a_thousand_at_once_stay_before_the_engine(start_proxy: ProxyStarter) -> None:
    """C21: of 1,000 at once 8 are at the engine, 500 wait, the rest are told 429."""
    gate = asyncio.Event()
    classes = [service_class("only", capacity=500, time_to_live_s=60)]
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(classes=classes, seats=8)])
        tasks = [asyncio.create_task(ask(proxy.url, CHAT, chat_body())) for _ in range(1000)]
        await until(lambda: queue_has(proxy.admin_url, 500), what="the queue is full", within_s=60)
        await until(
            lambda: sum(task.done() for task in tasks) == 492, what="492 are refused", within_s=60
        )
        assert engine.busy == 8
        gate.set()
        answers = await asyncio.gather(*tasks)
        refused = [answer for answer in answers if answer.status != 200]
        assert {(answer.status, answer.error["code"]) for answer in refused} == {
            (429, "queue_full")
        }
        assert all(int(answer.header("retry-after") or 0) >= 1 for answer in refused)
        assert engine.most_busy == 8


async def test_c20_long_batch_work_leaves_room_for_an_urgent_request(
    start_proxy: ProxyStarter,
) -> None:
    """C20, Y7: batch streams that never end hold 3 of 4 seats; realtime starts at once."""
    async with ScriptedEngine(silent(stream_head())) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4, reserved_seats=1)])
        clients = [await RawClient.open(proxy.url) for _ in range(6)]
        for client in clients:
            data = request(
                "POST", CHAT, body=chat_body(stream=True), headers=identity(class_name="batch")
            )
            await client.send(data)
        await until(lambda: queue_has(proxy.admin_url, 3), what="three wait")
        await until(lambda: engine.busy == 3, what="three run")
        await holds_for(lambda: engine.busy == 3, what="one seat stays free", for_s=0.2)
        engine.script = chatting()
        started_s = time.monotonic()
        urgent = await ask(proxy.url, CHAT, chat_body(), headers=identity(class_name="realtime"))
        assert urgent.status == 200
        assert time.monotonic() - started_s < 0.3
        assert urgent.header("x-giveway-decision") == "immediate"
        for client in clients:
            client.reset()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wish_ms", "expected_s"), [(None, 1.0), ("300", 0.3), ("5000", 1.0)], ids=str
)
async def test_c11_time_to_live_holds_to_the_moment(
    start_proxy: ProxyStarter, wish_ms: str | None, expected_s: float
) -> None:
    """C11, A6: 504 when the time to live is over; a seat that comes free then finds nothing."""
    classes: list[Spec] = [service_class("only", time_to_live_s=1)]
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(classes=classes, seats=1)])
        holding = await holders(proxy, engine, 1)
        headers = {} if wish_ms is None else {"X-Giveway-Timeout-Ms": wish_ms}
        async with await RawClient.open(proxy.url) as client:
            sent_s = time.monotonic()
            answer = await client.post(CHAT, named("late"), headers=headers)
            waited_s = time.monotonic() - sent_s
        gate.set()
        await asyncio.gather(*holding)
        assert (answer.status, answer.error["code"]) == (504, "queue_timeout")
        assert expected_s - 0.02 <= waited_s <= expected_s + 0.25
        assert arrivals(engine) == ["holder"]
        assert (await outcomes(proxy.admin_url))["queue_timeout"] == 1
