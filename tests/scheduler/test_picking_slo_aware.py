"""SLOAware: objectives first, then work, and a floor for batch."""

from collections import Counter
from dataclasses import replace

import pytest
from giveway_scheduler import ClassName, Kind, Settings

from tests.scheduler.driving import (
    BATCH,
    CLASSES,
    REALTIME,
    STANDARD,
    Driver,
    dispatched,
    request,
    seats,
    tenant,
)


def slo_aware(**more: object) -> Driver:
    classes = tuple(replace(each, queue_capacity=10**6, time_to_live_s=1e6) for each in CLASSES)
    settings = Settings(
        classes=classes,
        concurrency=seats(1),
        anti_starvation=None,
        queue_capacity=10**6,
    )
    return Driver(replace(settings, **more))  # type: ignore[arg-type]


def without_floor(**more: object) -> Driver:
    return slo_aware(batch_token_floor_ratio=0.0, **more)


def test_classes_go_in_order() -> None:
    """Top strictly, then those between, then batch, however they arrived."""
    driver = without_floor()
    driver.offer(request(0))
    driver.offer(request(1, 2), request(2, 1), request(3, 0), request(4, 2), request(5, 0))
    assert driver.serve()[1:] == [3, 5, 2, 1, 4]


def test_shortest_prompt_goes_first_between() -> None:
    """Of one tenant's requests between top and batch, the shortest prompt that can be on time."""
    driver = without_floor()
    driver.offer(request(0))
    sizes = {1: 500, 2: 100, 3: 900, 4: 300}
    driver.offer(*(request(key, 1, prompt_tokens=size) for key, size in sizes.items()))
    assert driver.serve()[1:] == [2, 4, 1, 3]


def test_top_class_and_batch_keep_their_order_of_arrival() -> None:
    """Shortest first is for the classes between alone."""
    for rank in (0, 2):
        driver = without_floor()
        driver.offer(request(0))
        driver.offer(*(request(key, rank, prompt_tokens=size) for key, size in ((1, 900), (2, 10))))
        assert driver.serve()[1:] == [1, 2]


def test_late_requests_are_demoted_behind_those_on_time() -> None:
    """TTFT target 1 s: who waited 1.1 s goes after one that has just come, and is not dropped."""
    driver = without_floor()
    driver.offer(request(0), request(1, 1, prompt_tokens=10))
    driver.now_s = 1.1
    driver.offer(request(2, 1, prompt_tokens=5000), request(3, 2))
    assert driver.serve()[1:] == [2, 1, 3]


@pytest.mark.parametrize(("own_tokens", "goes_first"), [(3900, True), (4100, False)])
def test_lateness_counts_prompts_ahead_and_its_own(own_tokens: int, goes_first: bool) -> None:
    """Waited 0.5 s, 1,000 tokens un-prefilled ahead, 100 us each: on time up to
    (1.0 - 0.5) / 1e-4 - 1,000 = 4,000 own tokens."""
    driver = without_floor(concurrency=seats(2, prompt_seconds_per_token=1e-4))
    driver.offer(request(0), request(9, 0, prompt_tokens=1000))
    driver.first_token(0)
    driver.offer(request(1, 1, prompt_tokens=own_tokens))
    driver.now_s = 0.5
    driver.offer(request(2, 1, prompt_tokens=5000, tenant=tenant("other")))
    (first,) = dispatched(driver.finish(0))
    assert first == (1 if goes_first else 2)


def test_late_requests_go_oldest_first() -> None:
    """Among the demoted, order of arrival: size matters no more."""
    driver = without_floor()
    driver.offer(request(0))
    for key, size in ((1, 700), (2, 100), (3, 400)):
        driver.now_s += 0.01
        driver.offer(request(key, 1, prompt_tokens=size))
    driver.now_s = 5.0
    assert driver.serve()[1:] == [1, 2, 3]


def test_class_without_a_target_is_never_late() -> None:
    """No objective: order of arrival, whatever the wait."""
    classes = (REALTIME, replace(STANDARD, first_token_target_s=None), BATCH)
    driver = without_floor(classes=classes)
    driver.offer(request(0))
    driver.offer(request(1, 1, prompt_tokens=900))
    driver.now_s = 12.0
    driver.offer(request(2, 1, prompt_tokens=10))
    assert driver.serve()[1:] == [1, 2]


