"""What bounds tickets, and what becomes of them when something goes wrong (H4, Y13)?"""

import asyncio
import json
import random
from pathlib import Path

import pytest

from tests.admission.data_plane import CHAT, is_empty, queued, running
from tests.admission.ticket_support import (
    content,
    final,
    location,
    status,
    take,
    ticket,
    tickets_of,
    with_tickets,
    work,
)
from tests.support.policies import policy, service_class
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes, scrape
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first, silent
from tests.support.vllm_answers import error_answer
from tests.support.waiting import until


async def test_what_the_scheduler_refuses_is_refused_and_not_kept(tmp_path: Path) -> None:
    """A class that is over its rate: 429 as always, and a repetition is a new attempt."""
    classes = [service_class("only", limits={"requestsPerSecond": 1}, over_limit="Reject")]
    settings = with_tickets(tmp_path)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, policy(classes=classes), settings=settings) as server,
    ):
        answers = [await take(server.data_url, Idempotency_Key=f"k{n}") for n in range(3)]
        refused = answers[-1]
        assert (refused.status, refused.error["code"]) == (429, "rate_limited")
        assert int(refused.header("retry-after") or 0) >= 1
        accepted = sum(answer.status != 429 for answer in answers)
        await until(lambda: tickets_of(server).finished == accepted, what="others are done")
        assert tickets_of(server).open == 0


async def test_a_full_store_refuses_newcomers(tmp_path: Path) -> None:
    """429 queue_full with a hint; what is there is not harmed, and room is used again."""
    settings = with_tickets(tmp_path, ticket_maximum_count=1)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        url = server.data_url
        path = await ticket(url)
        refused = await take(url)
        assert (refused.status, refused.error["code"]) == (429, "queue_full")
        assert int(refused.header("retry-after") or 0) >= 1
        assert (await ask(url, CHAT, chat_body())).status == 200
        assert (await final(url, path)).status == 200
        assert await outcomes(server.admin_url) == {"completed": 2, "queue_full": 1}
        await ask(url, path, method="DELETE")
        assert (await take(url)).status == 202


