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
from tests.support.scraping import outcomes, queue_has, scrape
from tests.support.scripted_engine import (
    Exchange,
    Script,
    ScriptedEngine,
    chatting,
    probes_first,
    silent,
)
from tests.support.vllm_answers import chat_answer, chat_events, stream_head
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


async def test_tenants_take_turns(start_proxy: ProxyStarter) -> None:
    """A has 32 queued, then B sends 8: B's last starts as the 21st of the 40 at the latest."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4)])
        holding = await holders(proxy, engine, 4)
        line = Line(proxy)
        await line.add_all(["A"] * 32, tenant="A", class_name="standard")
        await line.add_all(["B"] * 8, tenant="B", class_name="standard")
        gate.set()
        await asyncio.gather(*holding)
        await line.answers()
        order = [name for name in arrivals(engine) if name != "holder"]
        assert len(order) == 40
        last = max(place for place, name in enumerate(order, start=1) if name == "B")
        assert last <= 21


def _tokens_by_name(tokens: dict[str, int]) -> Script:
    """As many output tokens as the request's name says; usage only if it is asked for."""

    async def run(exchange: Exchange) -> None:
        body = exchange.request.json()
        messages = body["messages"]
        assert isinstance(messages, list)
        count = tokens[str(messages[0]["content"])]
        if not body.get("stream"):
            await exchange.send(chat_answer(prompt_tokens=1, completion_tokens=count))
            return
        asked = bool(body.get("stream_options"))
        await exchange.send(stream_head())
        await exchange.send_events(chat_events(["x"] * count, prompt_tokens=1, include_usage=asked))
        await exchange.end()

    return probes_first(run)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["plain", "stream", "stream-with-bound"])
async def test_tenants_share_tokens_and_not_requests(start_proxy: ProxyStarter, form: str) -> None:
    """Mend 3, C19: answers of 160 and of 20 tokens, both backlogged: tokens at most 1.2 : 1."""
    tokens = {"A": 160, "B": 20, "holder": 1}
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4)])
        holding = await holders(proxy, engine, 4)
        engine.script = _tokens_by_name(tokens)
        bound = 400 if form == "stream-with-bound" else None
        tasks = [
            asyncio.create_task(
                ask(
                    proxy.url,
                    CHAT,
                    named(name, stream=form != "plain", max_tokens=bound),
                    headers=identity(name, "standard"),
                )
            )
            for name in ["A"] * 40 + ["B"] * 320
        ]
        await until(lambda: queue_has(proxy.admin_url, 360), what="all wait")
        gate.set()
        await asyncio.gather(*holding, *tasks)
        order = [name for name in arrivals(engine) if name != "holder"]
        both = order[: min(_last_place(order, "A"), _last_place(order, "B"))]
        ratio = both.count("A") * tokens["A"] / (both.count("B") * tokens["B"])
        assert 1 / 1.2 <= ratio <= 1.2


def _last_place(order: list[str], name: str) -> int:
    return max(place for place, other in enumerate(order, start=1) if other == name)


async def test_a_burst_never_exceeds_the_seats(start_proxy: ProxyStarter) -> None:
    """A3: 64 requests at once, 4 seats: never more than 4 at the engine, all are answered."""

    async def short(exchange: Exchange) -> None:
        await exchange.pause(0.01)
        await exchange.send(chat_answer())

    async with ScriptedEngine(probes_first(short)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4)])
        clients = [await RawClient.open(proxy.url) for _ in range(64)]
        answers = await asyncio.gather(*(client.post(CHAT, chat_body()) for client in clients))
        for client in clients:
            await client.close()
        assert {answer.status for answer in answers} == {200}
        assert engine.most_busy == 4


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


async def test_a_high_newcomer_displaces_the_newest_low_one(start_proxy: ProxyStarter) -> None:
    """A5: queue full of batch; a realtime request comes: the newest batch one is told at once."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=1, queue={"capacity": 5})])
        holding = await holders(proxy, engine, 1, class_name="batch")
        line = Line(proxy)
        for index in range(5):
            await line.add(f"low {index}", class_name="batch")
        urgent = asyncio.create_task(
            ask(proxy.url, CHAT, named("urgent"), headers=identity(class_name="realtime"))
        )
        told_s = time.monotonic()
        evicted = await line.tasks[-1]
        assert time.monotonic() - told_s < 1
        assert (evicted.status, evicted.error["code"]) == (429, "evicted")
        assert int(evicted.header("retry-after") or 0) >= 1
        assert not any(task.done() for task in line.tasks[:-1])
        gate.set()
        await asyncio.gather(*holding, urgent, *line.tasks)
        assert arrivals(engine) == ["holder", "urgent", "low 0", "low 1", "low 2", "low 3"]


async def test_a_mistyped_class_falls_to_the_fallback(start_proxy: ProxyStarter) -> None:
    """A class that does not exist counts as not asked: fallback class, never above batch."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(
            engine.url, documents=[policy(identity={"fallbackClass": "batch"})]
        )
        mistyped = await ask(proxy.url, CHAT, chat_body(), headers=identity(class_name="realtimee"))
        assert mistyped.status == 200
        assert mistyped.header("x-giveway-class") == "batch"
        samples = await scrape(proxy.admin_url)
        assert samples.value("giveway_unknown_class_requests_total") == 1


@pytest.mark.slow
async def test_batch_keeps_its_token_floor(start_proxy: ProxyStarter) -> None:
    """While realtime fills every seat, batch still gets about 5 % of the tokens."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4)])
        holding = await holders(proxy, engine, 4)
        engine.script = chatting(["x"] * 10)
        line = Line(proxy)
        await line.add_all(["low"] * 60, tenant="b", class_name="batch")
        await line.add_all(["high"] * 400, tenant="a", class_name="realtime")
        gate.set()
        await asyncio.gather(*holding)
        await line.answers()
        order = [name for name in arrivals(engine) if name != "holder"]
        during = order[: _last_place(order, "high")]
        share = during.count("low") / len(during)
        assert 0.03 <= share <= 0.12


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
