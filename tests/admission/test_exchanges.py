"""What becomes of one request?"""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from giveway_admission.runtime_policies import RuntimePolicy
from giveway_admission.settings import ClientCredentials, ProxySettings
from giveway_policy.defaults import default_document

from tests.admission.data_plane import CHAT, LOCAL, is_empty, posted, queued, running
from tests.support.policies import policy, service_class, tenant
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scripted_engine import (
    Exchange,
    ScriptedEngine,
    answering,
    chatting,
    probes_first,
    silent,
)
from tests.support.vllm_answers import (
    chat_answer,
    chat_events,
    embeddings_answer,
    error_answer,
    stream_head,
)
from tests.support.waiting import holds_for, until

ONE_SEAT = policy(seats=1)


@pytest.mark.parametrize(
    ("priority", "preemption", "is_told"),
    [("Forward", "Engine", True), ("None", "Engine", False), ("Forward", "None", False)],
)
async def test_the_engine_hears_our_priority_and_never_the_clients(
    tmp_path: Path, priority: str, preemption: str, is_told: bool
) -> None:
    """Y9: header and body priority of a client do not reach the engine; ours does, if it is to.
    An engine that knew the order would preempt by it."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(
            engine.url, tmp_path, policy(engine={"priority": priority}, preemption=preemption)
        ) as server,
    ):
        body = chat_body(priority=-99)
        answer = await ask(server.data_url, CHAT, body, headers={"X-Vllm-Priority": "-98"})
        assert answer.status == 200
        seen = engine.work[0]
        if is_told:
            assert seen.header("x-vllm-priority") == "0"
            assert seen.body == json.dumps(body).encode()
        else:
            assert seen.header("x-vllm-priority") is None
            assert "priority" not in seen.json()


@pytest.mark.parametrize(
    ("priority", "size", "wanted"),
    [("Forward", 10, 0), ("Forward", 300_000, 0), ("None", 10, None), ("None", 300_000, 0)],
)
async def test_where_only_the_body_counts_the_priority_is_put_there(
    tmp_path: Path, priority: str, size: int, wanted: int | None
) -> None:
    """Embeddings: the client's field is replaced, removed or (0) overridden; the length fits."""
    async with (
        ScriptedEngine(answering(embeddings_answer())) as engine,
        running(engine.url, tmp_path, policy(engine={"priority": priority})) as server,
    ):
        body = {"model": "m", "priority": -99, "input": "x" * size}
        assert (await ask(server.data_url, "/v1/embeddings", body)).status == 200
        seen = engine.work[0]
        assert seen.json().get("priority") == wanted
        assert seen.json()["input"] == body["input"]
        assert seen.header("x-vllm-priority") is None


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (LOCAL, ("Bearer theirs", "theirs-too")),
        (replace(LOCAL, client_credentials=ClientCredentials.DROP), (None, None)),
        (
            replace(LOCAL, client_credentials=ClientCredentials.FORWARD),
            ("Bearer theirs", "theirs-too"),
        ),
        (replace(LOCAL, engine_api_key="ours"), ("Bearer ours", None)),
    ],
    ids=["auto", "drop", "forward", "own-key"],
)
async def test_credentials_reach_the_engine_as_set(
    tmp_path: Path, settings: ProxySettings, wanted: tuple[str | None, str | None]
) -> None:
    """Where no tenant has a key here, clients' keys are for the engine; else as it is told."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        headers = {"Authorization": "Bearer theirs", "X-Api-Key": "theirs-too"}
        assert (await ask(server.data_url, CHAT, chat_body(), headers=headers)).status == 200
        seen = engine.work[0]
        assert (seen.header("authorization"), seen.header("x-api-key")) == wanted


async def test_keys_of_tenants_stay_here_unless_told_otherwise(tmp_path: Path) -> None:
    """Where the policy recognises tenants by their keys, no key of a client reaches the engine."""
    acme = tenant("acme", maximum_class="realtime", keys=["their-own-key"], folder=tmp_path)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, policy(), acme) as server,
    ):
        for key in ("their-own-key", "a-strangers-key"):
            headers = {"Authorization": f"Bearer {key}", "X-Api-Key": key}
            assert (await ask(server.data_url, CHAT, chat_body(), headers=headers)).status == 200
        seen = [(each.header("authorization"), each.header("x-api-key")) for each in engine.work]
        assert seen == [(None, None), (None, None)]


async def test_a33_the_engine_gets_its_own_host_and_a_longer_chain(tmp_path: Path) -> None:
    """A33: Host names the engine, X-Forwarded-For is appended to, control headers stay here."""
    headers = {
        "Host": "public.example",
        "X-Forwarded-For": "203.0.113.9",
        "X-Giveway-Class": "batch",
        "X-Giveway-Tenant": "acme",
        "X-Custom": "kept",
    }
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        answer = await ask(server.data_url, CHAT, chat_body(), headers=headers)
        assert answer.header("x-giveway-tenant") == "acme"
        seen = engine.work[0]
        assert seen.header("host") == f"127.0.0.1:{engine.port}"
        assert seen.header("x-forwarded-for") == "203.0.113.9, 127.0.0.1"
        assert seen.header("x-custom") == "kept"
        assert not [name for name, _ in seen.headers if name.startswith("x-giveway-")]


@pytest.mark.parametrize(
    ("asked", "kept"),
    [("abc-123", True), ("x" * 6000, False), ("a b", False), ('"quoted"', False), ("", False)],
    ids=["fine", "long", "space", "quotes", "empty"],
)
async def test_g10_a_harmless_request_id_is_kept_and_any_other_replaced(
    tmp_path: Path, asked: str, *, kept: bool
) -> None:
    """G10: client and engine see the same id, and never one that could do harm."""
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        headers = {"X-Request-Id": asked}
        answer = await ask(server.data_url, CHAT, chat_body(), headers=headers)
        told = answer.header("x-request-id")
        assert told
        assert (told == asked) is kept
        assert engine.work[0].header("x-request-id") == told


async def test_an_upstream_path_stands_before_every_path(tmp_path: Path) -> None:
    """An engine behind a path prefix gets it, query and all."""
    async with (
        ScriptedEngine(answering(chat_answer())) as engine,
        running(f"{engine.url}/inner/", tmp_path) as server,
    ):
        assert (await ask(server.data_url, f"{CHAT}?a=b", chat_body())).status == 200
        assert engine.work[0].target == f"/inner{CHAT}?a=b"


async def test_a_request_that_found_no_engine_waits_for_it(tmp_path: Path) -> None:
    """C23: the engine is away; what comes waits, is sent once when it is back, seats at a time."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, policy(seats=2)) as server,
    ):
        await engine.stop()
        clients = [await posted(server.data_url) for _ in range(10)]
        await until(lambda: queued(server) == 10, what="all wait")
        assert not server.engine_up
        ready, reasons = server.ready()
        assert not ready
        assert reasons == ["the engine does not answer its health check"]
        await engine.start()
        answers = [await client.answer() for client in clients]
        assert {answer.status for answer in answers} == {200}
        assert len(engine.work) == 10
        assert engine.most_busy <= 2
        for client in clients:
            await client.close()


