"""Do limits and boosts hold over hours, too? The scheduler itself, with a hand on its clock."""

from dataclasses import replace

from giveway_scheduler import AntiStarvation, Limits, Settings

from tests.scheduler.driving import BATCH, CLASSES, REALTIME, Driver, dispatched, request, seats

HOUR_S = 3600.0


def test_b24_a_flood_after_an_idle_hour_passes_at_the_burst_and_the_rate() -> None:
    """Idle for an hour, then 100 requests a second for 120 s: in each window of the flood at most
    burst + rate x time pass. The hour saved up no more than the burst."""
    burst, rate_per_s, flood_s = 10, 20, 120
    only = replace(REALTIME, limits=Limits(requests_per_s=rate_per_s, request_burst=burst))
    driver = Driver(Settings(classes=(only,), concurrency=seats(100_000)))
    passed_at_s: list[float] = []
    for step in range(flood_s * 100):
        driver.at(HOUR_S + step / 100)
        if dispatched(driver.offer(request(step))):
            passed_at_s.append(driver.now_s)
    assert len(passed_at_s) >= burst + rate_per_s * (flood_s - 1)
    for first in range(len(passed_at_s)):
        for last in (first + burst, first + 10 * burst, len(passed_at_s) - 1):
            if last < len(passed_at_s):
                window_s = passed_at_s[last] - passed_at_s[first]
                assert last - first + 1 <= burst + rate_per_s * window_s + 1e-6


def test_c03_after_a_hundred_boosts_fresh_urgent_work_goes_first() -> None:
    """Batch waits for a hundred boosts of 30 s; ten urgent requests come: all are among the next
    12, as after one boost. Having waited saves up nothing."""
    boost = AntiStarvation(threshold_s=60.0, boost_s=30.0, check_s=10.0)
    classes = (*CLASSES[:2], replace(BATCH, time_to_live_s=10 * HOUR_S))
    driver = Driver(Settings(classes=classes, concurrency=seats(1), anti_starvation=boost))
    driver.offer(*(request(key, rank=2) for key in range(21)))
    driver.until(100 * boost.boost_s)
    boosts = driver.statistics().classes[2].boosts
    assert boosts >= 30, "a boost, then a threshold without one, a hundred periods long"
    driver.offer(*(request(key, rank=0) for key in range(100, 110)))
    order: list[int] = []
    for _ in range(12):
        order += dispatched(driver.finish(driver.running[0], output=10))
    assert len([key for key in order if key >= 100]) == 10
