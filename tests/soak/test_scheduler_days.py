"""Does the scheduler stand two days of everything? In compressed time.

Eight quiet moments lie in the 48 hours. In each nothing may be left, and what the scheduler holds
may not grow from the first day to the second. Between them every bucket is compared with exact
books, a few thousand times. The nightly runs live the same days with more traffic and tenants, and
under each algorithm alone.
"""

import pytest
from giveway_scheduler import Algorithm

from tests.soak.day_load import DayLoad
from tests.soak.day_settings import ALWAYS_NAMED, IDLE_TENANTS
from tests.soak.holding import Holding, held_by
from tests.soak.invented_days import Days, Tally

HOURS = 48
LIGHT = DayLoad(hours=HOURS, busy_s=6.0, tenants=10_000)
"""Six seconds of crowd in each hour, and somebody now and then in the rest."""
HEAVY = DayLoad(hours=HOURS, busy_s=60.0, tenants=25_000, easy_per_s=0.15)
MORE_OBJECTS = 64
"""Less than one for each policy of a day. Heaps may hold so many stale items."""
NAMED_AT_ONCE = 4


def live(load: DayLoad, algorithm: Algorithm | None = None) -> Tally:
    """Two days, and all that holds of every one of them."""
    days = Days(load, algorithm)
    held: list[Holding] = []
    for hour in days.quiet_moments():
        assert_nothing_is_left(days)
        days.rest()
        known = sorted(tenant.name for tenant in days.scheduler._tenants.all())
        assert known == sorted(ALWAYS_NAMED), f"remembered after hour {hour}"
        held.append(held_by(days.scheduler))
    assert_is_flat(held)
    return days.tally


def assert_nothing_is_left(days: Days) -> None:
    """Every request had its end; nothing is queued, held, reserved or planned."""
    assert not days.live
    scheduler = days.scheduler
    now = scheduler.statistics(now_s=days.now_s)
    assert (now.queued, now.queued_bytes, now.running, now.unprefilled_tokens) == (0, 0, 0, 0)
    assert now.ledger.held_tokens == 0.0
    assert scheduler.next_event_s() is None, "a timer stays"
    assert len(scheduler._tenants) <= IDLE_TENANTS + NAMED_AT_ONCE
    for of_class in now.classes:
        for bucket in (of_class.requests, of_class.tokens):
            assert bucket is None or bucket.level == bucket.burst, "a quiet hour fills it"


def assert_is_flat(held: list[Holding]) -> None:
    """The second day holds no more than the first; the sizes of dicts move in steps."""
    middle = len(held) // 2
    first, second = held[:middle], held[middle:]
    objects = max(each.objects for each in first)
    assert max(each.objects for each in second) <= objects + MORE_OBJECTS, held
    size_bytes = max(each.size_bytes for each in first)
    assert max(each.size_bytes for each in second) <= 1.1 * size_bytes, held


def assert_was_eventful(tally: Tally) -> None:
    """What is claimed to have been stood has happened."""
    assert tally.changes == HOURS * 3
    assert tally.sleeps >= 9
    assert tally.lifted >= 10
    often = {"end", "left running", "left waiting", "engine did nothing"}
    for kind in often | {"Reject", "Evict", "Expire", "aborted"}:
        assert tally.ends[kind] >= 20, tally.ends


@pytest.mark.slow
def test_two_days_leave_nothing_behind_and_no_bucket_drifts() -> None:
    """With some thousand tenants that come and go."""
    tally = live(LIGHT)
    assert_was_eventful(tally)
    assert len(tally.tenants) > 5_000
    assert tally.compared > 2_000
    assert tally.drift < 1e-8
    assert tally.timers < tally.requests, "woken more often than asked"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_two_heavy_days_leave_nothing_behind_and_no_bucket_drifts() -> None:
    """The same with ten times the crowds, and more than ten thousand tenants."""
    tally = live(HEAVY)
    assert_was_eventful(tally)
    assert tally.requests > 40_000
    assert len(tally.tenants) > 10_000
    assert tally.drift < 1e-8
    assert tally.timers < tally.requests, "woken more often than asked"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("algorithm", Algorithm)
def test_two_days_under_one_algorithm_leave_nothing_behind(algorithm: Algorithm) -> None:
    """What an algorithm remembers has two days to grow in: no change of policy ends it."""
    tally = live(LIGHT, algorithm)
    assert tally.requests > 10_000
    assert tally.drift < 1e-8
    # InteractiveFirst looks at its pressure four times a second while anybody waits.
    assert tally.timers < 5 * tally.requests, "woken far more often than asked"
