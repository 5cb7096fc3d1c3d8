"""Who of several classes has had least for its weight?

Each class has a counter of tokens divided by its weight; the least goes next. A class that comes
back is lifted to the least counter of those it contends with, so that it has no credit for the time
in which it asked for nothing. Classes that contend all through an interval get tokens in proportion
to their weights, up to one request each.
"""

from collections.abc import Iterable, Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry

LEAST_WEIGHT = 1e-9
"""A class of weight 0 goes when nobody else contends."""


class WeightedShares:
    """Counters of weighted service of a group of classes."""

    __slots__ = ("_contending", "_service")

    def __init__(self) -> None:
        self._service: dict[ServiceClass, float] = {}
        self._contending: set[ServiceClass] = set()

    def configure(self, classes: Iterable[ServiceClass]) -> None:
        """Forget the classes that are gone; counters of the others stay."""
        self._service = {each: self._service.get(each, 0.0) for each in classes}
        self._contending &= self._service.keys()

    def least_served(self, heads: Sequence[Entry]) -> Entry:
        """The head of the class with the least service for its weight; the higher one of equals."""
        service = self._service
        contending = {head.service_class for head in heads}
        staying = contending & self._contending
        if staying and len(staying) < len(contending):
            floor = min(service[each] for each in staying)
            for each in contending - staying:
                service[each] = max(service[each], floor)
        self._contending = contending
        return min(heads, key=lambda head: service[head.service_class])

    def charge(self, service_class: ServiceClass, tokens: float) -> None:
        """The class was served `tokens` (below 0: was charged that many too much)."""
        weight = max(service_class.settings.weight, LEAST_WEIGHT)
        if service_class in self._service:
            self._service[service_class] += tokens / weight
