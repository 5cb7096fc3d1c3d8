"""Shares are what the oracles say: between tenants, between classes, and of the floor."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import TypeVar

import pytest
from giveway_scheduler import (
    Algorithm,
    ClassSettings,
    Request,
    RequestKey,
    Settings,
    ShareUnit,
    TenantName,
    TenantSettings,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.driving import BATCH, CLASSES, REALTIME, STANDARD, Driver, request, seats
from tests.scheduler.oracles import chi_square, jain_index, max_min_shares
from tests.scheduler.serving_support import Served, Server

Name = TypeVar("Name", TenantName, int)

LONG_S = 1e9
OUTPUT_WEIGHT = 2.0
LARGEST = 400
"""Prompt and output tokens of the largest request."""
FAIR = [each for each in Algorithm if each is not Algorithm.DYNAMIC_AGING]
"""Inside a class, DynamicAging knows no tenants."""

tokens = st.integers(1, LARGEST)
sizes = st.tuples(tokens, tokens, st.booleans())
"""Prompt, output, and whether the client bounds its output."""


def roomy(*classes: ClassSettings, seat_count: int, **more: object) -> Settings:
    """Settings without any limit but seats."""
    plain = Settings(
        classes=tuple(
            replace(each, queue_capacity=10**6, time_to_live_s=LONG_S) for each in classes
        ),
        concurrency=seats(seat_count),
        queue_capacity=10**6,
        anti_starvation=None,
        first_output_estimate_tokens=LARGEST,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def refill(plan: Callable[[int], Request | None]) -> Callable[[Served], Iterable[Request]]:
    """For each request that ends `plan` says, of its rank, what arrives. None: nothing."""
    keys = count(10**6)

    def arrive(served: Served) -> Iterable[Request]:
        planned = plan(served.request.rank)
        if planned is not None:
            yield replace(planned, key=RequestKey(next(keys)))

    return arrive


def steady(
    demands: Mapping[Name, float], *, for_s: float, plan: Callable[[Name], Request]
) -> list[tuple[float, Request]]:
    """Each asks for so many requests a second, evenly, from a moment of its own on."""
    starts = {name: random.Random(str(name)).random() for name in demands}
    arrivals = [
        (starts[name] + number / demand, plan(name))
        for name, demand in demands.items()
        for number in range(int((for_s - starts[name]) * demand))
    ]
    arrivals.sort(key=lambda arrival: arrival[0])
    return [(at_s, replace(each, key=RequestKey(key))) for key, (at_s, each) in enumerate(arrivals)]


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    mine=st.lists(sizes, min_size=20, max_size=60),
    others=st.lists(sizes, min_size=20, max_size=60),
    weights=st.tuples(st.sampled_from([1.0, 3.0]), st.sampled_from([1.0, 0.5])),
    seat_count=st.integers(1, 6),
    algorithm=st.sampled_from(FAIR),
)
def test_backlogged_tenants_differ_by_at_most_what_runs_at_once(
    mine: list[tuple[int, int, bool]],
    others: list[tuple[int, int, bool]],
    weights: tuple[float, float],
    seat_count: int,
    algorithm: Algorithm,
) -> None:
    """While two tenants both wait, what each was served for its weight differs by at most `seats`
    requests of the largest cost, whatever their sizes and whether the output was known before.

    Who goes has at that moment at most the other's counter, estimates included: `had + estimated
    <= had' + estimated'`; until it goes again it gains no more than what it has running. Both
    together hold `seats` requests, each of at most 400 + 2 x 400 tokens, estimated or true.
    """
    bound = seat_count * (LARGEST + OUTPUT_WEIGHT * LARGEST) / min(weights)
    names = (TenantName("mine"), TenantName("others"))
    tenants = {
        name: TenantSettings(weight=weight) for name, weight in zip(names, weights, strict=True)
    }
    driver = Driver(
        roomy(
            replace(STANDARD, first_token_target_s=None),
            seat_count=seat_count,
            tenants=tenants,
            algorithm=algorithm,
        )
    )
    sent = [*((names[0], each) for each in mine), *((names[1], each) for each in others)]
    had = dict.fromkeys(names, 0.0)
    apart: list[float] = []

    def watch(served: Served) -> Iterable[Request]:
        name = served.request.tenant
        cost = served.request.prompt_tokens + OUTPUT_WEIGHT * served.output_tokens
        had[name] += cost / tenants[name].weight
        if all(tenant.queued for tenant in driver.statistics().tenants):
            apart.append(abs(had[names[0]] - had[names[1]]))
        return ()

    server = Server(
        driver,
        service_s=lambda each: 1.0 + sent[each.key][1][1],
        output_tokens=lambda each: sent[each.key][1][1],
        on_served=watch,
    )
    server.start_with(
        *(
            request(
                key,
                tenant=name,
                prompt_tokens=prompt,
                maximum_output_tokens=LARGEST if is_bounded else None,
            )
            for key, (name, (prompt, _, is_bounded)) in enumerate(sent)
        )
    )
    server.run()
    assert len(server.served) == len(sent)
    assert max(apart, default=0.0) <= bound


@pytest.mark.parametrize("algorithm", FAIR)
def test_tenants_share_max_min_fairly(algorithm: Algorithm) -> None:
    """Of 4 seats x 1 request/s, one tenant asks for 0.4/s (weight 1), the others for all they can
    get with weights 1 and 3: the oracle gives 0.4, 0.9 and 2.7."""
    names = [TenantName(name) for name in ("modest", "greedy", "heavy")]
    weights = dict(zip(names, (1.0, 1.0, 3.0), strict=True))
    demands = dict(zip(names, (0.4, 9.0, 9.0), strict=True))
    driver = Driver(
        roomy(
            replace(STANDARD, first_token_target_s=None),
            seat_count=4,
            algorithm=algorithm,
            tenants={name: TenantSettings(weight=weights[name]) for name in names},
        )
    )
    server = Server(driver, service_s=lambda _: 1.0)
    server.run(
        steady(
            demands,
            for_s=250.0,
            plan=lambda name: request(0, tenant=name, maximum_output_tokens=5),
        ),
        until_s=250.0,
    )
    got = Counter(each.request.tenant for each in server.served)
    expected = max_min_shares(demands, weights=weights, capacity=4.0)
    assert expected == pytest.approx({"modest": 0.4, "greedy": 0.9, "heavy": 2.7})
    for name in names:
        assert got[name] / 250.0 == pytest.approx(expected[name], rel=0.03)


@pytest.mark.parametrize("algorithm", FAIR)
def test_flood_of_one_tenant_takes_nothing_from_equals(algorithm: Algorithm) -> None:
    """One of five tenants sends 82 % of the requests, the others ask for less than their shares of
    8 requests/s: all of theirs are served, 95 % within 1 s, and what everybody gets is max-min fair
    (Jain's index of got / fair >= 0.99)."""
    settings = roomy(
        replace(STANDARD, first_token_target_s=None), seat_count=8, algorithm=algorithm
    )
    names = [TenantName(f"t{number}") for number in range(5)]
    demands = dict(zip(names, (21.8, 1.2, 1.2, 1.2, 1.2), strict=True))
    server = Server(Driver(settings), service_s=lambda _: 1.0)
    server.run(
        steady(demands, for_s=150.0, plan=lambda name: request(0, tenant=name)), until_s=150.0
    )
    got = Counter(each.request.tenant for each in server.served)
    fair = max_min_shares(demands, weights=dict.fromkeys(names, 1.0), capacity=8.0)
    assert jain_index([got[name] / (fair[name] * 150.0) for name in names]) >= 0.99
    assert min(got[name] for name in names[1:]) >= 0.95 * 1.2 * 150.0
    modest_s = [each.waited_s for each in server.served if each.request.tenant != names[0]]
    assert sum(waited_s <= 1.0 for waited_s in modest_s) >= 0.95 * len(modest_s)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    costs=st.lists(st.integers(1, LARGEST), min_size=3, max_size=40),
    weights=st.tuples(*[st.sampled_from([70.0, 25.0, 5.0, 1.0])] * 3),
    unit=st.sampled_from(ShareUnit),
)
def test_deficit_round_robin_keeps_the_ratio_in_every_window(
    costs: list[int], weights: tuple[float, float, float], unit: ShareUnit
) -> None:
    """H11: of three classes that always have work, in any window of dispatches, what two of them
    were served for their weights differs by at most one largest request of each.

    At any moment the counters are apart by at most one request (who goes has the least). So two
    classes' counters move apart over a window by at most one request of each.
    """
    classes = [replace(each, weight=weight) for each, weight in zip(CLASSES, weights, strict=True)]
    driver = Driver(
        roomy(*classes, seat_count=1, algorithm=Algorithm.DEFICIT_ROUND_ROBIN, share_unit=unit)
    )
    by_tokens = unit is ShareUnit.TOKENS

    def plan(key: int) -> Request:
        return request(key, key % 3, prompt_tokens=costs[key % len(costs)], maximum_output_tokens=0)

    server = Server(driver, service_s=lambda _: 1.0)
    server.start_with(*(plan(key) for key in range(600)))
    server.run(until_s=150.0)
    had = [0.0, 0.0, 0.0]
    apart: dict[tuple[int, int], list[float]] = {(0, 1): [0.0], (0, 2): [0.0], (1, 2): [0.0]}
    for each in server.served:
        had[each.request.rank] += each.request.prompt_tokens if by_tokens else 1
        for (one, other), seen in apart.items():
            seen.append(had[one] / weights[one] - had[other] / weights[other])
    largest = max(costs) if by_tokens else 1
    for (one, other), seen in apart.items():
        bound = largest / weights[one] + largest / weights[other]
        assert max(seen) - min(seen) <= bound + 1e-6
    assert len(server.served) == 150


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unit", list(ShareUnit))
def test_weighted_random_draws_by_weight(unit: ShareUnit, seed: int) -> None:
    """H6: 4,000 draws of three classes that always have work. By requests: chi-square with two
    degrees of freedom stays below 13.8 (one in 1,000). By tokens, with costs 30, 100 and 300: the
    chance of a draw is in proportion to weight / cost."""
    prompts = (30, 100, 300)
    driver = Driver(
        roomy(*CLASSES, seat_count=1, algorithm=Algorithm.WEIGHTED_RANDOM, share_unit=unit),
        seed=seed,
    )

    def plan(rank: int) -> Request:
        return request(0, rank, prompt_tokens=prompts[rank], maximum_output_tokens=0)

    server = Server(driver, service_s=lambda _: 1.0, on_served=refill(plan))
    server.start_with(*(replace(plan(key % 3), key=RequestKey(key)) for key in range(30)))
    server.run(until_s=4000.0)
    drawn = Counter(each.request.rank for each in server.served)
    tickets = [
        each.weight / (prompt if unit is ShareUnit.TOKENS else 1)
        for each, prompt in zip(CLASSES, prompts, strict=True)
    ]
    expected = [4000 * ticket / sum(tickets) for ticket in tickets]
    assert sum(drawn.values()) == 4000
    assert chi_square([drawn[rank] for rank in range(3)], expected) < 13.8


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [Algorithm.WEIGHTED_RANDOM, Algorithm.DEFICIT_ROUND_ROBIN])
def test_share_that_a_class_leaves_is_divided_max_min_fairly(algorithm: Algorithm) -> None:
    """H7: weights 70/25/5, but the first class asks for 0.1 of the engine only: the others divide
    0.9 as 25 to 5."""
    weights = {rank: each.weight for rank, each in enumerate(CLASSES)}
    demands = {0: 0.1, 1: 9.0, 2: 9.0}
    server = Server(
        Driver(roomy(*CLASSES, seat_count=1, algorithm=algorithm)), service_s=lambda _: 1.0
    )
    server.run(
        steady(
            demands,
            for_s=1500.0,
            plan=lambda rank: request(0, rank, maximum_output_tokens=0),
        ),
        until_s=1500.0,
    )
    got = Counter(each.request.rank for each in server.served)
    fair = max_min_shares(demands, weights=weights, capacity=1.0)
    for rank in demands:
        assert got[rank] / 1500.0 == pytest.approx(fair[rank], rel=0.12)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    queued=st.lists(st.integers(1, 1000), min_size=1, max_size=15),
    floor_ratio=st.sampled_from([0.05, 0.1, 0.3]),
    seat_count=st.sampled_from([1, 4]),
)
def test_floor_bounds_the_wait_of_batch(
    queued: list[int], floor_ratio: float, seat_count: int
) -> None:
    """SLOAware: while the first class would take everything, all batch that waits is dispatched
    within `queued tokens / (floor ratio x token rate)`, and one largest request of either kind
    and one turn of the seats more.

    The engine does 100 tokens/s a seat. The first class's requests have 100 tokens.
    """
    driver = Driver(
        roomy(REALTIME, STANDARD, BATCH, seat_count=seat_count, batch_token_floor_ratio=floor_ratio)
    )
    flood = request(0, prompt_tokens=100, maximum_output_tokens=0)
    server = Server(
        driver,
        service_s=lambda each: each.prompt_tokens / 100.0,
        on_served=refill(lambda rank: None if rank else flood),
    )
    server.start_with(*(replace(flood, key=RequestKey(1000 + key)) for key in range(10)))
    server.run(until_s=100.0)
    batch = [
        request(key, 2, prompt_tokens=prompt, maximum_output_tokens=0)
        for key, prompt in enumerate(queued)
    ]
    rate = 100.0 * seat_count
    bound_s = sum(queued) / (floor_ratio * rate) + (1000 + 100) / rate / floor_ratio + 10.0
    server.run(((100.0, each) for each in batch), until_s=100.0 + bound_s)
    assert driver.statistics().classes[0].queued > 0
    assert driver.statistics().classes[2].queued == 0
