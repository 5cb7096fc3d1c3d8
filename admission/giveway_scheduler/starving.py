"""Has a class waited too long? (H10)

Every `check_s` the oldest waiting entry of each class is looked at. A class whose oldest has waited
longer than the threshold is boosted for `boost_s`: the lowest first, one at a time. What counts is
the wait of the oldest waiting entry, not the time since the class was last served, which would call
the first request after a quiet hour starved (mend 5). A class that the algorithm holds a share for
(SLOAware's floor) and that was served within the threshold is not starved, however long its queue
is: boosts on top of the floor would take from on-time requests (simulated at 1.2 x load: 4 points
of the middle class's attainment) and give batch nothing it is owed. Nor is it when a check finds it
short of its share: a share swings round its floor, and the floor itself pays what is lacking.

A boost is a guarantee and not a flood: while it lasts, at most `promotions_per_s` requests overtake
the algorithm's own order, and whatever goes is charged to the boosted class. A class that is still
starved when its boost ends is boosted again, unless another one is starved as well: then that one
comes first, so that the lowest class can't keep the boost for ever.

Checks stand on a fixed grid of times, so that one long step equals many short ones.
"""

import math
from collections.abc import Callable, Sequence

from giveway_scheduler.buckets import TokenBucket
from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.settings import AntiStarvation

MOST_CHECKS = 100
"""Grid points looked at after a long sleep. Earlier ones would be boosts that are over."""


class StarvationMonitor:
    """Which class is boosted, and whether it may be promoted now."""

    def __init__(self, settings: AntiStarvation | None, *, now_s: float) -> None:
        self._settings = settings
        self._next_check_s = now_s + (settings.check_s if settings else 0.0)
        self.due_s = self._next_check_s if settings else math.inf
        """When `advance` has something to do while anything waits. Infinite: never."""
        self.boosted: ServiceClass | None = None
        """None: no class is."""
        self._until_s = 0.0
        self._last_boosted: ServiceClass | None = None
        self._promotions = TokenBucket(
            per_s=settings.promotions_per_s if settings else 0.0, burst=1.0, now_s=now_s
        )

    def configure(
        self, settings: AntiStarvation | None, classes: Sequence[ServiceClass], *, now_s: float
    ) -> None:
        """Follow new settings. A boost in progress goes on if its class and the monitor stay."""
        self._settings = settings
        if settings is None or self.boosted not in classes:
            self.boosted = None
        if settings is not None:
            per_s = settings.promotions_per_s
            self._promotions.configure(per_s=per_s, burst=1.0, now_s=now_s)
            if not now_s < self._next_check_s <= now_s + settings.check_s:
                self._next_check_s = now_s + settings.check_s
        self._set_due()

    def advance(
        self,
        classes: Sequence[ServiceClass],
        *,
        can_go: Callable[[ServiceClass], bool],
        keeps_share: Callable[[ServiceClass], bool],
        now_s: float,
    ) -> None:
        """Begin and end boosts.

        `can_go`: nothing but its turn keeps the class's next entry. `keeps_share`: the algorithm
        holds a share for the class.
        """
        settings = self._settings
        if settings is None:
            return
        if now_s >= self._next_check_s:
            skipped = math.floor((now_s - self._next_check_s) / settings.check_s) - MOST_CHECKS
            self._next_check_s += max(0, skipped) * settings.check_s
        while now_s >= self._next_check_s:
            self._end(self._next_check_s)
            if self.boosted is None:
                self._check(classes, settings, can_go=can_go, keeps_share=keeps_share)
            self._next_check_s += settings.check_s
        self._end(now_s)
        self._set_due()

    def may_promote(self, now_s: float) -> bool:
        """May one request of the boosted class overtake now?"""
        if self.boosted is None or now_s >= self._until_s:
            return False
        return self._promotions.wait_s(1.0, now_s=now_s) == 0.0

    def promote(self, now_s: float) -> None:
        """A request of the boosted class overtakes."""
        self._promotions.take(1.0, now_s=now_s)

    def next_event_s(self, now_s: float) -> float:
        """When a boost may begin, or allow its next promotion, while anything waits. Infinite:
        never."""
        settings = self._settings
        if settings is None:
            return math.inf
        event_s = self._next_check_s
        if event_s <= now_s:  # nothing waited, so that nobody looked
            event_s += (math.floor((now_s - event_s) / settings.check_s) + 1) * settings.check_s
        if self.boosted is not None:
            wait_s = self._promotions.wait_s(1.0, now_s=now_s)
            if 0.0 < wait_s < event_s - now_s:
                event_s = now_s + wait_s
        return event_s

    def _set_due(self) -> None:
        self.due_s = math.inf if self._settings is None else self._next_check_s
        if self.boosted is not None:
            self.due_s = min(self.due_s, self._until_s)

    def _end(self, now_s: float) -> None:
        if self.boosted is not None and now_s >= self._until_s:
            self._last_boosted, self.boosted = self.boosted, None

    def _check(
        self,
        classes: Sequence[ServiceClass],
        settings: AntiStarvation,
        *,
        can_go: Callable[[ServiceClass], bool],
        keeps_share: Callable[[ServiceClass], bool],
    ) -> None:
        at_s = self._next_check_s
        starved = [
            each
            for each in reversed(classes)
            if (oldest := each.queue.oldest) is not None
            and at_s - oldest.offered_s > settings.threshold_s
            and not (at_s - each.last_dispatch_s <= settings.threshold_s and keeps_share(each))
            and can_go(each)
        ]
        if not starved:
            return
        starved.sort(key=lambda each: each is self._last_boosted)
        self.boosted = starved[0]
        self.boosted.boosts += 1
        self._until_s = at_s + settings.boost_s