async def test_answers_are_forgotten_after_their_time(tmp_path: Path) -> None:
    """Nothing grows: an answer that nobody fetches goes, from the disk too."""
    settings = with_tickets(tmp_path, ticket_retention_s=0.3)
    async with (
        ScriptedEngine(chatting(["private"])) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        path = await ticket(server.data_url)
        await until(lambda: tickets_of(server).bytes == 0, what="it is forgotten")
        assert (await ask(server.data_url, path)).status == 404
    assert b"private" not in content(tmp_path / "tickets")
    assert content(tmp_path / "tickets") != b""


async def test_time_to_live_ends_a_ticket(tmp_path: Path) -> None:
    """Its turn did not come within its class's time: 504, and it never reaches the engine."""
    classes = [service_class("only", time_to_live_s=1)]
    settings = with_tickets(tmp_path)
    async with (
        ScriptedEngine(silent()) as engine,
        running(
            engine.url, tmp_path, policy(classes=classes, seats=1), settings=settings
        ) as server,
    ):
        url = server.data_url
        running_one = await ticket(url)
        await until(lambda: engine.busy == 1, what="the seat is taken")
        late = await final(url, await ticket(url))
        assert (late.status, late.error["code"]) == (504, "queue_timeout")
        assert late.header("retry-after") is None
        assert len(engine.work) == 1
        await ask(url, running_one, method="DELETE")


async def test_the_engines_refusal_is_the_answer(tmp_path: Path) -> None:
    """A 400 of the engine is what the owner finds, unchanged."""
    refusal = error_answer(400, "Bad Request", "no such model")

    async def refuse(exchange: Exchange) -> None:
        await exchange.send(refusal)

    async with (
        ScriptedEngine(probes_first(refuse)) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        done = await final(server.data_url, await ticket(server.data_url))
        assert done.status == 400
        assert json.loads(done.body) == json.loads(refusal.partition(b"\r\n\r\n")[2])


async def test_an_answer_that_breaks_off_is_made_again(tmp_path: Path) -> None:
    """Nobody has seen the first half: it goes to the engine again; twice broken is failed."""
    breaks = [True]

    async def half(exchange: Exchange) -> None:
        if breaks and breaks.pop():
            await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            exchange.reset()
            return
        await chatting()(exchange)

    async with (
        ScriptedEngine(probes_first(half)) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        done = await final(server.data_url, await ticket(server.data_url))
        assert (done.status, len(engine.work)) == (200, 2)
        assert b"half" not in done.body
        breaks += [True, True]
        failed = await final(server.data_url, await ticket(server.data_url))
        assert (failed.status, failed.error["code"]) == (502, "engine_failed")
        await is_empty(server)


async def test_an_answer_that_is_too_large_is_given_up(tmp_path: Path) -> None:
    """The engine need not finish it, and memory is bounded."""
    settings = with_tickets(tmp_path, ticket_maximum_answer_bytes=10_000)

    async def endless(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            await exchange.send(b"x" * 1000)
            await exchange.pause(0.001)

    async with (
        ScriptedEngine(probes_first(endless)) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        failed = await final(server.data_url, await ticket(server.data_url))
        assert (failed.status, failed.error["code"]) == (502, "engine_failed")
        assert "10000 bytes" in str(failed.error["message"])
        await until(lambda: engine.busy == 0, what="the engine is left alone")
        await is_empty(server)


async def test_a_displaced_ticket_comes_again(tmp_path: Path) -> None:
    """A5 displaces a batch ticket for an urgent request; it waits outside and runs later."""
    gate = asyncio.Event()
    settings = with_tickets(tmp_path)
    full = policy(seats=1, queue={"capacity": 1})
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, full, settings=settings) as server,
    ):
        url = server.data_url
        first = await ticket(url, X_Giveway_Class="batch")
        await until(lambda: engine.busy == 1, what="the seat is taken")
        displaced = await ticket(url, X_Giveway_Class="batch")
        await until(lambda: queued(server) == 1, what="it waits")
        urgent = asyncio.create_task(
            ask(url, CHAT, chat_body(), headers={"X-Giveway-Class": "realtime"})
        )
        await until(lambda: tickets_of(server).held == 1, what="it was displaced")
        assert await status(url, displaced) == "queued"
        gate.set()
        assert (await urgent).status == 200
        assert (await final(url, first)).status == 200
        assert (await final(url, displaced)).status == 200
        assert len(engine.work) == 3


async def test_a_broken_disk_costs_tickets_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Full while it runs: 503 for who wants a ticket, service for the others, and recovery; the log
    is not filled with it."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        url = server.data_url
        store = work(server).keeping.store
        await store._do(lambda: store._begin().execute("PRAGMA max_page_count = 8").fetchone())
        large = chat_body(text="x" * 100_000)
        refused = await take(url, large)
        assert (refused.status, refused.error["code"]) == (503, "engine_unavailable")
        assert int(refused.header("retry-after") or 0) >= 1
        for _ in range(20):
            assert (await take(url, large)).status == 503
        assert [line for line in caplog.messages if line == "ticket store failed"] == [
            "ticket store failed"
        ]
        assert (await ask(url, CHAT, large)).status == 200
        assert tickets_of(server).bytes == 0
        await store._do(lambda: store._begin().execute("PRAGMA max_page_count = 9999").fetchone())
        assert (await final(url, await ticket(url, large))).status == 200


async def test_no_task_is_left_when_many_tickets_are_done(tmp_path: Path) -> None:
    """Fifty at once: each runs once, each has its answer, and the desk is quiet."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        url = server.data_url
        paths = await asyncio.gather(*(ticket(url) for _ in range(50)))
        answers = await asyncio.gather(*(final(url, path) for path in paths))
        assert {answer.status for answer in answers} == {200}
        assert len(set(paths)) == len(engine.work) == 50
        await until(lambda: not work(server).tasks, what="nothing is being done")
        assert engine.most_busy <= 4


async def test_random_use_leaves_nothing_behind(tmp_path: Path) -> None:
    """Tickets taken, waited for, left, cancelled, over an engine that breaks: all is given back."""
    chance = random.Random(7)

    async def moody(exchange: Exchange) -> None:
        await exchange.pause(chance.random() * 0.02)
        match chance.randrange(6):
            case 0:
                exchange.reset()
            case 1:
                await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
                exchange.close()
            case _:
                await chatting()(exchange)

    async def use(number: int) -> None:
        client = await RawClient.open(server.data_url)
        headers = {"Prefer": f"respond-async, wait={chance.randrange(2)}"}
        if chance.random() < 0.4:
            headers["Idempotency-Key"] = f"k{number % 10}"
        headers["X-Giveway-Class"] = chance.choice(("realtime", "batch"))
        async with client:
            await client.send(request("POST", CHAT, body=chat_body(), headers=headers))
            if chance.random() < 0.2:
                return
            answer = await client.answer()
            if answer.status != 202:
                return
            if chance.random() < 0.4:
                deleted = await client.get(location(answer))
                assert deleted.status in (200, 202, 404, 502)
                await ask(server.data_url, location(answer), method="DELETE")
                return
        done = await final(server.data_url, location(answer))
        assert done.status in (200, 404, 502)

    settings = with_tickets(tmp_path)
    async with (
        ScriptedEngine(probes_first(moody)) as engine,
        running(engine.url, tmp_path, policy(queue={"capacity": 12}), settings=settings) as server,
    ):
        await asyncio.gather(*(use(number) for number in range(150)))
        await until(lambda: tickets_of(server).open == 0, what="all have ended")
        await is_empty(server)
        await until(lambda: not work(server).tasks, what="nothing is being done")
        finished = tickets_of(server).finished
        rows = await work(server).keeping.store._do(
            lambda: (
                work(server)
                .keeping.store._begin()
                .execute("SELECT count(*) FROM tickets")
                .fetchone()
            )
        )
        assert rows == (finished,)
        counted = await scrape(server.admin_url)
        arrived = counted.total("giveway_requests_arrived_total")
        assert (
            sum((await outcomes(server.admin_url)).values()) == arrived > 50
        )  # 90 without a key, 10 keys, less who left
