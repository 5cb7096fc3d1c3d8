"""Sums and shares with a half-life."""

import pytest
from giveway_scheduler.decaying import DecayedShare, DecayedSum


def test_half_is_left_after_a_half_life() -> None:
    """8 after 10 s of a half-life of 10 s is 4; a correction never takes it below 0."""
    recent = DecayedSum(half_life_s=10.0, now_s=0.0)
    recent.add(8.0, now_s=0.0)
    assert recent.at(10.0) == pytest.approx(4.0)
    recent.add(-9.0, now_s=10.0)
    assert recent.at(10.0) == 0.0


def test_one_long_step_equals_many_short_ones() -> None:
    """Decay is closed in time."""
    long, short = (DecayedSum(half_life_s=3.0, now_s=0.0) for _ in range(2))
    for each in (long, short):
        each.add(100.0, now_s=0.0)
    for step in range(1, 1001):
        short.at(step / 100)
    assert short.at(10.0) == pytest.approx(long.at(10.0))


def test_rate_is_that_of_a_steady_flow() -> None:
    """Five a second for many half-lives reads as five a second."""
    recent = DecayedSum(half_life_s=10.0, now_s=0.0)
    for step in range(2000):
        recent.add(1.0, now_s=step / 5)
    assert recent.per_s(2000 / 5) == pytest.approx(5.0, rel=0.02)


def test_share_does_not_change_by_itself() -> None:
    """Part and whole decay alike: 1 of 20 stays 5 % for as long as nothing is added."""
    share = DecayedShare(half_life_s=30.0, now_s=0.0)
    assert not share.is_below(0.05)
    share.add(19.0, is_part=False, now_s=0.0)
    share.add(1.0, is_part=True, now_s=0.0)
    assert not share.is_below(0.05)
    share.add(0.0, is_part=False, now_s=300.0)
    assert not share.is_below(0.0499)
    assert share.is_below(0.0501)
    share.add(100.0, is_part=False, now_s=300.0)
    assert share.is_below(0.05)
