"""Inside a class: who of several tenants goes next, and what each gets of the engine's tokens."""

from collections import Counter
from dataclasses import replace

import pytest
from giveway_scheduler import Limits, Settings, TenantName, TenantSettings

from tests.scheduler.driving import REALTIME, Driver, dispatched, request, seats, tenant

A, B = tenant("a"), tenant("b")


def driver_of_one_class(seat_count: int = 4, **more: object) -> Driver:
    only = replace(REALTIME, queue_capacity=100_000, time_to_live_s=1e6)
    settings = Settings(classes=(only,), concurrency=seats(seat_count), queue_capacity=100_000)
    return Driver(replace(settings, **more))  # type: ignore[arg-type]


def test_late_coming_tenant_is_served_by_turns() -> None:
    """32 of A are queued before 4 seats, then B sends 8: the last of B starts as 21st at latest."""
    driver = driver_of_one_class()
    driver.offer(*(request(key, tenant=A) for key in range(32)))
    driver.offer(*(request(100 + key, tenant=B) for key in range(8)))
    order = list(driver.running)
    while driver.running:
        order += dispatched(driver.finish(driver.running[0], output=10))
    assert len(order) == 40
    assert order.index(107) + 1 <= 21


def test_tenants_with_long_and_short_answers_get_equal_tokens() -> None:
    """A's answers have 160 tokens, B's 20, both always wait: served tokens at most 1.2 : 1.

    Nobody gives a bound, so the difference has to be learnt from the ends.
    """
    driver = driver_of_one_class(output_token_weight=1.0)
    output = {A: 160, B: 20}
    for key in range(4000):
        driver.offer(request(key, tenant=A if key % 2 else B, prompt_tokens=1))
    served: Counter[str] = Counter()
    for _ in range(1000):
        key = driver.running[0]
        name = driver.requests[key].tenant
        driver.finish(key, output=output[name])
        served[name] += 1 + output[name]
    assert 1 / 1.2 <= served[A] / served[B] <= 1.2


def test_giant_prompts_do_not_take_the_engine() -> None:
    """C19: prompts of 32,000 tokens against 200, both always wait: token shares within 20 %."""
    driver = driver_of_one_class(seat_count=2)
    for key in range(20_000):
        size = 32_000 if key % 100 == 0 else 200
        driver.offer(request(key, tenant=A if size > 200 else B, prompt_tokens=size))
    served: Counter[str] = Counter()
    for _ in range(8000):
        key = driver.running[0]
        driver.finish(key)
        served[driver.requests[key].tenant] += driver.requests[key].prompt_tokens
    assert served[A] / served[B] == pytest.approx(1.0, rel=0.2)


def test_weights_divide_tokens_inside_a_class() -> None:
    """A tenant of weight 4 gets four times the tokens of one of weight 1."""
    driver = driver_of_one_class(
        seat_count=2, tenants={A: TenantSettings(weight=4.0), B: TenantSettings(weight=1.0)}
    )
    driver.offer(*(request(key, tenant=A if key % 2 else B) for key in range(2000)))
    served = Counter(driver.requests[key].tenant for key in driver.serve(most=500))
    assert served[A] / served[B] == pytest.approx(4.0, rel=0.05)


def test_idle_time_earns_no_credit() -> None:
    """B was away while A was served 500 times; back again, it takes turns and no more."""
    driver = driver_of_one_class(seat_count=1)
    driver.offer(request(0, tenant=B))
    driver.offer(*(request(key, tenant=A) for key in range(1, 1000)))
    driver.serve(most=501)
    driver.offer(*(request(2000 + key, tenant=B) for key in range(100)))
    served = Counter(driver.requests[key].tenant for key in driver.serve(most=100))
    assert abs(served[A] - served[B]) <= 1


