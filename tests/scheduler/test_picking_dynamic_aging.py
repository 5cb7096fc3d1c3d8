"""DynamicAging (A1, A2, A4, A7, mends 1 and 2)."""

import random
from dataclasses import replace

import pytest
from giveway_scheduler import Algorithm, Request, Settings

from tests.scheduler.driving import CLASSES, Driver, dispatched, request, seats, tenant


def ageing(**more: object) -> Driver:
    classes = tuple(replace(each, time_to_live_s=1e6) for each in CLASSES)
    settings = Settings(
        classes=classes,
        algorithm=Algorithm.DYNAMIC_AGING,
        concurrency=seats(1),
        anti_starvation=None,
    )
    return Driver(replace(settings, **more))  # type: ignore[arg-type]


def score(each: Request, offered_s: float, now_s: float) -> float:
    """A1, A2 with the published numbers."""
    base, per_ms = ((100.0, 0.05), (20.0, 0.02), (1.0, 0.005))[each.rank]
    return base + per_ms * (now_s - offered_s) * 1000.0


@pytest.mark.parametrize("seed", range(5))
def test_highest_score_goes_first(seed: int) -> None:
    """Mend 1: at each pick it is the one that a scan over all waiting entries finds."""
    generator = random.Random(seed)
    driver = ageing()
    offered: dict[int, float] = {}
    driver.offer(request(0))
    for key in range(1, 400):
        driver.now_s += generator.expovariate(2.0)
        offered[key] = driver.now_s
        driver.offer(request(key, generator.randrange(3), tenant=tenant(str(key % 5))))
        if key % 3 == 0:
            (picked,) = dispatched(driver.finish(driver.running[0]))
            best = max(
                score(driver.requests[each], since_s, driver.now_s)
                for each, since_s in offered.items()
            )
            since_s = offered.pop(picked)
            assert score(driver.requests[picked], since_s, driver.now_s) == pytest.approx(best)


@pytest.mark.parametrize(("rank", "overtakes_s"), [(1, 4.0), (2, 19.8)])
def test_lower_class_overtakes_newly_arrived_vips_after_the_stated_time(
    rank: int, overtakes_s: float
) -> None:
    """Mend 2: (100 - 20) / 0.02 ms = 4 s for normal, (100 - 1) / 0.005 ms = 19.8 s for batch."""
    for waited_s, first in ((overtakes_s - 0.01, 2), (overtakes_s + 0.01, 1)):
        driver = ageing()
        driver.offer(request(0), request(1, rank))
        driver.now_s = waited_s
        driver.offer(request(2, 0))
        assert dispatched(driver.finish(0)) == [first]


@pytest.mark.parametrize("rank", [1, 2])
def test_lower_class_never_overtakes_a_vip_that_waited_as_long(rank: int) -> None:
    """Mend 2: no ageing helps against a VIP of the same age: it ages faster."""
    for waited_s in (1.0, 100.0, 10_000.0):
        driver = ageing()
        driver.offer(request(0), request(1, rank), request(2, 0))
        driver.now_s = waited_s
        assert dispatched(driver.finish(0)) == [2]


@pytest.mark.parametrize(
    ("vip_waited_s", "factor", "constant_s"), [(0.0, 10.0, 19.8), (3.0, 10.0, 19.8)]
)
def test_stated_bound_is_exact(vip_waited_s: float, factor: float, constant_s: float) -> None:
    """Mend 2: batch is next as soon as it waited 19.8 s + 10 x the oldest VIP's wait."""
    bound_s = constant_s + factor * vip_waited_s
    for extra_s, first in ((-0.1, 2), (0.1, 1)):
        driver = ageing()
        driver.offer(request(0), request(1, 2))
        driver.now_s = bound_s + extra_s - vip_waited_s
        driver.offer(request(2, 0))
        driver.now_s = bound_s + extra_s
        assert dispatched(driver.finish(0)) == [first]


def test_vips_alone_over_capacity_starve_the_others() -> None:
    """Mend 2, honestly: VIPs come at 12.5 a second, the engine serves 10. The oldest VIP's wait
    grows by 0.2 s each second, batch's claim by a tenth of that: ten minutes on it has not gone."""
    classes = tuple(replace(each, queue_capacity=10**6, time_to_live_s=1e6) for each in CLASSES)
    driver = ageing(classes=classes, queue_capacity=10**6)
    driver.offer(request(0), request(1, 2))
    vips = 0
    for step in range(1, 6001):
        while vips * 0.08 <= step * 0.1:
            driver.now_s = max(driver.now_s, vips * 0.08)
            driver.offer(request(10 + vips))
            vips += 1
        driver.now_s = step * 0.1
        driver.finish(driver.running[0])
    statistics = driver.statistics()
    assert statistics.classes[2].oldest_waited_s == 600.0
    assert 19.8 + 10 * statistics.classes[0].oldest_waited_s > 600.0


def test_one_class_is_one_queue_whoever_sent_it() -> None:
    """A7, mend 1: inside a level, order of arrival, across tenants too."""
    driver = ageing()
    driver.offer(*(request(key, 1, tenant=tenant(f"t{key % 7}")) for key in range(100)))
    assert driver.serve() == list(range(100))


def test_vip_waits_under_50_ms_at_ordinary_load() -> None:
    """A4: eight seats of 20 ms each, filled with batch, a VIP every 30 ms: the longest VIP wait
    is one batch service, 20 ms."""
    driver = ageing(concurrency=seats(8))
    waits: list[float] = []
    ends: list[tuple[float, int]] = []
    driver.offer(*(request(10_000 + key, 2) for key in range(2000)))
    ends += [(0.02, key) for key in driver.running]
    for step in range(100):
        vip_s = step * 0.03
        ends.sort()
        while ends and ends[0][0] <= vip_s:
            driver.now_s, key = ends.pop(0)
            for each in dispatched(driver.finish(key)):
                ends.append((driver.now_s + 0.02, each))
                if each < 1000:
                    waits.append(driver.now_s - each * 0.03)
            ends.sort()
        driver.now_s = vip_s
        for each in dispatched(driver.offer(request(step, 0))):
            ends.append((vip_s + 0.02, each))
            waits.append(0.0)
    assert len(waits) >= 98
    assert max(waits) < 0.05
