"""What should come out, computed the plain way?

Each function here answers one question by looking at everything, without the shortcuts that the
scheduler takes; the tests of these functions are in `test_oracles.py`.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from giveway_scheduler import Request

Name = TypeVar("Name", bound=Hashable)


def max_min_shares(
    demands: Mapping[Name, float], *, weights: Mapping[Name, float], capacity: float
) -> dict[Name, float]:
    """The weighted max-min fair division of `capacity`: nobody can have more unless somebody with
    no more for its weight had less, and nobody has more than it asks for.

    Water filling: raise everybody's share for its weight alike; who is satisfied drops out.
    """
    shares = dict.fromkeys(demands, 0.0)
    hungry = {name for name, demand in demands.items() if demand > 0.0}
    left = capacity
    while hungry and left > 0.0:
        total = sum(weights[name] for name in hungry)
        rise = min((demands[name] - shares[name]) / weights[name] for name in hungry)
        rise = min(rise, left / total)
        for name in hungry:
            shares[name] += rise * weights[name]
        left -= rise * total
        satisfied = {name for name in hungry if demands[name] - shares[name] < 1e-9 * capacity}
        if not satisfied:
            break
        hungry -= satisfied
    return shares


def jain_index(values: Sequence[float]) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything."""
    total = sum(values)
    return total * total / (len(values) * sum(value * value for value in values))


def first_come_waits_s(
    arrivals_s: Sequence[float], services_s: Sequence[float], *, seats: int
) -> list[float]:
    """Waits under first come, first served with so many seats (Kiefer and Wolfowitz's recursion:
    each takes the seat that comes free first)."""
    free_s = [-math.inf] * seats
    waits_s = []
    for arrival_s, service_s in zip(arrivals_s, services_s, strict=True):
        seat = min(range(seats), key=free_s.__getitem__)
        start_s = max(arrival_s, free_s[seat])
        free_s[seat] = start_s + service_s
        waits_s.append(start_s - arrival_s)
    return waits_s


def chi_square(observed: Sequence[float], expected: Sequence[float]) -> float:
    """Pearson's sum over the cells."""
    return sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Something taken out of a bucket, or (below 0) put back."""

    at_s: float
    amount: float
    checked: bool
    """It was let pass because there was enough: not a correction, not a debt somebody stands in
    for."""


def most_over_bound(takes: Sequence[Take], *, burst: float, per_s: float) -> float:
    """By how much the worst window breaks the bucket's promise; 0.0 or less: it is kept.

    Over every window that ends with a checked take: taken - put back <= burst + per_s x window,
    plus what a single amount exceeds the burst by (it is let in as debt).
    """
    worst = -math.inf
    for end, last in enumerate(takes):
        if not last.checked:
            continue
        debt = max(0.0, last.amount - burst)
        net = 0.0
        for first in reversed(takes[: end + 1]):
            net += first.amount
            bound = burst + per_s * (last.at_s - first.at_s) + debt
            worst = max(worst, net - bound)
    return worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A live request, as far as standing in another's place goes (A9)."""

    request: Request
    order: int
    home_rank: int
    lift_rank: int


def may_name(waiter: Request, target: Request) -> bool:
    """Does the waiter's `waits_for` mean the target?"""
    if not waiter.waits_for or waiter.waits_for != target.name:
        return False
    if waiter.tenant == target.tenant:
        return True
    return bool(waiter.workflow) and waiter.workflow == target.workflow


def sources(live: Iterable[Claimant]) -> dict[int, Claimant]:
    """By whom each request is lifted, by the lifted one's key: of all that wait for it, directly or
    through others, and would lift it, the highest class, and of those the oldest."""
    everybody = list(live)
    waiting = [each for each in everybody if each.request.waits_for]
    if not waiting:
        return {}
    waiters_of = {
        each.request.key: [other for other in waiting if may_name(other.request, each.request)]
        for each in everybody
        if each.request.name
    }
    found = {}
    for target in everybody:
        reached: dict[int, Claimant] = {target.request.key: target}
        frontier = [target]
        while frontier:
            for waiter in waiters_of.get(frontier.pop().request.key, []):
                if waiter.request.key not in reached:
                    reached[waiter.request.key] = waiter
                    frontier.append(waiter)
        lifting = [
            each
            for each in reached.values()
            if each is not target and each.lift_rank < target.home_rank
        ]
        if lifting:
            found[int(target.request.key)] = min(
                lifting, key=lambda each: (each.lift_rank, each.order)
            )
    return found


def best_by(items: Sequence[Name], score: Callable[[Name], float]) -> list[Name]:
    """All items of the highest score."""
    highest = max(score(item) for item in items)
    return [item for item in items if score(item) == highest]
