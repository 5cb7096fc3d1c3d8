"""Requests larger than a bucket can ever hold, in a class whose requests wait for it (B13).

The bucket holds 100 tokens and gains 10 a second; of these 5 are saved for the large request while
it waits, so that it goes after at most 100 / 5 = 20 s, and small ones have 5 a second meanwhile.
"""

from dataclasses import replace

import pytest
from giveway_scheduler import (
    Algorithm,
    Limits,
    OverLimit,
    Request,
    Settings,
    TenantSettings,
)

from tests.scheduler.driving import (
    BATCH,
    REALTIME,
    Driver,
    dispatched,
    request,
    seats,
    tenant,
)

LIMITS = Limits(tokens_per_s=10.0, token_burst=100.0)


def sized(key: int, tokens: int, name: str = "acme") -> Request:
    """A request of so many tokens, all of them prompt."""
    return request(key, prompt_tokens=tokens, maximum_output_tokens=0, tenant=tenant(name))


def queueing(algorithm: Algorithm = Algorithm.SLO_AWARE, **more: object) -> Driver:
    """One class that waits for its bucket, of which 80 of 100 tokens are used."""
    only = replace(BATCH, limits=LIMITS, over_limit=OverLimit.QUEUE)
    settings = Settings(classes=(only,), algorithm=algorithm, concurrency=seats(1000))
    driver = Driver(replace(settings, **more))  # type: ignore[arg-type]
    driver.offer(sized(1, 80))
    return driver


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("name", ["acme", "other"])
def test_small_requests_do_not_wait_behind_a_large_one(algorithm: Algorithm, name: str) -> None:
    """Two of 10 go at once out of the 20 that are left, the next at 10 / 5 = 2 s, whoever asks."""
    driver = queueing(algorithm)
    assert dispatched(driver.offer(sized(2, 150))) == []
    assert dispatched(driver.offer(*(sized(key, 10, name) for key in (3, 4, 5)))) == [3, 4]
    assert dispatched(driver.until(1.9)) == []
    assert dispatched(driver.until(2.0)) == [5]


@pytest.mark.parametrize("algorithm", Algorithm)
def test_small_requests_without_end_do_not_keep_a_large_one_for_ever(algorithm: Algorithm) -> None:
    """At 18 s 90 are saved and the 10 for the next small one are there: that fills the bucket, and
    the large one goes. The next small one goes when the debt is paid, at 18 + (50 + 10) / 10 s."""
    driver = queueing(algorithm)
    driver.offer(sized(2, 150), *(sized(key, 10, "other") for key in range(3, 100)))
    assert len(dispatched(driver.until(17.9))) == 8  # one in 2 s
    assert dispatched(driver.until(18.0)) == [2]
    assert dispatched(driver.until(23.9)) == []
    assert len(dispatched(driver.until(24.0))) == 1


def test_large_request_goes_at_once_when_the_bucket_is_full() -> None:
    """Nobody else asks: after (100 - 20) / 10 = 8 s the bucket is full, and it goes as debt."""
    driver = queueing()
    driver.offer(sized(2, 150))
    assert driver.scheduler.next_event_s() == pytest.approx(8.0)
    assert dispatched(driver.until(8.0)) == [2]


def test_large_requests_of_several_tenants_take_turns() -> None:
    """Each has a whole saving of its own; nobody's second goes before everybody's first."""
    driver = queueing()
    names = ("a", "b", "c")
    driver.offer(*(sized(10 * n + i, 150, name) for i in (1, 2) for n, name in enumerate(names, 1)))
    driver.offer(*(sized(key, 10, "small") for key in range(100, 300)))
    order = [each for each in dispatched(driver.until(600.0)) if each < 100]
    assert sorted(order[:3]) == [11, 21, 31]
    assert sorted(order[3:]) == [12, 22, 32]


def test_large_request_of_a_tenants_bucket_holds_nothing_but_what_came_after_it() -> None:
    """A tenant's own limit is its own affair: its later requests of the class wait for their turn,
    its requests of other classes and those of other tenants do not."""
    limits = {tenant("acme"): TenantSettings(limits=LIMITS)}
    classes = (REALTIME, replace(BATCH, over_limit=OverLimit.QUEUE))
    driver = Driver(Settings(classes=classes, concurrency=seats(1000), tenants=limits))
    driver.offer(*(replace(sized(key, tokens), rank=1) for key, tokens in ((1, 80), (2, 150))))
    assert dispatched(driver.offer(replace(sized(3, 10), rank=1))) == []
    assert dispatched(driver.offer(replace(sized(4, 10, "other"), rank=1))) == [4]
    assert dispatched(driver.offer(sized(5, 10))) == [5]
    assert dispatched(driver.until(9.0)) == [2]
    assert dispatched(driver.until(15.0)) == [3]


def test_large_request_of_a_tenant_at_its_limit_does_not_hold_the_class() -> None:
    """It can pay, and may not go: what was saved for it is there for the others."""
    limits = {tenant("acme"): TenantSettings(limits=Limits(in_flight=1))}
    driver = queueing(tenants=limits)
    driver.offer(sized(2, 150), sized(3, 100, "other"))
    assert dispatched(driver.until(8.0)) == [3]
    driver.finish(1)
    assert dispatched(driver.until(18.0)) == [2]


def test_what_was_saved_for_who_left_is_there_for_all() -> None:
    """After 4 s 60 are in it, of which 20 are saved; after the large one left, 60 may go."""
    driver = queueing()
    driver.offer(sized(2, 150))
    driver.at(4.0)
    assert dispatched(driver.offer(sized(3, 60, "other"))) == []
    assert dispatched(driver.cancel(2)) == [3]


def test_larger_bucket_makes_a_large_request_an_ordinary_one() -> None:
    """A reload: what fits by now waits like all others, and in its order of arrival."""
    driver = queueing(Algorithm.WEIGHTED_RANDOM)
    driver.offer(sized(2, 150), sized(3, 30))
    only = driver.settings.classes[0]
    larger = replace(only, limits=Limits(tokens_per_s=10.0, token_burst=200.0))
    driver.configure(replace(driver.settings, classes=(larger,)))
    assert dispatched(driver.until(12.9)) == []
    assert dispatched(driver.until(13.0)) == [2]
    assert dispatched(driver.until(16.0)) == [3]


def test_reload_does_not_begin_the_saving_anew() -> None:
    """Weights change every half minute in a cluster: it still goes at 18 s."""
    driver = queueing()
    driver.offer(sized(2, 150), *(sized(key, 10, "other") for key in range(3, 100)))
    for now_s in (5.0, 10.0, 15.0):
        driver.until(now_s)
        driver.configure(driver.settings)
    assert 2 not in dispatched(driver.decisions)
    assert dispatched(driver.until(18.0))[-1] == 2
