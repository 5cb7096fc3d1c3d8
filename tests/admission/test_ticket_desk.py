"""Who gets a ticket, and what does its owner see (H4)?"""

import asyncio
import re
from pathlib import Path

import pytest

from tests.admission.data_plane import CHAT, is_empty, queued, running
from tests.admission.ticket_support import (
    NOW,
    content,
    final,
    location,
    status,
    take,
    ticket,
    tickets_of,
    with_tickets,
)
from tests.support.policies import policy, tenant
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first, silent
from tests.support.vllm_answers import chunk
from tests.support.waiting import until


async def test_ticket_brings_the_engines_answer_byte_for_byte(tmp_path: Path) -> None:
    """H4: 202 with a ticket at once; later the engine's status, type and body as they were."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        url = server.data_url
        answer = await take(url, X_Request_Id="mine")
        assert answer.status == 202
        assert answer.header("preference-applied") == "respond-async"
        assert int(answer.header("retry-after") or 0) >= 1
        told = answer.json()
        assert re.fullmatch(r"/v1/tickets/[A-Za-z0-9_-]{32}", location(answer))
        assert location(answer).endswith(str(told["id"]))
        assert told["object"] == "ticket"
        await until(lambda: engine.busy == 1, what="it is at the engine")
        assert await status(url, location(answer)) == "running"
        gate.set()
        done = await final(url, location(answer))
        plain = await ask(url, CHAT, chat_body())
        assert (done.status, done.body) == (200, plain.body)
        for name in ("content-type", "x-giveway-class", "x-giveway-tenant", "server"):
            assert done.header(name) == plain.header(name) is not None
        assert done.header("x-request-id") == "mine"
        assert engine.work[0].header("x-request-id") == "mine"
        assert (await ask(url, location(answer))).body == plain.body
        await is_empty(server)
        assert await outcomes(server.admin_url) == {"completed": 2}


async def test_answers_in_chunks_are_taken_out_of_them(tmp_path: Path) -> None:
    """The engine frames as it likes; what is kept is the body."""

    async def in_chunks(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        await exchange.send_pieces([chunk(b'{"a":'), chunk(b"1}"), b"0\r\n\r\n"])

    async with (
        ScriptedEngine(probes_first(in_chunks)) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        done = await final(server.data_url, await ticket(server.data_url))
        assert (done.body, done.header("content-length")) == (b'{"a":1}', "7")


async def test_an_answer_in_time_needs_no_ticket(tmp_path: Path) -> None:
    """`wait=N`: who gets the answer within it gets it as always, and nothing is kept."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        answer = await take(server.data_url, Prefer="respond-async, wait=20")
        plain = await ask(server.data_url, CHAT, chat_body())
        assert (answer.status, answer.body) == (200, plain.body)
        assert answer.header("preference-applied") == "wait=20"
        assert answer.header("x-giveway-class") == plain.header("x-giveway-class")
        await until(lambda: tickets_of(server).finished == 0, what="nothing is kept")
        assert len(engine.work) == 2


async def test_the_ticket_comes_when_the_wait_is_over(tmp_path: Path) -> None:
    """An engine that never answers: 202 after the wait, which the settings cap."""
    settings = with_tickets(tmp_path, ticket_longest_wait_s=0.1)
    async with (
        ScriptedEngine(silent()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        answer = await take(server.data_url, Prefer="respond-async, wait=30")
        assert answer.header("preference-applied") == "respond-async, wait=0"
        assert await status(server.data_url, location(answer)) == "running"
        assert (await ask(server.data_url, location(answer), method="DELETE")).status == 200


@pytest.mark.parametrize(
    "body",
    [chat_body(stream=True), chat_body(text="x" * 2_000_000)],
    ids=["streamed", "not at hand"],
)
async def test_what_can_not_be_kept_is_answered_as_always(tmp_path: Path, body: object) -> None:
    """A preference may be left unheeded (RFC 7240): streams and large bodies are."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        answer = await take(server.data_url, body)
        assert answer.status == 200
        assert answer.header("preference-applied") is None
        with_query = await ask(server.data_url, CHAT + "?key=k", chat_body(), headers=NOW)
        assert with_query.status == 200
        assert tickets_of(server).open == 0


async def test_without_the_setting_there_are_no_tickets(tmp_path: Path) -> None:
    """Off: the wish is not heeded and the path does not exist."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path) as server,
    ):
        assert (await take(server.data_url)).status == 200
        assert (await ask(server.data_url, "/v1/tickets/" + "a" * 32)).status == 404
        assert engine.work[0].header("prefer") == "respond-async"


async def test_only_its_owner_sees_a_ticket(tmp_path: Path) -> None:
    """By key: 404 for another tenant, and for one without any; also to delete it."""
    people = [
        tenant("acme", maximum_class="realtime", keys=["sk-acme-1234"], folder=tmp_path),
        tenant("rival", maximum_class="realtime", keys=["sk-other-1234"], folder=tmp_path),
    ]
    settings = with_tickets(tmp_path)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, policy(), *people, settings=settings) as server,
    ):
        url = server.data_url
        path = await ticket(url, Authorization="Bearer sk-acme-1234")
        done = await final(url, path, Authorization="Bearer sk-acme-1234")
        assert (done.status, done.header("x-giveway-tenant")) == (200, "acme")
        for headers in ({"Authorization": "Bearer sk-other-1234"}, {}):
            for method in ("GET", "DELETE"):
                answer = await ask(url, path, headers=headers, method=method)
                assert (answer.status, answer.error["code"]) == (404, "not_found")
        kept = content(tmp_path / "tickets")
        assert b"acme" in kept
        assert b"sk-acme-1234" not in kept


