"""Does the queue keep its promises: who goes when, how many wait, and what each is told?"""

import asyncio

import pytest

from tests.support.lines import CHAT, Line, arrivals, holders, identity, named
from tests.support.policies import policy, service_class
from tests.support.processes import Proxy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import Answer, RawClient, ask, chat_body, request
from tests.support.scraping import outcomes, queue_has, queued, scrape
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first
from tests.support.vllm_answers import chat_answer
from tests.support.waiting import until

KIB, MIB = 1024, 2**20
NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(900)]
"""Of the same test at the size that the report names."""
PATIENCE_S = 300.0
"""For 5 GB through one process, on a machine with other work."""


@pytest.mark.slow
async def test_c01_batch_is_served_beside_steady_urgent_work(start_proxy: ProxyStarter) -> None:
    """12 urgent clients keep 4 seats full; 20 batch requests start within the floor's bound.

    The floor is 5 % of the tokens and all requests are alike, so that 20 of them have gone by the
    time that 20 / 0.05 = 400 have, and urgent ones keep their 95 %. Twice as many are allowed.
    """

    async def short(exchange: Exchange) -> None:
        await exchange.pause(0.002)
        await exchange.send(chat_answer(completion_tokens=10))

    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4)])
        holding = await holders(proxy, engine, 4)
        engine.script = probes_first(short)
        line = Line(proxy)
        await line.add_all(["low"] * 20, tenant="b", class_name="batch")

        async def urgent() -> None:
            async with await RawClient.open(proxy.url) as client:
                while not all(task.done() for task in line.tasks):
                    headers = identity("a", "realtime")
                    assert (await client.post(CHAT, named("high"), headers=headers)).status == 200

        clients = [asyncio.create_task(urgent()) for _ in range(12)]
        await until(lambda: queue_has(proxy.admin_url, 32), what="urgent work waits too")
        gate.set()
        await asyncio.gather(*holding, *clients)
        assert {answer.status for answer in await line.answers()} == {200}
        order = [name for name in arrivals(engine) if name != "holder"]
        until_last_low = len(order) - order[::-1].index("low")
        assert until_last_low <= 800
        assert order[:until_last_low].count("high") >= 0.85 * until_last_low


async def test_c03_what_waited_long_does_not_hold_up_fresh_urgent_work(
    start_proxy: ProxyStarter,
) -> None:
    """Batch has been boosted for seconds; ten urgent requests come: all are among the next 12.

    A boost promotes one request a second, and the floor lets one more go.
    """
    boost = {"thresholdSeconds": 1, "boostSeconds": 1, "checkSeconds": 1}
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=1, anti_starvation=boost)])
        holding = await holders(proxy, engine, 1, class_name="batch")
        line = Line(proxy)
        await line.add_all(["low"] * 20, class_name="batch")

        async def boosted() -> bool:
            samples = await scrape(proxy.admin_url)
            return samples.total("giveway_starvation_boosts_total", **{"class": "batch"}) >= 2

        await until(boosted, what="batch was boosted again and again")
        await line.add_all(["urgent"] * 10, class_name="realtime")
        gate.set()
        await asyncio.gather(*holding)
        await line.answers()
        order = arrivals(engine)[1:]
        assert order[:12].count("urgent") == 10, order


@pytest.mark.slow
@pytest.mark.parametrize("count", [1000, pytest.param(9_900, marks=NIGHTLY)])
async def test_c09_expired_requests_leave_nothing(start_proxy: ProxyStarter, count: int) -> None:
    """All expire: none is left in the queue, and the next one is served as a seat comes free. What
    the allocator keeps of so many it uses again: a second time costs nothing.

    9,900 clients at once are as many as a limit of 20,000 open files lets a proxy serve, which
    counts two for each.
    """
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        classes = [service_class("only", time_to_live_s=2, capacity=count)]
        document = policy(classes=classes, seats=1, queue={"capacity": count})
        proxy = await start_proxy(engine.url, documents=[document])
        proxy.allowed_growth_bytes = 32 * MIB + 5 * KIB * count
        holding = await holders(proxy, engine, 1)
        held_bytes = []
        for _ in range(3):
            answers = await asyncio.gather(
                *(ask(proxy.url, CHAT, chat_body()) for _ in range(count))
            )
            assert {answer.status for answer in answers} == {504}
            assert await queued(proxy.admin_url) == 0
            held_bytes.append(proxy.rss_bytes)
        assert held_bytes[2] - held_bytes[1] < 10 * MIB
        live = asyncio.create_task(ask(proxy.url, CHAT, named("live")))
        await until(lambda: queue_has(proxy.admin_url, 1), what="a live one waits")
        gate.set()
        await asyncio.gather(*holding)
        assert (await live).status == 200
        assert arrivals(engine) == ["holder", "live"]