async def test_a_request_that_breaks_the_engine_twice_is_not_sent_again(tmp_path: Path) -> None:
    """It may be the one that breaks it: 502 engine_failed after the second time."""

    async def breaking(exchange: Exchange) -> None:
        exchange.reset()

    async with (
        ScriptedEngine(probes_first(breaking)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        answer = await ask(server.data_url, CHAT, chat_body())
        assert answer.status == 502
        assert answer.error["code"] == "engine_failed"
        assert len(engine.work) == 2
        first, second = (seen.header("x-request-id") for seen in engine.work)
        assert first != second
        await is_empty(server)


async def test_a_stream_whose_engine_broke_before_its_first_byte_is_served_by_the_next(
    tmp_path: Path,
) -> None:
    """The head was out; nothing of the body was: the client sees one whole answer."""
    asked = 0

    async def first_breaks(exchange: Exchange) -> None:
        nonlocal asked
        asked += 1
        await exchange.send(stream_head())
        if asked == 1:
            await told.wait()
            exchange.reset()
            return
        await exchange.send_events(chat_events(["a", "b"]))
        await exchange.end()

    told = asyncio.Event()
    async with (
        ScriptedEngine(probes_first(first_breaks)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        async with await posted(server.data_url, chat_body(stream=True)) as client:
            head = await client.read_head()
            told.set()
            body = await client.read_body(head)
        assert head.status == 200
        assert body == b"".join(chat_events(["a", "b"]))
        await is_empty(server)


async def test_an_abort_before_the_first_token_gives_the_seat_to_the_urgent(
    tmp_path: Path,
) -> None:
    """A10: a batch request that has shown nothing goes back to the queue and is served later."""
    document = policy(seats=1)
    spec = document["spec"]
    assert isinstance(spec, dict)
    spec["preemption"] = "AbortBeforeFirstToken"
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, document) as server,
    ):
        low = await posted(server.data_url, chat_body(stream=True), X_Giveway_Class="batch")
        low_head = await low.read_head()
        engine.script = chatting()
        high = await posted(server.data_url, chat_body(stream=True), X_Giveway_Class="realtime")
        answer = await high.answer()
        assert answer.status == 200
        assert await low.read_body(low_head) == b"".join(chat_events(["one", " two", " three"]))
        assert len(engine.work) == 3
        assert engine.most_busy <= 2
        await low.close()
        await high.close()
        await is_empty(server)


@pytest.mark.slow
async def test_a_waiting_stream_is_kept_alive_by_comments(tmp_path: Path) -> None:
    """keepAliveSeconds: a head and comments while it waits, then the engine's events."""
    gate = asyncio.Event()
    document = policy(seats=1, queue={"keepAliveSeconds": 1})
    async with (
        ScriptedEngine(chatting(["a"], gate=gate)) as engine,
        running(engine.url, tmp_path, document) as server,
    ):
        first = await posted(server.data_url, chat_body(stream=True))
        second = await posted(server.data_url, chat_body(stream=True))
        head = await second.read_head()
        assert head.status == 200
        assert head.header("content-type") == "text/event-stream; charset=utf-8"
        assert queued(server) == 1
        assert await second.read_chunk() == b": keep-alive\n\n"
        gate.set()
        body = await second.read_body(head)
        assert body.replace(b": keep-alive\n\n", b"") == b"".join(chat_events(["a"]))
        first_body = (await first.answer()).body
        assert first_body.endswith(b"data: [DONE]\n\n")
        for client in (first, second):
            await client.close()
        await is_empty(server)


@pytest.mark.slow
@pytest.mark.parametrize("error", ["engine", "ours"])
async def test_an_error_after_a_comment_is_told_inside_the_stream(
    tmp_path: Path, error: str
) -> None:
    """The 200 is out: the error comes as an event with its code, and the stream ends properly."""
    gate = asyncio.Event()
    classes = (service_class("realtime", time_to_live_s=2),)
    document = policy(classes=classes, seats=1, queue={"keepAliveSeconds": 1})
    async with (
        ScriptedEngine(chatting(["a"], gate=gate)) as engine,
        running(engine.url, tmp_path, document) as server,
    ):
        first = await posted(server.data_url, chat_body(stream=True))
        second = await posted(server.data_url, chat_body(stream=True))
        head = await second.read_head()
        if error == "engine":
            engine.script = answering(error_answer(400, "Bad Request", "too long"))
            gate.set()
        body = await second.read_body(head)
        *_, last = [event for event in body.split(b"\n\n") if event.startswith(b"data: ")]
        told = json.loads(last.removeprefix(b"data: "))["error"]
        assert (
            told["message"] == "too long" if error == "engine" else told["code"] == "queue_timeout"
        )
        gate.set()
        for client in (first, second):
            await client.close()
        await is_empty(server)


async def test_in_observe_mode_everything_passes_at_once(tmp_path: Path) -> None:
    """Y14: over the seats and over the rate nobody waits and nobody is refused."""
    document = policy(classes=(service_class("only", limits={"requestsPerSecond": 1}),), seats=1)
    spec = document["spec"]
    assert isinstance(spec, dict)
    spec["mode"] = "Observe"
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, document) as server,
    ):
        clients = [await posted(server.data_url) for _ in range(12)]
        await until(lambda: engine.busy == 12, what="all are at the engine")
        kinds = {entry.kind for entry in server.recent_decisions.latest()}
        assert {"dispatch", "reject"} <= kinds
        gate.set()
        for client in clients:
            answer = await client.answer()
            assert answer.status == 200
            assert answer.header("x-giveway-decision") == "observed"
            await client.close()
        await is_empty(server)
        assert server.metrics.progress("only").outcomes == {"completed": 12}


