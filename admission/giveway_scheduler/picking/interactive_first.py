"""InteractiveFirst (Y1-Y9): batch gives way.

Interactive classes go first, the higher rank first; a batch request goes only when no interactive
one could (Y1). Batch holds at most a share of the seats that shrinks as interactive traffic
presses harder (Y3, `pressure.py`). Running batch work is not killed: new batch work is not
started (Y9).

At least `batch_minimum` seats stay batch's own limit (Y8), and `batch_maximum` leaves at least
one seat to interactive requests (Y7). Under interactive load that fills all seats batch still
waits for a seat: the order is strict, and only the boost (H10) overrules it.
"""

from collections.abc import Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry
from giveway_scheduler.picking.picker import Picker, Start
from giveway_scheduler.pressure import Pressure, batch_seats
from giveway_scheduler.settings import Settings


class InteractiveFirst(Picker):
    """Picks interactive requests first, and moves the seats of batch."""

    watches = True

    def __init__(self, settings: Settings, start: Start) -> None:
        self._concurrency = settings.concurrency
        self._pressure = Pressure(settings.yielding, now_s=start.now_s)
        self.due_s = self._pressure.next_look_s

    def configure(self, settings: Settings, classes: Sequence[ServiceClass]) -> None:  # noqa: ARG002
        self._concurrency = settings.concurrency
        self._pressure.configure(settings.yielding)

    def choose(self, heads: Sequence[Entry], *, now_s: float) -> Entry:  # noqa: ARG002 - no ageing
        return next((head for head in heads if not head.service_class.is_batch), heads[0])

    def charge(
        self, service_class: ServiceClass, *, requests: int, tokens: float, now_s: float
    ) -> None:
        """The order is strict: what was served before changes nothing."""

    def batch_limit(self) -> int:
        return batch_seats(self._concurrency, self._pressure.smoothed_ratio)

    def arrived(self, entry: Entry, *, now_s: float) -> None:
        if not entry.home_class.is_batch:
            self._pressure.arrived(entry, now_s=now_s)

    def answered(self, entry: Entry, *, now_s: float) -> None:
        if not entry.home_class.is_batch:
            self._pressure.answered(entry, now_s=now_s)

    def ended(self, entry: Entry, *, now_s: float, is_finished: bool) -> None:
        if not entry.home_class.is_batch:
            self._pressure.ended(entry, now_s=now_s, is_finished=is_finished)

    def advance(self, *, now_s: float) -> bool:
        has_looked = self._pressure.advance(now_s=now_s)
        self.due_s = self._pressure.next_look_s
        return has_looked

    def next_event_s(self) -> float:
        return self._pressure.next_event_s()

    @property
    def pressure_ratio(self) -> float:
        return self._pressure.smoothed_ratio