async def test_c12_every_end_has_its_own_status_and_code(start_proxy: ProxyStarter) -> None:
    """Limit, full queue, displaced, expired, engine away, client gone: none looks like another."""
    classes = [
        service_class("realtime"),
        service_class("limited", limits={"requestsPerSecond": 0}),
        service_class("small", capacity=0),
        service_class("batch", kind="Batch", time_to_live_s=60),
    ]
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        document = policy(classes=classes, seats=1, queue={"capacity": 2})
        proxy = await start_proxy(engine.url, documents=[document])
        holding = await holders(proxy, engine, 1)
        line = Line(proxy)

        async def end(class_name: str, **headers: str) -> tuple[int, object]:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            body = named("one")
            answer = await ask(
                proxy.url, CHAT, body, headers={**identity(class_name=class_name), **given}
            )
            return _told(answer)

        assert await end("limited") == (429, "rate_limited")
        assert await end("small") == (429, "queue_full")
        await line.add("old", class_name="batch")
        await line.add("new", class_name="batch")
        assert await end("realtime", X_Giveway_Timeout_Ms="50") == (504, "queue_timeout")
        assert _told(await line.tasks[1]) == (429, "evicted")
        gone = await RawClient.open(proxy.url)
        await gone.send(request("POST", CHAT, body=chat_body())[:-5])
        await gone.close()
        gate.set()
        await asyncio.gather(*holding)
        await line.tasks[0]
        await engine.stop()
        assert await end("realtime", X_Giveway_Timeout_Ms="200") == (503, "engine_unavailable")
        await engine.start()
        ends = await outcomes(proxy.admin_url)
        assert ends.pop("completed") == 2
        assert ends.pop("client_left", 0) <= 1, "a client that left is no error of ours"
        assert ends == {
            "queue_timeout": 1,
            "rate_limited": 1,
            "queue_full": 1,
            "evicted": 1,
            "engine_unavailable": 1,
        }


def _told(answer: Answer) -> tuple[int, object]:
    return answer.status, answer.error["code"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [120, pytest.param(5000, marks=NIGHTLY)])
async def test_c14_the_queue_holds_no_more_bytes_than_it_may(
    start_proxy: ProxyStarter, count: int
) -> None:
    """Of many prompts of 1 MB a queue of 8 MiB holds those that fit; the rest is told at once, and
    no more than all of that is in memory."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        classes = [service_class("only", time_to_live_s=600)]
        document = policy(classes=classes, seats=1, queue={"bytes": "8Mi"})
        proxy = await start_proxy(engine.url, documents=[document])
        holding = await holders(proxy, engine, 1)
        memory = proxy.peak_rss_bytes
        sent = request("POST", CHAT, body=chat_body(text="x" * 1_000_000, max_tokens=1))
        at_once = asyncio.Semaphore(500)  # more fill the memory that the system has for sockets
        tasks = [asyncio.create_task(_try(proxy, sent, at_once)) for _ in range(count)]

        async def all_told() -> bool:
            waiting = await queued(proxy.admin_url)
            return waiting + sum(task.done() for task in tasks) == count

        await until(all_told, what="each one waits or was told", within_s=PATIENCE_S)
        scheduler = (await ask(proxy.admin_url, "/status")).json()["scheduler"]
        assert isinstance(scheduler, dict)
        assert 7 * MIB < scheduler["queued_bytes"] <= 8 * MIB
        # Of a long body 256 KiB and what one read brings more are held, the rest waits outside.
        assert 8 * MIB // (600 * KIB) <= scheduler["queued"] <= 8 * MIB // (256 * KIB)
        gate.set()
        await asyncio.gather(*holding)
        statuses = await asyncio.gather(*tasks)
        assert statuses.count(200) == scheduler["queued"]
        assert statuses.count(429) == count - scheduler["queued"]
        assert set(statuses) == {200, 429}
        # Beside the queue: 256 MiB of all that is arriving, if as much comes at once, and as much
        # again that the allocator has in pieces and keeps.
        most = 8 * MIB + 2 * min(count * MIB, 256 * MIB) + 64 * MIB
        assert proxy.peak_rss_bytes - memory < most
        proxy.allowed_growth_bytes = most


async def _try(proxy: Proxy, sent: bytes, at_once: asyncio.Semaphore) -> int:
    """The status; a client whose body is refused in the middle may fail to send the rest."""
    async with at_once:
        client = await RawClient.open(proxy.url)
        client.patience_s = PATIENCE_S
        sending = asyncio.create_task(client.send(sent))
        status = (await client.answer()).status
        await asyncio.gather(sending, return_exceptions=True)
        await client.close()
    return status


@pytest.mark.slow
async def test_c17_equal_requests_go_in_the_order_of_arrival(start_proxy: ProxyStarter) -> None:
    """200 of one class and tenant, in ten groups that come at once: group by group, none fails."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        classes = [service_class("only", time_to_live_s=60)]  # without an objective, none is late
        proxy = await start_proxy(engine.url, documents=[policy(classes=classes, seats=1)])
        holding = await holders(proxy, engine, 1)
        line = Line(proxy)
        for group in range(10):
            await line.add_all([f"group {group}"] * 20, tenant="a")
        gate.set()
        await asyncio.gather(*holding)
        assert {answer.status for answer in await line.answers()} == {200}
        order = arrivals(engine)[1:]
        assert order == sorted(order)


