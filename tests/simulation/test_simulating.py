"""The simulation's own rules: what happens in which order, and that it repeats."""

from collections.abc import Iterable

import pytest
from giveway_scheduler import Algorithm
from giveway_simulation.baselines import Direct, StrictOrder
from giveway_simulation.coupling import ScheduledAdmission, comparison_settings
from giveway_simulation.engine_model import EngineLimits, SchedulingPolicy
from giveway_simulation.engine_pods import DEFAULT_POD, PODS
from giveway_simulation.simulating import Admission, Drop, Order, Run, Send, Withdraw, simulate
from giveway_simulation.workloads import Arrival, comparison_workload

from tests.simulation.engine_fixtures import flat_pod

LIMITS = EngineLimits(max_num_seqs=8, max_num_batched_tokens=100)


def arrival(at_s: float, *, rank: int = 0, prompt: int = 10, output: int = 5) -> Arrival:
    return Arrival(at_s=at_s, rank=rank, tenant="only", prompt_tokens=prompt, output_tokens=output)


def run(arrivals: list[Arrival], admission: Admission, *, duration_s: float = 100.0) -> Run:
    """Every step takes 10 ms."""
    pod = flat_pod(step_ms=10.0)
    return simulate(arrivals, admission, pod=pod, limits=LIMITS, duration_s=duration_s)


def test_request_alone_takes_its_steps() -> None:
    """Arrives at 1.0: first token a step later, 5 tokens in 5 steps, 10 ms a token."""
    (record,) = run([arrival(1.0)], Direct()).records
    assert record.sent_s == 1.0
    assert record.wait_s == pytest.approx(0.01)
    assert record.finished_s == pytest.approx(1.05)
    assert record.token_s == pytest.approx(0.01)


def test_what_is_sent_on_a_first_token_is_in_the_step_after_the_next() -> None:
    """One at a time: the engine planned its next step before the token was heard."""

    class OneUnprefilled(Direct):
        """Sends the next when the last shows its first token."""

        def __init__(self) -> None:
            self.waiting: list[int] = []
            self.busy = False

        def offer(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]:
            self.waiting.append(key)
            return () if self.busy else self.send()

        def first_token(self, key: int, *, now_s: float) -> Iterable[Order]:
            self.busy = False
            return self.send()

        def send(self) -> Iterable[Order]:
            if not self.waiting:
                return ()
            self.busy = True
            return (Send(key=self.waiting.pop(0)),)

    first, second = run([arrival(0.0), arrival(0.0)], OneUnprefilled()).records
    assert first.first_token_s == pytest.approx(0.01)
    # Heard at 10 ms, when the step until 20 ms was planned: its own is the one until 30 ms.
    assert second.sent_s == pytest.approx(0.01)
    assert second.first_token_s == pytest.approx(0.03)


def test_withdrawn_request_can_be_sent_again_and_a_dropped_one_is_never_served() -> None:
    """A10's abort takes what was computed; a refusal leaves no trace at the engine."""

    class Hesitating(Direct):
        def __init__(self) -> None:
            self.due_s: float | None = None

        def offer(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]:
            if key == 1:
                return (Drop(key=1),)
            self.due_s = now_s + 0.005
            return (Send(key=key),)

        def advance(self, *, now_s: float) -> Iterable[Order]:
            self.due_s = None
            return (Withdraw(key=0), Send(key=0))

        def next_event_s(self) -> float | None:
            return self.due_s

    sent, dropped = run([arrival(0.0), arrival(0.0)], Hesitating()).records
    # Withdrawn at 5 ms inside the step until 10 ms; its second try is in the one until 20 ms.
    assert sent.first_token_s == pytest.approx(0.02)
    assert sent.finished_s == pytest.approx(0.06)
    assert dropped.sent_s is None
    assert dropped.finished_s is None


def test_unfinished_requests_stay_unfinished() -> None:
    """The run ends in the middle of the second one's tokens."""
    early, late = run([arrival(0.0), arrival(0.98)], Direct(), duration_s=1.0).records
    assert early.finished_s == pytest.approx(0.05)
    assert late.first_token_s is not None
    assert late.finished_s is None


def test_strict_order_serves_classes_in_order_and_holds_its_seats() -> None:
    """One seat: rank 0 first, then 1, then 2, whatever came first."""
    arrivals = [
        arrival(0.0, rank=2),
        arrival(0.001, rank=2),
        arrival(0.002, rank=1),
        arrival(0.003),
    ]
    records = run(arrivals, StrictOrder(seats=1)).records
    ends = [record.finished_s or 0.0 for record in records]
    assert sorted(range(4), key=lambda key: ends[key]) == [0, 3, 2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", list(Algorithm), ids=str)
def test_every_algorithm_serves_all_that_came_and_repeats_itself(algorithm: Algorithm) -> None:
    """60 s of load 0.8 with 100 s to finish: everybody once, nothing left, twice the same."""

    def once() -> tuple[Run, ScheduledAdmission]:
        admission = ScheduledAdmission(comparison_settings(algorithm), seed=3)
        result = simulate(
            comparison_workload(0.8, seed=3, duration_s=60.0),
            admission,
            pod=PODS[DEFAULT_POD],
            limits=EngineLimits(scheduling_policy=SchedulingPolicy.PRIORITY),
            duration_s=160.0,
        )
        return result, admission

    result, admission = once()
    assert all(record.finished_s is not None for record in result.records)
    statistics = admission.scheduler.statistics(now_s=160.0)
    assert (statistics.queued, statistics.running, statistics.unprefilled_tokens) == (0, 0, 0)
    assert result.engine.generation_tokens == sum(
        record.arrival.output_tokens for record in result.records
    )
    again, _ = once()
    assert [record.finished_s for record in again.records] == [
        record.finished_s for record in result.records
    ]
