"""Histograms: counting, and bounds that change while counting goes on."""

import math

import pytest
from giveway_admission.histograms import (
    DURATION_BOUNDS_S,
    FIRST_TOKEN_BOUNDS_S,
    MAXIMUM_THRESHOLDS,
    QUEUE_WAIT_BOUNDS_S,
    TOKEN_GAP_BOUNDS_S,
    Histogram,
    HistogramFamily,
)
from hypothesis import given
from hypothesis import strategies as st

LADDERS = (DURATION_BOUNDS_S, FIRST_TOKEN_BOUNDS_S, QUEUE_WAIT_BOUNDS_S, TOKEN_GAP_BOUNDS_S)


def cumulative(family: HistogramFamily, child: Histogram) -> dict[float, int]:
    """What Prometheus sees: by bound, how many were at most as large."""
    seen: dict[float, int] = {}
    total = 0
    for bound, count in zip((*family.bounds, math.inf), child.counts, strict=True):
        total += count
        seen[bound] = total
    return seen


@pytest.mark.parametrize("ladder", LADDERS)
def test_every_ladder_rises_and_starts_above_zero(ladder: tuple[float, ...]) -> None:
    """A ladder is strictly rising, so that each bound is a series of its own."""
    assert list(ladder) == sorted(set(ladder))
    assert ladder[0] > 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, [1, 0, 0, 0]),
        (1.0, [1, 0, 0, 0]),  # a bound counts what equals it
        (1.0000001, [0, 1, 0, 0]),
        (2.0, [0, 1, 0, 0]),
        (3.0, [0, 0, 1, 0]),
        (3.1, [0, 0, 0, 1]),
        (math.inf, [0, 0, 0, 1]),
    ],
)
def test_value_falls_into_the_first_range_whose_bound_it_does_not_exceed(
    value: float, expected: list[int]
) -> None:
    """A bucket counts what is at most its bound, as Prometheus' `le` says."""
    child = HistogramFamily((1.0, 2.0, 3.0)).child("a")
    child.observe(value)
    assert child.counts == expected


@pytest.mark.parametrize("value", [-1.0, -math.inf, math.nan])
def test_impossible_value_counts_as_zero(value: float) -> None:
    """B26: a value that cannot be neither raises nor spoils the sum."""
    child = HistogramFamily((1.0,)).child("a")
    child.observe(value)
    assert (child.counts, child.sum) == ([1, 0], 0.0)


def test_threshold_becomes_a_bound_of_every_child() -> None:
    """All classes have the same bounds, or sums over classes would be wrong."""
    family = HistogramFamily((0.1, 1.0))
    first = family.child("a")
    family.require([0.3])
    second = family.child("b")
    assert family.bounds == [0.1, 0.3, 1.0]
    assert len(first.counts) == len(second.counts) == 4


def test_new_bound_leaves_counts_where_they_were() -> None:
    """Series that exist go on unchanged when a bound is added between them."""
    family = HistogramFamily((0.1, 1.0))
    child = family.child("a")
    for value in (0.05, 0.2, 0.5, 5.0):
        child.observe(value)
    family.require([0.3])
    assert cumulative(family, child) == {0.1: 1, 0.3: 1, 1.0: 3, math.inf: 4}
    child.observe(0.2)
    assert cumulative(family, child) == {0.1: 1, 0.3: 2, 1.0: 4, math.inf: 5}


def test_observer_taken_before_a_reload_counts_into_the_right_range_after_it() -> None:
    """A stream keeps its observer over a policy reload."""
    family = HistogramFamily((0.1, 1.0))
    child = family.child("a")
    observe = child.observe
    family.require([0.3])
    observe(0.2)
    assert child.within(0.3) == 1


def test_share_within_a_threshold_is_exact() -> None:
    """H2: whether an answer kept its objective is counted, not interpolated."""
    family = HistogramFamily((0.1, 1.0))
    family.require([0.3])
    child = family.child("a")
    for value in (0.29, 0.3, 0.30001):
        child.observe(value)
    assert (child.within(0.3), child.count) == (2, 3)


def test_unusable_thresholds_are_left_out() -> None:
    """Not every number can be a bound."""
    family = HistogramFamily((1.0,))
    family.require([0.0, -1.0, math.inf, math.nan])
    assert family.bounds == [1.0]


def test_ladder_is_never_forgotten() -> None:
    """A threshold that is on the ladder anyway stays a bound when it is no threshold any more."""
    family = HistogramFamily((0.5, 1.0))
    family.require([0.5])
    for index in range(MAXIMUM_THRESHOLDS * 2):
        family.require([2.0 + index])
    assert {0.5, 1.0} <= set(family.bounds)


def test_bounds_stay_few_over_many_reloads() -> None:
    """No growth: of a thousand different thresholds the latest stay."""
    family = HistogramFamily((1.0,))
    child = family.child("a")
    for index in range(1000):
        family.require([2.0 + index])
        child.observe(2.0 + index)
    assert len(family.bounds) == 1 + MAXIMUM_THRESHOLDS
    assert 1001.0 in family.bounds
    assert child.count == 1000


def test_all_thresholds_of_one_policy_are_bounds_however_many() -> None:
    """What the policy says now goes before the limit."""
    family = HistogramFamily((1.0,))
    wanted = [2.0 + index for index in range(MAXIMUM_THRESHOLDS * 3)]
    family.require(wanted)
    assert set(wanted) <= set(family.bounds)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), st.floats(0, 40)),
        st.tuples(st.just("require"), st.floats(0.01, 40)),
    ),
    max_size=120,
)


@given(STEPS)
def test_no_series_ever_goes_down(steps: list[tuple[str, float]]) -> None:
    """Whatever is observed and required, a series that stays only rises, and nothing is lost."""
    family = HistogramFamily((1.0, 5.0, 10.0))
    child = family.child("a")
    before = cumulative(family, child)
    observed = 0
    for step, value in steps:
        if step == "observe":
            child.observe(value)
            observed += 1
        else:
            family.require([value])
        now = cumulative(family, child)
        assert all(now[bound] >= count for bound, count in before.items() if bound in now)
        assert now[math.inf] == observed
        assert family.bounds == sorted(set(family.bounds))
        before = now
