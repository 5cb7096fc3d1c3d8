"""Token buckets: exact refill, exact waits, debt, and never above the burst (H3, A8)."""

import math
import random

import pytest
from giveway_scheduler.buckets import GRAIN_S, Budget, TokenBucket
from giveway_scheduler.settings import Limits


def bucket(per_s: float = 10.0, burst: float = 10.0) -> TokenBucket:
    return TokenBucket(per_s=per_s, burst=burst, now_s=0.0)


def test_no_fraction_is_lost_between_looks() -> None:
    """Mend 4: 1,000 looks, 1 ms apart, refill as much as one look after a second."""
    often, once = bucket(per_s=3.0), bucket(per_s=3.0)
    often.take(10.0, now_s=0.0)
    once.take(10.0, now_s=0.0)
    for step in range(1, 1001):
        often.refill(step / 1000)
    assert often.level == pytest.approx(3.0)
    assert often.level == pytest.approx(once.refill(1.0))


def test_named_wait_is_exact() -> None:
    """H3, B20: before the named time the amount does not pass, at that time it does."""
    limited = bucket(per_s=4.0, burst=10.0)
    limited.take(9.0, now_s=0.0)
    wait_s = limited.wait_s(3.0, now_s=0.0)
    assert wait_s == pytest.approx((3.0 - 1.0) / 4.0)
    assert limited.wait_s(3.0, now_s=wait_s - 0.01) > 0.0
    assert limited.wait_s(3.0, now_s=wait_s) == 0.0


@pytest.mark.parametrize("start_s", [0.0, 1e5, 1e7])
def test_named_wait_is_exact_late_in_a_clock_of_days(start_s: float) -> None:
    """H3: rounding of a large clock does not make a timer ring for nothing."""
    generator = random.Random(3)
    limited = TokenBucket(per_s=33_333.3, burst=333_333.0, now_s=start_s)
    now_s = start_s
    for _ in range(200):
        limited.take(generator.uniform(1.0, 200_000.0), now_s=now_s)
        now_s += limited.wait_s(300_000.0, now_s=now_s)
        assert limited.wait_s(300_000.0, now_s=now_s) == 0.0


def test_amount_above_the_burst_passes_when_full_and_leaves_debt() -> None:
    """B13, B15: 25 of a bucket of 10 leave -15; the next 1 passes after (1 + 15) / 10 = 1.6 s."""
    limited = bucket()
    assert limited.wait_s(25.0, now_s=0.0) == 0.0
    limited.take(25.0, now_s=0.0)
    assert limited.level == -15.0
    assert limited.wait_s(1.0, now_s=0.0) == pytest.approx(1.6)
    assert limited.wait_s(25.0, now_s=0.0) == pytest.approx((10.0 + 15.0) / 10.0)


def test_level_never_exceeds_the_burst() -> None:
    """B24: neither an idle hour nor a refund fills a bucket above its burst."""
    limited = bucket()
    assert limited.refill(3600.0) == 10.0
    limited.put_back(5.0, now_s=3600.0)
    assert limited.level == 10.0


def test_refund_leaves_the_bucket_as_if_nothing_had_been_taken() -> None:
    """C27: what is taken and given back later changes nothing, full or not."""
    for taken_at_s, back_at_s in ((0.0, 0.2), (0.0, 50.0)):
        plain, used = bucket(), bucket()
        for each in (plain, used):
            each.take(8.0, now_s=0.0)
        used.take(2.0, now_s=taken_at_s)
        used.put_back(2.0, now_s=back_at_s)
        assert used.level == pytest.approx(plain.refill(back_at_s))


def test_rate_zero_is_closed_whatever_the_burst() -> None:
    """Limit 0: nothing passes, for ever."""
    assert bucket(per_s=0.0, burst=100.0).wait_s(1.0, now_s=1e9) == math.inf


def test_smaller_burst_clips_and_larger_burst_does_not_refill() -> None:
    """D05: a change of numbers gives nothing away."""
    limited = bucket()
    limited.take(4.0, now_s=0.0)
    limited.configure(per_s=10.0, burst=100.0, now_s=0.0)
    assert limited.level == 6.0
    limited.configure(per_s=10.0, burst=3.0, now_s=0.0)
    assert limited.level == 3.0


@pytest.mark.parametrize(("per_s", "burst"), [(200.0, 200.0), (200.0, 400.0), (0.5, 1.0)])
def test_any_window_admits_at_most_burst_and_rate(per_s: float, burst: float) -> None:
    """H3, B24: burst = rate (the default) and the published 2 x rate both hold their bound."""
    generator = random.Random(5)
    limited = bucket(per_s=per_s, burst=burst)
    passed: list[float] = []
    now_s = 0.0
    for _ in range(3000):
        now_s += generator.expovariate(per_s * 3.0)
        if limited.wait_s(1.0, now_s=now_s) == 0.0:
            limited.take(1.0, now_s=now_s)
            passed.append(now_s)
    for start in range(0, len(passed), 7):
        for end in range(start, len(passed), 13):
            window_s = passed[end] - passed[start] + GRAIN_S
            assert end - start + 1 <= burst + per_s * window_s + 1e-6


def test_default_bursts_are_one_second_of_permits_and_ten_of_tokens() -> None:
    """H3: burst = 1.0 x rate by default, at least one request."""
    budget = Budget(Limits(requests_per_s=200.0, tokens_per_s=1000.0), now_s=0.0)
    assert budget.requests is not None
    assert budget.tokens is not None
    assert (budget.requests.burst, budget.tokens.burst) == (200.0, 10_000.0)
    slow = Budget(Limits(requests_per_s=0.1), now_s=0.0)
    assert slow.requests is not None
    assert slow.requests.burst == 1.0
