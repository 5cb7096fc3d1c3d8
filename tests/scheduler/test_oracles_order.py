"""Who goes next is who a scan over everybody that waits finds, algorithm by algorithm.

One free seat, so that each decision picks one of all that wait, after arrivals, ends, truths and
lies about usage, clients that leave and engines that fail, in any order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from giveway_scheduler import Algorithm, Request, Settings, Usage
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.driving import CLASSES, Driver, dispatched, request, seats
from tests.scheduler.oracles import best_by

FLOOR_RATIO = 0.0517
HALF_LIFE_S = 30.0
SECONDS_PER_TOKEN = 1e-3
HOLDER = request(10**6, maximum_output_tokens=0)
"""It keeps one of two seats for ever: InteractiveFirst wants a seat that batch can't have (Y7)."""


@dataclass(slots=True)
class Waiting:
    """All that wait, and what was charged to whom so far."""

    offered_s: dict[int, float] = field(default_factory=dict)
    """When each came that waits now."""
    came_s: dict[int, float] = field(default_factory=dict)
    """When each came, whatever became of it."""
    requests: dict[int, Request] = field(default_factory=dict)
    charges: list[tuple[float, int, float]] = field(default_factory=list)
    """(time, rank, tokens), in order; corrections may be below 0."""

    def of_rank(self, rank: int) -> list[int]:
        """Keys of a class, in order of arrival: keys are given in that order."""
        return sorted(key for key in self.offered_s if self.requests[key].rank == rank)


def highest_score(waiting: Waiting, now_s: float) -> list[int]:
    """DynamicAging: base + growth x waited, of every single request (A2, mend 1)."""

    def score(key: int) -> float:
        settings = CLASSES[waiting.requests[key].rank]
        waited_ms = (now_s - waiting.offered_s[key]) * 1000.0
        return settings.aging_base + settings.aging_per_ms * waited_ms

    return best_by(list(waiting.offered_s), score)


def interactive_first(waiting: Waiting, now_s: float) -> list[int]:
    """InteractiveFirst: the highest class that waits; batch last (Y1)."""
    rank = min(waiting.requests[key].rank for key in waiting.offered_s)
    return waiting.of_rank(rank)[:1]


def slo_aware(waiting: Waiting, now_s: float) -> list[int]:
    """SLOAware: batch that is owed, the first class, the shortest between that can be on time, the
    oldest late one, batch."""
    first, between, batch = (waiting.of_rank(rank) for rank in range(3))
    if batch and is_below_floor(waiting.charges, now_s):
        return batch[:1]
    if first:
        return first[:1]
    target_s = CLASSES[1].first_token_target_s
    assert target_s is not None

    def tokens(key: int) -> int:
        return waiting.requests[key].prompt_tokens

    on_time = [
        key
        for key in between
        if now_s < waiting.offered_s[key] + target_s - tokens(key) * SECONDS_PER_TOKEN
    ]
    if on_time:
        return [min(on_time, key=lambda key: (tokens(key), key))]
    return between[:1] or batch[:1]


def is_below_floor(charges: list[tuple[float, int, float]], now_s: float) -> bool:
    """From the list of all charges: batch's decayed tokens are below the floor's share."""
    batch = everybody = 0.0
    since_s = now_s
    for at_s, rank, amount in charges:
        left = 2.0 ** (min(0.0, since_s - at_s) / HALF_LIFE_S)
        batch, everybody, since_s = batch * left, everybody * left, at_s
        if rank == 2:
            batch = max(0.0, batch + amount)
        everybody = max(batch, everybody + amount)
    return batch < FLOOR_RATIO * everybody


REFERENCES: dict[Algorithm, Callable[[Waiting, float], list[int]]] = {
    Algorithm.DYNAMIC_AGING: highest_score,
    Algorithm.INTERACTIVE_FIRST: interactive_first,
    Algorithm.SLO_AWARE: slo_aware,
}

steps = st.lists(
    st.tuples(
        st.sampled_from(["offer", "offer", "offer", "finish", "finish", "cancel", "requeue"]),
        st.integers(0, 2),
        st.sampled_from([7, 31, 113, 401, 997]),
        st.sampled_from([0.0, 0.013, 0.3, 2.1, 9.0]),
    ),
    min_size=10,
    max_size=80,
)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", list(REFERENCES))
@settings(max_examples=200, deadline=None, derandomize=True)
@given(steps=steps)
def test_next_is_who_a_scan_over_everybody_finds(
    algorithm: Algorithm, steps: list[tuple[str, int, int, float]]
) -> None:
    """A2 and mend 1, Y1, and the order of SLOAware with its floor."""
    driver = Driver(
        Settings(
            classes=tuple(replace(each, time_to_live_s=1e6) for each in CLASSES),
            algorithm=algorithm,
            concurrency=seats(2, batch_maximum=1, prompt_seconds_per_token=SECONDS_PER_TOKEN),
            anti_starvation=None,
            batch_token_floor_ratio=FLOOR_RATIO,
            batch_token_floor_half_life_s=HALF_LIFE_S,
        )
    )
    driver.offer(HOLDER)
    driver.first_token(HOLDER.key)
    waiting = Waiting(charges=[(0.0, 0, HOLDER.prompt_tokens)])
    picks = 0
    for key, (doing, rank, number, passed_s) in enumerate(steps):
        driver.now_s += passed_s
        before = len(driver.decisions)
        if doing == "offer":
            waiting.requests[key] = request(
                key, rank, prompt_tokens=number, maximum_output_tokens=0
            )
            waiting.offered_s[key] = waiting.came_s[key] = driver.now_s
            driver.offer(waiting.requests[key])
        elif doing == "cancel" and waiting.offered_s:
            leaving = sorted(waiting.offered_s)[number % len(waiting.offered_s)]
            del waiting.offered_s[leaving]
            driver.cancel(leaving)
        elif driver.running[1:]:
            _end(driver, waiting, doing, number)
        for picked in dispatched(driver.decisions[before:]):
            assert picked in REFERENCES[algorithm](waiting, driver.now_s)
            del waiting.offered_s[picked]
            each = waiting.requests[picked]
            waiting.charges.append((driver.now_s, each.rank, each.prompt_tokens))
            driver.first_token(picked)
            picks += 1
    assert driver.statistics().queued == len(waiting.offered_s)
    assert picks > 0 or not waiting.requests


def _end(driver: Driver, waiting: Waiting, doing: str, number: int) -> None:
    """What runs ends, with a usage that has nothing to do with what it asked for, or comes back."""
    key = driver.running[1]
    each = waiting.requests[key]
    if doing == "finish":
        usage = Usage(prompt_tokens=number, output_tokens=number // 3)
        charged = number + number // 3
        waiting.charges.append((driver.now_s, each.rank, charged - each.prompt_tokens))
        driver.end(key, usage)
        return
    waiting.charges.append((driver.now_s, each.rank, -each.prompt_tokens))
    waiting.offered_s[key] = waiting.came_s[key]
    driver.requeue(key)


def test_references_cover_what_has_one_right_answer() -> None:
    """The others draw lots, or are held by the shares in `test_oracles_fairness.py`."""
    assert set(Algorithm) - REFERENCES.keys() == {
        Algorithm.WEIGHTED_RANDOM,
        Algorithm.DEFICIT_ROUND_ROBIN,
    }
