"""Queues: bounds, displacement, times to live, and leaving (H5, A5, A6, mends 11 and 12)."""

from dataclasses import replace

import pytest
from giveway_scheduler import Evict, Expire, Reject, RejectReason, Settings

from tests.scheduler.driving import (
    BATCH,
    CLASSES,
    REALTIME,
    STANDARD,
    Driver,
    dispatched,
    evicted,
    expired,
    rejected,
    request,
    seats,
    tenant,
)


def full(capacity: int = 4, **more: object) -> Driver:
    """All classes hold `capacity` together, one seat, taken by request 0."""
    settings = Settings(classes=CLASSES, concurrency=seats(1), queue_capacity=capacity)
    driver = Driver(replace(settings, **more))  # type: ignore[arg-type]
    driver.offer(request(0))
    return driver


def test_class_queue_is_bounded() -> None:
    """H5: the newcomer of a full class is rejected with a hint between 1 and 60 s."""
    driver = Driver(
        Settings(classes=(replace(REALTIME, queue_capacity=5000),), concurrency=seats(1))
    )
    driver.offer(*(request(key) for key in range(5001)))
    (decision,) = driver.offer(request(9999))
    assert isinstance(decision, Reject)
    assert decision.reason is RejectReason.CLASS_QUEUE_FULL
    assert not decision.reason.is_rate
    assert 1.0 <= decision.retry_after_s <= 60.0
    assert driver.statistics().queued == 5000


def test_full_class_evicts_the_newest_of_the_tenant_with_most_entries() -> None:
    """A flood of one tenant does not shut another one out of the class."""
    driver = Driver(Settings(classes=(replace(REALTIME, queue_capacity=4),), concurrency=seats(1)))
    driver.offer(*(request(key, tenant=tenant("flood")) for key in range(5)))
    decisions = driver.offer(request(10, tenant=tenant("small")))
    assert evicted(decisions) == [4]
    assert evicted(driver.offer(request(11, tenant=tenant("small")))) == [3]
    assert rejected(driver.offer(request(12, tenant=tenant("small")))) == [12]
    assert rejected(driver.offer(request(13, tenant=tenant("flood")))) == [13]


def test_newcomer_of_a_higher_class_displaces_the_newest_of_the_lowest() -> None:
    """A5, mend 11: not an arbitrary entry, and the displaced client is told at once."""
    driver = full()
    driver.offer(request(1, 1), request(2, 2), request(3, 2), request(4, 1))
    driver.now_s = 2.0
    (decision,) = driver.offer(request(5, 0))
    assert isinstance(decision, Evict)
    assert (decision.request.key, decision.waited_s) == (3, 2.0)
    assert evicted(driver.offer(request(6, 1))) == [2]
    assert evicted(driver.offer(request(7, 0))) == [6]


def test_nobody_of_the_same_class_is_displaced() -> None:
    """A5: only when all entries are of the newcomer's level or above is the newcomer refused."""
    driver = full()
    driver.offer(*(request(key, 0) for key in range(1, 5)))
    for rank in (0, 1, 2):
        (decision,) = driver.offer(request(10 + rank, rank))
        assert isinstance(decision, Reject)
        assert decision.reason is RejectReason.QUEUE_FULL
    assert driver.statistics().queued == 4


def test_as_many_are_displaced_as_the_bytes_need() -> None:
    """C14: 100 bytes in all; 90 are taken; a newcomer of 50 needs 40: two entries of 30 leave."""
    driver = full(1000, queue_bytes=100)
    driver.offer(*(request(key, 2, size_bytes=30) for key in (1, 2, 3)))
    assert evicted(driver.offer(request(4, 1, size_bytes=50))) == [3, 2]
    assert driver.statistics().queued_bytes == 80


def test_nobody_leaves_for_a_newcomer_that_can_not_be_helped() -> None:
    """C14: where all lower entries together would not suffice, the newcomer alone is refused."""
    driver = full(1000, queue_bytes=100)
    driver.offer(request(1, 2, size_bytes=30), request(2, 0, size_bytes=60))
    decisions = driver.offer(request(3, 1, size_bytes=50))
    assert (rejected(decisions), evicted(decisions)) == ([3], [])
    assert rejected(driver.offer(request(4, 0, size_bytes=101))) == [4]
    assert driver.statistics().queued == 2


