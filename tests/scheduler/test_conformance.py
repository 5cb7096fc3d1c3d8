"""What every algorithm owes, whatever its order: found by discovery, so that a new one is held too.

Each test runs for every member of `Algorithm`.
"""

import importlib
import pkgutil
import random
from collections.abc import Iterable
from dataclasses import replace

import giveway_scheduler.picking
import pytest
from giveway_scheduler import (
    Algorithm,
    Dispatch,
    Limits,
    OverLimit,
    Request,
    RequestKey,
    Settings,
    TenantSettings,
    Usage,
)
from giveway_scheduler.picking import PICKERS, Picker

from tests.scheduler.driving import (
    CLASSES,
    STANDARD,
    Driver,
    dispatched,
    request,
    seats,
    tenant,
)
from tests.scheduler.oracles import first_come_waits_s
from tests.scheduler.serving_support import Server

pytestmark = pytest.mark.parametrize("algorithm", list(Algorithm))


def driver_of(algorithm: Algorithm, *, seat_count: int = 3, **more: object) -> Driver:
    """Three classes, no limits but seats, and InteractiveFirst's seat that batch can't have."""
    plain = Settings(
        classes=tuple(replace(each, time_to_live_s=1e6) for each in CLASSES),
        algorithm=algorithm,
        concurrency=seats(seat_count, batch_maximum=seat_count - 1),
        anti_starvation=None,
    )
    return Driver(replace(plain, **more))  # type: ignore[arg-type]


def crowd(seed: int, count: int) -> Iterable[tuple[float, Request]]:
    """Arrivals of every rank and of five tenants, all sizes, at random."""
    generator = random.Random(seed)
    at_s = 0.0
    for key in range(count):
        at_s += generator.expovariate(3.0)
        yield (
            at_s,
            request(
                key,
                generator.randrange(3),
                tenant=tenant(f"t{generator.randrange(5)}"),
                prompt_tokens=generator.randrange(1, 3000),
                maximum_output_tokens=generator.randrange(1, 500),
            ),
        )


def is_a_picker(candidate: object) -> bool:
    return isinstance(candidate, type) and Picker in candidate.__mro__ and candidate is not Picker


def test_algorithm_is_registered_and_every_picker_is_one(algorithm: Algorithm) -> None:
    """No algorithm without a picker, no picker without an algorithm, each made by its own."""
    package = giveway_scheduler.picking
    found = {
        each
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for each in vars(importlib.import_module(module.name)).values()
        if is_a_picker(each)
    }
    assert set(PICKERS.values()) == found
    assert type(driver_of(algorithm).scheduler._picker) is PICKERS[algorithm]


def test_one_class_of_equals_is_first_come_first_served(algorithm: Algorithm) -> None:
    """One class, one tenant, equal prompts, unequal answers: waits are those of the closed
    recursion for a queue with three servers."""
    generator = random.Random(1)
    services_s = [generator.expovariate(1.0) for _ in range(300)]
    arrivals_s = [0.0]
    for _ in range(299):
        arrivals_s.append(arrivals_s[-1] + generator.expovariate(2.9))
    driver = driver_of(algorithm, classes=(replace(STANDARD, time_to_live_s=1e6),))
    server = Server(driver, service_s=lambda each: services_s[each.key])
    server.run((at_s, request(key)) for key, at_s in enumerate(arrivals_s))
    waits_s = {each.request.key: each.waited_s for each in server.served}
    assert [waits_s[RequestKey(key)] for key in range(300)] == pytest.approx(
        first_come_waits_s(arrivals_s, services_s, seats=3)
    )


