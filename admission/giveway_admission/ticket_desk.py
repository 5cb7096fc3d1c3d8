"""Who takes requests in return for tickets, and hands the answers out?

The `TicketDesk` is what the data plane knows of tickets. A request that comes here is written down
first, then offered as any other; its client gets the answer if it comes within the time it wants to
wait, and else the ticket.

What always holds
- Nothing is promised (202) before it is on the disk (Y13).
- A ticket is seen by the tenant that got it, and by nobody else.
- A refusal by the scheduler is the answer to a newcomer, and then there is no ticket.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from giveway_admission.answering import State
from giveway_admission.body_splicing import LONGEST_SCANNED_BYTES
from giveway_admission.exchanges import Exchange
from giveway_admission.outcomes import Outcome
from giveway_admission.request_heads import CREDENTIALS
from giveway_admission.runtime_policies import Admission
from giveway_admission.ticket_index import Ticket, TicketStatistics
from giveway_admission.ticket_offering import TicketOffering, wake
from giveway_admission.ticket_store import TicketStore, TicketStoreError
from giveway_admission.tickets import (
    OVERHEAD_BYTES,
    Preferences,
    TicketAnswer,
    TicketRequest,
    TicketStatus,
    describe,
    digest_key,
    fingerprint,
    keep_fields,
    make_id,
    read_key,
    read_preferences,
    retry_hint_s,
    ticket_id,
)

if TYPE_CHECKING:
    from giveway_admission.proxying import Proxy

_RETRY_S = 5.0
_STORE_MESSAGE = "Tickets can't be kept at the moment. Send the request without Prefer, or later."


class TicketDesk:
    """The tickets of one proxy, as its data plane meets them."""

    def __init__(self, proxy: "Proxy", store: TicketStore) -> None:
        self._proxy = proxy
        self._work = TicketOffering(proxy, store)

    # Start and end.

    async def open(self) -> None:
        """Raises `TicketStoreError`."""
        await self._work.open()

    def resume(self) -> None:
        """Take up what an earlier process left open."""
        self._work.resume()

    def drain(self) -> None:
        """The proxy ends: who waits gets its ticket now, what waits stays on the disk."""
        self._work.drain()

    async def close(self) -> None:
        await self._work.close()

    def statistics(self) -> TicketStatistics:
        return self._work.statistics()

    # Newcomers.

    def takes(self, exchange: Exchange, admission: Admission, body: bytes) -> bool:
        """True: the request is the desk's now, since its client wants a ticket for it.

        Not for a target with a query, which may hold a credential, nor for a body of which the end
        was not read, where `stream` may be.
        """
        head = exchange.head
        preferences = read_preferences(
            head.fields.get(b"prefer"), longest_wait_s=self._proxy.settings.ticket_longest_wait_s
        )
        if preferences is None or b"?" in head.target or len(body) > LONGEST_SCANNED_BYTES:
            return False
        exchange.hand_over()
        self._work.start(
            self._accept(exchange, preferences, admission=admission, body=body), exchange
        )
        return True

    async def _accept(
        self, exchange: Exchange, preferences: Preferences, *, admission: Admission, body: bytes
    ) -> None:
        path, tenant = exchange.head.path, admission.tenant
        try:
            key = read_key(exchange.head.fields.get(b"idempotency-key"))
        except ValueError as error:
            self._turn_away(exchange, Outcome.INVALID_REQUEST, str(error))
            return
        key_digest = None if key is None else digest_key(tenant, key)
        known = None if key_digest is None else self._work.index.find_by_key(key_digest)
        if known is not None:
            if known.fingerprint != fingerprint(path, body):
                self._turn_away(
                    exchange,
                    Outcome.INVALID_REQUEST,
                    "This Idempotency-Key was used for another request already.",
                )
                return
            await self._hand_out(exchange, known, preferences)
            return
        if not self._work.index.has_room(len(body)):
            self._turn_away(
                exchange,
                Outcome.QUEUE_FULL,
                "Too many tickets are kept already. Fetch and delete some, or come later.",
                retry_after_s=_RETRY_S,
            )
            return
        now_s = self._work.clock()
        ticket = Ticket(
            id=make_id(),
            tenant=tenant,
            created_s=now_s,
            expires_s=now_s + self._patience_s(admission),
            key_digest=key_digest,
            fingerprint=fingerprint(path, body),
            size_bytes=len(body) + OVERHEAD_BYTES,
        )
        if self._proxy.address.forwards_credentials:
            fields = exchange.head.fields
            ticket.credentials = {name: fields[name] for name in CREDENTIALS if name in fields}
        request = TicketRequest(
            path=path, fields=keep_fields(exchange.head.fields, name=exchange.name), body=body
        )
        if not await self._work.write_down(ticket, request):
            self._turn_away(
                exchange, Outcome.ENGINE_UNAVAILABLE, _STORE_MESSAGE, retry_after_s=_RETRY_S
            )
            return
        if exchange.state is State.ENDED and key is None:  # its client can't come back for it
            await self._work.remove(ticket)
            return
        self._work.offer(ticket, request, client_ip=exchange.client.ip)
        await self._hand_out(exchange, ticket, preferences, is_new=True)

    def _turn_away(
        self,
        exchange: Exchange,
        outcome: Outcome,
        message: str,
        *,
        retry_after_s: float | None = None,
    ) -> None:
        """Refuse what no scheduler has seen, and count it."""
        self._proxy.metrics.refused_early(outcome)
        exchange.refuse(outcome, message, retry_after_s=retry_after_s)

    def _patience_s(self, admission: Admission) -> float:
        """The class's time to live, or the client's own patience."""
        request = admission.request
        classes = self._proxy.policy.document.spec.classes
        time_to_live_s = float(classes[request.rank].queue.time_to_live_seconds)
        return min(time_to_live_s, request.patience_s or time_to_live_s)

    def _refuse_unstored(self, exchange: Exchange) -> None:
        exchange.refuse(Outcome.ENGINE_UNAVAILABLE, _STORE_MESSAGE, retry_after_s=_RETRY_S)

    async def _hand_out(
        self,
        exchange: Exchange,
        ticket: Ticket,
        preferences: Preferences,
        *,
        is_new: bool = False,
    ) -> None:
        """The answer if it comes in time, else the ticket."""
        storing = self._work.storing.get(ticket.id)
        if storing is not None and not await asyncio.shield(storing):
            self._refuse_unstored(exchange)
            return
        run = ticket.run
        refusal = run.answer if is_new and run is not None and run.was_refused else None
        if refusal is not None:
            _answer(exchange, refusal, b"")
            await self._work.cancel(ticket)  # it was never accepted
            return
        if ticket.is_open:
            await self._wait(exchange, ticket, preferences.wait_s or 0.0)
        if exchange.state is State.ENDED:
            if is_new and ticket.key_digest is None:  # nobody knows its id
                await self._work.cancel(ticket)
            return
        if ticket.is_open:
            exchange.answer_whole(
                202,
                b"HTTP/1.1 202 Accepted\r\nLocation: /v1/tickets/%b\r\n" % ticket.id.encode()
                + preferences.applied(with_ticket=True)
                + self._lines(exchange, ticket),
                self._describe(ticket),
            )
            return
        answer = ticket.answer or await self._fetch(exchange, ticket)
        if answer is None:
            return
        applied = preferences.applied(with_ticket=False)
        if ticket.key_digest is not None:
            place = b"Content-Location: /v1/tickets/%b\r\n" % ticket.id.encode()
            _answer(exchange, answer, applied + place)
            return
        _answer(exchange, answer, applied)
        if is_new:
            await self._work.cancel(ticket)  # answered, and nobody can ask for it again

    async def _wait(self, exchange: Exchange, ticket: Ticket, wait_s: float) -> None:
        """Until the ticket has an answer, its client has left, or `wait_s` are over."""
        if wait_s <= 0.0 or self._proxy.draining or exchange.state is State.ENDED:
            return
        waiter = self._proxy.loop.create_future()
        ticket.waiters.add(waiter)
        exchange.on_left = partial(wake, waiter)
        try:
            async with asyncio.timeout(wait_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            exchange.on_left = None
            ticket.waiters.discard(waiter)

    # Owners.

    def answer(self, exchange: Exchange) -> None:
        """A request about a ticket."""
        exchange.hand_over()
        tenant = self._proxy.policy.identifier.find(exchange.head.fields)
        identity = ticket_id(exchange.head.path)
        ticket = None if tenant is None else self._work.index.find(identity, tenant=tenant)
        if ticket is None or ticket.id in self._work.storing:
            exchange.refuse(Outcome.NOT_FOUND, "There is no such ticket.")
        elif exchange.head.method == "DELETE":
            self._work.start(self._answer_delete(exchange, ticket), exchange)
        else:
            self._work.start(self._answer_get(exchange, ticket), exchange)

    async def _answer_get(self, exchange: Exchange, ticket: Ticket) -> None:
        self._work.expire_if_late(ticket)
        if ticket.is_open:
            exchange.answer_whole(
                202,
                b"HTTP/1.1 202 Accepted\r\n" + self._lines(exchange, ticket),
                self._describe(ticket),
            )
            return
        answer = ticket.answer or await self._fetch(exchange, ticket)
        if answer is not None:
            _answer(exchange, answer.lasting(), b"")

    async def _answer_delete(self, exchange: Exchange, ticket: Ticket) -> None:
        was_open = ticket.is_open
        if not await self._work.cancel(ticket):
            self._refuse_unstored(exchange)
            return
        if was_open:
            ticket.status = TicketStatus.CANCELLED
        exchange.answer_whole(
            200,
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Request-Id: %b\r\n"
            % exchange.name,
            self._describe(ticket),
        )

    async def _fetch(self, exchange: Exchange, ticket: Ticket) -> TicketAnswer | None:
        """The answer from the disk. None: it could not be had, and the exchange is answered."""
        try:
            answer = await self._work.keeping.answer(ticket.id)
        except TicketStoreError:
            self._refuse_unstored(exchange)
            return None
        if answer is None:
            exchange.refuse(Outcome.NOT_FOUND, "There is no such ticket.")
        return answer

    def _lines(self, exchange: Exchange, ticket: Ticket) -> bytes:
        """Header lines that go with an open ticket."""
        hint_s = retry_hint_s(self._work.clock() - ticket.created_s)
        return (
            b"Content-Type: application/json\r\nCache-Control: no-store\r\nRetry-After: %d\r\n"
            b"X-Request-Id: %b\r\n" % (hint_s, exchange.name)
        )

    def _describe(self, ticket: Ticket) -> bytes:
        status = ticket.status
        if ticket.is_open and status is not TicketStatus.CANCELLED:
            runs = ticket.run is not None and ticket.run.is_running
            status = TicketStatus.RUNNING if runs else TicketStatus.QUEUED
        return describe(ticket.id, status, created_s=ticket.created_s, expires_s=ticket.expires_s)


def _answer(exchange: Exchange, answer: TicketAnswer, applied: bytes) -> None:
    first = b"HTTP/1.1 %d %b\r\n" % (answer.status, answer.reason)
    exchange.answer_whole(answer.status, first + answer.lines + applied, answer.body)
