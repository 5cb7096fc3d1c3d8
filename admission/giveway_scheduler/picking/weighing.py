"""Who of several classes has had least for its weight?

Each class has a counter of what it was served, in tokens or requests, divided by its weight. The
least goes next, the higher class of equals; a class of weight 0 goes when no other contends.
Classes that contend all through an interval are served in proportion to their weights, up to one
request each.

What a class is lacking is remembered only while it contends. One that comes back with work is
lifted to the least counter of those that went on, so that idle time earns no credit. One that had
work all the time and was held (seat, gate, limits) keeps a claim to one request: else a class that
is held again and again would lose its turn each time to one that is not.
"""

from collections.abc import Iterable, Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry


class WeightedShares:
    """Counters of weighted service of a group of classes."""

    __slots__ = ("_contending", "_held", "_service", "by_tokens")

    def __init__(self, *, by_tokens: bool = True) -> None:
        self.by_tokens = by_tokens
        """False: requests are counted."""
        self._service: dict[ServiceClass, float] = {}
        self._contending: set[ServiceClass] = set()
        self._held: set[ServiceClass] = set()

    def configure(self, classes: Iterable[ServiceClass]) -> None:
        """Forget the classes that are gone; counters of the others stay."""
        self._service = {each: self._service.get(each, 0.0) for each in classes}
        self._contending &= self._service.keys()
        self._held &= self._service.keys()

    def least_served(self, heads: Sequence[Entry]) -> Entry:
        """The head of the class that has had least for its weight."""
        if len(heads) == 1:
            (head,) = heads
            if len(self._contending) != 1 or head.service_class not in self._contending:
                self._change_contenders(heads)
            return head
        if {head.service_class for head in heads} != self._contending:
            self._change_contenders(heads)
        service = self._service
        return min(
            heads,
            key=lambda head: (
                head.service_class.settings.weight <= 0.0,
                service[head.service_class],
            ),
        )

    def charge(self, service_class: ServiceClass, *, requests: int, tokens: float) -> None:
        """The class was served (below 0: was charged that much too much)."""
        if service_class in self._service:
            amount = tokens if self.by_tokens else requests
            self._service[service_class] += amount / _weight(service_class)

    def _change_contenders(self, heads: Sequence[Entry]) -> None:
        service = self._service
        contending = {head.service_class for head in heads}
        staying = contending & self._contending
        if staying:
            least = min(service[each] for each in staying)
            for head in heads:
                service_class = head.service_class
                if service_class not in staying:
                    claim = self._claim(head) if service_class in self._held else 0.0
                    service[service_class] = max(service[service_class], least - claim)
        stopped = (self._contending | self._held) - contending
        self._held = {each for each in stopped if each.queue.entries.count}
        self._contending = contending

    def _claim(self, head: Entry) -> float:
        cost = head.cost_tokens if self.by_tokens else 1
        return cost / _weight(head.service_class)


def _weight(service_class: ServiceClass) -> float:
    """What counters are divided by. 1 for a class without weight: it may be given one later."""
    return service_class.settings.weight or 1.0
