"""What the state machine and the cost tests have found, each in its smallest form."""

import math
from dataclasses import replace

import pytest
from giveway_scheduler import (
    Abort,
    AntiStarvation,
    Dispatch,
    DispatchReason,
    Limits,
    OverLimit,
    Preemption,
    RequestKey,
    Settings,
    TenantSettings,
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

PLAIN = Settings(classes=CLASSES, concurrency=seats(1), anti_starvation=None)


def test_refused_newcomer_swallows_no_wake_up() -> None:
    """H4: a tenant's bucket is full again just when another request is refused; the one that
    waited for it goes in the same call."""
    one_per_s = TenantSettings(limits=Limits(requests_per_s=1.0, request_burst=1.0))
    closed = replace(REALTIME, limits=Limits(requests_per_s=0.0))
    driver = Driver(
        replace(
            PLAIN,
            classes=(closed, STANDARD, BATCH),
            tenants={tenant("slow"): one_per_s},
            concurrency=seats(10),
        )
    )
    driver.offer(request(1, 2, tenant=tenant("slow")), request(2, 2, tenant=tenant("slow")))
    driver.now_s = 1.0
    decisions = driver.offer(request(3, 0))
    assert rejected(decisions) == [3]
    assert dispatched(decisions) == [2]


def test_boost_ends_also_while_nobody_waits() -> None:
    """H10: an hour after the boost, a newcomer of that class is not promoted."""
    driver = Driver(replace(PLAIN, anti_starvation=AntiStarvation(), batch_token_floor_ratio=0.0))
    driver.offer(request(1), request(2, 2))
    driver.until(75.0)
    assert driver.statistics().classes[2].boosted
    driver.finish(1)
    driver.finish(2)
    driver.now_s = 3600.0
    (decision,) = driver.offer(request(3, 2))
    assert isinstance(decision, Dispatch)
    assert decision.reason is DispatchReason.IMMEDIATE


def test_lift_ends_with_the_one_in_the_middle() -> None:
    """A9: 1 waits for 2, 2 waits for 3. Without 2 nobody waits for 3 any more, though 1 lives."""
    driver = Driver(PLAIN)
    driver.offer(
        request(0),
        request(1, waits_for="middle", workflow="w", tenant=tenant("a")),
        request(2, name="middle", waits_for="last", workflow="w", tenant=tenant("b")),
        request(3, 2, name="last", workflow="w", tenant=tenant("c")),
    )
    assert [each.queued for each in driver.statistics().classes] == [3, 0, 0]
    driver.cancel(2)
    assert [each.queued for each in driver.statistics().classes] == [1, 0, 1]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (1, 3, 2), (2, 1, 3)])
def test_lift_does_not_depend_on_who_comes_first(order: tuple[int, ...]) -> None:
    """A9: the middle one may lift nobody (its ceiling is the lowest), who waits for it may."""
    chain = {
        1: request(1, 0, waits_for="middle", workflow="w", tenant=tenant("a")),
        2: request(2, 0, name="middle", waits_for="last", workflow="w", ceiling_rank=2),
        3: request(3, 2, name="last", workflow="w", tenant=tenant("c")),
    }
    driver = Driver(PLAIN)
    driver.offer(request(0), *(chain[key] for key in order))
    assert [each.queued for each in driver.statistics().classes] == [3, 0, 0]


def test_requeued_entry_follows_the_new_time_to_live() -> None:
    """A6: it was at the engine when the class's time to live changed from 3,600 s to 5 s."""
    driver = Driver(PLAIN)
    driver.offer(request(1, 2))
    driver.configure(replace(PLAIN, classes=(REALTIME, STANDARD, replace(BATCH, time_to_live_s=5))))
    driver.set_engine_available(False)
    driver.requeue(1)
    assert driver.scheduler.next_event_s() == 5.0
    assert expired(driver.at(5.0)) == [1]


def test_requeueing_again_and_again_keeps_one_deadline() -> None:
    """A6: an engine that flaps 1,000 times leaves no heap of 1,000 deadlines."""
    driver = Driver(PLAIN)
    driver.offer(request(1, 2))
    for _ in range(1000):
        driver.set_engine_available(False)
        driver.requeue(1)
        driver.set_engine_available(True)
    assert len(driver.scheduler._room._deadlines) < 100


