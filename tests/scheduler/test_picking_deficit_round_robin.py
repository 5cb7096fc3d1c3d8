"""DeficitRoundRobin (H11, H7)."""

from collections import Counter
from dataclasses import replace

import pytest
from giveway_scheduler import Algorithm, Settings, ShareUnit

from tests.scheduler.driving import CLASSES, Driver, request, seats


def quota(unit: ShareUnit = ShareUnit.TOKENS, **more: object) -> Driver:
    classes = tuple(replace(each, queue_capacity=100_000) for each in CLASSES)
    settings = Settings(
        classes=classes,
        algorithm=Algorithm.DEFICIT_ROUND_ROBIN,
        share_unit=unit,
        concurrency=seats(1),
        queue_capacity=1_000_000,
    )
    return Driver(replace(settings, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", list(ShareUnit))
def test_ratio_holds_in_every_window_of_a_hundred(unit: ShareUnit) -> None:
    """H11: 70 +- 1 of any 100 equal draws in a row, in either unit."""
    driver = quota(unit)
    driver.offer(*(request(key, key % 3, maximum_output_tokens=0) for key in range(6000)))
    ranks = [driver.requests[key].rank for key in driver.serve(most=2000)][1:]
    for start in range(len(ranks) - 100):
        counts = Counter(ranks[start : start + 100])
        assert abs(counts[0] - 70) <= 1
        assert abs(counts[1] - 25) <= 1
        assert abs(counts[2] - 5) <= 1


def test_tokens_are_divided_whatever_the_sizes() -> None:
    """H11, mend 3: costs differ 30-fold inside and between classes; shares stay within one
    largest request of each class: 3,000 tokens."""
    driver = quota()
    driver.offer(
        *(
            request(key, key % 3, prompt_tokens=100 + (key * 7919) % 2900, maximum_output_tokens=0)
            for key in range(9000)
        )
    )
    driver.serve(most=1)
    tokens: Counter[int] = Counter()
    for key in driver.serve(most=1500):
        tokens[driver.requests[key].rank] += driver.requests[key].prompt_tokens
        normalised = [tokens[0] / 70, tokens[1] / 25, tokens[2] / 5]
        assert max(normalised) - min(normalised) <= 3000 / 5 + 3000 / 25


def test_estimates_are_corrected_at_the_end() -> None:
    """Mend 3: equal bounds, but P1's answers are 50 times as long: tokens divide by weight."""
    driver = quota()
    driver.offer(*(request(key, key % 2, maximum_output_tokens=1000) for key in range(20_000)))
    tokens: Counter[int] = Counter()
    for _ in range(5000):
        key = driver.running[0]
        output = 500 if driver.requests[key].rank else 10
        driver.finish(key, output=output)
        tokens[driver.requests[key].rank] += 10 + output
    assert tokens[0] / tokens[1] == pytest.approx(70 / 25, rel=0.02)


def test_requests_are_counted_where_the_contract_counts_them() -> None:
    """In REQUESTS a 30,000-token prompt weighs as much as a 10-token one."""
    driver = quota(ShareUnit.REQUESTS)
    driver.offer(
        *(request(key, key % 2, prompt_tokens=30_000 if key % 2 else 10) for key in range(2000))
    )
    counts = Counter(driver.requests[key].rank for key in driver.serve(most=950))
    assert abs(counts[0] - 700) <= 2


def test_share_of_an_empty_class_goes_to_the_others() -> None:
    """H7: with P0 empty, 25 : 5 are 50 and 10 of 60."""
    driver = quota()
    driver.offer(*(request(key, 1 + key % 2) for key in range(600)))
    counts = Counter(driver.requests[key].rank for key in driver.serve(most=61)[1:])
    assert (counts[1], counts[2]) == (50, 10)


def test_idle_class_saves_up_nothing() -> None:
    """H7: after 500 draws without it, P1 gets its 25 of 95 and no more."""
    driver = quota()
    driver.offer(*(request(key, 0) for key in range(2000)))
    driver.serve(most=500)
    driver.offer(*(request(5000 + key, 1) for key in range(500)))
    counts = Counter(driver.requests[key].rank for key in driver.serve(most=96)[1:])
    assert abs(counts[1] - 25) <= 1


def test_class_that_the_gate_holds_again_and_again_keeps_its_turn() -> None:
    """Each P0 prompt closes the gate; P1, held each time, still goes when it opens."""
    driver = quota(concurrency=seats(2, prompt_gate_tokens=100, reserved_seats=1))
    driver.offer(*(request(key, key % 2, prompt_tokens=200) for key in range(400)))
    ranks = []
    for _ in range(200):
        key = driver.running[0]
        for each in tuple(driver.running):
            driver.first_token(each)
        driver.finish(key)
        ranks.append(driver.requests[key].rank)
    assert Counter(ranks)[1] >= 40


def test_changed_weights_keep_the_counters() -> None:
    """D05: new weights hold from now on, in any window after the change."""
    driver = quota()
    driver.offer(*(request(key, key % 3, maximum_output_tokens=0) for key in range(3000)))
    driver.serve(most=137)
    classes = tuple(
        replace(each, weight=weight)
        for each, weight in zip(driver.settings.classes, (50.0, 30.0, 20.0), strict=True)
    )
    driver.configure(replace(driver.settings, classes=classes))
    driver.serve(most=100)
    counts = Counter(driver.requests[key].rank for key in driver.serve(most=100))
    assert abs(counts[0] - 50) <= 1
    assert abs(counts[1] - 30) <= 1
