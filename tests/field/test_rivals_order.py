"""Is the order better than that of the best rivals?

What they do was measured; the number that giveway has to reach stands beside each claim.
"""

import asyncio
import time

import pytest

from tests.support.lines import CHAT, Line, arrivals, holders, identity, named
from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, chat_body
from tests.support.scraping import queue_has, scrape
from tests.support.scripted_engine import (
    Exchange,
    Script,
    ScriptedEngine,
    chatting,
    probes_first,
)
from tests.support.vllm_answers import chat_answer, chat_events, stream_head
from tests.support.waiting import until


async def test_rivals_high_requests_take_the_next_free_seats(start_proxy: ProxyStarter) -> None:
    """30 low ones wait, 8 high ones come: all are among the next 9.

    One seat of four is kept for them, and the floor of batch may take one.
    """
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4, reserved_seats=1)])
        holding = await holders(proxy, engine, 3, class_name="batch")
        line = Line(proxy)
        await line.add_all(["low"] * 30, class_name="batch")
        assert engine.busy == 3
        urgent = asyncio.create_task(
            ask(proxy.url, CHAT, named("first"), headers=identity(class_name="realtime"))
        )
        await until(lambda: engine.busy == 4, what="the kept seat is used at once")
        await line.add_all(["high"] * 8, class_name="realtime")
        gate.set()
        await asyncio.gather(*holding, urgent)
        await line.answers()
        order = [name for name in arrivals(engine) if name in ("low", "high")]
        assert order[:9].count("high") == 8, order[:12]


async def test_rivals_tenants_take_turns(start_proxy: ProxyStarter) -> None:
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
async def test_rivals_tenants_share_tokens_and_not_requests(
    start_proxy: ProxyStarter, form: str
) -> None:
    """Mend 3, answers of 160 and of 20 tokens, both backlogged: tokens at most 1.2 : 1."""
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


async def test_rivals_a_burst_never_exceeds_the_seats(start_proxy: ProxyStarter) -> None:
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


async def test_rivals_a_high_newcomer_displaces_the_newest_low_one(
    start_proxy: ProxyStarter,
) -> None:
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


async def test_rivals_a_mistyped_class_falls_to_the_fallback(start_proxy: ProxyStarter) -> None:
    """A class that does not exist counts as not asked: never above batch, counted and named."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(
            engine.url, documents=[policy(identity={"fallbackClass": "batch"})]
        )
        for name in ("realtimee", "realtimee", *(f"typo-{index}" for index in range(7))):
            answer = await ask(proxy.url, CHAT, chat_body(), headers=identity(class_name=name))
            assert (answer.status, answer.header("x-giveway-class")) == (200, "batch")
        samples = await scrape(proxy.admin_url)
        assert samples.value("giveway_unknown_class_requests_total") == 9
        status = (await ask(proxy.admin_url, "/status")).json()
        expected = [("realtimee", 2), *((f"typo-{index}", 1) for index in range(7))]
        assert status["unknown_classes"] == [
            {"name": name, "requests": count} for name, count in expected
        ]
        for name in ("another", "x" * 500):
            await ask(proxy.url, CHAT, chat_body(), headers=identity(class_name=name))
        status = (await ask(proxy.admin_url, "/status")).json()
        named_now = status["unknown_classes"]
        assert isinstance(named_now, list)
        assert len(named_now) == 8
        assert named_now[-1] == {"name": "x" * 63, "requests": 1}


@pytest.mark.slow
async def test_rivals_batch_keeps_its_token_floor(start_proxy: ProxyStarter) -> None:
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