@pytest.mark.slow
async def test_c23_an_engine_that_comes_back_is_not_overrun(start_proxy: ProxyStarter) -> None:
    """Down with 200 waiting, then up: four at once, urgent first; time to live ran meanwhile."""

    async def short(exchange: Exchange) -> None:
        await exchange.pause(0.005)
        await exchange.send(chat_answer())

    async with ScriptedEngine(probes_first(short)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=4)])
        assert (await ask(proxy.url, CHAT, named("before"))).status == 200
        await engine.stop()
        line = Line(proxy)
        hurried = [
            ask(proxy.url, CHAT, named("hurried"), headers={"X-Giveway-Timeout-Ms": "300"})
            for _ in range(20)
        ]
        answers = await asyncio.gather(*hurried)
        assert {_told(answer) for answer in answers} == {(503, "engine_unavailable")}
        await line.add_all(["low"] * 150, tenant="b", class_name="batch")
        await line.add_all(["high"] * 50, tenant="a", class_name="realtime")
        await engine.start()
        assert {answer.status for answer in await line.answers()} == {200}
        assert engine.most_busy <= 4
        order = [name for name in arrivals(engine) if name in ("low", "high")]
        assert len(order) == 200
        # The floor for batch, and the one or two that were on their way when it went down.
        assert order[:60].count("high") >= 48


@pytest.mark.slow
@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=NIGHTLY)])
async def test_c24_names_of_clients_do_not_fill_the_metrics(
    start_proxy: ProxyStarter, count: int
) -> None:
    """Thousands of tenants, models, paths and user agents: a hundred tenants, `other`, and below
    1 MB."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=64)])

        async def some(start: int) -> None:
            async with await RawClient.open(proxy.url) as client:
                for number in range(start, start + count // 4):
                    headers = {
                        **identity(f"tenant-{number}", f"class-{number}"),
                        "User-Agent": f"agent-{number}",
                    }
                    body = chat_body(model=f"model-{number}")
                    assert (await client.post(CHAT, body, headers=headers)).status == 200
                    path = f"/v1/{number}"
                    assert (await client.post(path, {}, headers=headers)).status == 404

        await asyncio.gather(*(some(start) for start in range(0, count, count // 4)))
        answer = await ask(proxy.admin_url, "/metrics")
        assert len(answer.body) < 10**6
        samples = await scrape(proxy.admin_url)
        named_tenants = {labels["tenant"] for _, labels, _ in samples.values if "tenant" in labels}
        assert len(named_tenants) <= 102
        assert samples.total("giveway_tenant_requests_total", tenant="other") >= count - 110
        assert b"model-1" not in answer.body
        assert b"agent-1" not in answer.body
        assert b"class-1" not in answer.body
        assert samples.value("giveway_unknown_class_requests_total") == count
