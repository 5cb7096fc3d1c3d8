"""How many requests may be at the engine at once, and of which kind? (Y2, Y7, A3)

Four limits hold together, all counted in seats:
- `limit` for everybody;
- `limit - reserved` for all classes but the first together, so that the first never waits for a
  seat while it has less than its reserve;
- `batch_limit` for all classes of kind Batch together (Y3: InteractiveFirst moves it);
- at least one seat is left to the lower classes, however far the limit was lowered.

`limit` follows the engine where that is asked for: additive increase, multiplicative decrease, as
in Netflix's concurrency-limits (`AIMDLimit`). A preemption in the engine says that its KV cache is
too small for what runs: the limit falls to a share of what is in use, though by little more than
half at once and never below a quarter of the seats; the reserve shrinks with it. Preemptions while
nothing of ours runs are not ours to mend. The limit grows by one seat at a time, and only if it was
really reached since it last changed. A lowered limit takes no seat away from anybody: it keeps new
ones from being given out.
"""

import math

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.settings import Concurrency

DECREASE_RATIO = 0.9
"""What is left of the limit after a preemption. A guess as gentle as AIMDLimit's default; a study
of preemption storms on a real engine would replace it."""
LEAST_SHARE = 0.25
"""How far preemptions lower the limit at most. They may come from traffic that goes round the
proxy, or from a few endless contexts; fewer seats would then cost throughput and mend nothing. A
guess."""
DECREASE_INTERVAL_S = 1.0
"""Preemptions reported within this time are one event: the first answer has not worked yet."""
INCREASE_INTERVAL_S = 5.0
"""How long a limit that is fully used has to stand before it grows by one seat."""


class Seats:
    """Seats in use and seats allowed."""

    __slots__ = (
        "_changed_s",
        "_concurrency",
        "_reached_s",
        "batch_limit",
        "batch_running",
        "due_s",
        "limit",
        "lower_limit",
        "lower_running",
        "running",
    )

    def __init__(self, concurrency: Concurrency, *, now_s: float) -> None:
        self._concurrency = concurrency
        self._changed_s = now_s
        self._reached_s: float | None = None
        """Since when a lowered limit has been known to be too low. None: it was not reached."""
        self.due_s = math.inf
        """When `grow` has something to do. Infinite: never, as things are."""
        self.limit = concurrency.seats
        """Seats of everybody together."""
        self.lower_limit = max(1, concurrency.seats - concurrency.reserved_seats)
        """Seats of all classes but the first together."""
        self.batch_limit = concurrency.batch_maximum
        self.running = 0
        self.lower_running = 0
        """Running in all classes but the first."""
        self.batch_running = 0

    def limit_of(self, service_class: ServiceClass) -> int:
        """How many seats the class may hold at most, if nobody else held one."""
        if service_class.is_first:
            return self.limit
        limit = self.lower_limit
        return min(limit, self.batch_limit) if service_class.gives_way else limit

    def may_take(self, service_class: ServiceClass) -> bool:
        """Is there a seat for one more request of this class?"""
        if self.running >= self.limit:
            return False
        if service_class.is_first:
            return True
        if self.lower_running >= self.lower_limit:
            return False
        return not service_class.gives_way or self.batch_running < self.batch_limit

    def may_take_after(self, service_class: ServiceClass, leaving: ServiceClass) -> bool:
        """Would there be one if a request of the class `leaving` left its seat?"""
        if self.running - 1 >= self.limit:
            return False
        if service_class.is_first:
            return True
        lower_running = self.lower_running - (not leaving.is_first)
        if lower_running >= self.lower_limit:
            return False
        batch_running = self.batch_running - leaving.gives_way
        return not service_class.gives_way or batch_running < self.batch_limit

    def take(self, service_class: ServiceClass, now_s: float) -> None:
        """A request of this class takes a seat."""
        service_class.running += 1
        self.running += 1
        if not service_class.is_first:
            self.lower_running += 1
            if service_class.gives_way:
                self.batch_running += 1
        if self.running >= self.limit and self._reached_s is None:
            self._reach(now_s)

    def give_back(self, service_class: ServiceClass) -> None:
        """A request of this class leaves its seat."""
        service_class.running -= 1
        self.running -= 1
        if not service_class.is_first:
            self.lower_running -= 1
            if service_class.gives_way:
                self.batch_running -= 1

    def report_preemptions(self, count: int, *, now_s: float) -> None:
        """The engine preempted `count` requests since the last report."""
        if count <= 0 or not self.running or not self._concurrency.lower_seats_on_preemption:
            return
        is_lowered = self.limit < self._concurrency.seats
        if is_lowered and now_s - self._changed_s < DECREASE_INTERVAL_S:
            return
        in_use = min(self.limit, max(self.running, self.limit // 2))
        least = math.ceil(self._concurrency.seats * LEAST_SHARE)
        self._set_limit(max(least, int(in_use * DECREASE_RATIO)))
        self._changed_s = now_s
        self._reach(now_s if self.running >= self.limit else None)

    def grow(self, now_s: float) -> None:
        """Let a lowered limit grow, if it was used, by a seat for each interval."""
        while self.due_s <= now_s:
            grows_s = self.due_s
            self._set_limit(self.limit + 1)
            self._changed_s = grows_s
            self._reach(grows_s if self.running >= self.limit else None)

    def configure(self, concurrency: Concurrency, classes: tuple[ServiceClass, ...]) -> None:
        """Follow new settings, and count anew by the classes' new ranks and kinds.

        `batch_limit` is the owner's to set.
        """
        lowered_by = self._concurrency.seats - self.limit
        keeps = concurrency.lower_seats_on_preemption and lowered_by > 0
        self._concurrency = concurrency
        self._set_limit(max(1, concurrency.seats - lowered_by) if keeps else concurrency.seats)
        self.running = sum(each.running for each in classes)
        self.lower_running = sum(each.running for each in classes if not each.is_first)
        self.batch_running = sum(each.running for each in classes if each.gives_way)
        self._reach(self._reached_s)

    def _reach(self, at_s: float | None) -> None:
        """The limit is reached since then. None: it is not."""
        self._reached_s = at_s
        grows = at_s is not None and self.limit < self._concurrency.seats
        self.due_s = at_s + INCREASE_INTERVAL_S if at_s is not None and grows else math.inf

    def _set_limit(self, limit: int) -> None:
        self.limit = limit
        concurrency = self._concurrency
        reserved = math.ceil(concurrency.reserved_seats * limit / concurrency.seats)
        self.lower_limit = max(1, limit - reserved)
