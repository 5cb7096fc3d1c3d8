"""Changing the settings under load: nothing is lost, nothing is given away (D05, D11, D14)."""

from dataclasses import replace

import pytest
from giveway_scheduler import (
    Algorithm,
    ClassSettings,
    Dispatch,
    Kind,
    Limits,
    OverLimit,
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


def settings(**more: object) -> Settings:
    plain = Settings(classes=CLASSES, concurrency=seats(4, batch_maximum=3))
    return replace(plain, **more)  # type: ignore[arg-type]


def test_reload_does_not_refill_a_drained_bucket() -> None:
    """D05: drained, then 20 reloads that change another class: nobody more is admitted."""
    drained = replace(REALTIME, limits=Limits(requests_per_s=0.5, request_burst=5.0))
    driver = Driver(settings(classes=(drained, STANDARD, BATCH), concurrency=seats(100)))
    driver.offer(*(request(key) for key in range(5)))
    for step in range(20):
        other = replace(STANDARD, queue_capacity=100 + step)
        driver.configure(replace(driver.settings, classes=(drained, other, BATCH)))
        assert rejected(driver.offer(request(100 + step))) == [100 + step]
    driver.at(2.0)
    assert dispatched(driver.offer(request(200))) == [200]


def test_tenant_bucket_survives_a_reload() -> None:
    """D05: the same for tenants."""
    limited = {tenant("acme"): TenantSettings(limits=Limits(requests_per_s=0.5))}
    driver = Driver(settings(tenants=limited))
    driver.offer(request(0))
    driver.configure(replace(driver.settings, queue_capacity=77))
    assert rejected(driver.offer(request(1))) == [1]
    driver.configure(replace(driver.settings, tenants={}))
    assert dispatched(driver.offer(request(2))) == [2]


@pytest.mark.parametrize("former", list(Algorithm))
@pytest.mark.parametrize("later", list(Algorithm))
def test_change_of_algorithm_loses_nothing(former: Algorithm, later: Algorithm) -> None:
    """D14: 30 wait and 4 run; after the change each is served exactly once."""
    driver = Driver(settings(algorithm=former))
    driver.offer(*(request(key, key % 3, prompt_tokens=1 + key % 7) for key in range(34)))
    driver.serve(most=5)
    driver.configure(replace(driver.settings, algorithm=later))
    driver.serve()
    keys = [each.request.key for each in driver.decisions if isinstance(each, Dispatch)]
    assert sorted(keys) == list(range(34))


def test_ten_reloads_under_load_keep_the_books() -> None:
    """D14: 50 running, 50 queued, ten reloads of many numbers: the counts stay right."""
    driver = Driver(settings(concurrency=seats(50), anti_starvation=None))
    driver.offer(*(request(key, key % 3, size_bytes=3) for key in range(100)))
    for step in range(10):
        driver.now_s += 0.5
        driver.configure(
            settings(
                concurrency=seats(40 + step, prompt_gate_tokens=1000 + step),
                algorithm=list(Algorithm)[step % 5]
                if list(Algorithm)[step % 5] is not Algorithm.INTERACTIVE_FIRST
                else Algorithm.SLO_AWARE,
            )
        )
        statistics = driver.statistics()
        assert (statistics.running, statistics.queued) == (50, 50)
        assert sum(each.running for each in statistics.classes) == 50
        assert statistics.queued_bytes == 150
    driver.configure(settings(concurrency=seats(60)))
    assert driver.statistics().running == 60
    assert len(driver.serve()) == 100


def test_queued_requests_move_to_their_classes_new_rank() -> None:
    """Classes are matched by name: the order of ranks turns round, and what waits with it."""
    driver = Driver(
        settings(classes=(REALTIME, STANDARD), concurrency=seats(1), anti_starvation=None)
    )
    driver.offer(request(0), request(1, 0), request(2, 1), request(3, 1))
    driver.configure(replace(driver.settings, classes=(STANDARD, REALTIME)))
    decisions = driver.finish(0)
    assert isinstance(decisions[0], Dispatch)
    assert (decisions[0].request.key, decisions[0].rank) == (2, 0)
    assert driver.serve() == [2, 3, 1]


def test_requests_of_a_class_that_is_gone_go_to_the_lowest() -> None:
    """D11: ten queued, some running, the class goes: the running finish, the queued are served."""
    driver = Driver(settings(concurrency=seats(5)))
    driver.offer(*(request(key, 1) for key in range(15)))
    driver.configure(replace(driver.settings, classes=(REALTIME, BATCH)))
    lowest = driver.statistics().classes[1]
    assert (lowest.name, lowest.running, lowest.queued) == ("batch", 5, 10)
    assert driver.serve() == list(range(15))
    assert driver.statistics().classes[1].running == 0


def test_running_request_of_a_gone_class_leaves_no_credit_behind() -> None:
    """D11: all it uses is charged in the lowest class, with nothing of its estimate taken off:
    its tenant has had 5,000 tokens, so the other one's turns come first."""
    driver = Driver(settings(concurrency=seats(1), anti_starvation=None))
    driver.offer(request(0, 1, prompt_tokens=5000))
    driver.configure(replace(driver.settings, classes=(REALTIME, BATCH)))
    driver.offer(*(request(key, 1) for key in (1, 2)))
    driver.offer(*(request(key, 1, tenant=tenant("other")) for key in (3, 4)))
    driver.finish(0)
    assert driver.statistics().classes[1].served_tokens == 5000.0
    assert driver.serve() == [3, 4, 1, 2]


def test_class_that_comes_back_starts_afresh() -> None:
    """D11: removed and added again with other limits: no stale counters."""
    drained = replace(STANDARD, limits=Limits(requests_per_s=0.001))
    driver = Driver(settings(classes=(REALTIME, drained, BATCH)))
    driver.offer(request(0, 1))
    assert rejected(driver.offer(request(1, 1))) == [1]
    driver.configure(replace(driver.settings, classes=(REALTIME, BATCH)))
    driver.finish(0)
    driver.configure(replace(driver.settings, classes=(REALTIME, drained, BATCH)))
    assert driver.statistics().classes[1].served_tokens == 0.0
    assert dispatched(driver.offer(request(2, 1))) == [2]


def test_time_to_live_of_queued_entries_follows() -> None:
    """Shorter: who waited longer than that expires at once. Longer: they get the time."""
    driver = Driver(settings(concurrency=seats(1)))
    driver.offer(request(0), request(1), request(2, 1))
    driver.now_s = 5.0
    impatient = replace(REALTIME, time_to_live_s=4.0)
    patient = replace(STANDARD, time_to_live_s=100.0)
    changed = replace(driver.settings, classes=(impatient, patient, BATCH))
    assert expired(driver.configure(changed)) == [1]
    assert driver.at(99.0) == []
    assert expired(driver.at(100.0)) == [2]


def test_more_seats_are_used_at_once() -> None:
    """The change's own answer carries the dispatches that it makes possible."""
    driver = Driver(settings(concurrency=seats(1)))
    driver.offer(*(request(key) for key in range(5)))
    assert dispatched(driver.configure(settings(concurrency=seats(3)))) == [1, 2]


def test_fewer_seats_take_none_away() -> None:
    """In use: above the limit just after it was lowered, and never again."""
    driver = Driver(settings(concurrency=seats(4)))
    driver.offer(*(request(key) for key in range(8)))
    assert driver.configure(settings(concurrency=seats(2))) == []
    assert driver.statistics().running == 4
    assert dispatched(driver.finish(0)) == []
    assert dispatched(driver.finish(1)) == []
    assert dispatched(driver.finish(2)) == [4]


def test_smaller_queue_throws_nobody_out() -> None:
    """No queued request is lost; the next newcomer meets the new bound."""
    driver = Driver(settings(concurrency=seats(1)))
    driver.offer(*(request(key) for key in range(9)))
    assert driver.configure(settings(concurrency=seats(1), queue_capacity=2)) == []
    assert driver.statistics().queued == 8
    assert rejected(driver.offer(request(99))) == [99]


def test_what_was_paid_is_not_paid_twice() -> None:
    """A class that turns from Reject to Queue: those that paid at the entry go without paying."""
    paid = replace(STANDARD, limits=Limits(requests_per_s=0.001, request_burst=3.0))
    driver = Driver(settings(classes=(paid,), concurrency=seats(1)))
    driver.offer(*(request(key) for key in range(3)))
    queueing = replace(paid, over_limit=OverLimit.QUEUE)
    driver.configure(replace(driver.settings, classes=(queueing,)))
    assert driver.serve() == [0, 1, 2]


def test_removed_limit_lets_held_requests_go() -> None:
    """Who waited for a bucket that is no more does not wait on."""
    held = replace(BATCH, limits=Limits(requests_per_s=0.0))
    driver = Driver(
        settings(
            classes=(REALTIME, held),
            tenants={tenant("slow"): TenantSettings(limits=Limits(in_flight=0))},
        )
    )
    driver.offer(request(0, 1), request(1, 0, tenant=tenant("slow")))
    assert driver.running == []
    driver.configure(replace(driver.settings, classes=(REALTIME, BATCH)))
    assert driver.running == [0]
    driver.configure(replace(driver.settings, tenants={}))
    assert driver.running == [0, 1]


def test_equal_settings_change_nothing() -> None:
    """Configuring what is in force already: the same statistics, no decisions."""
    driver = Driver(settings())
    driver.offer(*(request(key, key % 3) for key in range(20)))
    before = driver.statistics()
    assert driver.configure(driver.settings) == []
    assert driver.statistics() == before


def broken(**more: object) -> Settings:
    return settings(**more)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (broken(classes=()), "no class"),
        (broken(classes=(REALTIME, REALTIME)), "not unique"),
        (broken(classes=(replace(REALTIME, weight=-1.0),)), "weight"),
        (broken(concurrency=seats(4, batch_minimum=3, batch_maximum=2)), "batch_minimum"),
        (broken(concurrency=seats(4, reserved_seats=4)), "reserved"),
        (broken(concurrency=seats(0, batch_maximum=1)), "no seat"),
        (broken(tenants={tenant("a"): TenantSettings(weight=0.0)}), "weight"),
        (broken(batch_token_floor_ratio=1.0), "floor"),
        (broken(cached_token_ratio=2.0), "cached"),
        (broken(batch_token_floor_half_life_s=0.0), "half-life"),
        (broken(output_token_weight=-1.0), "output_token_weight"),
        (
            broken(
                classes=(
                    ClassSettings(
                        name=REALTIME.name,
                        kind=Kind.BATCH,
                        weight=1.0,
                        limits=Limits(in_flight=3),
                    ),
                )
            ),
            "in_flight",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_and_change_nothing(
    wrong: Settings, message: str
) -> None:
    """ValueError from both ways in; the settings in force stay in force."""
    with pytest.raises(ValueError, match=message):
        Driver(wrong)
    driver = Driver(settings())
    driver.offer(*(request(key, key % 3) for key in range(10)))
    before = driver.statistics()
    with pytest.raises(ValueError, match=message):
        driver.configure(wrong)
    assert driver.statistics() == before
