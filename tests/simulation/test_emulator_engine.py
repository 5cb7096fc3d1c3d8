"""The live engine under invented time: steps end when they are due, and lag does not add up."""

import asyncio
from collections.abc import Callable

import pytest
from giveway_simulation.emulator_engine import LiveEngine
from giveway_simulation.engine_model import EngineLimits, EngineModel, StepStart, Work

from tests.simulation.engine_fixtures import flat_pod


class FakeTimers:
    """Time that a test moves. Only the last timer matters: the engine has one."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[[], None], /) -> asyncio.TimerHandle:
        self.due.append((when, callback))
        return asyncio.get_running_loop().call_later(3600.0, callback)

    def run_next(self, *, late_s: float) -> None:
        """Let the pending timer ring, later than it was due."""
        when, callback = self.due.pop()
        self.now_s = max(self.now_s, when + late_s)
        callback()


class Counting:
    """Observer and sink: what came when."""

    def __init__(self, timers: "FakeTimers") -> None:
        self.timers = timers
        self.ends_s: list[float] = []
        self.tokens: list[tuple[int, bool]] = []

    def step_started(self, step: StepStart, *, now_s: float) -> None:
        pass

    def step_ended(
        self, first: tuple[int, ...], *, going_on: int, finished: int, now_s: float
    ) -> None:
        self.ends_s.append(now_s)

    def token(self, index: int, *, finished: bool) -> None:
        self.tokens.append((index, finished))


def make_engine(timers: FakeTimers, counting: Counting, *, speed: float = 1.0) -> LiveEngine:
    model = EngineModel(flat_pod(step_ms=10.0), EngineLimits(max_num_seqs=8))
    return LiveEngine(model, speed=speed, observer=counting, loop=timers)


@pytest.mark.parametrize("speed", [1.0, 4.0])
async def test_late_loop_does_not_move_the_ends_of_later_steps(speed: float) -> None:
    """Each timer rings 7 ms late; the 50th step is due 50 steps after the start all the same."""
    timers = FakeTimers()
    counting = Counting(timers)
    engine = make_engine(timers, counting, speed=speed)
    engine.submit(Work(key=1, prompt_tokens=5, output_tokens=50), sink=counting, index=0)
    while timers.due:
        timers.run_next(late_s=0.007)
    engine.stop()
    assert len(counting.ends_s) == 50
    assert counting.ends_s[-1] == pytest.approx(100.0 + 50 * 0.010 / speed)
    assert engine.lag().maximum_s >= 0.007
    assert engine.lag().steps == 50


async def test_engine_that_idles_begins_its_next_step_when_work_comes() -> None:
    """Not at some tick: a request at 105.0 has its first token at 105.01."""
    timers = FakeTimers()
    counting = Counting(timers)
    engine = make_engine(timers, counting)
    engine.submit(Work(key=1, prompt_tokens=5, output_tokens=1), sink=counting, index=0)
    timers.run_next(late_s=0.0)
    assert not timers.due
    timers.now_s = 105.0
    engine.submit(Work(key=2, prompt_tokens=5, output_tokens=1), sink=counting, index=7)
    timers.run_next(late_s=0.0)
    engine.stop()
    assert counting.ends_s == [pytest.approx(100.01), pytest.approx(105.01)]
    assert counting.tokens == [(0, True), (7, True)]


async def test_next_step_is_planned_before_the_tokens_of_the_last_are_heard() -> None:
    """Who submits on hearing a token is in the step after the next, as with a real engine."""
    timers = FakeTimers()
    counting = Counting(timers)
    engine = make_engine(timers, counting)

    class Follower(Counting):
        def token(self, index: int, *, finished: bool) -> None:
            super().token(index, finished=finished)
            if len(self.tokens) == 1:
                follow_up = Work(key=2, prompt_tokens=5, output_tokens=1)
                engine.submit(follow_up, sink=counting, index=9)

    follower = Follower(timers)
    engine.submit(Work(key=1, prompt_tokens=5, output_tokens=4), sink=follower, index=0)
    timers.run_next(late_s=0.0)
    assert follower.tokens == [(0, False)]
    timers.run_next(late_s=0.0)
    assert counting.tokens == []
    timers.run_next(late_s=0.0)
    engine.stop()
    assert counting.tokens == [(9, True)]
