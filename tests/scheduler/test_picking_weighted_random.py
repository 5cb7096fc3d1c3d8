"""WeightedRandom (H6, H7, mend 3)."""

from collections import Counter
from dataclasses import replace

import pytest
from giveway_scheduler import Algorithm, Settings, ShareUnit

from tests.scheduler.driving import CLASSES, Driver, dispatched, request, seats


def lottery(unit: ShareUnit = ShareUnit.REQUESTS, **more: object) -> Driver:
    classes = tuple(replace(each, queue_capacity=100_000) for each in CLASSES)
    settings = Settings(
        classes=classes,
        algorithm=Algorithm.WEIGHTED_RANDOM,
        share_unit=unit,
        concurrency=seats(1),
        queue_capacity=1_000_000,
    )
    return Driver(replace(settings, **more))  # type: ignore[arg-type]


def test_requests_are_drawn_by_weight() -> None:
    """H6: 70 / 25 / 5 of 4,000 draws, within five standard deviations (5 x sqrt(np(1-p)))."""
    driver = lottery()
    driver.offer(*(request(key, key % 3) for key in range(15_000)))
    drawn = Counter(driver.requests[key].rank for key in driver.serve(most=4000))
    for rank, (share, deviation) in enumerate(((0.70, 29.0), (0.25, 27.4), (0.05, 13.8))):
        assert abs(drawn[rank] - 4000 * share) <= 5 * deviation


def test_weights_are_renormalised_over_the_classes_that_have_work() -> None:
    """H6, H7: with P0 empty, 25 : 5 are 5/6 and 1/6: its share goes to the others."""
    driver = lottery()
    driver.offer(*(request(key, 1 + key % 2) for key in range(8000)))
    drawn = Counter(driver.requests[key].rank for key in driver.serve(most=3000))
    assert drawn[1] / 3000 == pytest.approx(5 / 6, abs=0.035)


def test_no_seat_stays_free_whatever_class_has_work() -> None:
    """H7: the lowest class alone gets every seat."""
    driver = lottery(concurrency=seats(10))
    assert dispatched(driver.offer(*(request(key, 2) for key in range(12)))) == list(range(10))


def test_highest_class_goes_where_no_weight_is_left() -> None:
    """H6: falls back to the highest class."""
    classes = tuple(replace(each, weight=0.0) for each in CLASSES)
    driver = lottery(classes=classes)
    driver.offer(*(request(key, 2 - key % 3) for key in range(30)))
    ranks = [driver.requests[key].rank for key in driver.serve()]
    assert ranks[1:11] == [0] * 10


def test_shares_are_counted_in_tokens() -> None:
    """Mend 3: P1's prompts are 50 times P0's; tokens still divide 70 : 25, and not 70 : 1250."""
    driver = lottery(ShareUnit.TOKENS)
    driver.offer(
        *(request(key, key % 2, prompt_tokens=2000 if key % 2 else 40) for key in range(24_000))
    )
    tokens: Counter[int] = Counter()
    for key in driver.serve(most=9000):
        tokens[driver.requests[key].rank] += driver.requests[key].prompt_tokens
    assert tokens[0] / tokens[1] == pytest.approx(70 / 25, rel=0.2)


def test_token_shares_follow_what_was_really_used() -> None:
    """Mend 3: the same bound of 1,000, but P0's answers have 10 tokens and P1's 500."""
    driver = lottery(ShareUnit.TOKENS)
    driver.offer(*(request(key, key % 2, maximum_output_tokens=1000) for key in range(20_000)))
    tokens: Counter[int] = Counter()
    for _ in range(8000):
        key = driver.running[0]
        output = 500 if driver.requests[key].rank else 10
        driver.finish(key, output=output)
        tokens[driver.requests[key].rank] += 10 + output
    assert tokens[0] / tokens[1] == pytest.approx(70 / 25, rel=0.2)


def test_equal_seeds_draw_equally() -> None:
    """The generator is the one source of chance."""
    runs = []
    for _ in range(2):
        driver = lottery()
        driver.offer(*(request(key, key % 3) for key in range(300)))
        runs.append(driver.serve())
    assert runs[0] == runs[1]