def test_nobody_of_the_class_leaves_for_a_newcomer_that_is_refused_after_all() -> None:
    """Making room is one step: the class's rival stays if the bytes do not suffice anyway."""
    classes = (replace(REALTIME, queue_capacity=2),)
    driver = Driver(Settings(classes=classes, concurrency=seats(1), queue_bytes=100))
    driver.offer(*(request(key, size_bytes=40, tenant=tenant("flood")) for key in range(3)))
    decisions = driver.offer(request(9, size_bytes=70, tenant=tenant("small")))
    assert (rejected(decisions), evicted(decisions)) == ([9], [])


def test_full_queue_does_not_refuse_who_can_go_at_once() -> None:
    """A newcomer that finds a seat needs no room in the queue."""
    classes = (REALTIME, replace(BATCH, queue_capacity=1))
    driver = Driver(Settings(classes=classes, concurrency=seats(2, reserved_seats=1)))
    driver.offer(*(request(key, 1) for key in range(2)))
    assert rejected(driver.offer(request(5, 1))) == [5]
    assert dispatched(driver.offer(request(6, 0))) == [6]


def test_hint_of_a_full_queue_follows_the_recent_rate() -> None:
    """100 wait and about 10 a second go: the hint is near 10 s; where nothing goes it is 60 s."""
    driver = Driver(
        Settings(classes=(replace(REALTIME, queue_capacity=100),), concurrency=seats(1))
    )
    driver.offer(*(request(key) for key in range(101)))
    (stuck,) = driver.offer(request(9999))
    assert isinstance(stuck, Reject)
    assert stuck.retry_after_s == 60.0
    for step in range(1, 1000):
        driver.now_s = step / 10
        driver.finish(driver.running[0])
        driver.offer(request(10_000 + step))
    (moving,) = driver.offer(request(99_999))
    assert isinstance(moving, Reject)
    assert moving.retry_after_s == pytest.approx(10.0, rel=0.05)


def test_entry_expires_at_its_time_to_live() -> None:
    """A6: 15 s by default; the client is told then, and the engine is never called for it."""
    driver = full()
    driver.offer(request(1), request(2, 2))
    assert driver.announced(14.9) == []
    assert driver.scheduler.next_event_s() == 15.0
    (decision,) = driver.at(15.0)
    assert isinstance(decision, Expire)
    assert (decision.request.key, decision.waited_s) == (1, 15.0)
    assert expired(driver.at(3600.0)) == [2]


def test_seat_that_frees_after_the_time_to_live_goes_to_the_next_live_one() -> None:
    """A6, C11: TTL 1.0 s, seat free at 1.02 s: the expired one never reaches the engine."""
    settings = Settings(classes=(replace(REALTIME, time_to_live_s=1.0),), concurrency=seats(1))
    driver = Driver(settings)
    driver.offer(request(0), request(1))
    driver.now_s = 0.5
    driver.offer(request(2))
    driver.now_s = 1.02
    decisions = driver.finish(0)
    assert (expired(decisions), dispatched(decisions)) == ([1], [2])


@pytest.mark.parametrize(("patience_s", "expires_s"), [(2.0, 2.0), (100.0, 15.0), (-3.0, 0.0)])
def test_client_patience_only_shortens(patience_s: float, expires_s: float) -> None:
    """C11: the client's own time to live, never longer than the class's."""
    driver = full()
    driver.offer(request(1, patience_s=patience_s))
    assert expired(driver.announced(3600.0)) == [1]
    assert driver.decisions[-1] == Expire(request=driver.requests[1], waited_s=expires_s)


def test_impatient_request_still_goes_at_once_if_a_seat_is_free() -> None:
    """A6: patience is for waiting; who does not wait needs none."""
    driver = Driver(Settings(classes=(REALTIME,), concurrency=seats(1)))
    assert dispatched(driver.offer(request(1, patience_s=0.0))) == [1]