async def test_credentials_reach_an_engine_that_wants_them_and_no_disk(tmp_path: Path) -> None:
    """Where clients' keys go on to the engine, a ticket's does too, from memory alone."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        path = await ticket(server.data_url, Authorization="Bearer sk-engine", Cookie="c=1")
        assert (await final(server.data_url, path)).status == 200
        assert engine.work[0].header("authorization") == "Bearer sk-engine"
        kept = content(tmp_path / "tickets")
        assert b"sk-engine" not in kept
        assert b"c=1" not in kept


async def test_a_queued_ticket_can_be_cancelled(tmp_path: Path) -> None:
    """DELETE: it leaves the queue, never reaches the engine, and is forgotten."""
    settings = with_tickets(tmp_path)
    async with (
        ScriptedEngine(silent()) as engine,
        running(engine.url, tmp_path, policy(seats=1), settings=settings) as server,
    ):
        url = server.data_url
        first, second = await ticket(url), await ticket(url)
        await until(lambda: engine.busy == 1 and queued(server) == 1, what="one waits")
        assert await status(url, second) == "queued"
        answer = await ask(url, second, method="DELETE")
        assert (answer.status, answer.json()["status"]) == (200, "cancelled")
        assert queued(server) == 0
        assert (await ask(url, second)).status == 404
        assert (await ask(url, first, method="DELETE")).json()["status"] == "cancelled"
        await until(lambda: engine.busy == 0, what="the engine sees the client leave")
        await is_empty(server)
        assert len(engine.work) == 1
        assert tickets_of(server).bytes == 0
        assert await outcomes(server.admin_url) == {"client_left": 2}


async def test_an_answer_can_be_deleted(tmp_path: Path) -> None:
    """Once fetched there is no reason to keep it; other methods are told what works."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        url = server.data_url
        path = await ticket(url)
        await final(url, path)
        wrong = await ask(url, path, chat_body(), method="POST")
        assert (wrong.status, wrong.header("allow")) == (405, "DELETE, GET")
        assert (await ask(url, path, method="DELETE")).json()["status"] == "completed"
        assert (await ask(url, path)).status == 404


async def test_the_same_key_gives_the_same_ticket(tmp_path: Path) -> None:
    """Y13: a repeated request with its Idempotency-Key runs once, and finds its answer."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        url = server.data_url
        answers = await asyncio.gather(*(take(url, Idempotency_Key="job-7") for _ in range(5)))
        paths = {location(answer) for answer in answers}
        assert len(paths) == 1
        other = await take(url, chat_body(text="other"), Idempotency_Key="job-7")
        assert (other.status, other.error["code"]) == (400, "invalid_request")
        bad = await take(url, Idempotency_Key="k" * 300)
        assert bad.status == 400
        gate.set()
        done = await final(url, paths.pop())
        again = await take(url, Idempotency_Key="job-7")
        assert (again.status, again.body) == (200, done.body)
        place = again.header("content-location")
        assert place == location(answers[0])
        waited = await take(url, Idempotency_Key="job-7", Prefer="respond-async, wait=5")
        assert waited.body == done.body
        assert len(engine.work) == 1
        await ask(url, place, method="DELETE")
        assert location(await take(url, Idempotency_Key="job-7")) != place
        await until(lambda: len(engine.work) == 2, what="the key is free, and it runs again")


async def test_keys_belong_to_tenants(tmp_path: Path) -> None:
    """Two tenants may use the same key for different requests."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        url = server.data_url
        one = await ticket(url, Idempotency_Key="k", X_Giveway_Tenant="one")
        two = await ticket(url, chat_body(text="b"), Idempotency_Key="k", X_Giveway_Tenant="two")
        assert one != two
        assert (await final(url, one, X_Giveway_Tenant="one")).status == 200
        assert (await final(url, two, X_Giveway_Tenant="two")).status == 200
        assert len(engine.work) == 2


async def test_who_leaves_before_the_ticket_was_given_has_left(tmp_path: Path) -> None:
    """Nobody knows its id: it leaves the engine. With a key its client can come back for it."""
    settings = with_tickets(tmp_path)
    async with (
        ScriptedEngine(silent()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        for key, left in (({}, 0), ({"Idempotency-Key": "k"}, 1)):
            client = await RawClient.open(server.data_url)
            headers = {"Prefer": "respond-async, wait=30", **key}
            await client.send(request("POST", CHAT, body=chat_body(), headers=headers))
            await until(lambda: engine.busy == 1, what="it is at the engine")
            await client.close()
            await until(lambda left=left: engine.busy == left, what="as many run as have owners")  # type: ignore[misc]
            await until(lambda left=left: tickets_of(server).open == left, what="kept or not")  # type: ignore[misc]
        path = await ticket(server.data_url, Idempotency_Key="k")
        assert (await ask(server.data_url, path, method="DELETE")).status == 200