def test_demoted_entries_go_oldest_first() -> None:
    """All are late after 5 s: they go in order of arrival, whatever their prompts."""
    driver = Driver(PLAIN)
    driver.offer(request(0, 1))
    for key, tokens in enumerate((900, 20, 500, 70, 300), start=1):
        driver.offer(request(key, 1, prompt_tokens=tokens))
    driver.now_s = 5.0
    driver.cancel(3)
    assert driver.serve() == [0, 1, 2, 4, 5]


def test_alarms_of_one_flow_do_not_pile_up() -> None:
    """H3: 1,000 of a limited tenant's requests leave at one instant; its flow has one alarm."""
    one_per_s = TenantSettings(limits=Limits(requests_per_s=1.0, request_burst=1.0))
    driver = Driver(replace(PLAIN, tenants={tenant("slow"): one_per_s}, concurrency=seats(10)))
    for key in range(1002):
        driver.offer(request(key, 2, tenant=tenant("slow")))
    for key in range(1, 1001):
        driver.cancel(key)
    assert len(driver.scheduler._room._alarms) < 100
    assert dispatched(driver.until(1.0)) == [RequestKey(1001)]


@pytest.mark.parametrize("offered_s", [0.0, -10.0])
def test_requeueing_again_and_again_keeps_one_place(offered_s: float) -> None:
    """SLOAware, shortest first: one entry, on time or late, is requeued 1,000 times while another
    of its tenant waits. Its place in the order is one."""
    driver = Driver(PLAIN, now_s=offered_s)
    driver.offer(request(0, 1), request(1, 1, prompt_tokens=5), request(2, 1, prompt_tokens=500))
    driver.at(0.0)
    driver.finish(0)
    for _ in range(1000):
        driver.set_engine_available(False)
        driver.requeue(1)
        driver.set_engine_available(True)
    (flow,) = driver.scheduler._classes[1].queue.flows.values()
    assert len(flow.prompts) + len(flow.late) < 150
    assert driver.serve() == [1, 2]


@pytest.mark.parametrize("stale", range(60, 75))
def test_flow_is_found_whenever_its_heap_is_rebuilt(stale: int) -> None:
    """SLOAware: many ends while the engine is down leave stale places behind; the request turns
    late just when they are thrown away, and goes all the same."""
    driver = Driver(replace(PLAIN, concurrency=seats(100)))
    driver.offer(*(request(key, 1) for key in range(100)))
    driver.set_engine_available(False)
    driver.offer(request(100, 1))
    for key in range(stale):
        driver.finish(key)
    driver.now_s = 5.0
    assert dispatched(driver.set_engine_available(True)) == [100]


def test_shorter_request_of_a_held_tenant_goes_if_it_can_pay() -> None:
    """SLOAware, A8: 10 tokens/s, 50 left. 100 tokens have to wait, 20 that come after do not."""
    slow = TenantSettings(limits=Limits(tokens_per_s=10.0, token_burst=150.0))
    queueing = replace(STANDARD, over_limit=OverLimit.QUEUE)
    driver = Driver(
        replace(
            PLAIN,
            classes=(REALTIME, queueing, BATCH),
            tenants={tenant("slow"): slow},
            concurrency=seats(10),
        )
    )
    for key, tokens, goes in ((1, 100, True), (2, 100, False), (3, 20, True)):
        each = request(key, 1, tenant=tenant("slow"), prompt_tokens=tokens, maximum_output_tokens=0)
        assert dispatched(driver.offer(each)) == ([key] if goes else [])


def test_request_behind_one_that_turns_late_is_announced() -> None:
    """SLOAware: 1 has paid for its place before its class was closed, 2 has not. Both came in time;
    1 is late at once, 2 is next but can never pay. When 2 turns late as well 1 is next, and goes
    at that moment without any other call."""
    driver = Driver(replace(PLAIN, concurrency=seats(10)))
    driver.set_engine_available(False)
    driver.offer(request(1, 1, prompt_tokens=100))
    closed = replace(STANDARD, limits=Limits(requests_per_s=0.0), over_limit=OverLimit.QUEUE)
    driver.configure(replace(driver.settings, classes=(REALTIME, closed, BATCH)))
    driver.at(2.0)
    driver.offer(request(2, 1, prompt_tokens=10))
    assert driver.set_engine_available(True) == []
    late_s = 2.0 + 1.0 - 10 * driver.settings.concurrency.prompt_seconds_per_token
    assert driver.scheduler.next_event_s() == pytest.approx(late_s)
    assert dispatched(driver.until(3.0)) == [1]