async def test_a_change_of_policy_loses_nothing_that_waits_or_runs(tmp_path: Path) -> None:
    """D14: other classes, other seats: running answers end, waiting requests are served."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, ONE_SEAT) as server,
    ):
        clients = [await posted(server.data_url) for _ in range(6)]
        await until(lambda: queued(server) == 5, what="five wait")
        server.proxy.configure(RuntimePolicy.build(default_document()))
        await until(lambda: engine.busy == 6, what="the new seats are used at once")
        gate.set()
        assert {(await client.answer()).status for client in clients} == {200}
        for client in clients:
            await client.close()
        await is_empty(server)


async def test_a_burst_of_64_into_4_seats_never_puts_a_fifth_at_the_engine(tmp_path: Path) -> None:
    """Y2: counting and sending are one step."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        clients = [await RawClient.open(server.data_url) for _ in range(64)]
        data = request("POST", CHAT, body=chat_body(stream=True))
        for client in clients:
            client.writer.write(data)
        await until(lambda: engine.busy == 4 and queued(server) == 60, what="the seats are taken")
        gate.set()
        answers = [await client.answer() for client in clients]
        assert {answer.status for answer in answers} == {200}
        assert engine.most_busy == 4
        for client in clients:
            await client.close()


async def test_c12_every_refusal_says_what_it_is(tmp_path: Path) -> None:
    """C12: status, code, hint and identity of a refused and an expired request."""
    classes = (
        service_class("limited", limits={"requestsPerSecond": 0}),
        service_class("short", time_to_live_s=1),
    )
    async with (
        ScriptedEngine(silent()) as engine,
        running(engine.url, tmp_path, policy(classes=classes, seats=1)) as server,
    ):
        headers = {"X-Giveway-Class": "limited"}
        answer = await ask(server.data_url, CHAT, chat_body(), headers=headers)
        assert answer.status == 429
        assert answer.error["code"] == "rate_limited"
        assert answer.error["message"] == "The limit on requests of class limited is reached."
        assert answer.header("x-giveway-decision") == "rejected"
        assert answer.header("x-giveway-class") == "limited"
        assert 1 <= int(answer.header("retry-after") or 0) <= 60
        holder = await posted(server.data_url, X_Giveway_Class="short")
        await until(lambda: engine.busy == 1, what="the seat is taken")
        headers = {"X-Giveway-Class": "short", "X-Giveway-Timeout-Ms": "50"}
        answer = await ask(server.data_url, CHAT, chat_body(), headers=headers)
        assert answer.status == 504
        assert answer.error["code"] == "queue_timeout"
        assert int(answer.header("x-giveway-queue-ms") or 0) >= 50
        await holder.close()
        await is_empty(server)


