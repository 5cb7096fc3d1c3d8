"""Seats: the cap, the reserve, batch's part, and following the engine (Y2, Y7, A3, mend 10)."""

from dataclasses import replace

import pytest
from giveway_scheduler import Algorithm, ClassName, Settings

from tests.scheduler.driving import CLASSES, REALTIME, STANDARD, Driver, dispatched, request, seats


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_burst_never_exceeds_the_seats(algorithm: Algorithm) -> None:
    """Y2, A3, C21: 64 requests in one instant before 4 seats: never more than 4 at the engine."""
    settings = Settings(classes=CLASSES, algorithm=algorithm, concurrency=seats(4, batch_maximum=3))
    driver = Driver(settings)
    driver.offer(*(request(key, key % 3) for key in range(64)))
    most = driver.statistics().running
    while driver.running:
        driver.finish(driver.running[0])
        most = max(most, driver.statistics().running)
    assert most == 4


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_freed_seat_is_handed_on_in_the_same_call(algorithm: Algorithm) -> None:
    """No seat stays free while a request may go."""
    settings = Settings(classes=CLASSES, algorithm=algorithm, concurrency=seats(3, batch_maximum=2))
    driver = Driver(settings)
    driver.offer(*(request(key, key % 3) for key in range(30)))
    for _ in range(20):
        assert len(dispatched(driver.finish(driver.running[0]))) == 1


def test_reserved_seats_cap_the_lower_classes_together() -> None:
    """Y7, C20: of ten seats two stay free for the first class, however much else waits."""
    driver = Driver(Settings(classes=CLASSES, concurrency=seats(10, reserved_seats=2)))
    driver.offer(*(request(key, 1 + key % 2) for key in range(40)))
    assert driver.statistics().running == 8
    assert dispatched(driver.offer(*(request(100 + key) for key in range(3)))) == [100, 101]


def test_reserve_of_zero_is_legal() -> None:
    """0: the lower classes may have every seat."""
    driver = Driver(Settings(classes=CLASSES, concurrency=seats(10)))
    driver.offer(*(request(key, 1) for key in range(40)))
    assert driver.statistics().running == 10


def test_batch_classes_share_their_maximum() -> None:
    """Seats of all classes of kind Batch together."""
    classes = (*CLASSES, replace(CLASSES[2], name=ClassName("offline")))
    driver = Driver(Settings(classes=classes, concurrency=seats(10, batch_maximum=3)))
    driver.offer(*(request(key, 2 + key % 2) for key in range(40)))
    assert driver.statistics().running == 3


def following(seat_count: int = 20) -> Driver:
    driver = Driver(Settings(classes=(REALTIME, STANDARD), concurrency=seats(seat_count)))
    driver.offer(*(request(key) for key in range(100)))
    return driver


def test_preemption_lowers_the_seats_by_a_tenth_of_those_in_use() -> None:
    """Mend 10: 20 in use, 18 after; running ones stay, freed seats are not given out again."""
    driver = following()
    driver.report_preemptions(3)
    assert driver.statistics().seats == 18
    assert driver.statistics().running == 20
    assert dispatched(driver.finish(0)) == []
    assert dispatched(driver.finish(1)) == []
    assert dispatched(driver.finish(2)) == [20]


def test_reports_of_one_event_lower_once() -> None:
    """Two reports within a second are one event; a report of none is none."""
    driver = following()
    driver.report_preemptions(0)
    assert driver.statistics().seats == 20
    driver.report_preemptions(3)
    driver.now_s = 0.5
    driver.report_preemptions(3)
    assert driver.statistics().seats == 18
    driver.now_s = 1.5
    driver.report_preemptions(1)
    assert driver.statistics().seats == 16


def test_lowered_seats_grow_one_by_one_while_they_are_used() -> None:
    """Mend 10: additive growth, a seat each 5 s, up to the setting; announced beforehand."""
    driver = following()
    driver.report_preemptions(1)
    driver.finish(0)
    driver.finish(1)
    assert driver.scheduler.next_event_s() == 5.0
    assert dispatched(driver.until(5.0)) == [20]
    assert driver.statistics().seats == 19
    assert dispatched(driver.until(14.9)) == [21]
    assert driver.statistics().seats == 20


def test_seats_that_are_not_used_do_not_grow() -> None:
    """Mend 10: growth without use would be a guess."""
    driver = Driver(Settings(classes=(REALTIME,), concurrency=seats(20)))
    driver.offer(*(request(key) for key in range(10)))
    driver.report_preemptions(1)
    for key in range(9):
        driver.finish(key)
    driver.at(14.0)
    grown = driver.statistics().seats
    driver.at(1000.0)
    assert driver.statistics().seats == grown <= 10


def test_the_reserve_shrinks_with_the_seats_and_never_starves_the_others() -> None:
    """Mend 10: down to a quarter of 8 seats, of which 6 in 8 are the first class's: 1 is left."""
    driver = Driver(Settings(classes=CLASSES, concurrency=seats(8, reserved_seats=6)))
    driver.offer(*(request(key, 1) for key in range(5)))
    for now_s in (0.0, 2.0, 4.0, 6.0):
        driver.now_s = now_s
        driver.report_preemptions(1)
    assert driver.statistics().seats == 2
    driver.serve(most=2)
    assert driver.statistics().classes[1].running == 1


def test_preemptions_while_little_of_ours_runs_lower_little() -> None:
    """Mend 10: traffic that goes round the proxy fills the KV cache too. With nothing of ours at
    the engine nothing changes; with one request of 20 seats, half of 20 x 0.9 = 9 is left."""
    driver = Driver(Settings(classes=(REALTIME,), concurrency=seats(20)))
    for now_s in range(10):
        driver.now_s = float(now_s * 2)
        driver.report_preemptions(5)
    assert driver.statistics().seats == 20
    driver.offer(request(0))
    driver.report_preemptions(5)
    assert driver.statistics().seats == 9


def test_lowering_can_be_turned_off() -> None:
    """`lower_seats_on_preemption` False: the seats are the setting's."""
    concurrency = seats(20, lower_seats_on_preemption=False)
    driver = Driver(Settings(classes=(REALTIME,), concurrency=concurrency))
    driver.offer(*(request(key) for key in range(30)))
    driver.report_preemptions(9)
    assert driver.statistics().seats == 20
