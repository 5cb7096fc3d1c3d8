"""How do tickets get to the scheduler, through it, and over the end of a process?

`TicketOffering` has all tickets of one proxy and everything that is done with them without their
owners: writing down, offering, counting, holding what the scheduler has no room for, keeping
answers for their time, and after a restart all of it again.

What always holds
- An answer that is on the disk is never made again. One that was not there yet when the process
  died is made again, by no more than a number of processes: an attempt is counted on the disk
  before the engine sees it.
- What was accepted is not failed by a limit or a full queue: it waits.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from giveway_admission.answers import make_error
from giveway_admission.deadlines import Deadline
from giveway_admission.exchanges import Exchange
from giveway_admission.logs import log_event
from giveway_admission.outcomes import Outcome
from giveway_admission.ticket_index import (
    Group,
    HeldTickets,
    Ticket,
    TicketIndex,
    TicketStatistics,
)
from giveway_admission.ticket_keeping import TicketKeeping
from giveway_admission.ticket_runs import TicketRun
from giveway_admission.ticket_store import TicketStore, TicketStoreError
from giveway_admission.tickets import (
    TicketAnswer,
    TicketRequest,
    TicketStatus,
    final_status,
    split_answer,
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


def wall_clock_s() -> float:
    """Unix time: what is kept on disk has to mean something to the next process."""
    return datetime.now(UTC).timestamp()


class TicketOffering:
    """All tickets of one proxy. `open` first, `resume` once requests can be offered."""

    def __init__(
        self, proxy: "Proxy", store: TicketStore, *, clock: Callable[[], float] = wall_clock_s
    ) -> None:
        settings = proxy.settings
        self._proxy = proxy
        self.keeping = TicketKeeping(store)
        self.clock = clock
        self.index = TicketIndex(
            maximum_count=settings.ticket_maximum_count,
            maximum_bytes=settings.ticket_maximum_bytes,
            retention_s=settings.ticket_retention_s,
        )
        self._held = HeldTickets()
        self._retry = Deadline(proxy.loop, self._offer_held)
        self._forgetting = Deadline(proxy.loop, self._forget_old)
        self.tasks: set[asyncio.Task[None]] = set()
        self.storing: dict[str, asyncio.Future[bool]] = {}
        """Tickets on their way to the disk; the result tells whether they got there."""
        self._closed = False

    # Start and end.

    async def open(self) -> None:
        """Raises `TicketStoreError`."""
        for ticket in await self.keeping.open():
            self.index.add(ticket)
        self._plan_forgetting()

    def resume(self) -> None:
        """Offer what an earlier process left open, oldest first."""
        left = [ticket for ticket in self.index if ticket.is_open]
        if left:
            log_event(_logger, logging.INFO, "tickets taken up again", tickets=len(left))
            self.start(self._offer_all(left))

    def drain(self) -> int:
        """The proxy ends: who waits gets its ticket now, what waits stays on the disk.

        How many were taken out of the queue.
        """
        self._retry.clear()
        self._held.clear()
        taken_out = 0
        for ticket in self.index:
            _wake(ticket)
            if ticket.run is not None and ticket.run.exchange.drain():
                taken_out += 1
        return taken_out

    async def close(self) -> None:
        """End, after what was begun is written down."""
        self._closed = True
        self._retry.close()
        self._forgetting.close()
        saving = [task for task in self.tasks if task.get_name() == _SAVING]
        if saving:
            await asyncio.wait(saving, timeout=_LAST_SAVES_S)
        left = list(self.tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.keeping.close()

    def statistics(self) -> TicketStatistics:
        return self.index.statistics(held=len(self._held))

    # To the disk and to the scheduler.

    async def write_down(self, ticket: Ticket, request: TicketRequest) -> bool:
        """False: it could not be kept, and is forgotten."""
        self.index.add(ticket)
        written: asyncio.Future[bool] = self._proxy.loop.create_future()
        self.storing[ticket.id] = written
        try:
            kept = await self.keeping.add(ticket, request)
            if not kept:
                self.index.remove(ticket)
                self.start(self.keeping.delete([ticket.id]), name=_SAVING)  # if it was only late
            written.set_result(kept)
        finally:
            if not written.done():
                written.cancel()
            del self.storing[ticket.id]
        return written.result()

    def offer(self, ticket: Ticket, request: TicketRequest, *, client_ip: bytes) -> TicketRun:
        run = TicketRun(
            self._proxy,
            request,
            tenant=ticket.tenant,
            credentials=ticket.credentials,
            client_ip=client_ip,
            patience_s=ticket.expires_s - self.clock(),
            maximum_answer_bytes=self._proxy.settings.ticket_maximum_answer_bytes,
            before_sending=partial(self._before_sending, ticket),
            ended=partial(self._ended, ticket),
        )
        ticket.run = run
        run.offer()
        return run

    async def _offer_all(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if self._proxy.draining:
                return
            await self._offer_again(ticket)

    async def _offer_again(self, ticket: Ticket, group: Group = _NO_GROUP) -> bool:
        """Offer what is on the disk. False: there is no use in offering more of its `group`."""
        if not self.index.holds(ticket) or not ticket.is_open or ticket.run is not None:
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
        if self.clock() >= ticket.expires_s:
            self._expire(ticket)
            return True
        try:
            request = await self.keeping.request(ticket.id)
        except TicketStoreError:
            self._hold(ticket, group, in_s=_STORE_RETRY_S)
            return False
        if request is None or not self.index.holds(ticket) or self._proxy.draining:
            return True
        run = self.offer(ticket, request, client_ip=b"unknown")
        return not run.was_refused

    def _before_sending(self, ticket: Ticket, send: Callable[[], None]) -> None:
        """Count the attempt, on the disk, before the engine sees anything of it."""
        if ticket.counts_run:
            send()
        else:
            self.start(self._count_attempt(ticket, send))

    async def _count_attempt(self, ticket: Ticket, send: Callable[[], None]) -> None:
        await self.keeping.count_attempt(ticket)  # if it can't: it is worth more to be answered
        if not ticket.counts_run:
            ticket.counts_run = True
            ticket.attempts += 1
        send()

    # Ends of runs.

    def _ended(self, ticket: Ticket, run: TicketRun) -> None:
        """A run is over, and the scheduler knows."""
        if self._closed or ticket.run is not run or not self.index.holds(ticket):
            return
        outcome, answer = run.exchange.outcome, run.answer
        assert outcome is not None
        if run.was_interrupted:
            ticket.run = None
            return
        if run.was_refused and self.clock() < ticket.expires_s:
            ticket.run = None
            self._hold_refused(ticket, run)
            return
        if answer is None:
            outcome = Outcome.ENGINE_FAILED
            answer = _refusal(outcome, "The answer could not be completed.")
        status = final_status(outcome, engine_up=self._proxy.engine_up)
        self._end(ticket, status, answer)

    def _end(self, ticket: Ticket, status: TicketStatus, answer: TicketAnswer) -> None:
        self.index.finish(ticket, status, answer=answer, now_s=self.clock())
        self._plan_forgetting()
        _wake(ticket)
        self.start(self._save(ticket), name=_SAVING)

    def expire_if_late(self, ticket: Ticket) -> None:
        """A ticket that waits outside of the queue, where nobody else looks at its time."""
        if ticket.is_open and ticket.run is None and self.clock() >= ticket.expires_s:
            self._held.discard(ticket)
            self._expire(ticket)

    def _expire(self, ticket: Ticket) -> None:
        message = "The ticket's time was over before its turn came."
        self._end(ticket, TicketStatus.EXPIRED, _refusal(Outcome.QUEUE_TIMEOUT, message))

    async def _save(self, ticket: Ticket) -> None:
        """Write the answer down, then let go of it."""
        answer = ticket.answer
        assert answer is not None
        for again_s in (*_SAVE_AGAIN_S, None):
            if not self.index.holds(ticket) or await self._saves(ticket, answer):
                return
            if again_s is None or self._proxy.draining:
                break
            await asyncio.sleep(again_s)
        # On the disk it is open: another process will make the answer again.
        log_event(_logger, logging.ERROR, "an answer could not be kept")
        self.index.remove(ticket)

    async def _saves(self, ticket: Ticket, answer: TicketAnswer) -> bool:
        kept = await self.keeping.finish(ticket, answer)
        if kept:
            ticket.answer = None
        return kept

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
        self.start(self._offer_groups(self._held.take_due(now_s=time.monotonic())))

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

    # Ends of tickets.

    async def cancel(self, ticket: Ticket) -> bool:
        """Take it from wherever it is, and off the disk. False: the disk has it still."""
        run, ticket.run = ticket.run, None
        if run is not None:
            run.cancel()
        self._held.discard(ticket)
        return await self.remove(ticket)

    async def remove(self, ticket: Ticket) -> bool:
        self.index.remove(ticket)
        _wake(ticket)
        return await self.keeping.delete([ticket.id])

    def _plan_forgetting(self) -> None:
        end_s = self.index.next_end_s()
        if end_s is None:
            self._forgetting.clear()
        else:
            self._forgetting.set_in(max(0.0, end_s - self.clock()))

    def _forget_old(self) -> None:
        old = self.index.kept_long_enough(now_s=self.clock(), most=_REMOVED_AT_ONCE)
        for ticket in old:
            self.index.remove(ticket)
        if old:
            self.start(self.keeping.delete([ticket.id for ticket in old]), name=_SAVING)
        self._plan_forgetting()

    def start(
        self,
        work: Coroutine[None, None, object],
        exchange: Exchange | None = None,
        *,
        name: str | None = None,
    ) -> None:
        """Do `work` on its own. `exchange`: what it has to answer, whatever happens."""
        task = self._proxy.loop.create_task(_guarded(work, exchange), name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


async def _guarded(work: Coroutine[None, None, object], exchange: Exchange | None) -> None:
    try:
        await work
    except Exception as error:
        log_event(_logger, logging.ERROR, "ticket task failed", error=error)
        if exchange is not None:
            exchange.refuse(Outcome.ENGINE_FAILED, "The proxy failed to answer this.")


def _wake(ticket: Ticket) -> None:
    for waiter in list(ticket.waiters):
        wake(waiter)


def _refusal(outcome: Outcome, message: str) -> TicketAnswer:
    return split_answer(make_error(outcome, message).encode())


def wake(waiter: "asyncio.Future[None]") -> None:
    """Let go on who waits for a ticket."""
    if not waiter.done():
        waiter.set_result(None)
