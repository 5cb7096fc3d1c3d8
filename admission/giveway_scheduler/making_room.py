"""The queue is full: who has to leave? (H5, A5)

Never everybody alike, and never an arbitrary entry (mend 11):
- A class that is full refuses its newcomer, unless another tenant holds more of that class than the
  newcomer's tenant does, the newcomer included: then that tenant's newest entry leaves. So one
  tenant's flood can't shut the others out, and each exchange makes the queue more even, never less.
- When all classes together are full, in entries or in bytes, the newest entries of the lowest class
  below the newcomer's leave, as many as the newcomer needs. If even all of them would not suffice,
  the newcomer is refused and nobody leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.decisions import RejectReason
from giveway_scheduler.entries import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is to be done about a newcomer for which there is none."""

    leaving: tuple[Entry, ...] = ()
    refused: RejectReason | None = None
    """Not None: the newcomer can't stay, and nobody else has to leave."""


def make_room(
    newcomer: Entry, classes: Sequence[ServiceClass], *, excess_entries: int, excess_bytes: int
) -> Room:
    """Find room for a newcomer that is in its queue already.

    The excess is what all queues hold together, the newcomer included, above what they may hold.
    """
    service_class = newcomer.service_class
    leaving: list[Entry] = []
    if service_class.queue.entries.count > service_class.settings.queue_capacity:
        rival = _newest_of_larger_tenant(newcomer)
        if rival is None:
            return Room(refused=RejectReason.CLASS_QUEUE_FULL)
        leaving.append(rival)
        excess_entries -= 1
        excess_bytes -= rival.request.size_bytes
    below = classes[service_class.rank + 1 :]
    if (
        sum(len(each.queue) for each in below) < excess_entries
        or sum(each.queue.bytes for each in below) < excess_bytes
    ):
        return Room(refused=RejectReason.QUEUE_FULL)
    for lower_class in reversed(below):
        for entry in lower_class.queue.entries.from_newest():
            if excess_entries <= 0 and excess_bytes <= 0:
                return Room(leaving=tuple(leaving))
            leaving.append(entry)
            excess_entries -= 1
            excess_bytes -= entry.request.size_bytes
    return Room(leaving=tuple(leaving))


def _newest_of_larger_tenant(newcomer: Entry) -> Entry | None:
    """The newest entry of the tenant with most entries in the newcomer's class, if that is more."""
    largest, flow = newcomer.service_class.queue.largest_flow, newcomer.flow
    assert flow is not None
    if largest is None or largest.waiting <= flow.base.waiting:
        return None
    return largest.newest
