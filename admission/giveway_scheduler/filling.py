"""Who goes to the engine now, for as long as anybody may?

Every call of the scheduler ends here. One after the other goes:
1. a request of the boosted class, if one is due (H10);
2. else the one that the algorithm picks among the heads of the classes that may go (H7);
3. else, where the policy lets batch be aborted, one for which a batch request is worth stopping
   (A10).

When `fill` returns, nobody who waits may go, and nothing changes that before another call, `wake_s`
or an alarm of the parts that tell their own (gate, seats, picker, starvation, waiting room).
"""

import math
from collections.abc import Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.decisions import Abort, Decision, DispatchReason
from giveway_scheduler.dispatching import Dispatcher
from giveway_scheduler.eligibility import Eligibility
from giveway_scheduler.entries import Entry
from giveway_scheduler.gating import PromptGate
from giveway_scheduler.picking import Picker
from giveway_scheduler.placing import Placer
from giveway_scheduler.preempting import Preemption
from giveway_scheduler.seats import Seats
from giveway_scheduler.settings import Preemption as PreemptionSetting
from giveway_scheduler.settings import Settings
from giveway_scheduler.starving import StarvationMonitor
from giveway_scheduler.waiting import WaitingRoom


class Filler:
    """Gives free seats to those that wait, and takes a seat from who is worth stopping."""

    __slots__ = (
        "_aborts",
        "_classes",
        "_dispatcher",
        "_eligibility",
        "_gate",
        "_picker",
        "_placer",
        "_preemption",
        "_room",
        "_seats",
        "_starvation",
        "engine_available",
    )

    def __init__(
        self,
        room: WaitingRoom,
        placer: Placer,
        *,
        seats: Seats,
        gate: PromptGate,
        starvation: StarvationMonitor,
        eligibility: Eligibility,
        dispatcher: Dispatcher,
    ) -> None:
        self._room = room
        self._placer = placer
        self._seats = seats
        self._gate = gate
        self._starvation = starvation
        self._eligibility = eligibility
        self._dispatcher = dispatcher
        self._classes: Sequence[ServiceClass] = ()
        self._picker: Picker = dispatcher.picker
        self._aborts = False
        """A10: batch requests may be aborted for a higher class."""
        self._preemption = Preemption(now_s=0.0)
        self.engine_available = True
        """While it is False nobody goes."""

    def configure(
        self,
        settings: Settings,
        classes: Sequence[ServiceClass],
        *,
        picker: Picker,
        now_s: float,
    ) -> None:
        """Follow new settings. Where aborting begins, those dispatched before are no victims."""
        self._classes = classes
        self._picker = picker
        aborts = settings.preemption is PreemptionSetting.ABORT_BEFORE_FIRST_TOKEN
        if not aborts or not self._aborts:
            self._preemption = Preemption(now_s=now_s)
        self._aborts = aborts

    @property
    def wake_s(self) -> float:
        """When somebody whom `fill` left waiting may go by time alone. Infinite: nobody."""
        return min(self._eligibility.wake_s, self._preemption.wake_s)

    def fill(
        self, decisions: list[Decision], now_s: float, newcomer: Entry | None = None
    ) -> tuple[Decision, ...]:
        """Dispatch as long as a request may go; the decisions so far and those.

        `newcomer`: who was offered in this very call, and so did not wait.
        """
        eligibility, preemption = self._eligibility, self._preemption
        while self._room.count:
            eligibility.wake_s = preemption.wake_s = math.inf
            if not self.engine_available or not (
                (self._starvation.boosted is not None and self._promote(decisions, now_s))
                or self._pick(decisions, now_s, newcomer)
                or (self._aborts and self._preempt(decisions, now_s))
            ):
                break
        return tuple(decisions)

    def answered(self, entry: Entry) -> None:
        """A request showed its first token."""
        if self._aborts:
            self._preemption.answered(entry)

    def left(self, entry: Entry, *, now_s: float) -> None:
        """A request left its seat by itself."""
        if self._aborts:
            self._preemption.left(entry, now_s=now_s)

    def take_back(self, entry: Entry, *, now_s: float) -> None:
        """A dispatched entry waits again, at its old place or that which it has by now."""
        self._dispatcher.take_back(entry, now_s=now_s)
        entry.tenant.release_held()
        self._room.enter(entry)
        self._placer.move((entry,), now_s=now_s)
        self._room.watch(entry)

    def _promote(self, decisions: list[Decision], now_s: float) -> bool:
        """Let a request of the boosted class overtake, if one is due."""
        boosted = self._starvation.boosted
        if boosted is None or not self._starvation.may_promote(now_s):
            return False
        entry = self._eligibility.promotable(boosted, now_s)
        if entry is None:
            return False
        self._starvation.promote(now_s)
        self._send(entry, DispatchReason.BOOSTED, decisions, now_s)
        return True

    def _pick(self, decisions: list[Decision], now_s: float, newcomer: Entry | None) -> bool:
        """Let the request go that the algorithm chooses, if one may."""
        if self._seats.running >= self._seats.limit:
            return False
        heads = self._eligibility.heads(self._classes, self._picker, now_s)
        if not heads:
            return False
        entry = self._picker.choose(heads, now_s=now_s)
        reason = DispatchReason.IMMEDIATE if entry is newcomer else DispatchReason.QUEUED
        self._send(entry, reason, decisions, now_s)
        return True

    def _preempt(self, decisions: list[Decision], now_s: float) -> bool:
        """Stop a batch request for one of a higher class, if that is worth it."""
        for service_class in self._classes:
            if service_class.is_batch or not service_class.queue.entries.count:
                continue
            head = self._eligibility.head(service_class, now_s)
            if head is None:
                continue
            victim = self._preemption.victim_for(
                service_class, self._seats, self._gate, now_s=now_s
            )
            if victim is None or self._picker.is_owed(victim.entry.service_class):
                continue
            victim.entry.aborts += 1
            self._preemption.answered(victim.entry)
            self.take_back(victim.entry, now_s=now_s)
            decisions.append(
                Abort(
                    request=victim.entry.request,
                    for_rank=service_class.rank,
                    prompt_tokens_lost=victim.prompt_tokens_lost,
                )
            )
            self._send(head, DispatchReason.QUEUED, decisions, now_s)
            return True
        return False

    def _send(
        self, entry: Entry, reason: DispatchReason, decisions: list[Decision], now_s: float
    ) -> None:
        if entry.lifted_by is not None and reason is not DispatchReason.BOOSTED:
            reason = DispatchReason.LIFTED
        decisions.append(self._dispatcher.send(entry, reason, now_s=now_s))
        if self._aborts:
            self._preemption.dispatched(entry)
