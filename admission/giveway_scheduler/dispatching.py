"""What changes when a request goes to the engine, and when it comes back?

One place for each of the three moves, so that seats, gate, service and reservations can't come
apart: `send`, `take_back` (undone: it waits again at its old place) and `end` (what it really
used replaces every estimate of it).
"""

from giveway_scheduler.decisions import Dispatch, DispatchReason
from giveway_scheduler.entries import Entry
from giveway_scheduler.gating import PromptGate
from giveway_scheduler.picking import Picker
from giveway_scheduler.queues import Flow
from giveway_scheduler.requests import Usage
from giveway_scheduler.reserving import Reservations
from giveway_scheduler.seats import Seats
from giveway_scheduler.settings import Settings
from giveway_scheduler.waiting import WaitingRoom

FIRST_PRIORITY = 0
"""vLLM's priority of what goes first: lower goes first there too. A request that is let through a
closed gate has it: behind the prompts that keep the gate closed it would never be prefilled."""


class Dispatcher:
    """Moves entries between the waiting room and the engine."""

    __slots__ = ("_gate", "_output_weight", "_reservations", "_room", "_seats", "picker")

    def __init__(
        self,
        room: WaitingRoom,
        reservations: Reservations,
        *,
        seats: Seats,
        gate: PromptGate,
        picker: Picker,
    ) -> None:
        self._room = room
        self._reservations = reservations
        self._seats = seats
        self._gate = gate
        self.picker = picker
        self._output_weight = 1.0

    def configure(self, settings: Settings, picker: Picker) -> None:
        """Follow new settings, for what moves from now on."""
        self._output_weight = settings.output_token_weight
        self.picker = picker

    def send(self, entry: Entry, reason: DispatchReason, *, now_s: float) -> Dispatch:
        """The entry goes to the engine."""
        request, service_class, flow = entry.request, entry.service_class, entry.flow
        assert flow is not None
        self._room.leave(entry)
        if entry.class_budget is None:
            if flow.is_large:
                service_class.stop_saving(flow)
            self._reservations.reserve(entry, now_s)
        output = _expected_output(entry, flow)
        entry.counted_tokens = request.prompt_tokens + output
        entry.service_tokens = request.prompt_tokens + self._output_weight * output
        service_class.queue.charge(flow, entry.service_tokens)
        service_class.dispatches.add(1.0, now_s)
        service_class.last_dispatch_s = now_s
        self.picker.charge(service_class, requests=1, tokens=entry.counted_tokens, now_s=now_s)
        self._seats.take(service_class, now_s)
        entry.tenant.running += 1
        priority = service_class.rank if self._gate.is_open else FIRST_PRIORITY
        self._gate.enter(entry, now_s)
        entry.is_dispatched = True
        entry.dispatched_s = now_s
        return Dispatch(
            request=request,
            reason=reason,
            rank=service_class.rank,
            waited_s=now_s - entry.offered_s,
            priority=priority,
        )

    def take_back(self, entry: Entry, *, now_s: float) -> None:
        """The engine did nothing for a dispatched entry: it is in no queue and at no seat now.

        What it paid stays paid.
        """
        assert entry.flow is not None
        self._leave_engine(entry)
        service_class = entry.service_class
        self.picker.charge(service_class, requests=-1, tokens=-entry.counted_tokens, now_s=now_s)
        service_class.queue.charge(entry.flow, -entry.service_tokens)

    def end(self, entry: Entry, usage: Usage | None, *, is_finished: bool, now_s: float) -> None:
        """A dispatched entry ended; `usage` None: the engine did no work for it."""
        flow, service_class = entry.flow, entry.service_class
        assert flow is not None
        self._leave_engine(entry)
        charged = self._reservations.charged_tokens(usage)
        output = 0 if usage is None or usage.output_tokens < 0 else usage.output_tokens
        self._reservations.settle(entry, charged, now_s)
        service_class.served_tokens += charged
        entry.tenant.served_tokens += charged
        service_tokens = charged + (self._output_weight - 1.0) * output
        service_class.queue.charge(flow, service_tokens - entry.service_tokens, service_tokens)
        correction = charged - entry.counted_tokens
        self.picker.charge(service_class, requests=0, tokens=correction, now_s=now_s)
        if is_finished and usage is not None:
            answers = entry.request.answers
            per_answer = output // answers if answers > 1 else output
            entry.home_class.estimate.add(per_answer)
            flow.observe_output(per_answer)

    def _leave_engine(self, entry: Entry) -> None:
        entry.is_dispatched = False
        self._seats.give_back(entry.service_class)
        if entry.unprefilled_tokens:
            self._gate.leave(entry)
        entry.tenant.running -= 1


def _expected_output(entry: Entry, flow: Flow) -> float:
    """By the tenant's own recent mean, else what is reserved for it."""
    request = entry.request
    reserved = entry.cost_tokens - request.prompt_tokens
    if not flow.answers:
        return reserved
    expected = flow.mean_output_tokens * request.answers
    return min(expected, reserved)
