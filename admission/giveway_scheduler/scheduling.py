"""Which request goes to the engine, and when?

`Scheduler` owns all state of admission. Time comes in as `now_s` (monotonic seconds, never going
backwards), decisions go out as values. No call blocks, waits, or fails for what a client did.

Contract with the shell
- `offer` a request once. The answer contains a `Reject` of it, a `Dispatch` of it, or neither: then
  it waits. Other requests' decisions may come along (an `Evict`, an `Abort`).
- After a `Dispatch` the shell sends the request and reports `first_token` when the first token of
  the answer was seen (once; later calls are harmless), and then exactly one of: `finish` (the
  answer ended, well or not), `cancel` (the client left), `requeue` (the engine could not be
  reached, or gave up before its answer began: the request goes back to its place in the queue,
  its age and reservations kept). An `Abort` is followed by none of them: it has requeued already.
- Where the engine can't be reached, `set_engine_available` comes before `requeue`: else the request
  is dispatched again at once.
- `cancel` is right for a waiting request too.
- `advance` is called no later than `next_event_s` says, and may be called at any time.
- A key that is unknown (ended already) is ignored everywhere and returns no decisions.

What happens in each call, always in this order: what time brought (expiries, refills, boosts), the
call's own change, then dispatches for as long as a request may go.
"""

import math
import random

from giveway_scheduler.buckets import GRAIN_S
from giveway_scheduler.checking import check_settings
from giveway_scheduler.classes import ServiceClass, follow_classes
from giveway_scheduler.decisions import Decision, Evict, Expire, Reject
from giveway_scheduler.dispatching import Dispatcher
from giveway_scheduler.eligibility import Eligibility
from giveway_scheduler.entries import Entry
from giveway_scheduler.filling import Filler
from giveway_scheduler.gating import PromptGate
from giveway_scheduler.inheriting import Inheritance
from giveway_scheduler.making_room import make_room
from giveway_scheduler.picking import make_picker
from giveway_scheduler.placing import Placer
from giveway_scheduler.reporting import class_statistics, quota, tenant_statistics
from giveway_scheduler.requests import Request, RequestKey, TenantName, Usage
from giveway_scheduler.reserving import Reservations
from giveway_scheduler.retrying import LONGEST_RETRY_S, retry_after_s
from giveway_scheduler.seats import Seats
from giveway_scheduler.settings import Settings
from giveway_scheduler.starving import StarvationMonitor
from giveway_scheduler.statistics import Quota, Statistics
from giveway_scheduler.tenancy import Tenant, Tenants
from giveway_scheduler.waiting import WaitingRoom, deadline_s


