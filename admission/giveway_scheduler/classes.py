"""What the scheduler keeps of one service class."""

import math
from collections.abc import Iterable

from giveway_scheduler.buckets import Budget
from giveway_scheduler.decaying import DecayedSum
from giveway_scheduler.output_estimates import OutputEstimate
from giveway_scheduler.queues import ClassQueue, Flow, Order
from giveway_scheduler.settings import ClassSettings, Kind, OverLimit, Settings

RATE_HALF_LIFE_S = 10.0
"""Over how long the dispatch rate looks back: a hint for Retry-After needs no more."""


class ServiceClass:
    """One class: its settings, its queue, its budget, and what it has running.

    A class keeps its identity over `configure` as long as its name stays; its rank may change.
    """

    __slots__ = (
        "boosts",
        "budget",
        "dispatches",
        "estimate",
        "gives_way",
        "is_batch",
        "is_first",
        "last_dispatch_s",
        "queue",
        "rank",
        "rejects",
        "running",
        "served_tokens",
        "settings",
        "unprefilled",
    )

    def __init__(
        self, settings: ClassSettings, *, rank: int, first_output_tokens: int, now_s: float
    ) -> None:
        self.settings = settings
        self.rank = rank
        self.is_first = rank == 0
        self.is_batch = settings.kind is Kind.BATCH
        self.gives_way = self.is_batch and not self.is_first
        """Batch, below the first class."""
        self.rejects = settings.over_limit is OverLimit.REJECT
        self.queue = ClassQueue(Order.FAIR, target_s=None)
        self.budget = Budget(settings.limits, now_s=now_s)
        self.estimate = OutputEstimate(first_tokens=first_output_tokens)
        self.dispatches = DecayedSum(half_life_s=RATE_HALF_LIFE_S, now_s=now_s)
        self.last_dispatch_s = -math.inf
        self.running = 0
        self.unprefilled = 0
        """Its requests that count for the prompt gate now."""
        self.served_tokens = 0.0
        self.boosts = 0

    def configure(
        self, settings: ClassSettings, *, rank: int, first_output_tokens: int, now_s: float
    ) -> None:
        """Follow new settings: levels, counters and history stay."""
        self.settings = settings
        self.rank = rank
        self.is_first = rank == 0
        self.is_batch = settings.kind is Kind.BATCH
        self.gives_way = self.is_batch and not self.is_first
        self.rejects = settings.over_limit is OverLimit.REJECT
        self.budget.configure(settings.limits, now_s=now_s)
        self.estimate.configure(first_tokens=first_output_tokens)

    def stop_saving(self, flow: Flow) -> None:
        """What was saved for the flow is there for all again; the next large one may try."""
        if self.budget.stop_saving(flow):
            self.queue.release_next()


def follow_classes(
    settings: Settings, former: Iterable[ServiceClass], *, now_s: float
) -> tuple[ServiceClass, ...]:
    """The classes that the settings name, by rank: those that stay, and new ones."""
    known = {each.settings.name: each for each in former}
    classes = []
    for rank, each in enumerate(settings.classes):
        first_output_tokens = settings.first_output_estimate_tokens
        service_class = known.get(each.name)
        if service_class is None:
            service_class = ServiceClass(
                each, rank=rank, first_output_tokens=first_output_tokens, now_s=now_s
            )
        else:
            service_class.configure(
                each, rank=rank, first_output_tokens=first_output_tokens, now_s=now_s
            )
        classes.append(service_class)
    return tuple(classes)
