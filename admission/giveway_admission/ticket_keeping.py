"""What of the tickets is on the disk, and who hears of it when the disk refuses?

`TicketStore` raises. Here that becomes an answer, kept or not, and a line in the log a minute: a
full disk meets every ticket, and the log may be on it too.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from giveway_admission.logs import log_event
from giveway_admission.ticket_index import Ticket
from giveway_admission.ticket_store import StoredTicket, TicketStore, TicketStoreError
from giveway_admission.tickets import OVERHEAD_BYTES, TicketAnswer, TicketRequest, TicketStatus

_logger = logging.getLogger(__name__)

_TOLD_EVERY_S = 60.0


class TicketKeeping:
    """The tickets of one store."""

    def __init__(self, store: TicketStore) -> None:
        self.store = store
        self._silent_until_s = 0.0
        self._untold = 0

    async def open(self) -> list[Ticket]:
        """All that there are. Raises `TicketStoreError`."""
        return [_ticket(row) for row in await self.store.open()]

    async def add(self, ticket: Ticket, request: TicketRequest) -> bool:
        try:
            with self._telling():
                await self.store.add(_row(ticket), request)
        except TicketStoreError:
            return False
        return True

    async def count_attempt(self, ticket: Ticket) -> bool:
        """One attempt more than it has."""
        try:
            with self._telling():
                await self.store.count_attempt(ticket.id, ticket.attempts + 1)
        except TicketStoreError:
            return False
        return True

    async def finish(self, ticket: Ticket, answer: TicketAnswer) -> bool:
        assert ticket.finished_s is not None
        try:
            with self._telling():
                await self.store.finish(
                    ticket.id, ticket.status, answer=answer.lasting(), finished_s=ticket.finished_s
                )
        except TicketStoreError:
            return False
        return True

    async def delete(self, identities: list[str]) -> bool:
        try:
            with self._telling():
                await self.store.delete(identities)
        except TicketStoreError:
            return False
        return True

    async def request(self, identity: str) -> TicketRequest | None:
        """None: it is not there. Raises `TicketStoreError`, which is told already."""
        with self._telling():
            return await self.store.request(identity)

    async def answer(self, identity: str) -> TicketAnswer | None:
        """None: it is not there. Raises `TicketStoreError`, which is told already."""
        with self._telling():
            return await self.store.answer(identity)

    async def close(self) -> None:
        await self.store.close()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except TicketStoreError as error:
            self._tell(error)
            raise

    def _tell(self, error: TicketStoreError) -> None:
        now_s = time.monotonic()
        if now_s < self._silent_until_s:
            self._untold += 1
            return
        self._silent_until_s = now_s + _TOLD_EVERY_S
        more = {"untold_before": self._untold} if self._untold else {}
        self._untold = 0
        log_event(_logger, logging.ERROR, "ticket store failed", reason=str(error), **more)


def _ticket(row: StoredTicket) -> Ticket:
    return Ticket(
        id=row.id,
        tenant=row.tenant,
        created_s=row.created_s,
        expires_s=row.expires_s,
        key_digest=row.key_digest,
        fingerprint=row.fingerprint,
        size_bytes=row.size_bytes + OVERHEAD_BYTES,
        attempts=row.attempts,
        status=TicketStatus.QUEUED if row.status is None else row.status,
        finished_s=row.finished_s,
    )


def _row(ticket: Ticket) -> StoredTicket:
    return StoredTicket(
        id=ticket.id,
        tenant=ticket.tenant,
        created_s=ticket.created_s,
        expires_s=ticket.expires_s,
        key_digest=ticket.key_digest,
        fingerprint=ticket.fingerprint,
        size_bytes=ticket.size_bytes,
        attempts=ticket.attempts,
        status=None,
        finished_s=None,
    )
