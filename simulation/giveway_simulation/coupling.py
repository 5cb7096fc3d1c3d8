"""How does the product's own scheduler stand before the simulated engine?

The same `giveway_scheduler.Scheduler` as in the live proxy, with what the proxy's shell would do
around it: requests in, decisions out, first tokens and ends reported. The output length stays
unknown to it, as it is in life; the prompt length is taken as exact.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from giveway_scheduler import (
    Abort,
    Algorithm,
    ClassName,
    ClassSettings,
    Concurrency,
    Decision,
    Dispatch,
    Evict,
    Expire,
    Kind,
    Reject,
    Request,
    RequestKey,
    Scheduler,
    Settings,
    TenantName,
    Usage,
)

from giveway_simulation.simulating import Drop, Order, Send, Withdraw
from giveway_simulation.workloads import CLASS_LOADS, Arrival

WAITS_FOR_EVER_S = 1e9
SLO_AWARE_SEATS = 128
"""The throughput knee of the H100; the published algorithms do better with 64."""
PUBLISHED_SEATS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _PublishedClass:
    """A class as the published designs set it."""

    name: str
    kind: Kind
    weight: float
    aging_base: float
    aging_per_ms: float


_CLASSES = (
    _PublishedClass(
        name="p0", kind=Kind.INTERACTIVE, weight=0.70, aging_base=100.0, aging_per_ms=0.05
    ),
    _PublishedClass(
        name="p1", kind=Kind.INTERACTIVE, weight=0.25, aging_base=20.0, aging_per_ms=0.02
    ),
    _PublishedClass(name="p2", kind=Kind.BATCH, weight=0.05, aging_base=1.0, aging_per_ms=0.005),
)


def comparison_settings(algorithm: Algorithm) -> Settings:
    """The three classes of the comparison under `algorithm`, each at its better number of seats.

    Nothing is limited, nothing expires and no queue is ever full: every arrival waits until it is
    served, so that the algorithms differ in order alone.
    """
    is_slo_aware = algorithm is Algorithm.SLO_AWARE
    seats = SLO_AWARE_SEATS if is_slo_aware else PUBLISHED_SEATS
    concurrency = replace(
        Concurrency(), seats=seats, batch_maximum=seats - Concurrency().reserved_seats
    )
    if not is_slo_aware:
        concurrency = replace(concurrency, prompt_gate_tokens=None)
    return Settings(
        algorithm=algorithm,
        classes=tuple(
            ClassSettings(
                name=ClassName(each.name),
                kind=each.kind,
                weight=each.weight,
                queue_capacity=1_000_000,
                time_to_live_s=WAITS_FOR_EVER_S,
                first_token_target_s=load.objective.first_token_s if load.objective else None,
                aging_base=each.aging_base,
                aging_per_ms=each.aging_per_ms,
            )
            for each, load in zip(_CLASSES, CLASS_LOADS, strict=True)
        ),
        concurrency=concurrency,
        queue_capacity=1_000_000,
    )


class ScheduledAdmission:
    """`giveway_scheduler.Scheduler` as the `Admission` of a simulation."""

    def __init__(self, settings: Settings, *, seed: int) -> None:
        self.scheduler = Scheduler(settings, now_s=0.0, generator=random.Random(seed))  # noqa: S311

    def offer(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]:
        request = Request(
            key=RequestKey(key),
            rank=arrival.rank,
            tenant=TenantName(arrival.tenant),
            prompt_tokens=arrival.prompt_tokens,
        )
        return _orders(self.scheduler.offer(request, now_s=now_s))

    def first_token(self, key: int, *, now_s: float) -> Iterable[Order]:
        return _orders(self.scheduler.first_token(RequestKey(key), now_s=now_s))

    def finish(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]:
        usage = Usage(prompt_tokens=arrival.prompt_tokens, output_tokens=arrival.output_tokens)
        return _orders(self.scheduler.finish(RequestKey(key), now_s=now_s, usage=usage))

    def advance(self, *, now_s: float) -> Iterable[Order]:
        return _orders(self.scheduler.advance(now_s=now_s))

    def next_event_s(self) -> float | None:
        return self.scheduler.next_event_s()


def _orders(decisions: Iterable[Decision]) -> list[Order]:
    orders: list[Order] = []
    for decision in decisions:
        match decision:
            case Dispatch():
                orders.append(Send(key=decision.request.key, priority=decision.priority))
            case Abort():
                orders.append(Withdraw(key=decision.request.key))
            case Reject() | Evict() | Expire():
                orders.append(Drop(key=decision.request.key))
            case _:
                assert_never(decision)
    return orders
