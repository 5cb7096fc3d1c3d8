"""Which tickets are there, and is there room for one more?

All tickets of a process in memory, without bodies and answers: what the store on disk holds, and
the bounds. A look-up needs no disk. Pure: times come in.

`HeldTickets` are accepted ones that the scheduler had no room for (its queue was full, or the rate
used up, when they were offered again). They wait here by class and tenant, oldest first, and of
each group the first is tried when the scheduler said that it has a chance.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from giveway_admission.tickets import OVERHEAD_BYTES, TicketAnswer, TicketStatus

if TYPE_CHECKING:
    import asyncio

    from giveway_admission.ticket_runs import TicketRun

Group = tuple[str, str]
"""(class, tenant): requests that meet the same limits."""


@dataclass(slots=True, kw_only=True, eq=False)
class Ticket:
    """One ticket and what is going on with it."""

    id: str
    tenant: str
    created_s: float
    """Unix time, as are all times here: they outlive the process."""
    expires_s: float
    """When its turn has to have come."""
    key_digest: bytes | None
    """Of its Idempotency-Key. None: it has none."""
    fingerprint: bytes
    size_bytes: int
    attempts: int = 0
    """How many processes have sent it to the engine, this one included."""
    status: TicketStatus = TicketStatus.QUEUED
    finished_s: float | None = None
    """None: it is open."""
    run: "TicketRun | None" = None
    """None: it is not with the scheduler now."""
    answer: TicketAnswer | None = field(default=None, repr=False)
    """Until it is on disk. None: it is, or there is none yet."""
    credentials: dict[bytes, bytes] = field(default_factory=dict, repr=False)
    """Headers that the engine wants to see. Never on disk: gone with the process."""
    counts_run: bool = False
    """`attempts` counts this process already."""
    waiters: "set[asyncio.Future[None]]" = field(default_factory=set, repr=False)

    @property
    def is_open(self) -> bool:
        return self.finished_s is None


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketStatistics:
    """Tickets now."""

    open: int
    running: int
    held: int
    finished: int
    bytes: int


class TicketIndex:
    """All tickets."""

    def __init__(self, *, maximum_count: int, maximum_bytes: int, retention_s: float) -> None:
        self._maximum_count = maximum_count
        self._maximum_bytes = maximum_bytes
        self._retention_s = retention_s
        self._tickets: dict[str, Ticket] = {}
        self._by_key: dict[bytes, Ticket] = {}
        self._finished: OrderedDict[str, Ticket] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets.values())

    def find(self, identity: str, *, tenant: str) -> Ticket | None:
        """None: there is none, or it is somebody else's."""
        ticket = self._tickets.get(identity)
        return ticket if ticket is not None and ticket.tenant == tenant else None

    def find_by_key(self, key_digest: bytes) -> Ticket | None:
        return self._by_key.get(key_digest)

    def holds(self, ticket: Ticket) -> bool:
        return self._tickets.get(ticket.id) is ticket

    def has_room(self, body_bytes: int) -> bool:
        """Answers may exceed the bound by what was running when it was reached."""
        return (
            len(self._tickets) < self._maximum_count
            and self._bytes + body_bytes + OVERHEAD_BYTES <= self._maximum_bytes
        )

    def add(self, ticket: Ticket) -> None:
        """Finished ones have to be added in the order of their ends."""
        self._tickets[ticket.id] = ticket
        self._bytes += ticket.size_bytes
        if ticket.key_digest is not None:
            self._by_key[ticket.key_digest] = ticket
        if not ticket.is_open:
            self._finished[ticket.id] = ticket

    def remove(self, ticket: Ticket) -> None:
        if not self.holds(ticket):
            return
        del self._tickets[ticket.id]
        self._finished.pop(ticket.id, None)
        self._bytes -= ticket.size_bytes
        if ticket.key_digest is not None and self._by_key.get(ticket.key_digest) is ticket:
            del self._by_key[ticket.key_digest]

    def finish(
        self, ticket: Ticket, status: TicketStatus, *, answer: TicketAnswer, now_s: float
    ) -> None:
        """It is over; its body is not needed any more."""
        ticket.status = status
        ticket.finished_s = now_s
        ticket.answer = answer
        ticket.run = None
        ticket.credentials = {}
        size_bytes = len(answer.body) + OVERHEAD_BYTES
        self._bytes += size_bytes - ticket.size_bytes
        ticket.size_bytes = size_bytes
        self._finished[ticket.id] = ticket

    def next_end_s(self) -> float | None:
        """When the next answer has been kept long enough. None: there is none."""
        for ticket in self._finished.values():
            assert ticket.finished_s is not None
            return ticket.finished_s + self._retention_s
        return None

    def kept_long_enough(self, *, now_s: float, most: int) -> list[Ticket]:
        """At most `most` tickets whose answers need not be kept any more, oldest first."""
        found: list[Ticket] = []
        for ticket in self._finished.values():
            assert ticket.finished_s is not None
            if len(found) >= most or ticket.finished_s + self._retention_s > now_s:
                break
            found.append(ticket)
        return found

    def statistics(self, *, held: int) -> TicketStatistics:
        finished = len(self._finished)
        running = sum(ticket.status is TicketStatus.RUNNING for ticket in self)
        return TicketStatistics(
            open=len(self._tickets) - finished,
            running=running,
            held=held,
            finished=finished,
            bytes=self._bytes,
        )


class HeldTickets:
    """Accepted tickets that wait outside of the scheduler."""

    def __init__(self) -> None:
        self._groups: dict[Group, list[Ticket]] = {}
        self._due_s: dict[Group, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def hold(self, group: Group, ticket: Ticket, *, due_s: float) -> None:
        """`ticket` was not taken: the group is tried again at `due_s`."""
        insort(self._groups.setdefault(group, []), ticket, key=lambda each: each.created_s)
        self._due_s[group] = due_s

    def discard(self, ticket: Ticket) -> None:
        for group, queue in list(self._groups.items()):
            if ticket in queue:
                queue.remove(ticket)
                self._drop_if_empty(group)
                return

    def next_due_s(self) -> float | None:
        return min(self._due_s.values(), default=None)

    def take_due(self, *, now_s: float) -> list[Group]:
        """Groups to be tried now; they are not due again until one of theirs is held again."""
        groups = [group for group, due_s in self._due_s.items() if due_s <= now_s]
        for group in groups:
            del self._due_s[group]
        return groups

    def take(self, group: Group) -> Ticket | None:
        """The first of a group, to be offered. None: the group is empty."""
        queue = self._groups.get(group)
        if not queue:
            return None
        ticket = queue.pop(0)
        self._drop_if_empty(group)
        return ticket

    def clear(self) -> None:
        self._groups.clear()
        self._due_s.clear()

    def _drop_if_empty(self, group: Group) -> None:
        if not self._groups[group]:
            del self._groups[group]
            self._due_s.pop(group, None)
