"""What every shell may rely on: keys, time, events, and statistics."""

import random
from dataclasses import replace

import pytest
from giveway_scheduler import Algorithm, Limits, OverLimit, Scheduler, Settings, Usage
from giveway_scheduler.picking import PICKERS

from tests.scheduler.driving import (
    BATCH,
    CLASSES,
    REALTIME,
    Driver,
    dispatched,
    request,
    seats,
    tenant,
)


def driver_of(**more: object) -> Driver:
    plain = Settings(classes=CLASSES, concurrency=seats(2, batch_maximum=1))
    return Driver(replace(plain, **more))  # type: ignore[arg-type]


def test_every_algorithm_has_a_picker() -> None:
    """The registry is complete."""
    assert set(PICKERS) == set(Algorithm)


def test_unknown_keys_are_ignored() -> None:
    """Ended already, or never offered: no decisions, no error, nothing counted."""
    driver = driver_of()
    driver.offer(request(1))
    driver.finish(1)
    before = driver.statistics()
    scheduler = driver.scheduler
    for key in (1, 999):
        assert scheduler.first_token(key, now_s=0.0) == ()  # type: ignore[arg-type]
        assert scheduler.finish(key, now_s=0.0, usage=None) == ()  # type: ignore[arg-type]
        assert scheduler.cancel(key, now_s=0.0) == ()  # type: ignore[arg-type]
        assert scheduler.requeue(key, now_s=0.0) == ()  # type: ignore[arg-type]
    assert driver.statistics() == before


def test_waiting_request_has_no_first_token_and_no_requeue() -> None:
    """Reports that can only be about a dispatched request are ignored for a waiting one."""
    driver = driver_of(concurrency=seats(1))
    driver.offer(request(1), request(2))
    assert driver.first_token(2) == []
    assert driver.requeue(2) == []
    assert driver.statistics().queued == 1


def test_time_that_goes_backwards_is_an_error() -> None:
    """A programming error of the shell, named as such."""
    driver = driver_of(concurrency=seats(1))
    driver.at(5.0)
    with pytest.raises(ValueError, match="backwards"):
        driver.at(4.9)
    assert driver.at(5.0) == []


def test_key_may_be_offered_once() -> None:
    """The second offer of a live key is an error, and changes nothing."""
    driver = driver_of()
    driver.offer(request(1))
    with pytest.raises(ValueError, match="before"):
        driver.offer(request(1))
    assert driver.statistics().running == 1


@pytest.mark.parametrize("rank", [-3, 3, 99])
def test_rank_beyond_the_classes_is_brought_inside(rank: int) -> None:
    """A shell that is a reload behind does no harm: the nearest class serves."""
    driver = driver_of()
    driver.offer(request(1, rank))
    assert [each.running for each in driver.statistics().classes] == (
        [1, 0, 0] if rank < 0 else [0, 0, 1]
    )


def test_nothing_is_announced_while_nothing_waits() -> None:
    """An idle scheduler needs no timer, whatever has run and is running."""
    for algorithm in Algorithm:
        driver = driver_of(algorithm=algorithm)
        assert driver.scheduler.next_event_s() is None
        driver.offer(request(1), request(2, 2, shows_first_token=False))
        driver.report_preemptions(1)
        assert driver.scheduler.next_event_s() is None


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("seed", range(3))
def test_announced_events_are_enough(algorithm: Algorithm, seed: int) -> None:
    """A shell that calls only when told decides the same, at the same times, as one that calls
    every 10 ms: limits, times to live, gate, boosts and pressure all announce themselves."""
    decided = []
    for step_s in (None, 0.01):
        generator = random.Random(seed)
        classes = (
            replace(REALTIME, limits=Limits(requests_per_s=1.0)),
            replace(CLASSES[1], over_limit=OverLimit.QUEUE, limits=Limits(tokens_per_s=300.0)),
            replace(BATCH, limits=Limits(requests_per_s=0.7), time_to_live_s=20.0),
        )
        driver = driver_of(
            classes=classes,
            algorithm=algorithm,
            concurrency=seats(3, batch_maximum=2, prompt_gate_tokens=200),
        )
        for key in range(60):
            until_s = round(driver.now_s + generator.choice((0.05, 0.4, 2.0)), 2)
            if step_s is None:
                driver.until(until_s)
            else:
                while driver.now_s + step_s < until_s:
                    driver.until(driver.now_s + step_s)
                driver.until(until_s)
            driver.offer(request(key, key % 3, prompt_tokens=100, shows_first_token=key % 4 > 0))
            if driver.running and generator.random() < 0.6:
                driver.finish(driver.running[0], output=10)
        decided.append(
            [
                (type(each), each.request.key, round(getattr(each, "waited_s", 0.0), 6))
                for each in driver.decisions
            ]
        )
    assert decided[0] == decided[1]
    assert len(decided[0]) > 40


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_event_that_was_done_is_not_announced_again(algorithm: Algorithm) -> None:
    """After `advance` at the announced time the next one is later: no busy loop."""
    classes = (*CLASSES[:2], replace(BATCH, time_to_live_s=200.0))
    driver = driver_of(algorithm=algorithm, classes=classes)
    driver.offer(*(request(key, key % 3) for key in range(12)))
    for _ in range(40_000):
        event_s = driver.scheduler.next_event_s()
        if event_s is None:
            break
        driver.at(event_s)
        following_s = driver.scheduler.next_event_s()
        assert following_s is None or following_s > driver.now_s
    assert driver.statistics().queued == 0


