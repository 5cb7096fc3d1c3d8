"""A request that another one waits for is served in its place (A9)."""

from dataclasses import replace

import pytest
from giveway_scheduler import (
    Dispatch,
    DispatchReason,
    Limits,
    OverLimit,
    Settings,
    TenantSettings,
)

from tests.scheduler.driving import CLASSES, Driver, dispatched, request, seats, tenant

VIP, OTHER = tenant("vip"), tenant("other")


def driver_with_full_seat(**more: object) -> Driver:
    """One seat, taken by request 0 of the first class; nothing is owed to batch."""
    driver = Driver(
        Settings(
            classes=CLASSES,
            concurrency=seats(1),
            anti_starvation=None,
            batch_token_floor_ratio=0.0,
            **more,  # type: ignore[arg-type]
        )
    )
    driver.offer(request(0, 0))
    return driver


def test_waited_for_request_goes_in_the_waiters_class() -> None:
    """A9: a VIP waits for a batch request behind a hundred others: it goes next."""
    driver = driver_with_full_seat()
    driver.offer(*(request(key, 1) for key in range(1, 101)))
    driver.offer(request(200, 2, name="job"))
    driver.offer(request(201, 0, waits_for="job"))
    (decision,) = driver.finish(0)
    assert isinstance(decision, Dispatch)
    assert decision.request.key == 200
    assert decision.reason is DispatchReason.LIFTED
    assert (decision.rank, decision.priority) == (0, 0)


def test_waiter_may_come_first() -> None:
    """A9: the order of arrival does not matter."""
    driver = driver_with_full_seat()
    driver.offer(request(1, 0, waits_for="job"), request(2, 0))
    driver.offer(request(3, 2, name="job"))
    assert driver.statistics().classes[0].queued == 3
    assert driver.serve()[1:] == [1, 2, 3]


def test_running_waiter_lifts_too() -> None:
    """A9: the waiter holds a seat while it waits for the result, e.g. of a tool call."""
    driver = Driver(Settings(classes=CLASSES, concurrency=seats(2), batch_token_floor_ratio=0.0))
    driver.offer(request(1, 0, waits_for="job"), request(2, 0))
    driver.offer(request(3, 1), request(4, 2, name="job"))
    assert dispatched(driver.finish(2)) == [4]


def test_lift_ends_with_the_waiter() -> None:
    """A9: the client of the waiter leaves: the batch request is in its own place again."""
    driver = driver_with_full_seat()
    driver.offer(request(1, 2, name="job"), request(2, 1), request(3, 0, waits_for="job"))
    assert driver.statistics().classes[0].queued == 2
    driver.cancel(3)
    assert [each.queued for each in driver.statistics().classes] == [0, 1, 1]
    assert driver.serve()[1:] == [2, 1]


def test_chains_are_followed() -> None:
    """A9: a waits for b waits for c: c goes first, in a's class, then b."""
    driver = driver_with_full_seat()
    driver.offer(request(1, 2, name="c"), request(2, 1, name="b", waits_for="c"), request(3, 1))
    driver.offer(request(4, 0, waits_for="b"))
    assert [each.queued for each in driver.statistics().classes] == [3, 1, 0]
    assert driver.serve()[1:] == [1, 2, 4, 3]


def test_chain_through_a_running_request_is_followed() -> None:
    """A9: b runs already, but what it waits for is still lifted."""
    driver = Driver(Settings(classes=CLASSES, concurrency=seats(2), batch_token_floor_ratio=0.0))
    driver.offer(request(1, 1, name="b", waits_for="c"), request(2, 0))
    driver.offer(request(3, 1), request(4, 2, name="c"), request(5, 0, waits_for="b"))
    assert dispatched(driver.finish(2)) == [4]


@pytest.mark.parametrize("leaves", [1, 2, 3])
def test_cycles_are_harmless(leaves: int) -> None:
    """A9: two that wait for each other keep no lift alive once the source is gone."""
    driver = driver_with_full_seat()
    driver.offer(request(1, 2, name="x", waits_for="y"), request(2, 2, name="y", waits_for="x"))
    assert [each.queued for each in driver.statistics().classes] == [0, 0, 2]
    driver.offer(request(3, 0, waits_for="x"))
    assert [each.queued for each in driver.statistics().classes] == [3, 0, 0]
    driver.cancel(leaves)
    expected = {1: [1, 0, 1], 2: [2, 0, 0], 3: [0, 0, 2]}[leaves]
    assert [each.queued for each in driver.statistics().classes] == expected
    driver.serve()
    assert driver.statistics().queued == 0