def test_burst_waits_as_long_as_the_turns_before_it(algorithm: Algorithm) -> None:
    """n equal requests at once, c seats, s seconds each: the i-th waits floor(i / c) x s."""
    driver = driver_of(algorithm, classes=(replace(STANDARD, time_to_live_s=1e6),))
    server = Server(driver, service_s=lambda _: 2.0)
    server.start_with(*(request(key) for key in range(20)))
    server.run()
    waits_s = {each.request.key: each.waited_s for each in server.served}
    assert [waits_s[RequestKey(key)] for key in range(20)] == [key // 3 * 2.0 for key in range(20)]


@pytest.mark.parametrize("seed", range(3))
def test_no_seat_is_free_while_anybody_waits(algorithm: Algorithm, seed: int) -> None:
    """H7: work-conserving, whatever waits; and all that came is served when the load stops."""
    driver = driver_of(algorithm, concurrency=seats(4, batch_maximum=3))
    server = Server(driver, service_s=lambda each: each.prompt_tokens / 1000.0)
    server.run(crowd(seed, 200))
    assert len(server.served) == 200
    assert driver.statistics().running == driver.statistics().queued == 0
    changes = sorted(
        [(each.dispatched_s, 1) for each in server.served]
        + [(each.finished_s, -1) for each in server.served]
    )
    assert max(sum(change for _, change in changes[: index + 1]) for index in range(400)) == 4
    for each in server.served:
        came_s = each.dispatched_s - each.waited_s
        if each.waited_s > 1e-9 and each.request.rank < 2:
            middle_s = (came_s + each.dispatched_s) / 2.0
            running = sum(
                other.dispatched_s <= middle_s < other.finished_s for other in server.served
            )
            assert running == 4


@pytest.mark.parametrize("rank", range(3))
def test_lone_class_has_all_that_it_may_have(algorithm: Algorithm, rank: int) -> None:
    """H7: what the others don't use is its own; batch has its seats, the others all."""
    driver = driver_of(algorithm, seat_count=10)
    driver.offer(*(request(key, rank) for key in range(50)))
    assert len(driver.running) == (9 if rank == 2 else 10)


def test_reserved_seats_wait_for_the_first_class(algorithm: Algorithm) -> None:
    """Y7: of 10 seats 4 are reserved; the others never have more than 6, the first has all."""
    driver = driver_of(algorithm, concurrency=seats(10, reserved_seats=4, batch_maximum=9))
    driver.offer(*(request(key, 1 + key % 2) for key in range(40)))
    assert len(driver.running) == 6
    assert dispatched(driver.offer(*(request(100 + key) for key in range(9)))) == [
        100,
        101,
        102,
        103,
    ]
    served = driver.serve(most=30)
    assert {100, 101, 102, 103, 104, 105, 106, 107, 108} <= {*served, *driver.running}


def test_reference_of_time_is_only_what_is_passed_in(algorithm: Algorithm) -> None:
    """The same calls at the same times, a year later on the clock: the same decisions."""
    logs = []
    for start_s in (0.0, 3e7):
        driver = driver_of(algorithm)
        driver.at(start_s)
        server = Server(driver, service_s=lambda each: 0.25 + each.prompt_tokens // 512)
        server.run((start_s + round(at_s * 64) / 64, each) for at_s, each in crowd(4, 150))
        logs.append([each.request.key for each in server.served])
    assert logs[0] == logs[1]


def test_undone_dispatch_leaves_the_order_as_it_was(algorithm: Algorithm) -> None:
    """Contract: the engine could not be reached; when it is back, the same three go first."""
    driver = driver_of(algorithm, classes=(replace(STANDARD, time_to_live_s=1e6),))
    driver.offer(*(request(key, tenant=tenant(f"t{key % 2}")) for key in range(9)))
    first = list(driver.running)
    driver.set_engine_available(False)
    for key in first:
        driver.requeue(key)
    assert sorted(dispatched(driver.set_engine_available(True))) == sorted(first)


@pytest.mark.parametrize("other", list(Algorithm))
def test_change_of_algorithm_loses_nothing(algorithm: Algorithm, other: Algorithm) -> None:
    """In mid-load, from each to each and back: everything that came is served once."""
    driver = driver_of(algorithm)
    server = Server(driver, service_s=lambda each: each.prompt_tokens / 1000.0)
    arrivals = list(crowd(7, 90))
    for part, now in enumerate((algorithm, other, algorithm)):
        queued = driver.statistics().queued
        changed = driver.configure(replace(driver.settings, algorithm=now))
        assert not dispatched(changed)
        assert driver.statistics().queued == queued
        assert driver.statistics().algorithm == now.value
        upcoming = arrivals[part * 30 : part * 30 + 30]
        server.run(upcoming, until_s=1e12 if part == 2 else upcoming[-1][0])
    assert sorted(each.request.key for each in server.served) == list(range(90))


@pytest.mark.parametrize("weights", [(0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1e-300, 1e300, 1.0)])
def test_weights_at_their_ends_do_no_harm(
    algorithm: Algorithm, weights: tuple[float, float, float]
) -> None:
    """Weights of nothing, and of very little beside very much: everybody is served in the end."""
    classes = tuple(
        replace(each, weight=weight, time_to_live_s=1e6)
        for each, weight in zip(CLASSES, weights, strict=True)
    )
    driver = driver_of(algorithm, classes=classes)
    driver.offer(*(request(key, key % 3) for key in range(60)))
    assert sorted(driver.serve()) == list(range(60))


def test_absurd_usage_stops_nobody_for_ever(algorithm: Algorithm) -> None:
    """An engine reports a billion tokens for one request of each class: all others are served."""
    driver = driver_of(algorithm)
    for rank in range(3):
        driver.offer(request(1000 + rank, rank))
        driver.end(1000 + rank, Usage(prompt_tokens=10**9, output_tokens=10**9))
    driver.offer(*(request(key, key % 3) for key in range(60)))
    assert sorted(driver.serve()) == list(range(60))


@pytest.mark.parametrize("held", [Limits(requests_per_s=0.0), Limits(in_flight=0)])
def test_tenant_that_may_not_go_stops_nobody_else(algorithm: Algorithm, held: Limits) -> None:
    """The head of each class belongs to a tenant whose limit lets nothing pass."""
    driver = driver_of(
        algorithm,
        tenants={tenant("held"): TenantSettings(limits=held)},
        classes=tuple(replace(each, over_limit=OverLimit.QUEUE) for each in CLASSES),
    )
    driver.offer(*(request(key, key, tenant=tenant("held")) for key in range(3)))
    driver.offer(*(request(10 + key, key % 3) for key in range(12)))
    assert sorted(driver.serve()) == list(range(10, 22))
    assert driver.statistics().queued == 3


def test_newcomer_that_finds_a_seat_never_waits(algorithm: Algorithm) -> None:
    """An idle engine: decided in the very call, for every class."""
    driver = driver_of(algorithm)
    for key in range(30):
        (decision,) = driver.offer(request(key, key % 3))
        assert isinstance(decision, Dispatch)
        assert decision.waited_s == 0.0
        driver.finish(key)