def test_ten_thousand_expired_entries_leave_nothing_behind() -> None:
    """C09: all are told, the next live one is served at once, and the queue's books are empty."""
    settings = Settings(
        classes=(replace(REALTIME, time_to_live_s=2.0, queue_capacity=20_000),),
        concurrency=seats(1),
        queue_capacity=20_000,
    )
    driver = Driver(settings)
    driver.offer(*(request(key, size_bytes=7) for key in range(10_001)))
    driver.now_s = 1.0
    driver.offer(request(99_999))
    assert len(expired(driver.at(2.0))) == 10_000
    statistics = driver.statistics()
    assert (statistics.queued, statistics.queued_bytes) == (1, 0)
    assert dispatched(driver.finish(0)) == [99_999]


def test_client_that_left_never_reaches_the_engine() -> None:
    """Mend 12, C07: of 20 waiting 15 leave; exactly the 5 others are dispatched."""
    driver = Driver(Settings(classes=(REALTIME,), concurrency=seats(1)))
    driver.offer(*(request(key) for key in range(21)))
    for key in range(1, 16):
        assert driver.cancel(key) == []
    assert driver.serve() == [0, 16, 17, 18, 19, 20]


def test_client_that_left_the_engine_frees_its_seat_at_once() -> None:
    """Mend 12, C04: 50 times cut, the seat is free each time."""
    driver = Driver(Settings(classes=(REALTIME,), concurrency=seats(1)))
    for key in range(50):
        assert dispatched(driver.offer(request(key))) == [key]
        driver.cancel(key)
    assert driver.statistics().running == 0


def test_equal_requests_go_in_order_of_arrival() -> None:
    """C17: 200 of one class and one instant, no tie is decided by anything else."""
    driver = Driver(Settings(classes=(STANDARD,), concurrency=seats(1)))
    driver.offer(*(request(key) for key in range(200)))
    assert driver.serve() == list(range(200))


def test_requeued_request_keeps_its_place_and_age() -> None:
    """C23: what the engine gave back goes before those that came after it."""
    driver = Driver(Settings(classes=(REALTIME,), concurrency=seats(2)))
    driver.offer(*(request(key) for key in range(5)))
    driver.now_s = 4.0
    driver.set_engine_available(False)
    assert driver.requeue(1) == []
    assert driver.requeue(0) == []
    driver.now_s = 6.0
    decisions = driver.set_engine_available(True)
    assert dispatched(decisions) == [0, 1]
    assert [each.waited_s for each in decisions if hasattr(each, "waited_s")] == [6.0, 6.0]
    assert driver.serve() == [0, 1, 2, 3, 4]


def test_time_to_live_goes_on_while_the_engine_is_away() -> None:
    """C23: nothing is sent into a dead engine, and at its return no more than the seats."""
    driver = Driver(Settings(classes=(REALTIME,), concurrency=seats(4)))
    driver.set_engine_available(False)
    assert driver.offer(*(request(key) for key in range(10))) == []
    driver.now_s = 10.0
    driver.offer(*(request(key) for key in range(10, 30)))
    assert expired(driver.at(15.0)) == list(range(10))
    assert dispatched(driver.set_engine_available(True)) == [10, 11, 12, 13]
    assert driver.statistics().classes[0].queued == 16


def test_gauges_return_to_zero() -> None:
    """C26: after every way of ending nothing is counted any more."""
    driver = full(3)
    driver.offer(*(request(key, 2, size_bytes=5) for key in range(1, 5)))
    driver.offer(request(9, 0, size_bytes=5))
    driver.cancel(1)
    driver.serve()
    driver.until(4000.0)
    statistics = driver.statistics()
    assert (statistics.queued, statistics.queued_bytes, statistics.running) == (0, 0, 0)
    assert statistics.unprefilled_tokens == 0
    assert statistics.ledger.held_tokens == 0.0
    assert all(each.queued_tokens == 0 for each in statistics.classes)
    assert all((each.queued, each.running) == (0, 0) for each in statistics.tenants)