def test_newcomer_starts_level_when_nobody_waits() -> None:
    """A's service while it was alone is no debt that a later tenant could call in."""
    driver = driver_of_one_class(seat_count=1)
    for key in range(200):
        driver.offer(request(key, tenant=A))
        driver.finish(key)
    driver.offer(request(500, tenant=B))
    for key in range(40):
        driver.offer(request(1000 + key, tenant=B), request(2000 + key, tenant=A))
    served = Counter(driver.requests[key].tenant for key in driver.serve(most=40))
    assert abs(served[A] - served[B]) <= 2


def test_newcomer_starts_level_though_the_last_tenant_was_forgotten() -> None:
    """The level of service outlives the tenants that are no longer remembered."""
    driver = driver_of_one_class(seat_count=1, idle_tenants=0)
    driver.offer(*(request(key, tenant=A) for key in range(100)))
    driver.serve()
    driver.offer(*(request(1000 + key, tenant=B) for key in range(20)))
    driver.offer(*(request(2000 + key, tenant=A) for key in range(20)))
    served = Counter(driver.requests[key].tenant for key in driver.serve(most=20))
    assert abs(served[A] - served[B]) <= 1


def test_newcomer_has_no_credit_over_who_ran_all_along() -> None:
    """A has had 1,000 tokens and still runs, B had as many and was forgotten. C, who comes then,
    takes turns with A, and does not go first until it has had 1,000 as well."""
    driver = driver_of_one_class(seat_count=2, idle_tenants=0)

    def offer(key: int, name: TenantName, prompt_tokens: int = 10) -> None:
        each = request(key, tenant=name, prompt_tokens=prompt_tokens, maximum_output_tokens=0)
        driver.offer(each)

    offer(1, A, 1000)
    offer(2, A)
    driver.finish(1)
    offer(3, B, 1000)
    driver.finish(3)
    offer(4, tenant("other"))
    for name, first in ((tenant("c"), 100), (A, 200)):
        for key in range(first, first + 10):
            offer(key, name)
    served = Counter(driver.requests[key].tenant for key in driver.serve(most=12)[2:])
    assert abs(served[A] - served[tenant("c")]) <= 2


def test_request_undone_by_the_engine_is_not_charged() -> None:
    """What was requeued does not count against its tenant's turn."""
    driver = driver_of_one_class(seat_count=1)
    driver.offer(request(1, tenant=A, prompt_tokens=5000), request(2, tenant=B))
    driver.set_engine_available(False)
    driver.requeue(1)
    assert dispatched(driver.set_engine_available(True)) == [1]


def test_tenant_at_its_limit_saves_up_no_turns() -> None:
    """A tenant that its own limit of one seat held back is not served in a row afterwards."""
    driver = driver_of_one_class(
        seat_count=4, tenants={A: TenantSettings(limits=Limits(in_flight=1))}
    )
    for key in range(600):
        driver.offer(request(key, tenant=A if key % 2 else B))
    driver.serve(most=200)
    assert sum(driver.requests[key].tenant == A for key in driver.running) <= 1
    driver.configure(replace(driver.settings, tenants={}))
    served = Counter(driver.requests[key].tenant for key in driver.serve(most=40))
    assert abs(served[A] - served[B]) <= 6


def test_tenants_come_and_go_without_end() -> None:
    """Only so many idle tenants are remembered; those with work always are."""
    driver = driver_of_one_class(seat_count=3, idle_tenants=5)
    driver.offer(request(0, tenant=tenant("stays")))
    for key in range(1, 200):
        driver.offer(request(key, tenant=tenant(f"guest {key}")))
        driver.finish(key)
    names = {each.name for each in driver.statistics().tenants}
    assert names == {"stays", *(f"guest {key}" for key in range(195, 200))}


def test_named_tenants_are_never_forgotten() -> None:
    """G01: a drained bucket survives any number of other tenants."""
    driver = driver_of_one_class(
        seat_count=100,
        idle_tenants=1,
        tenants={A: TenantSettings(limits=Limits(requests_per_s=0.001))},
    )
    driver.offer(request(0, tenant=A))
    driver.finish(0)
    for key in range(1, 50):
        driver.offer(request(key, tenant=tenant(f"guest {key}")))
        driver.finish(key)
    assert dispatched(driver.offer(request(99, tenant=A))) == []