def test_equal_calls_give_equal_decisions() -> None:
    """Nothing but the calls and the generator decides."""
    logs = []
    for _ in range(2):
        driver = driver_of(algorithm=Algorithm.WEIGHTED_RANDOM)
        for key in range(100):
            driver.now_s += 0.01
            driver.offer(request(key, key % 3, tenant=tenant(f"t{key % 5}")))
            if key % 2:
                driver.finish(driver.running[0])
        logs.append(driver.decisions)
    assert logs[0] == logs[1]


def test_statistics_tell_the_state() -> None:
    """One value for metrics, admin page and tests."""
    classes = (replace(REALTIME, limits=Limits(requests_per_s=5.0)), *CLASSES[1:])
    driver = driver_of(classes=classes, concurrency=seats(1, prompt_gate_tokens=5))
    driver.offer(request(1), request(2, 2, size_bytes=77, maximum_output_tokens=90))
    driver.now_s = 2.0
    statistics = driver.statistics()
    assert statistics.algorithm == "SLOAware"
    assert (statistics.seats, statistics.running, statistics.queued) == (1, 1, 1)
    assert (statistics.queued_bytes, statistics.unprefilled_tokens) == (77, 10)
    assert not statistics.gate_open
    assert statistics.engine_available
    realtime, _, batch = statistics.classes
    assert (realtime.running, batch.queued, batch.queued_tokens) == (1, 1, 100)
    assert (batch.oldest_waited_s, batch.queued_bytes) == (2.0, 77)
    assert realtime.requests is not None
    assert (realtime.requests.level, realtime.requests.burst) == (5.0, 5.0)
    (acme,) = statistics.tenants
    assert (acme.name, acme.running, acme.queued) == ("acme", 1, 1)


def test_busiest_tenants_are_told_and_no_more_than_a_hundred() -> None:
    """C24: what metrics are made of is bounded."""
    driver = driver_of(concurrency=seats(150))
    for key in range(300):
        driver.offer(request(key, tenant=tenant(f"t{key:03}")))
    tenants = driver.statistics().tenants
    assert len(tenants) == 100
    assert all(each.running for each in tenants)


def test_asking_for_statistics_changes_nothing() -> None:
    """They may be asked for at any time and any number of times."""
    one, other = driver_of(), driver_of()
    for driver in (one, other):
        driver.offer(*(request(key, key % 3) for key in range(20)))
    for step in range(50):
        one.scheduler.statistics(now_s=step / 10)
    assert one.until(30.0) == other.until(30.0)


def test_cancel_after_dispatch_charges_what_was_generated() -> None:
    """The client left in the middle of its answer: it pays for that much."""
    driver = driver_of()
    driver.offer(request(1, maximum_output_tokens=500))
    driver.cancel(1, Usage(prompt_tokens=10, output_tokens=33))
    assert driver.statistics().ledger.charged_tokens == 43.0
    assert driver.statistics().classes[0].served_tokens == 43.0


def test_engine_that_comes_back_gets_its_seats_filled_in_order() -> None:
    """C23: the highest class first, no more than the seats."""
    driver = driver_of(concurrency=seats(3, batch_maximum=1), batch_token_floor_ratio=0.0)
    driver.set_engine_available(False)
    driver.offer(*(request(key, 2 - key % 3) for key in range(9)))
    assert not driver.statistics().engine_available
    assert dispatched(driver.set_engine_available(True)) == [2, 5, 8]


def test_scheduler_needs_nothing_but_its_arguments() -> None:
    """Two schedulers in one process do not share anything."""
    settings = Settings(classes=CLASSES, concurrency=seats(1))
    first, second = (Scheduler(settings, now_s=0.0, generator=random.Random(1)) for _ in range(2))
    assert dispatched(first.offer(request(1), now_s=0.0)) == [1]
    assert dispatched(second.offer(request(1), now_s=0.0)) == [1]
