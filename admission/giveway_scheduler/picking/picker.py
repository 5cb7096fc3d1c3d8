"""What an algorithm decides, and what it is told.

The scheduler asks with the heads: of every class that may go now (seat, gate and limits allow it)
the one entry that is next inside it, the highest class first. So an algorithm never sees a request
that could not go, is work-conserving whatever it answers (H7), and costs the same however many
wait.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry
from giveway_scheduler.queues import Order
from giveway_scheduler.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a picker begins with, besides its settings."""

    now_s: float
    generator: random.Random
    """The one source of chance."""


class Picker:
    """One algorithm. Methods with a default are for the algorithms that have something to say."""

    watches: ClassVar[bool] = False
    """Is it told of requests that were taken, answered and gone?"""
    due_s: float = math.inf
    """When `advance` has something to do. Infinite: never."""

    def configure(self, settings: Settings, classes: Sequence[ServiceClass]) -> None:
        """Follow new settings of the same algorithm. State (deficits, shares) stays.

        Called once before any other method.
        """

    def order_of(self, service_class: ServiceClass) -> Order:  # noqa: ARG002
        """In which order entries inside the class go."""
        return Order.FAIR

    def choose(self, heads: Sequence[Entry], *, now_s: float) -> Entry:
        """One of `heads`, of which there is at least one. It goes, and is charged next."""
        raise NotImplementedError

    def charge(
        self, service_class: ServiceClass, *, requests: int, tokens: float, now_s: float
    ) -> None:
        """The class got service: 1 request and its estimated tokens at dispatch, 0 requests and
        the correction at its end, both below 0 when a request came back undone."""

    def is_owed(self, service_class: ServiceClass) -> bool:  # noqa: ARG002
        """Has the class a claim that even a gate that never opens must not defeat?"""
        return False

    def keeps_share(self, service_class: ServiceClass) -> bool:  # noqa: ARG002
        """Does the algorithm hold a share for the class? Then, as long as it is served at all, its
        requests wait because they are many, and not because it is starved."""
        return False

    def batch_limit(self) -> int | None:
        """Seats of the Batch classes now. None: as many as the settings allow."""
        return None

    def arrived(self, entry: Entry, *, now_s: float) -> None:
        """A request was taken. Told only to one that `watches`, as the next two."""

    def answered(self, entry: Entry, *, now_s: float) -> None:
        """A request showed its first token."""

    def ended(self, entry: Entry, *, now_s: float, is_finished: bool) -> None:
        """A request is gone; `is_finished`: the engine served it to its end."""

    def advance(self, *, now_s: float) -> bool:  # noqa: ARG002
        """Let time pass; True if `batch_limit` may have changed."""
        return False

    def next_event_s(self) -> float:
        """When `advance` may change something for those that wait. Infinite: never by itself."""
        return math.inf

    @property
    def pressure_ratio(self) -> float:
        """Interactive pressure, 0 to 1; 0 where it is not known."""
        return 0.0