def test_classes_between_share_by_weight_in_tokens() -> None:
    """Weights 30 and 10: three tokens to one, though the second's prompts are five times longer."""
    between = [
        replace(
            STANDARD,
            name=ClassName(name),
            weight=weight,
            first_token_target_s=1e6,
            queue_capacity=10**6,
        )
        for name, weight in (("gold", 30.0), ("silver", 10.0))
    ]
    driver = without_floor(classes=(REALTIME, *between, BATCH))
    driver.offer(
        *(request(key, 1 + key % 2, prompt_tokens=1000 if key % 2 else 200) for key in range(4000))
    )
    tokens: Counter[int] = Counter()
    for key in driver.serve(most=1000):
        tokens[driver.requests[key].rank] += driver.requests[key].prompt_tokens
    assert tokens[1] / tokens[2] == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("seat_count", [1, 8])
def test_batch_keeps_its_floor_under_any_load_of_the_top_class(seat_count: int) -> None:
    """5 % of the tokens while the top class alone would fill every seat for ever."""
    driver = slo_aware(concurrency=seats(seat_count))
    tokens: Counter[int] = Counter()
    for key in range(20):
        driver.offer(request(10_000 + key, 0, prompt_tokens=100))
    driver.offer(*(request(20_000 + key, 2, prompt_tokens=300) for key in range(500)))
    for step in range(4000):
        driver.now_s += 0.05
        key = driver.running[0]
        tokens[driver.requests[key].rank] += driver.requests[key].prompt_tokens
        driver.finish(key)
        if driver.requests[key].rank == 0:
            driver.offer(request(50_000 + step, 0, prompt_tokens=100))
    assert tokens[2] / (tokens[0] + tokens[2]) == pytest.approx(0.05, abs=0.01)


def test_floor_is_held_against_a_gate_that_never_opens() -> None:
    """The top class always has prompts un-prefilled: one batch prompt a time passes after 1 s."""
    driver = slo_aware(concurrency=seats(100, prompt_gate_tokens=1000))
    driver.offer(request(0, 0, prompt_tokens=2000))
    driver.offer(request(1, 2), request(2, 2))
    assert dispatched(driver.until(0.99)) == []
    (decision,) = driver.until(1.0)
    assert dispatched([decision]) == [1]
    assert decision.priority == 0  # type: ignore[union-attr]
    assert dispatched(driver.until(30.0)) == []
    driver.offer(request(3, 0, prompt_tokens=50_000))
    assert dispatched(driver.first_token(1)) == [2]


def test_floor_holds_back_for_ten_seconds_while_the_first_class_is_at_risk() -> None:
    """50,000 prompt tokens are 1.2 s of work, four times the first class's whole target."""
    driver = slo_aware(concurrency=seats(100, prompt_gate_tokens=1000))
    driver.offer(request(0, 0, prompt_tokens=50_000), request(1, 2), request(2, 2))
    assert dispatched(driver.until(9.99)) == []
    assert dispatched(driver.until(10.0)) == [1]


def test_floor_is_paid_as_soon_as_the_risk_is_over_though_the_gate_stays_closed() -> None:
    """At risk is a quarter of 0.3 s, 3,191 tokens at 23.5 us each: 5,000 are, 2,000 are not."""
    driver = slo_aware(concurrency=seats(100, prompt_gate_tokens=1000))
    driver.offer(request(0, 0, prompt_tokens=3000), request(1, 0, prompt_tokens=2000))
    driver.offer(request(2, 2))
    assert dispatched(driver.until(5.0)) == []
    assert dispatched(driver.first_token(0)) == [2]


def test_floor_does_not_hold_back_for_a_first_class_without_a_target() -> None:
    """Nothing is at risk: one second, whatever the engine has to prefill."""
    classes = (replace(REALTIME, first_token_target_s=None), STANDARD, BATCH)
    driver = slo_aware(classes=classes, concurrency=seats(100, prompt_gate_tokens=1000))
    driver.offer(request(0, 0, prompt_tokens=50_000), request(1, 2))
    assert dispatched(driver.until(1.0)) == [1]


def test_floor_passes_neither_seats_nor_reserve() -> None:
    """All seats but the reserve are the lower classes' most, owed or not."""
    driver = slo_aware(concurrency=seats(4, reserved_seats=3))
    driver.offer(*(request(key, 0) for key in range(2)))
    driver.offer(*(request(10 + key, 2) for key in range(5)))
    assert [key for key in driver.running if key >= 10] == [10]
    assert driver.statistics().running == 3


def test_freed_seat_goes_to_batch_as_soon_as_it_is_owed() -> None:
    """The floor goes before the top class: batch has had nothing of the tokens so far."""
    driver = slo_aware()
    driver.offer(request(0, 0), request(1, 0), request(2, 2))
    assert dispatched(driver.finish(0)) == [2]


def test_lone_batch_class_needs_no_floor() -> None:
    """The first class is the first class, of whatever kind."""
    driver = slo_aware(classes=(replace(BATCH, kind=Kind.BATCH),), concurrency=seats(2))
    assert dispatched(driver.offer(request(0), request(1))) == [0, 1]
