"""The load loops: requests leave when due, the window ends everything, nothing stays behind."""

import asyncio
import itertools

from giveway_simulation.load_client import LoadClient, Target
from giveway_simulation.load_generating import run_closed_loop, run_open_loop
from giveway_simulation.load_records import Ending, Measured, PlannedRequest
from giveway_simulation.prompt_building import PromptWriter, TextScale

from tests.support.scripted_engine import (
    Exchange,
    ScriptedEngine,
    answering,
    chatting,
    silent,
)
from tests.support.vllm_answers import response, stream_head
from tests.support.waiting import until


def client_of(engine: ScriptedEngine) -> LoadClient:
    target = Target.parse(engine.url, model="tiny")
    return LoadClient(target, prompts=PromptWriter(TextScale(), seed=1))


def due(*times_s: float) -> list[PlannedRequest]:
    return [
        PlannedRequest(due_s=due_s, class_name="chat", tenant="a", prompt_tokens=5, output_tokens=3)
        for due_s in times_s
    ]


async def test_requests_leave_when_due_though_no_answer_comes() -> None:
    """Open loop (Y14): a slow engine does not slow the arrivals down."""
    async with ScriptedEngine(silent(stream_head())) as engine:
        record: list[Measured] = []
        await run_open_loop(client_of(engine), due(0.0, 0.05, 0.1), window_s=0.15, record=record)
        assert len(engine.work) == 3
        gaps = [
            later.arrived_s - earlier.arrived_s
            for earlier, later in itertools.pairwise(engine.work)
        ]
    assert all(gap > 0.03 for gap in gaps)
    assert [m.ending for m in record] == [Ending.UNFINISHED] * 3


async def test_latency_counts_from_the_due_time() -> None:
    """A stalled first token is charged to the request whose due time it missed."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        record: list[Measured] = []
        asyncio.get_running_loop().call_later(0.1, gate.set)
        cost = await run_open_loop(client_of(engine), due(0.0), window_s=0.2, record=record)
    (measured,) = record
    assert measured.ending is Ending.COMPLETED
    assert measured.first_token_latency_s is not None
    assert 0.09 < measured.first_token_latency_s < 0.2
    assert cost.wall_s >= 0.2
    assert cost.cpu_s > 0


async def test_the_end_of_the_window_closes_what_is_open() -> None:
    """The engine sees its clients leave, no socket stays, and each request has one ending."""
    async with ScriptedEngine(silent(stream_head())) as engine:
        record: list[Measured] = []
        await run_open_loop(client_of(engine), due(0.0, 0.0, 9.0), window_s=0.1, record=record)
        await until(lambda: engine.open_connections == 0, what="connections are closed")
    assert [m.ending for m in record] == [Ending.UNFINISHED] * 3
    assert record[0].sent_s is not None
    assert record[2].sent_s is None


async def test_cancelling_a_run_closes_everything_too() -> None:
    """Ctrl-C in the middle leaves no connection."""
    async with ScriptedEngine(silent(stream_head())) as engine:
        record: list[Measured] = []
        run = asyncio.create_task(
            run_open_loop(client_of(engine), due(0.0, 0.0), window_s=60, record=record)
        )
        await until(lambda: len(engine.work) == 2, what="both requests are there")
        run.cancel()
        await asyncio.wait([run])
        await until(lambda: engine.open_connections == 0, what="connections are closed")
    assert run.cancelled()
    assert [m.ending for m in record] == [Ending.UNFINISHED] * 2


async def test_a_closed_loop_keeps_its_number_in_flight() -> None:
    """Never more at once, and the next follows the last."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        record: list[Measured] = []
        loop = asyncio.create_task(
            run_closed_loop(
                client_of(engine), iter(due(*[0.0] * 20)), in_flight=3, window_s=20, record=record
            )
        )
        await until(lambda: engine.busy == 3, what="three are in flight")
        gate.set()
        await loop
        assert engine.most_busy == 3
    assert [m.ending for m in record] == [Ending.COMPLETED] * 20


async def test_a_closed_loop_does_not_storm_an_engine_that_refuses() -> None:
    """Eight refusals in a row end it, whatever its window."""
    async with ScriptedEngine(answering(response(b"{}", status=500))) as engine:
        record: list[Measured] = []
        await run_closed_loop(
            client_of(engine), itertools.cycle(due(0.0)), in_flight=1, window_s=20, record=record
        )
        assert len(engine.work) == 8
    assert record[-1].status == 500


async def test_a_closed_loop_ends_with_its_window() -> None:
    """An engine that never answers does not hold it."""
    async with ScriptedEngine(silent()) as engine:
        record: list[Measured] = []
        await run_closed_loop(
            client_of(engine), itertools.cycle(due(0.0)), in_flight=2, window_s=0.1, record=record
        )
        await until(lambda: engine.open_connections == 0, what="connections are closed")
    assert [m.ending for m in record] == [Ending.UNFINISHED] * 2


async def test_more_than_one_answer_at_a_time_is_told_apart() -> None:
    """Each request's record is its own."""

    async def echo_length(exchange: Exchange) -> None:
        body = exchange.request.json()
        count = body["max_tokens"]
        assert isinstance(count, int)
        await chatting(["x"] * count)(exchange)

    plan = [
        PlannedRequest(
            due_s=0.0, class_name="chat", tenant="a", prompt_tokens=5, output_tokens=count
        )
        for count in (1, 5, 9, 2)
    ]
    async with ScriptedEngine(echo_length) as engine:
        record: list[Measured] = []
        await run_open_loop(client_of(engine), plan, window_s=0.3, record=record)
    assert [len(m.token_times_s) for m in record] == [1, 5, 9, 2]
