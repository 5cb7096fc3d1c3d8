"""Limits of classes and tenants at the entry: who is refused, who waits, who is charged what."""

from dataclasses import replace

import pytest
from giveway_scheduler import (
    Dispatch,
    Limits,
    OverLimit,
    Reject,
    RejectReason,
    Settings,
    TenantSettings,
    Usage,
)

from tests.scheduler.driving import (
    BATCH,
    CLASSES,
    REALTIME,
    STANDARD,
    Driver,
    dispatched,
    expired,
    rejected,
    request,
    seats,
    tenant,
)


def limited(limits: Limits, over_limit: OverLimit = OverLimit.REJECT) -> Settings:
    """One class with these limits and plenty of seats."""
    only = replace(REALTIME, limits=limits, over_limit=over_limit)
    return Settings(classes=(only,), concurrency=seats(1000))


def level(driver: Driver) -> float:
    """Tokens left in the first class's bucket."""
    tokens = driver.statistics().classes[0].tokens
    assert tokens is not None
    return tokens.level


def test_simultaneous_requests_pass_exactly_as_many_as_the_bucket_holds() -> None:
    """H3, B18: of 200 in one instant exactly the burst of 10 passes, the rest is rejected."""
    driver = Driver(limited(Limits(requests_per_s=5.0, request_burst=10.0)))
    decisions = driver.offer(*(request(key) for key in range(200)))
    assert dispatched(decisions) == list(range(10))
    assert rejected(decisions) == list(range(10, 200))


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_published_rates_hold_with_burst_one_and_two(factor: float) -> None:
    """H3, H4: P0 200/s, P1 100/s, P2 50/s; P0 and P1 reject what is over, P2 lets it wait."""
    rates = (200.0, 100.0, 50.0)
    classes = tuple(
        replace(each, limits=Limits(requests_per_s=rate, request_burst=factor * rate))
        for each, rate in zip(CLASSES, rates, strict=True)
    )
    driver = Driver(Settings(classes=classes, concurrency=seats(10_000)))
    for rank, rate in enumerate(rates):
        decisions = driver.offer(*(request(rank * 1000 + key, rank) for key in range(500)))
        passed = int(factor * rate)
        assert len(dispatched(decisions)) == passed
        assert len(rejected(decisions)) == (500 - passed if rank < 2 else 0)
    waiting = driver.statistics().classes[2].queued
    assert waiting == 500 - int(factor * 50)
    assert len(dispatched(driver.until(1.0))) == 50


def test_bucket_is_asked_before_the_queue() -> None:
    """H3: over the limit is rejected even while the queue is empty and a seat is free."""
    driver = Driver(limited(Limits(requests_per_s=1.0)))
    driver.offer(request(1))
    (decision,) = driver.offer(request(2))
    assert isinstance(decision, Reject)
    assert decision.reason is RejectReason.CLASS_REQUESTS
    assert decision.reason.is_rate


def test_retry_after_is_true() -> None:
    """B20: at the named time, and not before, the retry passes."""
    driver = Driver(limited(Limits(tokens_per_s=100.0, token_burst=1000.0)))
    driver.offer(request(1, prompt_tokens=500, maximum_output_tokens=450))
    (decision,) = driver.offer(request(2, prompt_tokens=100, maximum_output_tokens=150))
    assert isinstance(decision, Reject)
    assert decision.reason is RejectReason.CLASS_TOKENS
    assert decision.retry_after_s == pytest.approx((250 - 50) / 100)
    driver.at(decision.retry_after_s - 0.01)
    assert rejected(driver.offer(request(3, prompt_tokens=100, maximum_output_tokens=150))) == [3]
    driver.at(decision.retry_after_s)
    assert dispatched(driver.offer(request(4, prompt_tokens=100, maximum_output_tokens=150))) == [4]


def test_reservation_is_all_or_nothing() -> None:
    """What one of four buckets refuses is taken from none of them."""
    settings = replace(
        limited(Limits(requests_per_s=100.0, tokens_per_s=1000.0)),
        tenants={tenant("acme"): TenantSettings(limits=Limits(tokens_per_s=1.0, token_burst=20.0))},
    )
    driver = Driver(settings)
    assert dispatched(driver.offer(request(1, maximum_output_tokens=10))) == [1]
    before = driver.statistics().classes[0]
    (decision,) = driver.offer(request(2, maximum_output_tokens=10))
    assert isinstance(decision, Reject)
    assert decision.reason is RejectReason.TENANT_TOKENS
    after = driver.statistics().classes[0]
    assert (after.requests, after.tokens) == (before.requests, before.tokens)


