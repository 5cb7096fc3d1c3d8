"""How often did a value fall into which range?

The smallest thing that can be counted into on every token: a list of bounds, a list of counts, one
bisection. Text is made of it only when somebody scrapes (`exposition`).

All children of a family (one per class) share one list of bounds, because `sum by (le)` over series
with different bounds is wrong without anybody noticing. Every threshold of the policy is a bound,
so that "how many were within it" is read off exactly.

Bounds change while counting goes on, and no count is lost or moved backwards:
- a new bound gets an empty range of its own; what was counted before stays in the range above. The
  series that exist go on unchanged, the new one starts at a number that is too small by what fell
  between the two bounds earlier, and its rate is exact from then on;
- a bound that goes gives its count to the next one: again no other series changes.
Thresholds that the policy no longer has stay bounds for a while, since queries over the last hours
still ask for them: the `MAXIMUM_THRESHOLDS` latest are kept.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

MAXIMUM_THRESHOLDS = 32
"""Bounds of one family beyond its ladder. 16 classes with two objectives each have room."""

FIRST_TOKEN_BOUNDS_S = (
    *(0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0),
    *(7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 1800.0),
)
QUEUE_WAIT_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0),
    *(10.0, 15.0, 30.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
TOKEN_GAP_BOUNDS_S = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
)
DURATION_BOUNDS_S = (
    *(0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0),
    *(60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0, 3600.0),
)


class Histogram:
    """Counts of one class. Made by `HistogramFamily.child`; `observe` stays valid for ever."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: list[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Per range, not cumulative; the last one is everything above the highest bound."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count `value`. Anything that is no number or below 0 counts as 0 (B26)."""
        if not value >= 0.0:
            value = 0.0
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def within(self, threshold: float) -> int:
        """How many values were at most `threshold`; exact if it was a bound when they came."""
        bounds = self._bounds
        index = bisect_left(bounds, threshold)
        if index < len(bounds) and bounds[index] == threshold:
            index += 1
        return sum(self.counts[:index])


class HistogramFamily:
    """Histograms of one meaning, one per label value, with the same bounds."""

    __slots__ = ("_children", "_ladder", "_thresholds", "bounds")

    def __init__(self, ladder: Iterable[float]) -> None:
        self.bounds = sorted(set(ladder))
        self._ladder = frozenset(self.bounds)
        self._thresholds: dict[float, None] = {}
        self._children: dict[str, Histogram] = {}

    def child(self, label: str) -> Histogram:
        """The histogram of `label`, made if it is new."""
        child = self._children.get(label)
        if child is None:
            child = self._children[label] = Histogram(self.bounds)
        return child

    def drop(self, label: str) -> None:
        self._children.pop(label, None)

    def __iter__(self) -> Iterator[tuple[str, Histogram]]:
        return iter(self._children.items())

    def require(self, thresholds: Iterable[float]) -> None:
        """Make every threshold a bound (not positive or not finite ones are left out)."""
        wanted = dict.fromkeys(sorted(value for value in thresholds if 0.0 < value < float("inf")))
        for threshold in wanted:
            self._thresholds.pop(threshold, None)
            self._thresholds[threshold] = None  # wanted now: last to be forgotten
            self._insert(threshold)
        while len(self._thresholds) > max(MAXIMUM_THRESHOLDS, len(wanted)):
            oldest = next(iter(self._thresholds))
            del self._thresholds[oldest]
            if oldest not in self._ladder:
                self._remove(oldest)

    def _insert(self, bound: float) -> None:
        index = bisect_left(self.bounds, bound)
        if index < len(self.bounds) and self.bounds[index] == bound:
            return
        self.bounds.insert(index, bound)
        for child in self._children.values():
            child.counts.insert(index, 0)

    def _remove(self, bound: float) -> None:
        index = bisect_left(self.bounds, bound)
        del self.bounds[index]
        for child in self._children.values():
            child.counts[index + 1] += child.counts[index]
            del child.counts[index]
