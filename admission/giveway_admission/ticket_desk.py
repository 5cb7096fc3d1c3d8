"""Who takes requests in return for tickets, and hands the answers out?

The `TicketDesk` is what the data plane knows of tickets. A request that comes here is written down
first, then offered as any other; its client gets the answer if it comes within the time it wants to
wait, and else the ticket. After a restart whatever is open is offered again.

What always holds
- Nothing is promised (202) before it is on the disk (Y13).
- An answer that is on the disk is never made again. One that was not there yet when the process
  died is made again, by no more than a number of processes.
- A ticket is seen by the tenant that got it, and by nobody else.
- A refusal by the scheduler is the answer to a newcomer; what was accepted waits instead.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from giveway_admission.answers import make_error
from giveway_admission.body_splicing import LONGEST_SCANNED_BYTES
from giveway_admission.deadlines import Deadline
from giveway_admission.exchanges import Exchange, State
from giveway_admission.logs import log_event
from giveway_admission.outcomes import Outcome
from giveway_admission.request_heads import CREDENTIALS
from giveway_admission.runtime_policies import Admission
from giveway_admission.ticket_index import (
    Group,
    HeldTickets,
    Ticket,
    TicketIndex,
    TicketStatistics,
)
from giveway_admission.ticket_runs import TicketRun
from giveway_admission.ticket_store import StoredTicket, TicketStore, TicketStoreError
from giveway_admission.tickets import (
    OVERHEAD_BYTES,
    Preferences,
    TicketAnswer,
    TicketRequest,
    TicketStatus,
    describe,
    digest_key,
    final_status,
    fingerprint,
    keep_fields,
    make_id,
    read_key,
    read_preferences,
    retry_hint_s,
    split_answer,
    ticket_id,
)

if TYPE_CHECKING:
    from giveway_admission.proxying import Proxy

_logger = logging.getLogger(__name__)

_STORE_RETRY_S = 5.0
_SAVE_AGAIN_S = (1.0, 5.0, 30.0)
"""Waits between attempts to write an answer down."""
_SHORTEST_HOLD_S = 0.05
_LONGEST_HOLD_S = 60.0
_REMOVED_AT_ONCE = 200
_SAVING = "ticket-saving"
"""Name of tasks that are waited for at the end."""
_NO_GROUP: Group = ("", "")
"""For tickets that were not offered yet."""
_LAST_SAVES_S = 10.0
_STORE_MESSAGE = "Tickets can't be kept at the moment. Send the request without Prefer, or later."


def wall_clock_s() -> float:
    """Unix time: what is kept on disk has to mean something to the next process."""
    return datetime.now(UTC).timestamp()


class TicketDesk:
    """All tickets of one proxy. `open` first, `resume` once requests can be offered."""

    def __init__(
        self, proxy: "Proxy", store: TicketStore, *, clock: Callable[[], float] = wall_clock_s
    ) -> None:
        settings = proxy.settings
        self._proxy = proxy
        self._store = store
        self._clock = clock
        self._index = TicketIndex(
            maximum_count=settings.ticket_maximum_count,
            maximum_bytes=settings.ticket_maximum_bytes,
            retention_s=settings.ticket_retention_s,
        )
        self._held = HeldTickets()
        self._retry = Deadline(proxy.loop, self._offer_held)
        self._forgetting = Deadline(proxy.loop, self._forget_old)
        self._tasks: set[asyncio.Task[None]] = set()
        self._storing: dict[str, asyncio.Future[bool]] = {}
        """Tickets on their way to the disk; the result tells whether they got there."""
        self._closed = False

    # Start and end.

    async def open(self) -> None:
        """Raises `TicketStoreError`."""
        for row in await self._store.open():
            self._index.add(_ticket(row))
        self._plan_forgetting()

    def resume(self) -> None:
        """Offer what an earlier process left open, oldest first."""
        left = [ticket for ticket in self._index if ticket.is_open]
        if left:
            log_event(_logger, logging.INFO, "tickets taken up again", tickets=len(left))
            self._start(self._offer_all(left))

    def drain(self) -> int:
        """The proxy ends: who waits gets its ticket now, what waits stays on the disk.

        How many were taken out of the queue.
        """
        self._retry.clear()
        self._held.clear()
        taken_out = 0
        for ticket in self._index:
            _wake(ticket)
            if ticket.run is not None and ticket.run.exchange.drain():
                taken_out += 1
        return taken_out

    async def close(self) -> None:
        """End, after what was begun is written down."""
        self._closed = True
        self._retry.close()
        self._forgetting.close()
        saving = [task for task in self._tasks if task.get_name() == _SAVING]
        if saving:
            await asyncio.wait(saving, timeout=_LAST_SAVES_S)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._store.close()

    def statistics(self) -> TicketStatistics:
        return self._index.statistics(held=len(self._held))

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
        self._start(self._accept(exchange, preferences, admission=admission, body=body), exchange)
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
        known = None if key_digest is None else self._index.find_by_key(key_digest)
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
        if not self._index.has_room(len(body)):
            self._turn_away(
                exchange,
                Outcome.QUEUE_FULL,
                "Too many tickets are kept already. Fetch and delete some, or come later.",
                retry_after_s=_STORE_RETRY_S,
            )
            return
        now_s = self._clock()
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
        if not await self._write_down(ticket, request):
            self._turn_away(
                exchange, Outcome.ENGINE_UNAVAILABLE, _STORE_MESSAGE, retry_after_s=_STORE_RETRY_S
            )
            return
        if exchange.state is State.ENDED and key is None:  # its client can't come back for it
            await self._remove(ticket)
            return
        self._offer(ticket, request, client_ip=exchange.client.ip)
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

    async def _write_down(self, ticket: Ticket, request: TicketRequest) -> bool:
        """False: it could not be kept, and is forgotten."""
        self._index.add(ticket)
        written: asyncio.Future[bool] = self._proxy.loop.create_future()
        self._storing[ticket.id] = written
        try:
            await self._store.add(_row(ticket), request)
            written.set_result(True)
        except TicketStoreError as error:
            self._index.remove(ticket)
            _log_store_fault(error)
            written.set_result(False)
            self._start(self._delete([ticket.id]), name=_SAVING)  # if it was only late
        finally:
            if not written.done():
                written.cancel()
            del self._storing[ticket.id]
        return written.result()

    def _refuse_unstored(self, exchange: Exchange) -> None:
        exchange.refuse(Outcome.ENGINE_UNAVAILABLE, _STORE_MESSAGE, retry_after_s=_STORE_RETRY_S)

    async def _hand_out(
        self,
        exchange: Exchange,
        ticket: Ticket,
        preferences: Preferences,
        *,
        is_new: bool = False,
    ) -> None:
        """The answer if it comes in time, else the ticket."""
        storing = self._storing.get(ticket.id)
        if storing is not None and not await asyncio.shield(storing):
            self._refuse_unstored(exchange)
            return
        run = ticket.run
        refusal = run.answer if is_new and run is not None and run.was_refused else None
        if refusal is not None:
            _answer(exchange, refusal, b"")
            await self._cancel(ticket)  # it was never accepted
            return
        if ticket.is_open:
            await self._wait(exchange, ticket, preferences.wait_s or 0.0)
        if exchange.state is State.ENDED:
            if is_new and ticket.key_digest is None:  # nobody knows its id
                await self._cancel(ticket)
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
        _answer(exchange, answer, preferences.applied(with_ticket=False))
        if is_new and ticket.key_digest is None:
            await self._cancel(ticket)  # answered, and nobody can ask for it again

    async def _wait(self, exchange: Exchange, ticket: Ticket, wait_s: float) -> None:
        """Until the ticket has an answer, its client has left, or `wait_s` are over."""
        if wait_s <= 0.0 or self._proxy.draining or exchange.state is State.ENDED:
            return
        waiter = self._proxy.loop.create_future()
        ticket.waiters.add(waiter)
        exchange.on_left = partial(_set, waiter)
        try:
            async with asyncio.timeout(wait_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            exchange.on_left = None
            ticket.waiters.discard(waiter)

    # Runs.

    async def _offer_all(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if self._proxy.draining:
                return
            await self._offer_again(ticket)

    async def _offer_again(self, ticket: Ticket, group: Group = _NO_GROUP) -> bool:
        """Offer what is on the disk. False: there is no use in offering more of its `group`."""
        if not self._index.holds(ticket) or not ticket.is_open or ticket.run is not None:
            return True
        if ticket.attempts >= self._proxy.settings.ticket_attempts:
            self._end(
                ticket,
                TicketStatus.FAILED,
                _refusal(
                    Outcome.ENGINE_FAILED,
                    f"The request was at the engine {ticket.attempts} times when the proxy ended, "
                    "and is not sent again.",
                ),
            )
            return True
        if self._clock() >= ticket.expires_s:
            self._expire(ticket)
            return True
        try:
            request = await self._store.request(ticket.id)
        except TicketStoreError as error:
            _log_store_fault(error)
            self._hold(ticket, group, in_s=_STORE_RETRY_S)
            return False
        if request is None or not self._index.holds(ticket) or self._proxy.draining:
            return True
        run = self._offer(ticket, request, client_ip=b"unknown")
        return not run.was_refused

    def _offer(self, ticket: Ticket, request: TicketRequest, *, client_ip: bytes) -> TicketRun:
        run = TicketRun(
            self._proxy,
            request,
            tenant=ticket.tenant,
            credentials=ticket.credentials,
            client_ip=client_ip,
            patience_s=ticket.expires_s - self._clock(),
            maximum_answer_bytes=self._proxy.settings.ticket_maximum_answer_bytes,
            before_sending=partial(self._before_sending, ticket),
            ended=partial(self._ended, ticket),
        )
        ticket.run = run
        run.offer()
        return run

    def _before_sending(self, ticket: Ticket, send: Callable[[], None]) -> None:
        """Count the attempt, on the disk, before the engine sees anything of it."""
        if ticket.counts_run:
            send()
        else:
            self._start(self._count_attempt(ticket, send))

    async def _count_attempt(self, ticket: Ticket, send: Callable[[], None]) -> None:
        try:
            await self._store.count_attempt(ticket.id, ticket.attempts + 1)
        except TicketStoreError as error:
            _log_store_fault(error)  # it is worth more to have it answered
        if not ticket.counts_run:
            ticket.counts_run = True
            ticket.attempts += 1
        send()

    def _ended(self, ticket: Ticket, run: TicketRun) -> None:
        """A run is over, and the scheduler knows."""
        if self._closed or ticket.run is not run or not self._index.holds(ticket):
            return
        outcome, answer = run.exchange.outcome, run.answer
        assert outcome is not None
        if run.was_interrupted:
            ticket.run = None
            return
        if run.was_refused and self._clock() < ticket.expires_s:
            ticket.run = None
            self._hold_refused(ticket, run)
            return
        if answer is None:
            outcome = Outcome.ENGINE_FAILED
            answer = _refusal(outcome, "The answer could not be completed.")
        status = final_status(outcome, engine_up=self._proxy.engine_up)
        self._end(ticket, status, answer)

    def _end(self, ticket: Ticket, status: TicketStatus, answer: TicketAnswer) -> None:
        self._index.finish(ticket, status, answer=answer, now_s=self._clock())
        self._plan_forgetting()
        _wake(ticket)
        self._start(self._save(ticket), name=_SAVING)

    def _expire(self, ticket: Ticket) -> None:
        message = "The ticket's time was over before its turn came."
        self._end(ticket, TicketStatus.EXPIRED, _refusal(Outcome.QUEUE_TIMEOUT, message))

    async def _save(self, ticket: Ticket) -> None:
        """Write the answer down, then let go of it."""
        answer = ticket.answer
        assert answer is not None
        for again_s in (*_SAVE_AGAIN_S, None):
            if not self._index.holds(ticket) or await self._saves(ticket, answer):
                return
            if again_s is None or self._proxy.draining:
                break
            await asyncio.sleep(again_s)
        # On the disk it is open: another process will make the answer again.
        log_event(_logger, logging.ERROR, "an answer could not be kept")
        self._index.remove(ticket)

    async def _saves(self, ticket: Ticket, answer: TicketAnswer) -> bool:
        assert ticket.finished_s is not None
        try:
            await self._store.finish(
                ticket.id, ticket.status, answer=answer.lasting(), finished_s=ticket.finished_s
            )
        except TicketStoreError as error:
            _log_store_fault(error)
            return False
        ticket.answer = None
        return True

    # Tickets that the scheduler has no room for.

    def _hold_refused(self, ticket: Ticket, run: TicketRun) -> None:
        admission = run.exchange.admission
        assert admission is not None
        assert run.exchange.retry_s is not None
        in_s = min(max(run.exchange.retry_s, _SHORTEST_HOLD_S), _LONGEST_HOLD_S)
        self._hold(ticket, (admission.class_name, admission.tenant), in_s=in_s)

    def _hold(self, ticket: Ticket, group: Group, *, in_s: float) -> None:
        self._held.hold(group, ticket, due_s=time.monotonic() + in_s)
        self._plan_retry()

    def _plan_retry(self) -> None:
        due_s = self._held.next_due_s()
        if due_s is None or self._proxy.draining:
            self._retry.clear()
        else:
            self._retry.set_at(due_s)

    def _offer_held(self) -> None:
        self._start(self._offer_groups(self._held.take_due(now_s=time.monotonic())))

    async def _offer_groups(self, groups: list[Group]) -> None:
        for group in groups:
            await self._offer_group(group)
        self._plan_retry()

    async def _offer_group(self, group: Group) -> None:
        """Offer one after the other until the scheduler has no room again."""
        while not self._proxy.draining:
            ticket = self._held.take(group)
            if ticket is None or not await self._offer_again(ticket, group):
                return

    # Owners.

    def answer(self, exchange: Exchange) -> None:
        """A request about a ticket."""
        exchange.hand_over()
        tenant = self._proxy.policy.identifier.find(exchange.head.fields)
        identity = ticket_id(exchange.head.path)
        ticket = None if tenant is None else self._index.find(identity, tenant=tenant)
        if ticket is None or ticket.id in self._storing:
            exchange.refuse(Outcome.NOT_FOUND, "There is no such ticket.")
        elif exchange.head.method == "DELETE":
            self._start(self._answer_delete(exchange, ticket), exchange)
        else:
            self._start(self._answer_get(exchange, ticket), exchange)

    async def _answer_get(self, exchange: Exchange, ticket: Ticket) -> None:
        if ticket.is_open and ticket.run is None and self._clock() >= ticket.expires_s:
            self._held.discard(ticket)
            self._expire(ticket)
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
        if not await self._cancel(ticket):
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
            answer = await self._store.answer(ticket.id)
        except TicketStoreError as error:
            _log_store_fault(error)
            self._refuse_unstored(exchange)
            return None
        if answer is None:
            exchange.refuse(Outcome.NOT_FOUND, "There is no such ticket.")
        return answer

    def _lines(self, exchange: Exchange, ticket: Ticket) -> bytes:
        """Header lines that go with an open ticket."""
        hint_s = retry_hint_s(self._clock() - ticket.created_s)
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

    # Ends.

    async def _cancel(self, ticket: Ticket) -> bool:
        """Take it from wherever it is, and off the disk. False: the disk has it still."""
        run, ticket.run = ticket.run, None
        if run is not None:
            run.cancel()
        self._held.discard(ticket)
        return await self._remove(ticket)

    async def _remove(self, ticket: Ticket) -> bool:
        self._index.remove(ticket)
        _wake(ticket)
        return await self._delete([ticket.id])

    async def _delete(self, identities: list[str]) -> bool:
        try:
            await self._store.delete(identities)
        except TicketStoreError as error:
            _log_store_fault(error)
            return False
        return True

    def _plan_forgetting(self) -> None:
        end_s = self._index.next_end_s()
        if end_s is None:
            self._forgetting.clear()
        else:
            self._forgetting.set_in(max(0.0, end_s - self._clock()))

    def _forget_old(self) -> None:
        old = self._index.kept_long_enough(now_s=self._clock(), most=_REMOVED_AT_ONCE)
        for ticket in old:
            self._index.remove(ticket)
        if old:
            self._start(self._delete([ticket.id for ticket in old]), name=_SAVING)
        self._plan_forgetting()

    def _start(
        self,
        work: Coroutine[None, None, object],
        exchange: Exchange | None = None,
        *,
        name: str | None = None,
    ) -> None:
        """Do `work` on its own. `exchange`: what it has to answer, whatever happens."""
        task = self._proxy.loop.create_task(_guarded(work, exchange), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _guarded(work: Coroutine[None, None, object], exchange: Exchange | None) -> None:
    try:
        await work
    except Exception as error:
        log_event(_logger, logging.ERROR, "ticket task failed", error=error)
        if exchange is not None:
            exchange.refuse(Outcome.ENGINE_FAILED, "The proxy failed to answer this.")


def _wake(ticket: Ticket) -> None:
    for waiter in list(ticket.waiters):
        _set(waiter)


def _set(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _answer(exchange: Exchange, answer: TicketAnswer, applied: bytes) -> None:
    first = b"HTTP/1.1 %d %b\r\n" % (answer.status, answer.reason)
    exchange.answer_whole(answer.status, first + answer.lines + applied, answer.body)


def _refusal(outcome: Outcome, message: str) -> TicketAnswer:
    return split_answer(make_error(outcome, message).encode())


def _log_store_fault(error: TicketStoreError) -> None:
    log_event(_logger, logging.ERROR, "ticket store failed", reason=str(error))


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