def test_longest_wait_names_reason_and_time() -> None:
    """B20: where two buckets lack, the retry is told to wait for both."""
    driver = Driver(
        limited(Limits(requests_per_s=1.0, request_burst=1.0, tokens_per_s=10.0, token_burst=100.0))
    )
    driver.offer(request(1, prompt_tokens=100, maximum_output_tokens=0))
    (decision,) = driver.offer(request(2, prompt_tokens=80, maximum_output_tokens=0))
    assert isinstance(decision, Reject)
    assert decision.reason is RejectReason.CLASS_TOKENS
    assert decision.retry_after_s == pytest.approx(80 / 10)


def test_queue_class_pays_when_its_turn_comes() -> None:
    """H4: over the limit a QUEUE class waits, and goes when the bucket has enough again."""
    driver = Driver(limited(Limits(requests_per_s=2.0, request_burst=1.0), OverLimit.QUEUE))
    assert dispatched(driver.offer(request(1), request(2), request(3))) == [1]
    assert driver.scheduler.next_event_s() == pytest.approx(0.5)
    assert dispatched(driver.at(0.49)) == []
    assert dispatched(driver.until(0.5)) == [2]
    assert dispatched(driver.until(1.0)) == [3]


def test_large_request_is_not_passed_over_for_ever_by_small_ones() -> None:
    """B13: with 20 of 100 tokens left, the one that needs 100 goes at (100 - 20) / 10 = 8 s, and
    the small ones behind it after."""
    driver = Driver(limited(Limits(tokens_per_s=10.0, token_burst=100.0), OverLimit.QUEUE))
    small = {"prompt_tokens": 10, "maximum_output_tokens": 0}
    driver.offer(request(1, prompt_tokens=80, maximum_output_tokens=0))
    driver.offer(request(2, prompt_tokens=100, maximum_output_tokens=0), request(3, **small))
    assert dispatched(driver.until(7.9)) == []
    assert dispatched(driver.until(8.0)) == [2]
    assert dispatched(driver.until(9.0)) == [3]


def test_oversize_request_passes_a_full_bucket_as_debt() -> None:
    """B13, B15: 1,500 of a bucket of 1,000 leave -500; the next 100 pass after 600 / 100 = 6 s."""
    driver = Driver(limited(Limits(tokens_per_s=100.0, token_burst=1000.0)))
    assert dispatched(driver.offer(request(1, prompt_tokens=1500, maximum_output_tokens=0))) == [1]
    assert level(driver) == -500.0
    (decision,) = driver.offer(request(2, prompt_tokens=100, maximum_output_tokens=0))
    assert isinstance(decision, Reject)
    assert decision.retry_after_s == pytest.approx(6.0)


def test_overshoot_is_paid_off_at_the_rate_and_no_longer() -> None:
    """B15: an answer three times the bucket shuts the class out for debt / rate, then all is well.

    1,000 - 10 - 3,000 = -2,010 tokens; 10 more pass after 2,020 / 100 = 20.2 s.
    """
    driver = Driver(limited(Limits(tokens_per_s=100.0, token_burst=1000.0)))
    driver.offer(request(1, maximum_output_tokens=0))
    driver.finish(1, output=3000)
    assert level(driver) == pytest.approx(-2010.0)
    (decision,) = driver.offer(request(2, maximum_output_tokens=0))
    assert isinstance(decision, Reject)
    assert decision.retry_after_s == pytest.approx(20.2)
    driver.at(20.2)
    assert dispatched(driver.offer(request(3, maximum_output_tokens=0))) == [3]


def test_usage_replaces_the_reservation() -> None:
    """B10: of 20 requests with a bound of 4,096, half use 20 tokens and half do nothing.

    The bucket ends at its start minus what was used: 10 x (10 prompt + 20 output) = 300.
    """
    driver = Driver(limited(Limits(tokens_per_s=1.0, token_burst=100_000.0)))
    driver.offer(*(request(key, maximum_output_tokens=4096) for key in range(20)))
    assert level(driver) == 100_000.0 - 20 * 4106
    for key in range(20):
        driver.end(key, Usage(prompt_tokens=10, output_tokens=20) if key % 2 else None)
    assert level(driver) == pytest.approx(100_000.0 - 300.0)


def test_failing_calls_still_count_as_requests() -> None:
    """B09: tokens of a call for which the engine did nothing come back, its permit does not."""
    driver = Driver(limited(Limits(requests_per_s=1.0, request_burst=3.0)))
    for key in range(3):
        driver.offer(request(key))
        driver.end(key, None)
    assert rejected(driver.offer(request(3))) == [3]


