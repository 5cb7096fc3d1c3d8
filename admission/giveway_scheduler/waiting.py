"""What waits, in all classes together, and until when?

The one place through which an entry gets into a queue and out of it, so that totals, tenants'
counts and times to live can't disagree with what is queued.
"""

import math
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from giveway_scheduler.arrivals import SLACK
from giveway_scheduler.buckets import GRAIN_S
from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry
from giveway_scheduler.queues import ClassQueue, Flow


class WaitingRoom:
    """Totals, times to live (A6) and alarms of the flows that wait for a bucket."""

    __slots__ = ("_alarms", "_deadlines", "_number", "bytes", "count", "due_s")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self._deadlines: list[tuple[float, int, Entry]] = []
        """Heap of (deadline, order, entry); an item is stale when its entry waits no more, or has
        another deadline by now."""
        self._alarms: list[tuple[float, int, ClassQueue, Flow]] = []
        """Heap of (time, number, queue, flow); stale when the flow is not held until then."""
        self._number = 0
        self.due_s = math.inf
        """No entry expires and no alarm rings before."""

    def enter(self, entry: Entry) -> None:
        """The entry waits."""
        entry.is_waiting = True
        entry.service_class.queue.insert(entry, is_large=_is_large(entry))
        entry.tenant.queued += 1
        self.count += 1
        self.bytes += entry.request.size_bytes

    def leave(self, entry: Entry) -> None:
        """The entry waits no more."""
        entry.is_waiting = False
        entry.service_class.queue.remove(entry)
        entry.tenant.queued -= 1
        self.count -= 1
        self.bytes -= entry.request.size_bytes
        flow = entry.flow
        assert flow is not None
        if flow.is_large and not flow.entries.count:
            entry.service_class.stop_saving(flow)

    def follow_sizes(self, entries: Iterable[Entry], classes: Iterable[ServiceClass]) -> None:
        """Buckets may have another size: large is what is larger than they are by now."""
        for service_class in classes:
            while service_class.queue.lined_up:
                service_class.queue.release_next()
        for entry in entries:
            flow = entry.flow
            if entry.is_waiting and flow is not None and flow.is_large is not _is_large(entry):
                self.leave(entry)
                self.enter(entry)

    def watch(self, entry: Entry) -> None:
        """Let the entry expire at its deadline if it still waits then."""
        deadlines = self._deadlines
        if len(deadlines) > 2 * self.count + SLACK:
            due = {item[1]: item for item in deadlines if _is_due_later(item)}
            deadlines[:] = due.values()  # one each: a requeued entry may stand there twice
            heapify(deadlines)
        heappush(deadlines, (entry.deadline_s, entry.order, entry))
        if entry.deadline_s < self.due_s:
            self.due_s = entry.deadline_s

    def next_expired(self, now_s: float) -> Entry | None:
        """An entry whose time to live is over, longest over first. None: there is none."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_s:
            item = heappop(deadlines)
            if _is_due_later(item):
                return item[2]
        return None

    def follow_times_to_live(self, entries: Iterable[Entry]) -> None:
        """Give entries the deadline that their class's settings say by now."""
        for entry in entries:
            at_s = deadline_s(entry)
            if at_s != entry.deadline_s:
                entry.deadline_s = at_s
                if entry.is_waiting:
                    self.watch(entry)

    def hold_until(self, at_s: float, queue: ClassQueue, flow: Flow) -> None:
        """Leave the flow out until its tenant's bucket has enough, at the latest until `at_s`."""
        queue.hold(flow)
        flow.alarm_s = at_s
        if math.isinf(at_s):
            return
        alarms = self._alarms
        if len(alarms) > 2 * self.count + SLACK:
            held = {item[3]: item for item in alarms if _is_held_until(item)}
            alarms[:] = held.values()
            heapify(alarms)
        self._number += 1
        heappush(alarms, (at_s, self._number, queue, flow))
        if at_s < self.due_s:
            self.due_s = at_s

    def ring(self, now_s: float) -> None:
        """Let the flows whose buckets have enough by now, or in a grain, take part again."""
        alarms = self._alarms
        while alarms and alarms[0][0] <= now_s + GRAIN_S:
            item = heappop(alarms)
            if _is_held_until(item):
                item[2].release(item[3])

    def next_event_s(self) -> float:
        """When the next entry expires or the next alarm rings. Infinite: neither will."""
        alarms, deadlines = self._alarms, self._deadlines
        while deadlines and not _is_due_later(deadlines[0]):
            heappop(deadlines)
        event_s = deadlines[0][0] if deadlines else math.inf
        while alarms and not _is_held_until(alarms[0]):
            heappop(alarms)
        if alarms and alarms[0][0] < event_s:
            event_s = alarms[0][0]
        self.due_s = event_s
        return event_s


def deadline_s(entry: Entry) -> float:
    """When the entry expires: by its class's time to live, or its client's if that is shorter."""
    time_to_live_s = entry.home_class.settings.time_to_live_s
    patience_s = entry.request.patience_s
    if patience_s is not None and patience_s < time_to_live_s:
        time_to_live_s = max(patience_s, 0.0)
    return entry.offered_s + time_to_live_s


def _is_large(entry: Entry) -> bool:
    """Whether it still has to pay, and its class's bucket can never hold as much (B13)."""
    budget = entry.service_class.budget
    return entry.class_budget is None and budget.is_exceeded_by(entry.cost_tokens)


def _is_due_later(item: tuple[float, int, Entry]) -> bool:
    at_s, _, entry = item
    return entry.deadline_s == at_s and entry.is_waiting


def _is_held_until(item: tuple[float, int, ClassQueue, Flow]) -> bool:
    at_s, _, _, flow = item
    return flow.is_held and flow.alarm_s == at_s
