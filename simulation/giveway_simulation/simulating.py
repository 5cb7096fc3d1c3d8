"""What happens to a load under an admission algorithm? Discrete events around one engine model.

Time is invented: a run of 900 s takes seconds. The order of what happens in one instant is that of
a proxy before a real engine: the engine plans its next step first, and only then do the tokens of
the last one reach the proxy. So whatever the proxy decides on a first token takes effect a step
later. A model that reacts within the step makes every gate look better than it is.

Every run with equal arguments gives equal results.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from giveway_simulation.engine_model import EngineLimits, EngineModel, EngineStatistics, Work
from giveway_simulation.engine_pods import Pod
from giveway_simulation.workloads import Arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Give request `key` to the engine with this priority."""

    key: int
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Abort request `key` at the engine; it may be sent again later."""

    key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Request `key` will not be served: refused, displaced or expired."""

    key: int


Order = Send | Withdraw | Drop


class Admission(Protocol):
    """What stands before the engine. A key is the arrival's place in the load."""

    def offer(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]: ...

    def first_token(self, key: int, *, now_s: float) -> Iterable[Order]: ...

    def finish(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]: ...

    def advance(self, *, now_s: float) -> Iterable[Order]: ...

    def next_event_s(self) -> float | None:
        """When `advance` has to be called at the latest. None: not before another call."""
        ...


@dataclass(slots=True)
class Record:
    """What became of one arrival. A time that is None has not come."""

    arrival: Arrival
    sent_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None

    @property
    def wait_s(self) -> float | None:
        """From arrival to the first token."""
        if self.first_token_s is None:
            return None
        return self.first_token_s - self.arrival.at_s

    @property
    def token_s(self) -> float | None:
        """Mean time per output token after the first; 0.0 if there is one only."""
        if self.finished_s is None or self.first_token_s is None:
            return None
        return (self.finished_s - self.first_token_s) / max(1, self.arrival.output_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished simulation."""

    records: Sequence[Record]
    """In the order of arrival."""
    engine: EngineStatistics
    duration_s: float


def simulate(
    arrivals: Sequence[Arrival],
    admission: Admission,
    *,
    pod: Pod,
    limits: EngineLimits,
    duration_s: float,
) -> Run:
    """Run until `duration_s`; what is unfinished then stays so."""
    simulation = _Simulation(arrivals, admission, engine=EngineModel(pod, limits))
    simulation.run_until(duration_s)
    return Run(
        records=simulation.records,
        engine=simulation.engine.statistics(),
        duration_s=duration_s,
    )


class _Simulation:
    def __init__(
        self, arrivals: Sequence[Arrival], admission: Admission, *, engine: EngineModel
    ) -> None:
        self.records = [Record(arrival) for arrival in arrivals]
        self.engine = engine
        self._admission = admission
        self._next_arrival = 0
        self._step_end_s: float | None = None

    def run_until(self, end_s: float) -> None:
        while True:
            now_s = self._next_time_s()
            if now_s is None or now_s > end_s:
                return
            if self._step_end_s is not None and self._step_end_s <= now_s:
                self._end_step(now_s)
            while (
                self._next_arrival < len(self.records)
                and self.records[self._next_arrival].arrival.at_s <= now_s
            ):
                key = self._next_arrival
                self._next_arrival += 1
                arrival = self.records[key].arrival
                self._obey(self._admission.offer(key, arrival, now_s=now_s), now_s=now_s)
            due_s = self._admission.next_event_s()
            if due_s is not None and due_s <= now_s:
                self._obey(self._admission.advance(now_s=now_s), now_s=now_s)
            if self._step_end_s is None:
                self._start_step(now_s)

    def _next_time_s(self) -> float | None:
        times = [self._step_end_s, self._admission.next_event_s()]
        if self._next_arrival < len(self.records):
            times.append(self.records[self._next_arrival].arrival.at_s)
        return min((time for time in times if time is not None), default=None)

    def _end_step(self, now_s: float) -> None:
        end = self.engine.finish_step()
        self._step_end_s = None
        self._start_step(now_s)
        for key in end.first_tokens:
            self.records[key].first_token_s = now_s
            self._obey(self._admission.first_token(key, now_s=now_s), now_s=now_s)
        for key in end.finished:
            record = self.records[key]
            record.finished_s = now_s
            self._obey(self._admission.finish(key, record.arrival, now_s=now_s), now_s=now_s)

    def _start_step(self, now_s: float) -> None:
        step = self.engine.start_step(now_s=now_s)
        self._step_end_s = None if step is None else step.end_s

    def _obey(self, orders: Iterable[Order], *, now_s: float) -> None:
        for order in orders:
            match order:
                case Send(key=key, priority=priority):
                    record = self.records[key]
                    record.sent_s = now_s
                    self.engine.submit(
                        Work(
                            key=key,
                            prompt_tokens=record.arrival.prompt_tokens,
                            output_tokens=record.arrival.output_tokens,
                            priority=priority,
                        )
                    )
                case Withdraw(key=key):
                    self.engine.abort(key)
                    self.records[key].sent_s = None
                    self.records[key].first_token_s = None
                case Drop():
                    pass
