"""InteractiveFirst (Y1-Y3, Y7-Y9, Y14)."""

import pytest
from giveway_scheduler import Abort, Algorithm, Concurrency, Settings, Yielding

from tests.scheduler.driving import BATCH, CLASSES, REALTIME, Driver, dispatched, request, seats


def interactive_first(seat_count: int, batch_maximum: int, **more: object) -> Driver:
    return Driver(
        Settings(
            classes=CLASSES,
            algorithm=Algorithm.INTERACTIVE_FIRST,
            concurrency=seats(seat_count, batch_maximum=batch_maximum),
            **more,  # type: ignore[arg-type]
        )
    )


def test_batch_goes_only_when_no_interactive_request_waits() -> None:
    """Y1: and among interactive ones the higher class goes first."""
    driver = interactive_first(2, 1)
    driver.offer(request(0, 0), request(1, 0))
    driver.offer(request(2, 2), request(3, 1), request(4, 0), request(5, 1))
    order: list[int] = []
    while driver.running:
        order += dispatched(driver.finish(driver.running[0]))
    assert order == [4, 3, 5, 2]


def test_batch_never_exceeds_its_share_of_the_cap() -> None:
    """Y2, Y3: eight seats, batch at most six of them without pressure; no more with 20 waiting."""
    driver = interactive_first(8, 6)
    driver.offer(*(request(key, 2) for key in range(20)))
    assert driver.statistics().running == 6
    driver.offer(*(request(100 + key, 0) for key in range(5)))
    assert driver.statistics().running == 8
    assert driver.statistics().classes[2].running == 6


def test_running_batch_work_is_not_killed() -> None:
    """Y9: as the share shrinks under pressure, running batch stays and new batch is not started."""
    driver = interactive_first(8, 6, yielding=Yielding(latency_threshold_s=0.001, smoothing=1.0))
    driver.offer(*(request(key, 2) for key in range(12)))
    driver.offer(request(100, 0))
    driver.at(1.0)
    assert driver.statistics().batch_seats == 1
    assert driver.statistics().classes[2].running == 6
    for key in range(5):
        assert dispatched(driver.finish(key)) == []
    assert driver.statistics().classes[2].running == 1
    assert dispatched(driver.finish(5)) == [6]
    assert not any(isinstance(each, Abort) for each in driver.decisions)


def test_waiting_batch_is_let_go_as_pressure_falls() -> None:
    """Y3: each look is announced, so no call from outside is needed."""
    driver = interactive_first(
        8,
        6,
        yielding=Yielding(latency_threshold_s=0.001, smoothing=1.0),
        anti_starvation=None,
    )
    driver.offer(request(100, 0))
    driver.at(1.0)
    driver.offer(*(request(key, 2) for key in range(12)))
    assert driver.statistics().classes[2].running == 1
    driver.first_token(100)
    driver.finish(100)
    driver.announced(60.0)
    assert driver.statistics().classes[2].running == 6


@pytest.mark.parametrize(
    "concurrency",
    [
        Concurrency(seats=8, reserved_seats=0, batch_minimum=1, batch_maximum=8),
        Concurrency(seats=8, reserved_seats=0, batch_minimum=0, batch_maximum=6),
        Concurrency(seats=8, reserved_seats=0, batch_minimum=7, batch_maximum=6),
    ],
)
def test_shares_that_cannot_work_are_refused(concurrency: Concurrency) -> None:
    """Y7: batch leaves a seat to interactive requests; Y8: batch has at least one."""
    settings = Settings(
        classes=(REALTIME, BATCH), algorithm=Algorithm.INTERACTIVE_FIRST, concurrency=concurrency
    )
    with pytest.raises(ValueError, match="batch_m"):
        Driver(settings)


def test_interactive_latency_holds_while_batch_advances() -> None:
    """Y14: 20 batch jobs of 200 ms are there, 10 interactive ones of 20 ms come, a cap of 8.

    With the scheduler each interactive one finds a seat at once; behind a plain queue of 8 seats
    the first would wait for 200 ms. Batch is all done after ceil(20 / 6) x 200 ms = 0.8 s or little
    more, and the cap is never exceeded.
    """
    driver = interactive_first(8, 6)
    ends: list[tuple[float, int]] = []
    latencies: list[float] = []
    most = 0

    def run(new: list[int]) -> None:
        ends.extend((driver.now_s + (0.2 if key < 100 else 0.02), key) for key in new)

    def settle(until_s: float) -> None:
        while ends and min(ends)[0] <= until_s:
            end = min(ends)
            ends.remove(end)
            driver.now_s = end[0]
            if end[1] >= 100:
                latencies.append(driver.now_s - (0.05 + (end[1] - 100) * 0.05))
            run(dispatched(driver.finish(end[1])))

    run(dispatched(driver.offer(*(request(key, 2) for key in range(20)))))
    for key in range(100, 110):
        arrives_s = 0.05 + (key - 100) * 0.05
        settle(arrives_s)
        driver.now_s = arrives_s
        run(dispatched(driver.offer(request(key, 0))))
        most = max(most, driver.statistics().running)
    settle(10.0)
    assert len(latencies) == 10
    assert max(latencies) <= 0.021
    assert most <= 8
    assert driver.now_s <= 1.01