def test_cached_prompt_tokens_are_charged_by_their_ratio() -> None:
    """100 prompt tokens, 80 of them cached at 0.25: 20 + 20, and 5 of output, are 45."""
    settings = replace(
        limited(Limits(tokens_per_s=1.0, token_burst=1000.0)), cached_token_ratio=0.25
    )
    driver = Driver(settings)
    driver.offer(request(1, prompt_tokens=100, maximum_output_tokens=10))
    driver.end(1, Usage(prompt_tokens=100, cached_tokens=80, output_tokens=5))
    assert level(driver) == pytest.approx(1000.0 - 45.0)


def test_senseless_usage_does_no_harm() -> None:
    """B26: negative numbers count as 0, more cached tokens than there are as all of them."""
    settings = replace(
        limited(Limits(tokens_per_s=1.0, token_burst=1000.0)), cached_token_ratio=0.0
    )
    driver = Driver(settings)
    driver.offer(request(1), request(2))
    driver.end(1, Usage(prompt_tokens=-5, cached_tokens=-7, output_tokens=-9))
    driver.end(2, Usage(prompt_tokens=10, cached_tokens=99, output_tokens=0))
    assert level(driver) == 1000.0
    assert driver.statistics().ledger.charged_tokens == 0.0


def test_reservation_scales_with_answers_and_is_capped() -> None:
    """B23: no bound: 256 x 4 answers; a bound counts as it is, up to the largest estimate."""
    settings = replace(
        limited(Limits(tokens_per_s=1.0, token_burst=1e6)), largest_output_estimate_tokens=2000
    )
    driver = Driver(settings)
    spent = 0.0
    for key, more, cost in (
        (1, {"answers": 4}, 10 + 4 * 256),
        (2, {"answers": 4, "maximum_output_tokens": 400}, 10 + 400),
        (3, {"maximum_output_tokens": 10**18}, 10 + 2000),
        (4, {"answers": 1000}, 10 + 2000),
        (5, {"maximum_output_tokens": 0}, 10),
    ):
        driver.offer(request(key, **more))
        spent += cost
        assert level(driver) == 1e6 - spent


def test_wait_that_expires_or_ends_costs_nothing() -> None:
    """C27: 50 that paid and waited leave the bucket as if they had never come."""
    only = replace(REALTIME, limits=Limits(tokens_per_s=1.0, token_burst=1e5, requests_per_s=100.0))
    driver = Driver(Settings(classes=(only,), concurrency=seats(1)))
    driver.offer(request(0, maximum_output_tokens=0))
    driver.offer(*(request(key) for key in range(1, 51)))
    for key in range(1, 26):
        driver.cancel(key)
    assert len(expired(driver.at(15.0))) == 25
    assert level(driver) == 1e5 - 10 + 10  # the running one's 10, and ten of 15 s refilled
    permits = driver.statistics().classes[0].requests
    assert permits is not None
    assert permits.level == 100.0


def test_tenant_over_its_limit_does_not_delay_others() -> None:
    """A tenant's limit in a QUEUE class holds its own requests alone."""
    settings = Settings(
        classes=(replace(STANDARD, over_limit=OverLimit.QUEUE),),
        tenants={tenant("slow"): TenantSettings(limits=Limits(requests_per_s=1.0))},
        concurrency=seats(100),
    )
    driver = Driver(settings)
    driver.offer(*(request(key, tenant=tenant("slow")) for key in range(5)))
    assert driver.running == [0]
    driver.offer(*(request(key, tenant=tenant("other")) for key in range(10, 15)))
    assert driver.running == [0, 10, 11, 12, 13, 14]
    driver.until(4.0)
    assert driver.running[-4:] == [1, 2, 3, 4]


def test_tenant_over_its_limit_is_rejected_in_a_reject_class() -> None:
    """Tenant limits obey the class's over_limit."""
    settings = Settings(
        classes=(REALTIME,),
        tenants={tenant("acme"): TenantSettings(limits=Limits(requests_per_s=2.0))},
        concurrency=seats(100),
    )
    driver = Driver(settings)
    decisions = driver.offer(*(request(key) for key in range(3)))
    (reject,) = (each for each in decisions if isinstance(each, Reject))
    assert (reject.request.key, reject.reason) == (2, RejectReason.TENANT_REQUESTS)
    assert reject.retry_after_s == pytest.approx(0.5)


