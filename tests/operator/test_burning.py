"""The error budget: how fast it is used, and what is left."""

import asyncio
from dataclasses import replace

import pytest
from giveway_operator.burning import Budgets, burn
from giveway_operator.observations import Observation
from giveway_operator.statuses import ObservationState
from giveway_policy.documents import PolicyName
from giveway_policy.resources import SLOPolicySpec

from tests.operator.plants import INDICATOR, THRESHOLD_MS, measured, objective, spec, unmeasured

POLICY = PolicyName(namespace="llm", name="chat")


@pytest.mark.parametrize(
    ("ratio", "rate", "remaining"),
    [
        (1.0, 0.0, 100.0),
        (0.99, 1.0, 0.0),  # as many bad ones as 99 allows
        (0.985, 1.5, -50.0),
        (0.856, 14.4, -1340.0),  # the published alert of an hour
        (0.0, 100.0, -9900.0),
    ],
)
def test_the_rate_is_the_share_of_bad_ones_by_what_is_allowed(
    ratio: float, rate: float, remaining: float
) -> None:
    found = burn("c0", objective("99"), {300: [measured("c0", ratio)]})
    assert dict(found.rates) == pytest.approx({300: rate})
    assert found.remaining_percent == pytest.approx(remaining)


def test_a_window_that_cannot_be_measured_has_no_rate_and_the_longest_no_budget() -> None:
    windows = {
        300: [measured("c0", 0.98)],
        3600: [unmeasured("c0", ObservationState.QUERY_FAILED)],
    }
    found = burn("c0", objective("99"), windows)
    assert dict(found.rates) == pytest.approx({300: 2.0})
    assert found.remaining_percent is None


class Counting:
    def __init__(self) -> None:
        self.asked: list[int] = []
        self.gate: asyncio.Event | None = None
        self.cancelled = False

    async def observe_since(
        self, policy: PolicyName, spec: SLOPolicySpec, *, window_s: int
    ) -> tuple[Observation, ...]:
        self.asked.append(window_s)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return (measured("c0", 0.98), measured("c1", 0.999))


async def settle() -> None:
    """Let what was started run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_long_windows_are_asked_for_rarely_and_at_once_after_an_edit() -> None:
    """They cost Prometheus days of samples, and change slowly."""
    observer = Counting()
    budgets = Budgets(observer, windows_s=(3600, 259_200), refresh_s=300.0)
    recent = (measured("c0", 1.0), measured("c1", 0.5))
    key = ("c0", INDICATOR, THRESHOLD_MS)
    first = budgets.burns(POLICY, spec(), recent, now_s=0.0)
    assert dict(first[key].rates) == {300: 0.0}
    assert first[key].remaining_percent is None, "it is not known yet"
    await settle()
    for now_s in (30.0, 299.0):
        found = budgets.burns(POLICY, spec(), recent, now_s=now_s)
        await settle()
    assert observer.asked == [3600, 259_200]
    assert dict(found[key].rates) == pytest.approx({300: 0.0, 3600: 2.0, 259_200: 2.0})
    assert found[key].remaining_percent == pytest.approx(-100.0)
    budgets.burns(POLICY, spec(), recent, now_s=300.0)
    await settle()
    assert len(observer.asked) == 4
    edited = spec(targets=("99.9", "99", None))
    budgets.burns(POLICY, edited, recent, now_s=301.0)
    await settle()
    assert len(observer.asked) == 6
    found = budgets.burns(POLICY, edited, recent, now_s=302.0)
    assert found[key].remaining_percent == pytest.approx(-1900.0)


async def test_a_prometheus_that_takes_long_for_the_budget_holds_up_nothing() -> None:
    """It is asked once, however often the loop comes by; and a policy that is gone asks no more."""
    observer = Counting()
    observer.gate = asyncio.Event()
    budgets = Budgets(observer, windows_s=(3600,), refresh_s=1.0)
    for now_s in range(10):
        found = budgets.burns(POLICY, spec(), (measured("c0", 0.98),), now_s=float(now_s))
        await settle()
    assert observer.asked == [3600]
    assert dict(found["c0", INDICATOR, THRESHOLD_MS].rates) == pytest.approx({300: 2.0})
    budgets.forget(POLICY)
    await settle()
    assert observer.cancelled


def test_another_objective_of_the_class_is_not_mixed_in() -> None:
    other = replace(measured("c0", 0.0), threshold_milliseconds=900)
    found = burn("c0", objective("99"), {300: [other, measured("c0", 1.0)]})
    assert found.rates == ((300, 0.0),)
