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
  Where the engine can't be reached, `set_engine_available` comes before `requeue`, or the request
  is dispatched again at once.
- `cancel` is right for a waiting request too.
- `advance` is called no later than `next_event_s` says, and may be called at any time.
- A key that is unknown (ended already) is ignored everywhere and returns no decisions.

What happens in each call, always in this order: what time brought (expiries, refills, boosts), the
call's own change, then dispatches for as long as a seat is free and a request may go.
"""

import math
import random

from giveway_scheduler.checking import check_settings
from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.decisions import (
    Decision,
    Dispatch,
    DispatchReason,
    Evict,
    Expire,
    Reject,
)
from giveway_scheduler.entries import Entry
from giveway_scheduler.gating import PromptGate
from giveway_scheduler.making_room import Room, room_in_all, room_in_class
from giveway_scheduler.picking import make_picker
from giveway_scheduler.reporting import class_statistics, tenant_statistics
from giveway_scheduler.requests import ClassName, Request, RequestKey, Usage
from giveway_scheduler.reserving import Reservations
from giveway_scheduler.seats import Seats
from giveway_scheduler.settings import OverLimit, Settings
from giveway_scheduler.starving import StarvationMonitor
from giveway_scheduler.statistics import Statistics
from giveway_scheduler.tenancy import Tenant, Tenants
from giveway_scheduler.waiting import WaitingRoom

SHORTEST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
"""Hints for a retry after a full queue. OpenAI's clients ignore hints above a minute."""
GATE_PATIENCE_S = 1.0
"""How long a class with a claim (the batch floor) is held by a gate that never opens. One batch
prompt a second costs the first class little, and keeps the floor for prompts of ordinary length."""


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
        self._engine_available = True
        self._wake_s = math.inf
        self._room = WaitingRoom()
        self._tenants = Tenants(settings, forget=self._forget)
        self._reservations = Reservations(settings)
        self._seats = Seats(settings.concurrency, now_s=now_s)
        self._gate = PromptGate(settings.concurrency)
        self._starvation = StarvationMonitor(settings.anti_starvation, now_s=now_s)
        self._classes = self._follow_classes(settings, {}, now_s=now_s)
        self._picker = make_picker(settings, now_s=now_s, generator=generator)
        self._follow_algorithm()

    def configure(self, settings: Settings, *, now_s: float) -> tuple[Decision, ...]:
        """Change the settings at once; no queued request is lost and no bucket is refilled.

        Buckets keep their level, clipped to a smaller burst, and scaled by nothing. Classes are
        matched by name: queued and running requests of a class that stays move to its new rank;
        those of a class that is gone go to the lowest class. Time to live of queued entries follows
        the new setting.
        """
        check_settings(settings)
        decisions = self._pass_time(now_s)
        former_settings, self._settings = self._settings, settings
        former = {each.settings.name: each for each in self._classes}
        self._classes = self._follow_classes(settings, former, now_s=now_s)
        self._reservations.configure(settings)
        self._move_from_gone_classes()
        self._tenants.configure(settings, now_s=now_s)
        self._seats.configure(settings.concurrency, self._classes)
        self._gate.configure(settings.concurrency)
        self._starvation.configure(settings.anti_starvation, self._classes, now_s=now_s)
        if settings.algorithm is not former_settings.algorithm:
            self._picker = make_picker(settings, now_s=now_s, generator=self._generator)
        self._follow_algorithm()
        self._follow_times_to_live()
        return self._fill(decisions)

    def offer(self, request: Request, *, now_s: float) -> tuple[Decision, ...]:
        """A request arrives."""
        if request.key in self._entries:
            raise ValueError(f"request {request.key} was offered before")
        decisions = self._pass_time(now_s)
        entry = self._admit(request)
        service_class = entry.service_class
        if service_class.settings.over_limit is OverLimit.REJECT:
            shortage = self._reservations.shortage(entry, now_s=now_s)
            if shortage is not None:
                reason, wait_s = shortage
                retry_after_s = LONGEST_RETRY_S if math.isinf(wait_s) else wait_s
                self._tenants.rest(entry.tenant)
                decisions.append(
                    Reject(request=request, reason=reason, retry_after_s=retry_after_s)
                )
                return tuple(decisions)
            self._reservations.reserve(entry, now_s=now_s)
        self._entries[request.key] = entry
        self._room.enter(entry)
        self._picker.arrived(entry, now_s=now_s)
        result = self._fill(decisions, newcomer=entry)
        if entry.is_waiting:
            result = self._keep_in_bounds(entry, decisions)
        return result

    def first_token(self, key: RequestKey, *, now_s: float) -> tuple[Decision, ...]:
        """The engine has prefilled the request: its prompt no longer counts for the gate."""
        entry = self._entries.get(key)
        if entry is None or not entry.is_dispatched:
            return ()
        decisions = self._pass_time(now_s)
        self._gate.leave(entry)
        self._picker.answered(entry, now_s=now_s)
        return self._fill(decisions)

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
        self._take_back(entry)
        self._expire(decisions)
        return self._fill(decisions)

    def set_engine_available(self, available: bool, *, now_s: float) -> tuple[Decision, ...]:
        """While the engine is not available nothing is dispatched; times to live go on."""
        decisions = self._pass_time(now_s)
        self._engine_available = available
        return self._fill(decisions)

    def report_preemptions(self, count: int, *, now_s: float) -> tuple[Decision, ...]:
        """The engine preempted `count` requests since the last report (0: it did not)."""
        decisions = self._pass_time(now_s)
        self._seats.report_preemptions(count, now_s=now_s)
        return self._fill(decisions)

    def advance(self, *, now_s: float) -> tuple[Decision, ...]:
        """Let time pass: expiries, refilled buckets, boosts, growing seats."""
        return self._fill(self._pass_time(now_s))

    def next_event_s(self) -> float | None:
        """When `advance` has something to do at the latest. None: only after another call."""
        if not self._room.count:
            return None
        events = (
            self._room.next_event_s(),
            self._gate.next_event_s(),
            self._seats.next_event_s(),
            self._picker.next_event_s(),
            self._starvation.next_event_s(self._classes, now_s=self._now_s),
        )
        soonest_s = min((each for each in events if each is not None), default=math.inf)
        soonest_s = min(soonest_s, self._wake_s)
        return None if math.isinf(soonest_s) else soonest_s

    def statistics(self, *, now_s: float) -> Statistics:
        """The state as of `now_s`, as it would be without another call."""
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
            engine_available=self._engine_available,
            classes=class_statistics(
                self._classes, self._seats, boosted=self._starvation.boosted, now_s=now_s
            ),
            tenants=tenant_statistics(self._tenants.all(), now_s=now_s),
            ledger=self._reservations.statistics(),
        )

    # Time

    def _pass_time(self, now_s: float) -> list[Decision]:
        """Do what time alone brings. Every call begins with it."""
        if now_s < self._now_s:
            raise ValueError(f"time goes backwards: {now_s} after {self._now_s}")
        self._now_s = now_s
        decisions: list[Decision] = []
        self._gate.release(now_s)
        self._seats.grow(now_s)
        self._picker.advance(now_s=now_s)
        if self._room.count:
            self._expire(decisions)
            self._room.ring(now_s)
            self._starvation.advance(self._classes, can_go=self._has_head, now_s=now_s)
        return decisions

    def _expire(self, decisions: list[Decision]) -> None:
        now_s = self._now_s
        while (entry := self._room.next_expired(now_s)) is not None:
            self._remove(entry)
            decisions.append(Expire(request=entry.request, waited_s=now_s - entry.offered_s))

    # Arriving

    def _admit(self, request: Request) -> Entry:
        """The entry of a newcomer, in no queue yet."""
        rank = min(max(request.rank, 0), len(self._classes) - 1)
        service_class = self._classes[rank]
        self._offered += 1
        entry = Entry(
            request,
            order=self._offered,
            service_class=service_class,
            tenant=self._tenants.get(request.tenant, now_s=self._now_s),
            now_s=self._now_s,
        )
        entry.cost_tokens = self._reservations.cost_tokens(
            request, per_answer_tokens=service_class.estimate.tokens
        )
        entry.deadline_s = _deadline_s(entry)
        return entry

    def _keep_in_bounds(self, entry: Entry, decisions: list[Decision]) -> tuple[Decision, ...]:
        """Let a newcomer that has to wait stay, if there is room or room can be made."""
        room = room_in_class(entry)
        if self._make(room, entry, decisions):
            room = room_in_all(
                entry,
                self._classes,
                excess_entries=self._room.count - self._settings.queue_capacity,
                excess_bytes=self._room.bytes - self._settings.queue_bytes,
            )
            if self._make(room, entry, decisions):
                self._room.watch(entry)
        return tuple(decisions)

    def _make(self, room: Room, newcomer: Entry, decisions: list[Decision]) -> bool:
        """Carry out what making room found; False: the newcomer was refused."""
        if room.refused is not None:
            self._remove(newcomer)
            decisions.append(
                Reject(
                    request=newcomer.request,
                    reason=room.refused,
                    retry_after_s=self._retry_after_s(newcomer.service_class),
                )
            )
            return False
        for entry in room.leaving:
            self._remove(entry)
            decisions.append(
                Evict(
                    request=entry.request,
                    waited_s=self._now_s - entry.offered_s,
                    retry_after_s=self._retry_after_s(entry.service_class),
                )
            )
        return True

    def _retry_after_s(self, service_class: ServiceClass) -> float:
        """Until all that wait in the class now will have gone, at its recent rate."""
        per_s = service_class.dispatches.per_s(self._now_s)
        queued = len(service_class.queue)
        if queued >= per_s * LONGEST_RETRY_S:
            return LONGEST_RETRY_S
        return max(SHORTEST_RETRY_S, queued / per_s)

    # Going

    def _fill(
        self, decisions: list[Decision], newcomer: Entry | None = None
    ) -> tuple[Decision, ...]:
        """Dispatch as long as a seat is free and a request may go. Every call ends with it."""
        self._wake_s = math.inf
        now_s = self._now_s
        while self._engine_available and self._room.count:
            if self._seats.running >= self._seats.limit:
                break
            self._wake_s = math.inf
            heads = self._heads()
            promoted = self._promoted()
            if promoted is not None:
                self._starvation.promote(now_s)
                self._dispatch(promoted, DispatchReason.BOOSTED, decisions)
            elif heads:
                entry = self._picker.choose(heads, now_s=now_s)
                reason = DispatchReason.QUEUED
                if entry.lifted_by is not None:
                    reason = DispatchReason.LIFTED
                elif entry is newcomer:
                    reason = DispatchReason.IMMEDIATE
                self._dispatch(entry, reason, decisions)
            else:
                break
        return tuple(decisions)

    def _heads(self) -> list[Entry]:
        """The next entry of each class that may go now, the highest class first."""
        heads = []
        gate_is_open = self._gate.is_open
        for service_class in self._classes:
            if (
                service_class.queue.entries
                and self._seats.may_take(service_class)
                and (gate_is_open or service_class.is_first or self._passes_gate(service_class))
            ):
                head = self._head(service_class)
                if head is not None:
                    heads.append(head)
        return heads

    def _promoted(self) -> Entry | None:
        """The next entry of the boosted class, if a promotion is due and can go."""
        boosted = self._starvation.boosted
        if boosted is None or not boosted.queue.entries:
            return None
        if not (self._starvation.may_promote(self._now_s) and self._seats.may_take(boosted)):
            return None
        if not (self._gate.is_open or boosted.is_first or boosted.unprefilled == 0):
            return None
        return self._head(boosted)

    def _passes_gate(self, service_class: ServiceClass) -> bool:
        """A claim that a closed gate must not defeat: one un-prefilled request at a time."""
        if service_class.unprefilled or not self._picker.is_owed(service_class, now_s=self._now_s):
            return False
        due_s = self._gate.closed_since_s + GATE_PATIENCE_S
        if self._now_s >= due_s:
            return True
        self._wake_s = min(self._wake_s, due_s)
        return False

    def _has_head(self, service_class: ServiceClass) -> bool:
        return self._head(service_class) is not None

    def _head(self, service_class: ServiceClass) -> Entry | None:
        """The class's next entry whose tenant and class limits let it go. None: there is none.

        Flows that their tenant's limits keep are put aside until that changes, so that they are
        not looked at again and again. The class's own bucket is not passed over by a cheaper entry:
        the next one waits for it, or a large request would wait for ever.
        """
        now_s = self._now_s
        queue = service_class.queue
        gate = self._gate
        while True:
            entry = queue.head(
                now_s=now_s,
                backlog_s=gate.backlog_s,
                prompt_s_per_token=gate.prompt_s_per_token,
            )
            if entry is None:
                return None
            flow, tenant = entry.flow, entry.tenant
            assert flow is not None
            if tenant.in_flight is not None and tenant.running >= tenant.in_flight:
                queue.hold(flow)
                tenant.held[flow] = queue
                continue
            if entry.class_budget is not None:
                return entry
            wait_s = tenant.budget.wait_s(entry.cost_tokens, now_s=now_s)
            if wait_s > 0.0:
                self._room.hold_until(now_s + wait_s, queue, flow)
                tenant.held[flow] = queue
                continue
            wait_s = service_class.budget.wait_s(entry.cost_tokens, now_s=now_s)
            if wait_s > 0.0:
                self._wake_s = min(self._wake_s, now_s + wait_s)
                return None
            return entry

    def _dispatch(
        self,
        entry: Entry,
        reason: DispatchReason,
        decisions: list[Decision],
    ) -> None:
        now_s = self._now_s
        service_class, tenant, flow = entry.service_class, entry.tenant, entry.flow
        assert flow is not None
        self._room.leave(entry)
        if entry.class_budget is None:
            self._reservations.reserve(entry, now_s=now_s)
        request = entry.request
        output = self._expected_output(entry)
        entry.counted_tokens = request.prompt_tokens + output
        entry.service_tokens = request.prompt_tokens + self._settings.output_token_weight * output
        service_class.queue.charge(flow, entry.service_tokens)
        service_class.dispatches.add(1.0, now_s=now_s)
        self._picker.charge(service_class, requests=1, tokens=entry.counted_tokens, now_s=now_s)
        self._seats.take(service_class)
        tenant.running += 1
        self._gate.enter(entry, now_s=now_s)
        entry.is_dispatched = True
        entry.dispatched_s = now_s
        decisions.append(
            Dispatch(
                request=request,
                reason=reason,
                rank=service_class.rank,
                waited_s=now_s - entry.offered_s,
                priority=0 if reason is DispatchReason.BOOSTED else service_class.rank,
            )
        )

    def _expected_output(self, entry: Entry) -> float:
        """By the tenant's own recent mean, else what is reserved for it."""
        flow, request = entry.flow, entry.request
        assert flow is not None
        reserved = entry.cost_tokens - request.prompt_tokens
        if not flow.answers:
            return reserved
        return min(flow.mean_output_tokens * request.answers, reserved)

    # Ending

    def _end(
        self, key: RequestKey, *, now_s: float, usage: Usage | None, is_finished: bool
    ) -> tuple[Decision, ...]:
        entry = self._entries.get(key)
        if entry is None:
            return ()
        decisions = self._pass_time(now_s)
        if entry.is_dispatched:
            self._leave_engine(entry)
            self._settle(entry, usage, is_finished=is_finished)
            self._forget_entry(entry, is_finished=is_finished)
        elif entry.is_waiting:
            self._remove(entry)
        return self._fill(decisions)

    def _settle(self, entry: Entry, usage: Usage | None, *, is_finished: bool) -> None:
        """Put what the request really used in the place of every estimate of it."""
        now_s = self._now_s
        service_class, flow = entry.service_class, entry.flow
        assert flow is not None
        charged = self._reservations.charged_tokens(usage)
        output = 0 if usage is None else max(usage.output_tokens, 0)
        self._reservations.settle(entry, charged, now_s=now_s)
        service_class.served_tokens += charged
        entry.tenant.served_tokens += charged
        service_tokens = charged + (self._settings.output_token_weight - 1.0) * output
        service_class.queue.charge(flow, service_tokens - entry.service_tokens)
        correction = charged - entry.counted_tokens
        self._picker.charge(service_class, requests=0, tokens=correction, now_s=now_s)
        if is_finished and usage is not None:
            per_answer = output // max(entry.request.answers, 1)
            entry.home_class.estimate.add(per_answer)
            flow.observe_output(per_answer)

    def _leave_engine(self, entry: Entry) -> None:
        """The entry gives back its seat and is no longer counted by the gate."""
        entry.is_dispatched = False
        self._seats.give_back(entry.service_class)
        self._gate.leave(entry)
        entry.tenant.running -= 1

    def _take_back(self, entry: Entry) -> None:
        """A dispatched entry waits again, at its old place."""
        assert entry.flow is not None
        self._leave_engine(entry)
        self._picker.charge(
            entry.service_class, requests=-1, tokens=-entry.counted_tokens, now_s=self._now_s
        )
        entry.service_class.queue.charge(entry.flow, -entry.service_tokens)
        entry.tenant.release_held()
        self._room.enter(entry)
        self._room.watch(entry)

    def _remove(self, entry: Entry) -> None:
        """A waiting entry ends: as far as limits go, it never came."""
        self._room.leave(entry)
        self._reservations.withdraw(entry, now_s=self._now_s)
        self._forget_entry(entry, is_finished=False)

    def _forget_entry(self, entry: Entry, *, is_finished: bool) -> None:
        del self._entries[entry.key]
        self._picker.ended(entry, now_s=self._now_s, is_finished=is_finished)
        entry.tenant.release_held()
        self._tenants.rest(entry.tenant)

    def _forget(self, tenant: Tenant) -> None:
        for service_class in self._classes:
            service_class.queue.forget(tenant.name)

    # Changing the settings

    def _follow_classes(
        self, settings: Settings, former: dict[ClassName, ServiceClass], *, now_s: float
    ) -> tuple[ServiceClass, ...]:
        classes = []
        for rank, each in enumerate(settings.classes):
            service_class = former.get(each.name)
            if service_class is None:
                service_class = ServiceClass(
                    each,
                    rank=rank,
                    first_output_tokens=settings.first_output_estimate_tokens,
                    now_s=now_s,
                )
            else:
                service_class.configure(
                    each,
                    rank=rank,
                    first_output_tokens=settings.first_output_estimate_tokens,
                    now_s=now_s,
                )
            classes.append(service_class)
        return tuple(classes)

    def _follow_algorithm(self) -> None:
        self._picker.configure(self._settings, self._classes)
        for service_class in self._classes:
            service_class.queue.reorder(
                self._picker.order_of(service_class),
                target_s=service_class.settings.first_token_target_s,
            )

    def _move_from_gone_classes(self) -> None:
        """What a class that is gone has waiting or running belongs to the lowest class now."""
        lowest = self._classes[-1]
        for entry in self._entries.values():
            if entry.home_class not in self._classes:
                entry.home_class = lowest
            if entry.service_class in self._classes:
                continue
            if entry.is_waiting:
                self._room.leave(entry)
                entry.service_class = lowest
                self._room.enter(entry)
            else:
                entry.service_class.running -= 1
                lowest.running += 1
                if entry.unprefilled_tokens:
                    lowest.unprefilled += 1
                entry.service_class = lowest
                entry.flow = lowest.queue.flow_of(entry.tenant)

    def _follow_times_to_live(self) -> None:
        for service_class in self._classes:
            for entry in service_class.queue.waiting():
                deadline_s = _deadline_s(entry)
                if deadline_s != entry.deadline_s:
                    entry.deadline_s = deadline_s
                    self._room.watch(entry)


def _deadline_s(entry: Entry) -> float:
    """When the entry expires: by its class's time to live, or its client's if that is shorter."""
    time_to_live_s = entry.home_class.settings.time_to_live_s
    patience_s = entry.request.patience_s
    if patience_s is not None and patience_s < time_to_live_s:
        time_to_live_s = max(patience_s, 0.0)
    return entry.offered_s + time_to_live_s
