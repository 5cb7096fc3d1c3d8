"""How does the engine model run in real time?

Steps end at absolute times: the next step begins when the last one was due to end, not when the
event loop came round to it, so that the loop's lag does not add up. A step is planned before the
tokens of the last one are handed out, as in the real engine; all tokens of a step go out together.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from giveway_simulation.engine_model import EngineModel, EngineStatistics, StepStart, Work


class Sink(Protocol):
    """Who gets the tokens of one sequence."""

    def token(self, index: int, *, finished: bool) -> None:
        """The next token of sequence `index` of the request came out."""


class Timers(Protocol):
    """The part of an event loop that the engine needs."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> asyncio.TimerHandle: ...


class StepObserver(Protocol):
    """Who counts what the steps do. All times are of the event loop."""

    def step_started(self, step: StepStart, *, now_s: float) -> None: ...

    def step_ended(
        self, first: tuple[int, ...], *, going_on: int, finished: int, now_s: float
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How late steps ended, against when they were due."""

    steps: int
    last_s: float
    mean_s: float
    maximum_s: float


class LiveEngine:
    """One engine model, driven by the timers of an event loop. `speed` 2.0 runs twice as fast."""

    def __init__(
        self, model: EngineModel, *, speed: float, observer: StepObserver, loop: Timers
    ) -> None:
        self._model = model
        self._speed = speed
        self._observer = observer
        self._loop = loop
        self._sinks: dict[int, tuple[Sink, int]] = {}
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._steps = 0
        self._lag_s = 0.0
        self._lag_sum_s = 0.0
        self._lag_maximum_s = 0.0

    def submit(self, work: Work, *, sink: Sink, index: int) -> None:
        """Queue a sequence; its tokens go to `sink` under `index`."""
        self._model.submit(work)
        self._sinks[work.key] = (sink, index)
        if self._timer is None:
            self._plan(self._loop.time())

    def abort(self, key: int) -> None:
        self._model.abort(key)
        self._sinks.pop(key, None)

    def stop(self) -> None:
        """No step ends any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sinks.clear()

    def statistics(self) -> EngineStatistics:
        return self._model.statistics()

    def lag(self) -> Lag:
        return Lag(
            steps=self._steps,
            last_s=self._lag_s,
            mean_s=self._lag_sum_s / self._steps if self._steps else 0.0,
            maximum_s=self._lag_maximum_s,
        )

    def _plan(self, now_s: float) -> None:
        step = self._model.start_step(now_s=0.0)
        if step is None:
            self._timer = None
            return
        self._due_s = now_s + step.end_s / self._speed
        self._timer = self._loop.call_at(self._due_s, self._end)
        self._observer.step_started(step, now_s=now_s)

    def _end(self) -> None:
        due_s = self._due_s
        self._note_lag(max(0.0, self._loop.time() - due_s))
        end = self._model.finish_step()
        going_on = tuple(self._model.decoding())
        self._plan(due_s)
        self._observer.step_ended(
            end.first_tokens,
            going_on=len(going_on),
            finished=len(end.finished),
            now_s=due_s,
        )
        sinks = self._sinks
        for key in going_on:
            # A sink may abort others: a client that left takes all its sequences along.
            entry = sinks.get(key)
            if entry is not None:
                entry[0].token(entry[1], finished=False)
        for key in end.finished:
            entry = sinks.pop(key, None)
            if entry is not None:
                entry[0].token(entry[1], finished=True)

    def _note_lag(self, lag_s: float) -> None:
        self._steps += 1
        self._lag_s = lag_s
        self._lag_sum_s += lag_s
        self._lag_maximum_s = max(self._lag_maximum_s, lag_s)
