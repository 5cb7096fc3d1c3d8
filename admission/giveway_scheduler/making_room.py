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
    """What is to be done that the newcomer may stay."""

    leaving: tuple[Entry, ...] = ()
    refused: RejectReason | None = None
    """Not None: the newcomer can't stay, and nobody else has to leave."""


ROOM = Room()


def room_in_class(newcomer: Entry) -> Room:
    """Keep the newcomer's class within its capacity. The newcomer is in its queue already."""
    service_class = newcomer.service_class
    queue = service_class.queue
    if len(queue) <= service_class.settings.queue_capacity:
        return ROOM
    largest, flow = queue.largest_flow, newcomer.flow
    assert largest is not None
    assert flow is not None
    if largest is flow or len(largest.entries) <= len(flow.entries):
        return Room(refused=RejectReason.CLASS_QUEUE_FULL)
    return Room(leaving=(next(reversed(largest.entries.values())),))


def room_in_all(
    newcomer: Entry,
    classes: Sequence[ServiceClass],
    *,
    excess_entries: int,
    excess_bytes: int,
) -> Room:
    """Make the excess, to which the newcomer contributes, go away."""
    if excess_entries <= 0 and excess_bytes <= 0:
        return ROOM
    below = classes[newcomer.service_class.rank + 1 :]
    if (
        sum(len(each.queue) for each in below) < excess_entries
        or sum(each.queue.bytes for each in below) < excess_bytes
    ):
        return Room(refused=RejectReason.QUEUE_FULL)
    leaving: list[Entry] = []
    for service_class in reversed(below):
        for entry in reversed(service_class.queue.entries.values()):
            if excess_entries <= 0 and excess_bytes <= 0:
                return Room(leaving=tuple(leaving))
            leaving.append(entry)
            excess_entries -= 1
            excess_bytes -= entry.request.size_bytes
    return Room(leaving=tuple(leaving))
