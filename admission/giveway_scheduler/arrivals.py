"""Who came first, and who came last?

Entries in order of arrival, out of which any may leave at any time. Nearly all come at the end, so
they stand in one line. Those that come back to an old place (requeued, lifted) would have to be
sorted into it; they are kept beside it, in two heaps. So everything here costs O(1), or O(log n)
for those that came back, however many wait before or behind them.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush, merge
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from giveway_scheduler.entries import Entry
    from giveway_scheduler.requests import RequestKey

SLACK = 64
"""Stale items that a heap may hold besides as many as there are live ones."""


class Arrivals:
    """Entries by key, with the oldest and the newest at hand."""

    __slots__ = ("_from_newest", "_from_oldest", "_line", "_returned", "count")

    def __init__(self) -> None:
        self.count = 0
        self._line: OrderedDict[RequestKey, Entry] = OrderedDict()
        """In order of arrival."""
        self._returned: dict[RequestKey, Entry] = {}
        """Those that came back behind others that are newer."""
        self._from_oldest: list[tuple[int, Entry]] = []
        self._from_newest: list[tuple[int, Entry]] = []
        """Heaps of (order, entry) and (-order, entry) of the returned; gone ones are stale."""

    def __len__(self) -> int:
        return self.count

    def __contains__(self, key: RequestKey) -> bool:
        return key in self._line or key in self._returned

    def __iter__(self) -> Iterator[Entry]:
        """All entries, in no order."""
        yield from self._line.values()
        yield from self._returned.values()

    @property
    def oldest(self) -> Entry | None:
        """The entry that came first. None: there is none."""
        first = next(iter(self._line.values())) if self._line else None
        if not self._returned:
            return first
        returned = self._top(self._from_oldest)
        return returned if first is None or returned.order < first.order else first

    @property
    def newest(self) -> Entry | None:
        """The entry that came last. None: there is none."""
        last = next(reversed(self._line.values())) if self._line else None
        if not self._returned:
            return last
        returned = self._top(self._from_newest)
        return returned if last is None or returned.order > last.order else last

    def from_newest(self) -> Iterator[Entry]:
        """All entries, the newest first."""
        line = reversed(self._line.values())
        if not self._returned:
            return line
        returned = sorted(self._returned.values(), key=_order, reverse=True)
        return merge(line, returned, key=_order, reverse=True)

    def add(self, entry: Entry) -> bool:
        """Let the entry stand at the place that its arrival gives it. True: at the end."""
        line = self._line
        self.count += 1
        if not line or next(reversed(line.values())).order < entry.order:
            line[entry.key] = entry
            return True
        self._returned[entry.key] = entry
        if len(self._from_oldest) > 2 * len(self._returned) + SLACK:
            self._from_oldest = [(each.order, each) for each in self._returned.values()]
            self._from_newest = [(-each.order, each) for each in self._returned.values()]
            heapify(self._from_oldest)
            heapify(self._from_newest)
        else:
            heappush(self._from_oldest, (entry.order, entry))
            heappush(self._from_newest, (-entry.order, entry))
        return False

    def remove(self, entry: Entry) -> None:
        """Take the entry out."""
        self.count -= 1
        if self._line.pop(entry.key, None) is None:
            del self._returned[entry.key]
            if not self._returned:
                self._from_oldest.clear()
                self._from_newest.clear()

    def _top(self, heap: list[tuple[int, Entry]]) -> Entry:
        """The first of the heap that is still there; there is one."""
        while heap[0][1].key not in self._returned:
            heappop(heap)
        return heap[0][1]


def _order(entry: Entry) -> int:
    return entry.order