@pytest.mark.parametrize("status", [400, 500])
async def test_b10_an_engines_refusal_is_passed_on_and_costs_no_tokens(
    tmp_path: Path, status: int
) -> None:
    """A23, B10: status and body as they are; what was reserved is given back."""
    document = policy(classes=(service_class("only", limits={"tokensPerMinute": 600}),))
    async with (
        ScriptedEngine(answering(error_answer(status, "No", "it is so"))) as engine,
        running(engine.url, tmp_path, document) as server,
    ):
        answer = await ask(server.data_url, CHAT, chat_body(max_tokens=50))
        assert answer.status == status
        assert answer.error["message"] == "it is so"
        tokens = server.statistics().classes[0].tokens
        assert tokens is not None
        assert tokens.level == pytest.approx(tokens.burst)
        outcome = "engine_refused" if status == 400 else "engine_failed"
        assert server.metrics.progress("only").outcomes == {outcome: 1}


async def test_a_client_that_leaves_is_charged_what_was_generated(tmp_path: Path) -> None:
    """C04: the seat is free at once, and prompt and events so far are counted."""

    async def endless(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        await exchange.send_events(chat_events(["a", "b", "c", "d"])[:5])
        await exchange.never()

    async with (
        ScriptedEngine(probes_first(endless)) as engine,
        running(engine.url, tmp_path, ONE_SEAT) as server,
    ):
        client = await posted(server.data_url, chat_body(stream=True))
        head = await client.read_head()
        assert head.status == 200
        got = b""
        while b'"d"' not in got:
            got += await client.read_chunk()
        client.reset()
        await client.close()
        await is_empty(server)
        tokens = server.metrics.progress("realtime").tokens
        assert tokens["prompt"] >= 1
        assert tokens["completion"] >= 4
        engine.script = chatting()
        assert (await ask(server.data_url, CHAT, chat_body())).status == 200


async def test_draining_ends_waiting_and_lets_running_end(tmp_path: Path) -> None:
    """F11: the queue hears 503, newcomers too, the running answer is whole, then it is drained."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, ONE_SEAT) as server,
    ):
        runs = await posted(server.data_url)
        waits = await posted(server.data_url)
        await until(lambda: queued(server) == 1, what="one waits")
        drained = asyncio.ensure_future(server.drain(20.0))
        answer = await waits.answer()
        assert (answer.status, answer.error["code"]) == (503, "draining")
        assert answer.header("connection") == "close"
        late = await ask(server.data_url, CHAT, chat_body())
        assert (late.status, late.error["code"]) == (503, "draining")
        await holds_for(lambda: not drained.done(), what="one still runs", for_s=0.05)
        gate.set()
        assert (await runs.answer()).status == 200
        assert await drained
        assert await server.drain(0.0)
        for client in (runs, waits):
            await client.close()


async def test_a_drain_that_takes_too_long_says_so(tmp_path: Path) -> None:
    """The time is over before the answer is: False, and the answer still runs."""
    async with ScriptedEngine(silent()) as engine, running(engine.url, tmp_path) as server:
        client = await posted(server.data_url)
        await until(lambda: engine.busy == 1, what="it runs")
        assert not await server.drain(0.02)
        assert engine.busy == 1
        await client.close()
        await is_empty(server)


async def test_a_head_that_comes_again_is_judged_by_the_policy_in_force(tmp_path: Path) -> None:
    """What followed from a head under one policy says nothing under the next: neither whose
    request it is, nor whether its key may reach the engine."""
    acme = tenant("acme", maximum_class="realtime", keys=["their-own-key"], folder=tmp_path)
    data = request(
        "POST", CHAT, body=chat_body(), headers={"Authorization": "Bearer their-own-key"}
    )
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, policy(), acme) as server,
        await RawClient.open(server.data_url) as client,
    ):
        before = server.proxy.policy
        seen: list[tuple[str | None, str | None]] = []
        for in_force in (before, before, RuntimePolicy.build(default_document()), before):
            server.proxy.configure(in_force)
            await client.send(data)
            answer = await client.answer()
            assert answer.status == 200
            key = engine.work[-1].header("authorization")
            seen.append((answer.header("x-giveway-tenant"), key))
        theirs = ("acme", None)
        assert seen == [theirs, theirs, ("anonymous", "Bearer their-own-key"), theirs]
