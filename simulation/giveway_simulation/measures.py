"""How good was a run? Attainment, throughput, fairness and waiting.

Attainment counts every arrival of the window: one that was refused, expired or is unserved at the
end has missed its objective. Fairness inside a class is Jain's index over what each tenant got
relative to its max-min fair share: plain Jain punishes tenants for asking for little.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from giveway_simulation.simulating import Record, Run
from giveway_simulation.workloads import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a run that is judged."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s

    def holds(self, at_s: float) -> bool:
        return self.start_s <= at_s < self.end_s


def attainment_ratio(
    run: Run, *, rank: int, objective: Objective, window: Window, tenant: str | None = None
) -> float:
    """Share of the class's arrivals in the window that met the objective. 1.0 if there were none.

    `tenant` None: all of the class.
    """
    arrivals = [
        record
        for record in run.records
        if record.arrival.rank == rank
        and window.holds(record.arrival.at_s)
        and tenant in (None, record.arrival.tenant)
    ]
    met = sum(meets(record, objective) for record in arrivals)
    return met / len(arrivals) if arrivals else 1.0


def meets(record: Record, objective: Objective) -> bool:
    wait_s, token_s = record.wait_s, record.token_s
    if wait_s is None or token_s is None:
        return False
    return wait_s <= objective.first_token_s and token_s <= objective.token_s


def tokens_per_s(run: Run, *, window: Window, rank: int | None = None) -> float:
    """Prompt and output tokens of the requests that finished in the window. `rank` None: all."""
    tokens = sum(
        record.arrival.tokens
        for record in run.records
        if rank in (None, record.arrival.rank)
        and record.finished_s is not None
        and window.holds(record.finished_s)
    )
    return tokens / window.length_s


def max_min_shares(demands: Mapping[str, float], *, capacity: float) -> dict[str, float]:
    """The fair shares of equal claimants: nobody gets more than asked for, and what the modest
    leave over is divided among the others (water filling)."""
    shares: dict[str, float] = {}
    left = capacity
    for count, (name, demand) in enumerate(sorted(demands.items(), key=lambda item: item[1])):
        shares[name] = min(demand, left / (len(demands) - count))
        left -= shares[name]
    return shares


def jain_index(values: Sequence[float]) -> float:
    """1.0: all equal; 1/n: one has everything. 1.0 for no values and for zeros."""
    squares = sum(value * value for value in values)
    if not squares:
        return 1.0
    return sum(values) ** 2 / (len(values) * squares)


def max_min_jain(run: Run, *, rank: int, window: Window) -> float:
    """Jain's index of the tenants' served tokens over their max-min fair shares.

    The capacity that is divided is what the class was served in the window; a tenant's demand is
    what it asked for in the window and before, and had not been served before it.
    """
    demands: defaultdict[str, float] = defaultdict(float)
    served: defaultdict[str, float] = defaultdict(float)
    for record in run.records:
        arrival = record.arrival
        if arrival.rank != rank or arrival.at_s >= window.end_s:
            continue
        finished_s = record.finished_s
        if finished_s is None or finished_s >= window.start_s:
            demands[arrival.tenant] += arrival.tokens
        if finished_s is not None and window.holds(finished_s):
            served[arrival.tenant] += arrival.tokens
    fair = max_min_shares(demands, capacity=sum(served.values()))
    return jain_index([served[name] / share for name, share in fair.items() if share])


def service_gap_tokens(run: Run, *, rank: int, window: Window) -> float:
    """The largest difference of served tokens between two tenants of the class that had work
    waiting all through the window. 0.0 if fewer than two had."""
    served: defaultdict[str, float] = defaultdict(float)
    for record in run.records:
        if (
            record.arrival.rank == rank
            and record.finished_s is not None
            and window.holds(record.finished_s)
        ):
            served[record.arrival.tenant] += record.arrival.tokens
    tenants = {record.arrival.tenant for record in run.records if record.arrival.rank == rank}
    busy = [tenant for tenant in tenants if _is_backlogged(run, tenant, rank, window=window)]
    totals = [served[tenant] for tenant in busy]
    return max(totals) - min(totals) if len(totals) > 1 else 0.0


def longest_dispatch_gap_s(run: Run, *, rank: int, window: Window) -> float:
    """The longest time in the window in which the class had work waiting and sent none of it."""
    return max((length_s for length_s in _dispatch_gaps(run, rank, window=window)), default=0.0)


def percentile(values: Sequence[float], *, percent: float) -> float:
    """The smallest value that at least `percent` of them do not exceed. Raises for none."""
    ordered = sorted(values)
    at = max(0, -(-len(ordered) * percent // 100) - 1)
    return ordered[int(at)]


def _waiting_spans(run: Run, rank: int, *, tenant: str | None = None) -> list[tuple[float, float]]:
    """Merged times in which some request of the class waited to be sent."""
    spans = sorted(
        (record.arrival.at_s, run.duration_s if record.sent_s is None else record.sent_s)
        for record in run.records
        if record.arrival.rank == rank and tenant in (None, record.arrival.tenant)
    )
    merged: list[tuple[float, float]] = []
    for start_s, end_s in spans:
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_s))
        else:
            merged.append((start_s, end_s))
    return merged


def _is_backlogged(run: Run, tenant: str, rank: int, *, window: Window) -> bool:
    return any(
        start_s <= window.start_s and end_s >= window.end_s
        for start_s, end_s in _waiting_spans(run, rank, tenant=tenant)
    )


def _dispatch_gaps(run: Run, rank: int, *, window: Window) -> list[float]:
    sent = sorted(
        record.sent_s
        for record in run.records
        if record.arrival.rank == rank and record.sent_s is not None
    )
    gaps: list[float] = []
    at = 0
    for start_s, end_s in _waiting_spans(run, rank):
        last_s = max(start_s, window.start_s)
        end_s = min(end_s, window.end_s)  # noqa: PLW2901
        while at < len(sent) and sent[at] <= end_s:
            if sent[at] > last_s:
                gaps.append(sent[at] - last_s)
                last_s = sent[at]
            at += 1
        if end_s > last_s:
            gaps.append(end_s - last_s)
    return gaps
