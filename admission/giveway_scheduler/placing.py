"""In which class, and in whose name, does an entry stand?

In its own, except while it is lifted: then in its source's (A9). Its reservation moves with it: the
former payer gets all of it back, the new one pays, as debt if need be. And when a class is gone,
what it had waiting or running belongs to the lowest one.
"""

from collections.abc import Iterable, Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry
from giveway_scheduler.requests import TenantName
from giveway_scheduler.reserving import Reservations
from giveway_scheduler.tenancy import Tenants
from giveway_scheduler.waiting import WaitingRoom


class Placer:
    """Moves entries between classes and tenants."""

    __slots__ = ("_reservations", "_room", "_tenants")

    def __init__(self, room: WaitingRoom, reservations: Reservations, tenants: Tenants) -> None:
        self._room = room
        self._reservations = reservations
        self._tenants = tenants

    def put(self, entry: Entry, *, now_s: float) -> None:
        """Put a newcomer, in no queue yet, where it is to stand."""
        former = entry.tenant
        self._assign(entry, now_s)
        if entry.tenant is not former:
            self._tenants.rest(former)

    def move(self, entries: Iterable[Entry], *, now_s: float) -> None:
        """Move waiting entries to where they are to stand by now.

        A dispatched one stays where it is charged; only what it waits for is still moved.
        """
        for entry in entries:
            service_class, name = _place_of(entry)
            if not entry.is_waiting or (
                entry.service_class is service_class and entry.tenant.name == name
            ):
                continue
            former = entry.tenant
            self._room.leave(entry)
            had_paid = entry.class_budget is not None
            self._reservations.withdraw(entry, now_s=now_s)
            self._assign(entry, now_s)
            if had_paid or service_class.rejects:
                self._reservations.reserve(entry, now_s)
            self._room.enter(entry)
            former.release_held()
            self._tenants.rest(former)

    def leave_gone_classes(self, entries: Iterable[Entry], classes: Sequence[ServiceClass]) -> None:
        """Give what stands in none of `classes` to the lowest of them. What was paid stays paid."""
        lowest, stays = classes[-1], set(classes)
        for entry in entries:
            if entry.home_class not in stays:
                entry.home_class = lowest
            if entry.lift_class not in stays:
                entry.lift_class = lowest
            if entry.service_class in stays:
                continue
            if entry.is_waiting:
                self._room.leave(entry)
                entry.is_late = False
                entry.service_class = lowest
                self._room.enter(entry)
            else:
                self._adopt(entry, lowest)

    @staticmethod
    def _adopt(entry: Entry, service_class: ServiceClass) -> None:
        """The class takes over a dispatched entry. What was charged to the former one is gone with
        it, so that all the entry uses is charged at its end."""
        entry.service_class.running -= 1
        service_class.running += 1
        service_class.unprefilled += entry.unprefilled_tokens > 0
        entry.service_class = service_class
        entry.flow = service_class.queue.flow_of(entry.tenant)
        entry.service_tokens = entry.counted_tokens = 0.0

    def _assign(self, entry: Entry, now_s: float) -> None:
        entry.service_class, name = _place_of(entry)
        entry.tenant = self._tenants.get(name, now_s)
        entry.is_late = False


def _place_of(entry: Entry) -> tuple[ServiceClass, TenantName]:
    source = entry.lifted_by
    if source is None:
        return entry.home_class, entry.request.tenant
    return source.lift_class, source.request.tenant