def test_request_that_a_higher_class_waits_for_is_not_stopped() -> None:
    """A9, A10: batch runs and has shown nothing. A realtime request waits: batch is stopped for it,
    but not if its result is what the realtime request waits for."""
    stopping = replace(PLAIN, preemption=Preemption.ABORT_BEFORE_FIRST_TOKEN)
    for waits_for, stopped in ((None, True), ("result", False)):
        driver = Driver(stopping)
        driver.offer(request(1, 2, name="result"))
        decisions = driver.offer(request(2, 0, waits_for=waits_for))
        assert any(isinstance(each, Abort) for each in decisions) == stopped


def test_moment_at_which_a_stop_becomes_worth_it_is_announced() -> None:
    """A10: eight seats came free at once, then none. A batch prompt of 3 s is done; to stop it is
    not worth it at 4 s, since by that rate a seat comes free in 10 / (8 ln 2) x 2^0.4 = 2.4 s. That
    time doubles every 10 s: at 10 x log2(3 x 8 ln 2 / 10) = 7.3 s it is more than 3 s."""
    concurrency = seats(1, prompt_seconds_per_token=1e-3)
    driver = Driver(
        replace(
            PLAIN,
            concurrency=concurrency,
            preemption=Preemption.ABORT_BEFORE_FIRST_TOKEN,
            batch_token_floor_ratio=0.0,
        )
    )
    for key in range(8):
        driver.offer(request(key))
        driver.finish(key)
    driver.offer(request(8, 2, prompt_tokens=3000))
    driver.now_s = 4.0
    assert driver.offer(request(9)) == []
    worth_it_s = 10.0 * math.log2(3.0 * 8.0 * math.log(2.0) / 10.0)
    assert driver.scheduler.next_event_s() == pytest.approx(worth_it_s, abs=1e-5)
    assert driver.at(worth_it_s - 1e-3) == []
    assert dispatched(driver.until(worth_it_s + 1e-3)) == [9]


def test_paid_request_that_comes_into_a_held_flow_goes() -> None:
    """A9: 2 waits for its tenant's closed bucket. 1 has paid and waits for a seat; 3 lifts it into
    the closed tenant's name: older than 2, it goes at once."""
    closed = TenantSettings(limits=Limits(requests_per_s=0.0))
    driver = Driver(
        replace(
            PLAIN,
            classes=(replace(REALTIME, over_limit=OverLimit.QUEUE), STANDARD, BATCH),
            tenants={tenant("closed"): closed},
            concurrency=seats(10, reserved_seats=9),
        )
    )
    driver.offer(request(0, 1), request(1, 1, name="result", workflow="w"))
    driver.offer(request(2, 0, tenant=tenant("closed")))
    assert driver.running == [0]
    lifting = request(3, 0, waits_for="result", workflow="w", tenant=tenant("closed"))
    assert dispatched(driver.offer(lifting)) == [1]


@pytest.mark.parametrize("is_of_tenant", [True, False])
def test_call_that_comes_a_rounding_early_lets_go_who_waits_for_a_bucket(
    is_of_tenant: bool,
) -> None:
    """H3: a wait below a grain is none, for a tenant's bucket as for a class's. The moment at which
    a bucket has enough is a sum of floats, and may be found as one that is 1e-15 s later."""
    one_per_s = Limits(requests_per_s=1.0, request_burst=1.0)
    waiter = tenant("slow")
    settings = (
        replace(PLAIN, tenants={waiter: TenantSettings(limits=one_per_s)})
        if is_of_tenant
        else replace(PLAIN, classes=(REALTIME, STANDARD, replace(BATCH, limits=one_per_s)))
    )
    driver = Driver(replace(settings, concurrency=seats(10)))
    driver.offer(request(1, 2, tenant=waiter), request(2, 2, tenant=waiter))
    assert dispatched(driver.at(1.0 - 1e-5)) == []
    assert dispatched(driver.at(1.0 - 1e-9)) == [2]