class Scheduler:
    """Admission, queueing, picking and gating for one engine.

    Raises `ValueError` from `__init__` and `configure` for settings that cannot work (no class,
    a weight below 0, batch minimum above maximum, no seat left): a programming error, since the
    policy was checked before. Raises `ValueError` when `now_s` goes backwards or a key is offered
    twice.
    """

    def __init__(self, settings: Settings, *, now_s: float, generator: random.Random) -> None:
        check_settings(settings)
        self._settings = settings
        self._now_s = now_s
        self._generator = generator
        self._entries: dict[RequestKey, Entry] = {}
        self._offered = 0
        self._classes = follow_classes(settings, (), now_s=now_s)
        self._room = WaitingRoom()
        self._tenants = Tenants(settings, forget=self._forget_tenant)
        self._reservations = Reservations(settings)
        self._placer = Placer(self._room, self._reservations, self._tenants)
        self._seats = Seats(settings.concurrency, now_s=now_s)
        self._gate = PromptGate(settings.concurrency)
        self._starvation = StarvationMonitor(settings.anti_starvation, now_s=now_s)
        self._inheritance = Inheritance()
        self._eligibility = Eligibility(self._room, self._seats, self._gate)
        self._picker = make_picker(settings, now_s=now_s, generator=generator)
        self._dispatcher = Dispatcher(
            self._room,
            self._reservations,
            seats=self._seats,
            gate=self._gate,
            picker=self._picker,
        )
        self._filler = Filler(
            self._room,
            self._placer,
            seats=self._seats,
            gate=self._gate,
            starvation=self._starvation,
            eligibility=self._eligibility,
            dispatcher=self._dispatcher,
        )
        self._follow_settings()

    def configure(self, settings: Settings, *, now_s: float) -> tuple[Decision, ...]:
        """Change the settings at once; no queued request is lost and no bucket is refilled.

        Buckets keep their level, clipped to a smaller burst, and scaled by nothing. Classes are
        matched by name: queued and running requests of a class that stays move to its new rank;
        those of a class that is gone go to the lowest class. Time to live of queued entries follows
        the new setting.
        """
        check_settings(settings)
        decisions = self._pass_time(now_s)
        former, self._settings = self._settings, settings
        self._classes = follow_classes(settings, self._classes, now_s=now_s)
        self._reservations.configure(settings)
        self._placer.leave_gone_classes(self._entries.values(), self._classes)
        self._tenants.configure(settings, now_s=now_s)
        self._seats.configure(settings.concurrency, self._classes)
        self._gate.configure(settings.concurrency)
        self._starvation.configure(settings.anti_starvation, self._classes, now_s=now_s)
        if settings.algorithm is not former.algorithm:
            self._picker = make_picker(settings, now_s=now_s, generator=self._generator)
            for entry in self._entries.values():
                if self._picker.watches and (entry.is_waiting or entry.unprefilled_tokens):
                    self._picker.arrived(entry, now_s=entry.offered_s)
        self._follow_settings()
        relatives = self._inheritance.refresh(self._entries.values())
        self._placer.move(relatives, now_s=now_s)
        self._room.follow_times_to_live(self._entries.values())
        self._room.follow_sizes(self._entries.values(), self._classes)
        self._expire(decisions)
        return self._filler.fill(decisions, now_s)

    def offer(self, request: Request, *, now_s: float) -> tuple[Decision, ...]:
        """A request arrives."""
        if request.key in self._entries:
            raise ValueError(f"request {request.key} was offered before")
        decisions = self._pass_time(now_s)
        entry = self._admit(request)
        relatives = self._inheritance.join(entry)
        if entry.lifted_by is not None:
            self._placer.put(entry, now_s=now_s)
        if entry.service_class.rejects:
            shortage = self._reservations.shortage(entry, now_s)
            if shortage is not None:
                reason, wait_s = shortage
                self._placer.move(self._inheritance.leave(entry), now_s=now_s)
                self._tenants.rest(entry.tenant)
                hint_s = LONGEST_RETRY_S if math.isinf(wait_s) else wait_s
                decisions.append(Reject(request=request, reason=reason, retry_after_s=hint_s))
                return self._filler.fill(decisions, now_s)
            self._reservations.reserve(entry, now_s)
        self._entries[request.key] = entry
        self._room.enter(entry)
        if relatives:
            self._placer.move(relatives, now_s=now_s)
        if self._picker.watches:
            self._picker.arrived(entry, now_s=now_s)
        answer = self._filler.fill(decisions, now_s, entry)
        if entry.is_waiting and self._keep_in_bounds(entry, decisions):
            # who left may have kept another from going
            return self._filler.fill(decisions, now_s, entry)
        return answer

    def first_token(self, key: RequestKey, *, now_s: float) -> tuple[Decision, ...]:
        """The engine has prefilled the request: its prompt no longer counts for the gate."""
        entry = self._entries.get(key)
        if entry is None or not entry.is_dispatched:
            return ()
        decisions = self._pass_time(now_s)
        self._gate.leave(entry)
        self._filler.answered(entry)
        if self._picker.watches:
            self._picker.answered(entry, now_s=now_s)
        return self._filler.fill(decisions, now_s)

    def finish(self, key: RequestKey, *, now_s: float, usage: Usage | None) -> tuple[Decision, ...]:
        """A dispatched request ended. `usage` None: the engine did no work, all is refunded."""
        return self._end(key, now_s=now_s, usage=usage, is_finished=True)

    def cancel(
        self, key: RequestKey, *, now_s: float, usage: Usage | None = None
    ) -> tuple[Decision, ...]:
        """The client left. A waiting request is refunded; a dispatched one is charged `usage`."""
        return self._end(key, now_s=now_s, usage=usage, is_finished=False)

    def requeue(self, key: RequestKey, *, now_s: float) -> tuple[Decision, ...]:
        """A dispatched request of which the engine has shown nothing goes back to the queue."""
        entry = self._entries.get(key)
        if entry is None or not entry.is_dispatched:
            return ()
        decisions = self._pass_time(now_s)
        self._filler.left(entry, now_s=now_s)
        self._filler.take_back(entry, now_s=now_s)
        self._expire(decisions)
        return self._filler.fill(decisions, now_s)

    def set_engine_available(self, available: bool, *, now_s: float) -> tuple[Decision, ...]:
        """While the engine is not available nothing is dispatched; times to live go on."""
        decisions = self._pass_time(now_s)
        self._filler.engine_available = available
        return self._filler.fill(decisions, now_s)

    def report_preemptions(self, count: int, *, now_s: float) -> tuple[Decision, ...]:
        """The engine preempted `count` requests since the last report (0: it did not)."""
        decisions = self._pass_time(now_s)
        self._seats.report_preemptions(count, now_s=now_s)
        return self._filler.fill(decisions, now_s)

    def advance(self, *, now_s: float) -> tuple[Decision, ...]:
        """Let time pass: expiries, refilled buckets, boosts, growing seats."""
        return self._filler.fill(self._pass_time(now_s), now_s)

    def next_event_s(self) -> float | None:
        """When `advance` has something to do at the latest. None: only after another call."""
        if not self._room.count:
            return None
        soonest_s = min(
            self._filler.wake_s,
            self._gate.due_s,
            self._seats.due_s,
            self._room.next_event_s(),
            self._picker.next_event_s(),
            self._starvation.next_event_s(self._now_s),
        )
        return None if soonest_s == math.inf else soonest_s

    def statistics(self, *, now_s: float) -> Statistics:
        """The state after the last call; ages and bucket levels as of `now_s`."""
        return Statistics(
            algorithm=self._settings.algorithm.value,
            seats=self._seats.limit,
            batch_seats=self._seats.batch_limit,
            running=self._seats.running,
            queued=self._room.count,
            queued_bytes=self._room.bytes,
            unprefilled_tokens=self._gate.tokens,
            gate_open=self._gate.is_open,
            pressure_ratio=self._picker.pressure_ratio,
            engine_available=self._filler.engine_available,
            classes=class_statistics(
                self._classes, self._seats, boosted=self._starvation.boosted, now_s=now_s
            ),
            tenants=tenant_statistics(self._tenants.all(), now_s=now_s),
            ledger=self._reservations.statistics(),
        )

    def quota(self, rank: int, tenant: TenantName, *, now_s: float) -> Quota | None:
        """What a tenant may still use in a class. None: there is no limit."""
        of_class = self._classes[min(rank, len(self._classes) - 1)].budget
        known = self._tenants.find(tenant)
        return quota(of_class, None if known is None else known.budget, now_s=now_s)

    # What time brings

    def _pass_time(self, now_s: float) -> list[Decision]:
        """Do what time alone brings. Every call begins with it."""
        if now_s < self._now_s:
            raise ValueError(f"time goes backwards: {now_s} after {self._now_s}")
        self._now_s = now_s
        decisions: list[Decision] = []
        if self._gate.due_s <= now_s:
            self._gate.release(now_s)
        if self._seats.due_s <= now_s:
            self._seats.grow(now_s)
        if self._picker.due_s <= now_s and self._picker.advance(now_s=now_s):
            self._follow_pressure()
        if self._room.count:
            if self._room.due_s <= now_s + GRAIN_S:
                self._expire(decisions)
                self._room.ring(now_s)
            if self._starvation.due_s <= now_s:
                self._starvation.advance(
                    self._classes,
                    can_go=self._has_head,
                    keeps_share=self._picker.keeps_share,
                    now_s=now_s,
                )
        return decisions

    def _expire(self, decisions: list[Decision]) -> None:
        now_s = self._now_s
        while (entry := self._room.next_expired(now_s)) is not None:
            self._remove(entry)
            decisions.append(Expire(request=entry.request, waited_s=now_s - entry.offered_s))

    def _has_head(self, service_class: ServiceClass) -> bool:
        return self._eligibility.head(service_class, self._now_s) is not None

    # Arriving

    def _admit(self, request: Request) -> Entry:
        """The entry of a newcomer, in no queue yet."""
        rank, classes, now_s = request.rank, self._classes, self._now_s
        if not 0 <= rank < len(classes):  # the shell's policy may be a moment older than ours
            rank = min(max(rank, 0), len(classes) - 1)
        service_class = classes[rank]
        self._offered += 1
        tenant = self._tenants.get(request.tenant, now_s)
        entry = Entry(request, self._offered, service_class, tenant, now_s)
        if request.ceiling_rank > rank:
            entry.lift_class = classes[min(request.ceiling_rank, len(classes) - 1)]
        entry.cost_tokens = self._reservations.cost_tokens(request, service_class.estimate.tokens)
        entry.deadline_s = deadline_s(entry)
        return entry

    def _keep_in_bounds(self, newcomer: Entry, decisions: list[Decision]) -> bool:
        """Let a newcomer that has to wait stay, if there is room or room can be made.

        True if anybody had to leave.
        """
        now_s, settings, service_class = self._now_s, self._settings, newcomer.service_class
        excess_entries = self._room.count - settings.queue_capacity
        excess_bytes = self._room.bytes - settings.queue_bytes
        if (
            excess_entries <= 0
            and excess_bytes <= 0
            and service_class.queue.entries.count <= service_class.settings.queue_capacity
        ):
            self._room.watch(newcomer)
            return False
        room = make_room(
            newcomer,
            self._classes,
            excess_entries=excess_entries,
            excess_bytes=excess_bytes,
        )
        if room.refused is not None:
            self._remove(newcomer)
            hint_s = retry_after_s(newcomer.service_class, now_s=now_s)
            decisions.append(
                Reject(request=newcomer.request, reason=room.refused, retry_after_s=hint_s)
            )
            return True
        for entry in room.leaving:
            self._remove(entry)
            hint_s = retry_after_s(entry.service_class, now_s=now_s)
            waited_s = now_s - entry.offered_s
            decisions.append(Evict(request=entry.request, waited_s=waited_s, retry_after_s=hint_s))
        self._room.watch(newcomer)
        return True

    # Leaving

    def _end(
        self, key: RequestKey, *, now_s: float, usage: Usage | None, is_finished: bool
    ) -> tuple[Decision, ...]:
        entry = self._entries.get(key)
        if entry is None:
            return ()
        decisions = self._pass_time(now_s)
        if entry.is_dispatched:
            self._filler.left(entry, now_s=now_s)
            self._dispatcher.end(entry, usage, is_finished=is_finished, now_s=now_s)
            self._forget(entry, is_finished=is_finished)
        elif entry.is_waiting:
            self._remove(entry)
        return self._filler.fill(decisions, now_s)

    def _remove(self, entry: Entry) -> None:
        """A waiting entry ends: as far as limits go, it never came."""
        self._room.leave(entry)
        self._reservations.withdraw(entry, now_s=self._now_s)
        self._forget(entry, is_finished=False)

    def _forget(self, entry: Entry, *, is_finished: bool) -> None:
        del self._entries[entry.key]
        if self._picker.watches:
            self._picker.ended(entry, now_s=self._now_s, is_finished=is_finished)
        relatives = self._inheritance.leave(entry)
        if relatives:
            self._placer.move(relatives, now_s=self._now_s)
        if entry.tenant.held:
            entry.tenant.release_held()
        self._tenants.rest(entry.tenant)

    def _forget_tenant(self, tenant: Tenant) -> None:
        for service_class in self._classes:
            service_class.queue.forget(tenant.name)

    # Following new settings

    def _follow_pressure(self) -> None:
        limit = self._picker.batch_limit()
        if limit is None:
            limit = self._settings.concurrency.batch_maximum
        self._seats.batch_limit = limit

    def _follow_settings(self) -> None:
        self._picker.configure(self._settings, self._classes)
        self._dispatcher.configure(self._settings, self._picker)
        self._eligibility.configure(self._classes)
        self._filler.configure(
            self._settings, self._classes, picker=self._picker, now_s=self._now_s
        )
        self._follow_pressure()
        for service_class in self._classes:
            service_class.queue.reorder(
                self._picker.order_of(service_class),
                target_s=service_class.settings.first_token_target_s,
            )
