"""What does the next proxy make of the tickets of the last one (Y13)?"""

import asyncio
from pathlib import Path

import pytest
from giveway_admission.ticket_store import TicketStoreError

from tests.admission.data_plane import CHAT, is_empty, queued, running
from tests.admission.ticket_support import (
    final,
    location,
    status,
    take,
    ticket,
    tickets_of,
    with_tickets,
    work,
)
from tests.support.policies import policy, service_class, tenant
from tests.support.raw_client import ask, chat_body
from tests.support.scraping import outcomes
from tests.support.scripted_engine import ScriptedEngine, chatting, silent
from tests.support.waiting import until


async def test_drain_leaves_what_waits_to_the_next_proxy(tmp_path: Path) -> None:
    """The running one ends and is kept, queued ones are not waited for; the next runs them."""
    gate = asyncio.Event()
    settings = with_tickets(tmp_path)
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        async with running(engine.url, tmp_path, policy(seats=1), settings=settings) as server:
            first = await ticket(server.data_url)
            await until(lambda: engine.busy == 1, what="one runs")
            second = await ticket(server.data_url)
            waiting = asyncio.create_task(
                take(server.data_url, Prefer="respond-async, wait=50", Idempotency_Key="k")
            )
            await until(lambda: queued(server) == 2, what="two wait")
            draining = asyncio.create_task(server.drain(20))
            third = location(await waiting)  # told at once, not after its wait
            assert queued(server) == 0
            assert not draining.done()
            gate.set()
            assert await draining
        assert len(engine.work) == 1
        async with running(engine.url, tmp_path, policy(seats=1), settings=settings) as server:
            url = server.data_url
            for path in (first, second, third):
                assert (await final(url, path)).status == 200
            again = await take(url, Idempotency_Key="k")
            assert again.status == 200
            assert len(engine.work) == 3
            await is_empty(server)


async def test_class_and_tenant_stay_what_they_were(tmp_path: Path) -> None:
    """Without any credential on the disk the next proxy serves the same tenant and class."""
    settings = with_tickets(tmp_path)
    acme = tenant("acme", maximum_class="standard", keys=["sk-acme-1234"], folder=tmp_path)
    strict = policy(identity={"unknownCredential": "Reject"})
    key = {"Authorization": "Bearer sk-acme-1234", "X-Giveway-Class": "batch"}
    async with ScriptedEngine(chatting()) as engine:
        async with running(
            "http://127.0.0.1:9", tmp_path, strict, acme, settings=settings, engine_is_up=False
        ) as server:
            answer = await take(server.data_url, **key)
            assert answer.json()["status"] == "queued"
        async with running(engine.url, tmp_path, strict, acme, settings=settings) as server:
            done = await final(
                server.data_url, location(answer), Authorization=key["Authorization"]
            )
            assert done.status == 200
            assert done.header("x-giveway-tenant") == "acme"
            assert done.header("x-giveway-class") == "batch"
            unknown = {"Authorization": "Bearer sk-who-1234"}
            assert (await ask(server.data_url, location(answer), headers=unknown)).status == 404


async def test_a_request_that_ends_proxies_is_given_up(tmp_path: Path) -> None:
    """At the engine when the proxy ended: run again, by no more processes than allowed."""
    settings = with_tickets(tmp_path, ticket_attempts=2)
    async with ScriptedEngine(silent()) as engine:
        path = ""
        for attempt in (1, 2):
            async with running(engine.url, tmp_path, settings=settings) as server:
                if not path:
                    path = await ticket(server.data_url)
                await until(lambda n=attempt: len(engine.work) == n, what="it is sent")  # type: ignore[misc]
                assert await status(server.data_url, path) == "running"
        async with running(engine.url, tmp_path, settings=settings) as server:
            failed = await final(server.data_url, path)
            assert (failed.status, failed.error["code"]) == (502, "engine_failed")
            assert len(engine.work) == 2


async def test_limits_do_not_fail_what_was_accepted(tmp_path: Path) -> None:
    """Taken up again all at once, tickets over the rate or the queue wait for their turn."""
    loose = policy(classes=[service_class("only")], seats=1)
    narrow = [
        service_class(
            "only", limits={"requestsPerSecond": 4, "requestBurst": 1}, over_limit="Reject"
        )
    ]
    settings = with_tickets(tmp_path)
    async with ScriptedEngine(chatting()) as engine:
        async with running(
            "http://127.0.0.1:9", tmp_path, loose, settings=settings, engine_is_up=False
        ) as server:
            paths = [await ticket(server.data_url) for _ in range(4)]
        async with running(
            engine.url, tmp_path, policy(classes=narrow, seats=1), settings=settings
        ) as server:
            await until(lambda: tickets_of(server).held > 0, what="some are held")
            answers = [await final(server.data_url, path) for path in paths]
            assert [answer.status for answer in answers] == [200] * 4
            assert len(engine.work) == 4
            held = tickets_of(server)
            assert (held.held, held.open, held.finished) == (0, 0, 4)
            assert (await outcomes(server.admin_url))["completed"] == 4


async def test_time_goes_on_while_no_proxy_runs(tmp_path: Path) -> None:
    """A ticket whose time was over meanwhile is told so, and never reaches the engine."""
    settings = with_tickets(tmp_path)
    classes = [service_class("only", time_to_live_s=1)]
    async with ScriptedEngine(chatting()) as engine:
        async with running(
            "http://127.0.0.1:9",
            tmp_path,
            policy(classes=classes),
            settings=settings,
            engine_is_up=False,
        ) as server:
            path = await ticket(server.data_url)
            expires_s = (await ask(server.data_url, path)).json()["expires_at"]
            clock = work(server).clock
        await until(lambda: clock() > int(str(expires_s)) + 1, what="its time is over")
        async with running(engine.url, tmp_path, settings=settings) as server:
            late = await final(server.data_url, path)
            assert (late.status, late.error["code"]) == (504, "queue_timeout")
            assert engine.work == []


async def test_two_proxies_can_not_share_a_folder(tmp_path: Path) -> None:
    """The second one does not start, and says why; the first goes on."""
    settings = with_tickets(tmp_path)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        with pytest.raises(TicketStoreError, match="in use by another process"):
            async with running(engine.url, tmp_path, settings=settings):
                pass
        assert (await final(server.data_url, await ticket(server.data_url))).status == 200


async def test_a_ticket_is_only_promised_once_it_is_on_the_disk(tmp_path: Path) -> None:
    """Y13: the 202 waits for the disk, and so does the engine."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        loop = asyncio.get_running_loop()
        held, go_on = asyncio.Event(), asyncio.Event()

        def hold() -> None:
            loop.call_soon_threadsafe(held.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(timeout=20)

        holding = asyncio.create_task(work(server).keeping.store._do(hold))
        await held.wait()
        asked = asyncio.create_task(take(server.data_url))
        await until(lambda: tickets_of(server).open == 1, what="it is on its way to the disk")
        assert (await ask(server.data_url, CHAT, chat_body())).status == 200  # others go on
        assert not asked.done()
        assert len(engine.work) == 1
        go_on.set()
        assert (await asked).status == 202
        await holding
        assert (await final(server.data_url, location(await asked))).status == 200
