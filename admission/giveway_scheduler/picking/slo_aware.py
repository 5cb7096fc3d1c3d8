"""SLOAware: the default. Objectives first, work second, and batch is never forgotten.

Order of the classes that may go:
1. Batch while it is owed: its share of recent tokens is below the floor. That bounds its wait by
   `queued tokens / (floor ratio x token rate)` at whatever load, without ageing.
2. The first class, strictly. Its own token bucket keeps it from eating the engine.
3. The classes between that have a request which can still meet its first-token target, by weight in
   tokens; in the class, the tenant with the least service; of it, the shortest prompt.
4. The same classes' late requests: demoted, not dropped, since nothing saves their target any more
   and what they take now another one misses.
5. Batch with all that is left, by weight in tokens.

Recent tokens decay with a half-life; estimates count at dispatch and are corrected at the end. Both
sums decay alike, so the floor's state changes with dispatches and ends and never by itself.
"""

from collections.abc import Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.decaying import DecayedShare
from giveway_scheduler.entries import Entry
from giveway_scheduler.picking.picker import Picker, Start
from giveway_scheduler.picking.weighing import WeightedShares
from giveway_scheduler.queues import Order
from giveway_scheduler.settings import Settings


class SLOAware(Picker):
    """Picks by objective, with a token floor for batch."""

    def __init__(self, settings: Settings, start: Start) -> None:
        self._floor_ratio = settings.batch_token_floor_ratio
        self._batch_share = DecayedShare(
            half_life_s=settings.batch_token_floor_half_life_s, now_s=start.now_s
        )
        self._between = WeightedShares()
        self._batch = WeightedShares()

    def configure(self, settings: Settings, classes: Sequence[ServiceClass]) -> None:
        self._floor_ratio = settings.batch_token_floor_ratio
        self._batch_share.half_life_s = settings.batch_token_floor_half_life_s
        self._between.configure(each for each in classes if _is_between(each))
        self._batch.configure(each for each in classes if each.gives_way)

    def order_of(self, service_class: ServiceClass) -> Order:
        if _is_between(service_class) and service_class.settings.first_token_target_s is not None:
            return Order.FAIR_SHORTEST_FIRST
        return Order.FAIR

    def choose(self, heads: Sequence[Entry], *, now_s: float) -> Entry:  # noqa: ARG002 - no ageing
        first = heads[0]
        if len(heads) == 1:
            return self._only(first, heads)
        is_owed = self._batch_share.is_below(self._floor_ratio)
        if first.service_class.is_first and not is_owed:
            return first
        batch = [head for head in heads if head.service_class.gives_way]
        if batch and is_owed:
            return self._batch.least_served(batch)
        if first.service_class.is_first:
            return first
        between = [head for head in heads if _is_between(head.service_class)]
        if between:
            on_time = [head for head in between if not head.is_late]
            return self._between.least_served(on_time or between)
        return self._batch.least_served(batch)

    def _only(self, head: Entry, heads: Sequence[Entry]) -> Entry:
        """Nobody else may go."""
        service_class = head.service_class
        if service_class.is_first:
            return head
        shares = self._batch if service_class.gives_way else self._between
        return shares.least_served(heads)

    def charge(
        self,
        service_class: ServiceClass,
        *,
        requests: int,
        tokens: float,
        now_s: float,
    ) -> None:
        is_batch = service_class.gives_way
        self._batch_share.add(tokens, is_batch, now_s)
        if is_batch:
            self._batch.charge(service_class, requests=requests, tokens=tokens)
        elif not service_class.is_first:
            self._between.charge(service_class, requests=requests, tokens=tokens)

    def is_owed(self, service_class: ServiceClass) -> bool:
        return service_class.gives_way and self._batch_share.is_below(self._floor_ratio)

    def keeps_share(self, service_class: ServiceClass) -> bool:
        return service_class.gives_way and self._floor_ratio > 0.0


def _is_between(service_class: ServiceClass) -> bool:
    return not (service_class.is_first or service_class.is_batch)