def test_tenant_in_flight_limit_makes_its_requests_wait() -> None:
    """A tenant holds its limit of seats, whatever is free; an end lets its next one go."""
    settings = Settings(
        classes=CLASSES,
        tenants={tenant("acme"): TenantSettings(limits=Limits(in_flight=2))},
        concurrency=seats(100),
    )
    driver = Driver(settings)
    driver.offer(request(1, 0), request(2, 1), request(3, 0), request(4, 1))
    assert driver.running == [1, 2]
    assert dispatched(driver.offer(request(9, 1, tenant=tenant("other")))) == [9]
    assert dispatched(driver.finish(1)) == [3]
    assert dispatched(driver.finish(2)) == [4]


@pytest.mark.parametrize("over_limit", list(OverLimit))
def test_limit_zero_lets_nothing_pass(over_limit: OverLimit) -> None:
    """0 = nothing passes: rejected with the longest hint, or waiting until it expires."""
    driver = Driver(limited(Limits(requests_per_s=0.0, request_burst=50.0), over_limit))
    decisions = driver.offer(request(1))
    if over_limit is OverLimit.REJECT:
        (reject,) = decisions
        assert isinstance(reject, Reject)
        assert reject.retry_after_s == 60.0
    else:
        assert decisions == []
        assert expired(driver.until(15.0)) == [1]


def test_simultaneous_tokens_are_reserved_before_they_are_known() -> None:
    """B01, B17: 1,000 tokens a minute and answers of 150: the third of 300 tokens is held back."""
    driver = Driver(limited(Limits(tokens_per_s=5.0, token_burst=300.0)))
    for key in (1, 2):
        driver.offer(request(key, prompt_tokens=100, maximum_output_tokens=50))
        driver.finish(key, output=50)
    assert level(driver) == 0.0
    assert rejected(driver.offer(request(3, prompt_tokens=100, maximum_output_tokens=50))) == [3]


def test_every_token_is_charged_or_refunded() -> None:
    """reserved + overrun = charged + refunded + held, through refunds, overruns and requeues."""
    driver = Driver(limited(Limits(tokens_per_s=1000.0)))
    driver.offer(*(request(key, maximum_output_tokens=100) for key in range(6)))
    driver.finish(0, output=5)
    driver.finish(1, output=500)
    driver.end(2, None)
    driver.cancel(3, Usage(prompt_tokens=10, output_tokens=1))
    driver.set_engine_available(False)
    driver.requeue(4)
    ledger = driver.statistics().ledger
    assert ledger.reserved_tokens == 6 * 110
    assert ledger.charged_tokens == 15 + 510 + 0 + 11
    assert ledger.overrun_tokens == 400
    assert ledger.refunded_tokens == 95 + 110 + 99
    assert ledger.held_tokens == 2 * 110
    assert (
        ledger.reserved_tokens + ledger.overrun_tokens
        == ledger.charged_tokens + ledger.refunded_tokens + ledger.held_tokens
    )


def test_reservation_of_unbounded_answers_follows_the_class_history() -> None:
    """Without a bound the class's recent 90th percentile is reserved, not the first estimate."""
    driver = Driver(Settings(classes=CLASSES, concurrency=seats(100)))
    for key in range(20):
        driver.offer(request(key, 2))
        driver.finish(key, output=40)
    assert driver.statistics().classes[2].output_estimate_tokens == 40
    assert driver.statistics().classes[0].output_estimate_tokens == 256
    driver.offer(request(99, 2))
    assert driver.statistics().ledger.held_tokens == 50


def test_cancelled_answers_teach_nothing_about_length() -> None:
    """An answer that was cut short says nothing of how long answers are."""
    driver = Driver(Settings(classes=(BATCH,), concurrency=seats(100)))
    for key in range(20):
        driver.offer(request(key))
        driver.cancel(key, Usage(prompt_tokens=10, output_tokens=1))
    assert driver.statistics().classes[0].output_estimate_tokens == 256


def test_dispatch_of_a_newcomer_says_that_it_never_waited() -> None:
    """IMMEDIATE at once, QUEUED after a wait, which is told."""
    driver = Driver(Settings(classes=(REALTIME,), concurrency=seats(1)))
    (first,) = driver.offer(request(1))
    driver.offer(request(2))
    driver.now_s = 3.0
    (second,) = driver.finish(1)
    assert isinstance(first, Dispatch)
    assert isinstance(second, Dispatch)
    assert (first.reason.value, first.waited_s) == ("immediate", 0.0)
    assert (second.reason.value, second.waited_s) == ("queued", 3.0)
