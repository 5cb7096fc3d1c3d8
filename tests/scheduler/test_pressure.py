"""Interactive pressure and the seats of batch (Y3-Y6, mends 8 and 9)."""

from itertools import pairwise

import pytest
from giveway_scheduler import (
    Algorithm,
    ClassName,
    Concurrency,
    LatencySignal,
    RateSignal,
    Settings,
    Yielding,
)
from giveway_scheduler.pressure import LOOK_S, batch_seats

from tests.scheduler.driving import BATCH, CLASSES, REALTIME, Driver, request, seats


def yielding(seat_count: int = 1000, **more: object) -> Driver:
    """InteractiveFirst with so many seats, of which batch has at least 1 and at most 6."""
    settings = Settings(
        classes=CLASSES,
        algorithm=Algorithm.INTERACTIVE_FIRST,
        concurrency=seats(seat_count, batch_maximum=6),
        yielding=Yielding(smoothing=1.0, **more),  # type: ignore[arg-type]
    )
    return Driver(settings)


@pytest.mark.parametrize(
    ("pressure_ratio", "allowed"),
    [(0.0, 6), (0.2, 5), (0.5, 4), (0.3, 5), (0.9, 2), (1.0, 1)],
)
def test_batch_seats_shrink_with_pressure(pressure_ratio: float, allowed: int) -> None:
    """Y3: max(1, round(6 - 5 x pressure)); 0.5 gives round(3.5) = 4, 0.3 gives round(4.5) = 5."""
    concurrency = Concurrency(seats=8, reserved_seats=0, batch_minimum=1, batch_maximum=6)
    assert batch_seats(concurrency, pressure_ratio) == allowed


def finish_at_rate(driver: Driver, per_s: float, *, latency_s: float, for_s: float) -> None:
    """Interactive requests that show their first token after `latency_s` and end with it."""
    start_s, count = driver.now_s, int(per_s * for_s)
    events = [(start_s + key / per_s, 0, key) for key in range(count)]
    events += [(at_s + latency_s, 1, key) for at_s, _, key in events]
    for at_s, is_end, key in sorted(events):
        driver.now_s = max(driver.now_s, at_s)
        name = 1_000_000 + int(start_s * 1000) * 10_000 + key
        if is_end:
            driver.first_token(name)
            driver.finish(name)
        else:
            driver.offer(request(name, 0))


def test_pressure_is_the_rate_over_its_threshold() -> None:
    """Y4, Y5: 10 finished a second of a threshold of 20 over 10 s are 0.5, at tiny latencies."""
    driver = yielding()
    finish_at_rate(driver, 10.0, latency_s=0.001, for_s=20.0)
    assert driver.statistics().pressure_ratio == pytest.approx(0.5, abs=0.03)
    assert driver.statistics().batch_seats == 4


def test_pressure_is_the_latency_over_its_threshold() -> None:
    """Y4: one request a second (1/20), first token after 0.4 s of 0.5: 0.8."""
    driver = yielding()
    finish_at_rate(driver, 1.0, latency_s=0.4, for_s=20.0)
    assert driver.statistics().pressure_ratio == pytest.approx(0.8, abs=0.01)


def test_pressure_never_exceeds_one() -> None:
    """Y4: both parts are capped."""
    driver = yielding()
    finish_at_rate(driver, 100.0, latency_s=3.0, for_s=12.0)
    assert driver.statistics().pressure_ratio == 1.0
    assert driver.statistics().batch_seats == 1


def test_slow_twentieth_counts_not_a_single_outlier() -> None:
    """Y4: of 100 in the window one slow one is no 95th percentile, six slow ones are."""
    for slow, expected in ((1, 0.02), (6, 1.0)):
        driver = yielding(requests_per_s_threshold=1e9)
        for key in range(100):
            driver.offer(request(key, 0))
        driver.now_s = 0.01
        for key in range(100 - slow):
            driver.finish(key)
        driver.now_s = 0.6
        for key in range(100 - slow, 100):
            driver.finish(key)
        driver.at(1.0)
        assert driver.statistics().pressure_ratio == pytest.approx(expected, abs=0.005)


def test_long_generation_does_not_hide_a_bad_first_token() -> None:
    """Mend 8: the first token after 0.5 s counts at once, though the answer goes on for minutes."""
    driver = yielding()
    driver.offer(request(1, 0))
    driver.now_s = 0.5
    driver.first_token(1)
    driver.at(0.75)
    assert driver.statistics().pressure_ratio == 1.0


