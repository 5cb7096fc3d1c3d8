"""Which entry of each class may go now?

A class may go when it has a seat and the prompt gate lets it. Its next entry may go when its
tenant has a request in flight left, and when it has paid or can. What keeps a request from going
has to end with an event: a call, an alarm of the waiting room, or `wake_s`.
"""

import math
from collections.abc import Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry
from giveway_scheduler.gating import PromptGate
from giveway_scheduler.picking import Picker
from giveway_scheduler.queues import Flow
from giveway_scheduler.seats import Seats
from giveway_scheduler.waiting import WaitingRoom

GATE_PATIENCE_S = 1.0
"""How long a class with a claim (the batch floor, a boost) is held by a gate that never opens. A
gate opens many times a second while the first class is within its means. One batch prompt a second
keeps the floor for prompts of ordinary length where it is not."""
AT_RISK_RATIO = 0.25
"""The first class is at risk when the prompts that the engine has take more than this part of its
first-token target: one long prompt more may then be what it misses by."""
GATE_PATIENCE_AT_RISK_S = 10.0
"""How long a claim is held while the first class is at risk. The floor remembers what it owes (its
half-life is 30 s) and pays when the crowd is gone. Simulated at 2 x, four runs in which the first
class alone asks for nearly all, by the traces' own clock: 0.6 % of it misses instead of 1.3 %, and
batch still has its 5 % of the tokens. Patience of 30 s is no better, 2 s is as bad as 1 s."""


class Eligibility:
    """Finds the heads, and puts aside the flows that their tenants' limits keep."""

    __slots__ = ("_gate", "_risky_backlog_s", "_room", "_seats", "wake_s")

    def __init__(self, room: WaitingRoom, seats: Seats, gate: PromptGate) -> None:
        self._room = room
        self._seats = seats
        self._gate = gate
        self._risky_backlog_s = math.inf
        """With more to prefill than this the first class is at risk. Infinite: it never is."""
        self.wake_s = math.inf
        """When a class that was found kept by its own bucket, or by the gate in spite of a claim,
        may go. The owner makes it infinite when a new look begins."""

    def configure(self, classes: Sequence[ServiceClass]) -> None:
        """Follow new settings of the first class."""
        target_s = classes[0].settings.first_token_target_s
        self._risky_backlog_s = math.inf if target_s is None else AT_RISK_RATIO * target_s

    def heads(self, classes: Sequence[ServiceClass], picker: Picker, now_s: float) -> list[Entry]:
        """The next entry of each class that may go now, the highest class first."""
        heads: list[Entry] = []
        gate_is_open = self._gate.is_open
        for service_class in classes:
            if (
                service_class.queue.entries.count
                and self._seats.may_take(service_class)
                and (
                    gate_is_open
                    or service_class.is_first
                    or (picker.is_owed(service_class) and self._passes_gate(service_class, now_s))
                )
            ):
                head = self.head(service_class, now_s)
                if head is not None:
                    heads.append(head)
        return heads

    def promotable(self, service_class: ServiceClass, now_s: float) -> Entry | None:
        """The next entry of a boosted class. A boost is a claim against the gate."""
        if not service_class.queue.entries.count or not self._seats.may_take(service_class):
            return None
        if self._gate.is_open or service_class.is_first or self._passes_gate(service_class, now_s):
            return self.head(service_class, now_s)
        return None

    def head(self, service_class: ServiceClass, now_s: float) -> Entry | None:
        """The class's next entry whose tenant's and class's limits let it go. None: there is none.

        Flows that their tenant's limits keep are put aside until that changes, so that they are
        not looked at again and again. So are those whose requests are larger than the class's
        bucket, while it is saved for them. For all others the class's bucket is not passed over by
        a cheaper entry: the next one waits for it, at most as long as the bucket takes to fill.
        """
        queue, gate, budget = service_class.queue, self._gate, service_class.budget
        while True:
            entry = queue.head(now_s, gate.backlog_s, gate.prompt_s_per_token)
            if entry is None:
                return None
            flow = entry.flow
            assert flow is not None
            if self._is_held_by_tenant(entry, flow, now_s):
                continue
            if entry.class_budget is not None or not budget.is_limited:
                return entry
            wait_s = budget.wait_s(entry.cost_tokens, now_s=now_s, flow=flow)
            if wait_s <= 0.0:
                return entry
            can_go_s = self._soonest_s(entry, now_s + wait_s)
            if flow.is_large:
                if budget.save(flow, now_s=now_s):
                    self._room.hold_until(can_go_s, queue, flow)
                else:
                    queue.line_up(flow)
                continue
            saver = budget.saver
            if saver is not None and not saver.is_held:
                first = queue.head_of(saver, now_s, gate.backlog_s, gate.prompt_s_per_token)
                assert first is not None
                if self._is_held_by_tenant(first, saver, now_s):
                    continue
                wait_s = budget.wait_s(first.cost_tokens, now_s=now_s, flow=saver)
                if wait_s <= 0.0:
                    return first
                can_go_s = min(can_go_s, self._soonest_s(first, now_s + wait_s))
            self.wake_s = min(self.wake_s, can_go_s)
            return None

    def _is_held_by_tenant(self, entry: Entry, flow: Flow, now_s: float) -> bool:
        """Whether its tenant's limits keep the entry. Then its flow is put aside, and what its
        class has saved for it is there for the others."""
        tenant, service_class = entry.tenant, entry.service_class
        can_go_s = math.inf
        if tenant.in_flight is None or tenant.running < tenant.in_flight:
            if entry.class_budget is not None or not tenant.budget.is_limited:
                return False
            wait_s = tenant.budget.wait_s(entry.cost_tokens, now_s=now_s)
            if wait_s <= 0.0:
                return False
            can_go_s = self._soonest_s(entry, now_s + wait_s)
        self._room.hold_until(can_go_s, service_class.queue, flow)
        tenant.held[flow] = service_class.queue
        service_class.stop_saving(flow)
        return True

    def _soonest_s(self, entry: Entry, can_pay_s: float) -> float:
        """When the entry can pay, or is demoted and another one is next in its place."""
        late_s = entry.service_class.queue.late_s(
            entry,
            backlog_s=self._gate.backlog_s,
            prompt_s_per_token=self._gate.prompt_s_per_token,
        )
        return min(can_pay_s, late_s)

    def _passes_gate(self, service_class: ServiceClass, now_s: float) -> bool:
        """A class with a claim passes a gate that stays closed, one un-prefilled prompt a time.

        The first class is less at risk only after a call or when the gate lets go of a prompt, so
        a claim that could go by then is not slept over.
        """
        if service_class.unprefilled:
            return False
        gate = self._gate
        is_risky = gate.backlog_s > self._risky_backlog_s
        due_s = gate.closed_since_s + (GATE_PATIENCE_AT_RISK_S if is_risky else GATE_PATIENCE_S)
        if now_s >= due_s:
            return True
        self.wake_s = min(self.wake_s, due_s)
        return False