def test_request_that_waits_for_itself_is_not_lifted() -> None:
    """A9: a cycle of one."""
    driver = driver_with_full_seat()
    driver.offer(request(1, 2, name="x", waits_for="x"))
    assert driver.statistics().classes[2].queued == 1


def test_strangers_requests_are_not_moved() -> None:
    """A9: across tenants only where both name the same workflow."""
    for workflow, ranks in ((None, [1, 0, 1]), ("w", [2, 0, 0])):
        driver = driver_with_full_seat()
        driver.offer(request(1, 2, tenant=OTHER, name="job", workflow="w"))
        driver.offer(request(2, 0, tenant=VIP, waits_for="job", workflow=workflow))
        assert [each.queued for each in driver.statistics().classes] == ranks


def test_lift_never_exceeds_the_waiters_ceiling() -> None:
    """A9: a waiter that stands above its tenant's ceiling lifts no higher than that."""
    driver = driver_with_full_seat()
    driver.offer(request(1, 2, name="job"), request(2, 0, waits_for="job", ceiling_rank=1))
    assert [each.queued for each in driver.statistics().classes] == [1, 1, 0]


def test_waiter_of_a_lower_class_lifts_nothing() -> None:
    """A9: priority is inherited upwards only."""
    driver = driver_with_full_seat()
    driver.offer(request(1, 1, name="job"), request(2, 2, waits_for="job"))
    assert [each.queued for each in driver.statistics().classes] == [0, 1, 1]


def test_waiters_tenant_pays() -> None:
    """A9: 10 prompt tokens and a bound of 90 move from one tenant's bucket to the other's."""
    limits = Limits(tokens_per_s=0.001, token_burst=1000.0)
    driver = driver_with_full_seat(
        tenants={name: TenantSettings(limits=limits) for name in (VIP, OTHER)}
    )
    paying = tuple(replace(each, over_limit=OverLimit.REJECT) for each in CLASSES)
    driver.configure(replace(driver.settings, classes=paying))

    def level(name: str) -> float:
        (found,) = (each for each in driver.statistics().tenants if each.name == name)
        assert found.tokens is not None
        return round(found.tokens.level, 3)

    job = request(1, 2, tenant=OTHER, name="job", workflow="w", maximum_output_tokens=90)
    driver.offer(job)
    assert level(OTHER) == 900.0
    driver.offer(request(2, 0, tenant=VIP, waits_for="job", workflow="w", maximum_output_tokens=0))
    assert (level(OTHER), level(VIP)) == (1000.0, 890.0)
    driver.cancel(2)
    assert (level(OTHER), level(VIP)) == (900.0, 1000.0)


def test_lifted_request_counts_in_the_waiters_share() -> None:
    """A9: what is served in the waiter's place counts as the waiter's tenant's service."""
    driver = driver_with_full_seat()
    driver.offer(request(1, 2, tenant=OTHER, name="job", workflow="w", prompt_tokens=5000))
    driver.offer(request(2, 0, tenant=VIP, waits_for="job", workflow="w"))
    driver.offer(request(3, 0, tenant=OTHER))
    served = {each.name: each.queued for each in driver.statistics().tenants}
    assert served[VIP] == 2
    assert served[OTHER] == 1
    assert driver.serve()[1:] == [1, 3, 2]


def test_dispatched_request_is_left_where_it_is() -> None:
    """A9: what runs already can't be served sooner; its charge stays its own tenant's."""
    driver = Driver(Settings(classes=CLASSES, concurrency=seats(1)))
    driver.offer(request(1, 2, tenant=OTHER, name="job", workflow="w"))
    driver.offer(request(2, 0, tenant=VIP, waits_for="job", workflow="w"))
    assert driver.statistics().classes[2].running == 1
    driver.finish(1, output=40)
    served = {each.name: each.served_tokens for each in driver.statistics().tenants}
    assert served[OTHER] == 50.0


def test_time_to_live_stays_its_own() -> None:
    """A9: a batch request that may wait an hour does not expire after the VIP's 15 s."""
    driver = driver_with_full_seat()
    driver.offer(request(1, 2, name="job"), request(2, 0, waits_for="job"))
    driver.at(15.0)
    assert [each.queued for each in driver.statistics().classes] == [0, 0, 1]


def test_thousands_that_wait_for_each_other_cost_a_bounded_look() -> None:
    """A9: a chain and a fan of 3,000: all are served, each once."""
    driver = driver_with_full_seat()
    for key in range(1, 3001):
        waits_for = f"r{key - 1}" if key % 2 else "hub"
        driver.offer(request(key, 1 + key % 2, name=f"r{key}", waits_for=waits_for))
    driver.offer(request(5000, 2, name="hub"))
    assert driver.statistics().classes[1].queued == 1501
    assert len(driver.serve()) == 3002