def test_end_to_end_latency_can_be_asked_for_as_published() -> None:
    """Y4: then the answer's end counts and not its first token."""
    driver = yielding(latency=LatencySignal.END_TO_END, latency_threshold_s=10.0)
    driver.offer(request(1, 0))
    driver.now_s = 0.1
    driver.first_token(1)
    driver.now_s = 4.0
    driver.finish(1)
    driver.at(4.25)
    assert driver.statistics().pressure_ratio == pytest.approx(0.4)


def test_stalled_engine_presses_harder_and_harder() -> None:
    """Mend 8: nothing finishes, so the ages of the unanswered are what is known."""
    driver = yielding()
    driver.offer(request(1, 0))
    for at_s, pressure_ratio in ((0.25, 0.5), (0.5, 1.0), (60.0, 1.0)):
        driver.at(at_s)
        assert driver.statistics().pressure_ratio == pytest.approx(pressure_ratio)


def test_request_that_gave_up_waiting_counts_with_its_age() -> None:
    """Mend 8: who left after 2 s waited at least so long; who left at once says nothing."""
    for left_s, pressure_ratio in ((2.0, 1.0), (0.1, 0.0)):
        driver = yielding(seat_count=7)
        driver.set_engine_available(False)
        driver.offer(request(1, 0))
        driver.now_s = left_s
        driver.cancel(1)
        driver.at(left_s + LOOK_S)
        assert driver.statistics().pressure_ratio == pytest.approx(pressure_ratio)


def test_arrivals_can_be_the_signal() -> None:
    """Y5: 30 requests that arrive and are not answered are 3 a second of 20 over 10 s."""
    for rate, expected in ((RateSignal.ARRIVED, 0.15), (RateSignal.FINISHED, 0.0)):
        driver = yielding(rate=rate, latency_threshold_s=1e9)
        driver.offer(*(request(key, 0) for key in range(30)))
        driver.at(1.0)
        assert driver.statistics().pressure_ratio == pytest.approx(expected, abs=1e-6)


def test_smoothing_takes_three_tenths_at_each_look() -> None:
    """Y6: pressure 1 from the start gives 0.3, 0.51, 0.657 at the first three looks."""
    driver = yielding()
    settings = driver.settings
    driver = Driver(
        Settings(
            classes=settings.classes,
            algorithm=settings.algorithm,
            concurrency=settings.concurrency,
            yielding=Yielding(latency_threshold_s=1e-9),
        )
    )
    driver.offer(request(1, 0))
    for look, expected in enumerate((0.3, 0.51, 0.657), start=1):
        driver.at(look * LOOK_S)
        assert driver.statistics().pressure_ratio == pytest.approx(expected)


def test_empty_window_lets_pressure_fade_and_not_jump() -> None:
    """Mend 9: after the last request has left the window of 10 s, 1.0 fades by e in 10 s; batch
    gets its seats one by one, where the source opens all of them at once."""
    driver = yielding()
    finish_at_rate(driver, 50.0, latency_s=0.001, for_s=11.0)
    driver.offer(*(request(key, 2) for key in range(10)))
    assert driver.statistics().pressure_ratio == 1.0
    levels = []
    for step in range(400):
        driver.at(11.1 + step * 0.1)
        levels.append(driver.statistics().batch_seats)
    assert levels == sorted(levels)
    assert set(levels) == {1, 2, 3, 4, 5, 6}
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_one_long_step_equals_many_short_ones() -> None:
    """Looks stand on a grid of times: who calls how often changes nothing."""
    short, long = yielding(), yielding()
    for driver in (short, long):
        finish_at_rate(driver, 7.0, latency_s=0.2, for_s=5.0)
    for step in range(200):
        short.at(5.2 + step * 0.1)
    long.at(short.now_s)
    assert short.statistics().pressure_ratio == pytest.approx(long.statistics().pressure_ratio)
    assert short.statistics().pressure_ratio > 0.0


def test_reload_opens_no_batch_seat_under_pressure() -> None:
    """Y3: batch has 1 seat of 6 under full pressure, before a reload and just after it."""
    driver = yielding()
    driver.offer(request(1, 0))
    driver.at(1.0)
    driver.offer(request(2, 2), request(3, 2))
    assert driver.configure(driver.settings) == []
    assert driver.statistics().batch_seats == 1


def test_batch_requests_do_not_press() -> None:
    """Y4: only interactive traffic does."""
    driver = Driver(
        Settings(
            classes=(REALTIME, BATCH),
            algorithm=Algorithm.INTERACTIVE_FIRST,
            concurrency=seats(100, batch_maximum=6),
        )
    )
    driver.offer(*(request(key, 1) for key in range(50)))
    driver.at(30.0)
    assert driver.statistics().pressure_ratio == 0.0
    assert driver.statistics().classes[1].name == ClassName("batch")
