"""What must be true after each call, whatever the algorithm?

`Model` follows the decisions of a scheduler and keeps books of its own. It chooses nothing: it only
holds each decision against what the contract allows.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import assert_never

from giveway_scheduler import (
    Abort,
    Decision,
    Dispatch,
    DispatchReason,
    Evict,
    Expire,
    Kind,
    OverLimit,
    Preemption,
    Reject,
    RejectReason,
    Request,
    Statistics,
    Usage,
)

from tests.scheduler.machine_books_support import Books, Live
from tests.scheduler.machine_budget_support import TOLERANCE_S
from tests.scheduler.machine_calls_support import (
    Advance,
    Call,
    Cancel,
    Configure,
    EngineIs,
    Finish,
    FirstToken,
    Offer,
    Preempted,
    Requeue,
)

MOST_ABORTS = 2


@dataclass(slots=True)
class Model(Books):
    """The books, and what may be done to them."""

    def observe(
        self, call: Call, decisions: Sequence[Decision], *, now_s: float, statistics: Statistics
    ) -> bool:
        """The call was made at `now_s`, and this came of it. False: it was of no concern."""
        self.now_s = now_s
        if self._is_ignored(call):
            assert decisions == (), f"{call} of an unknown key decided {decisions}"
            return False
        self.moves = 0
        self.is_reconfigured = isinstance(call, Configure)
        before = self.statistics
        self.statistics = statistics
        self._note_boosts(before)
        for each in self.running():
            if each.release_s <= now_s:
                each.unprefilled = 0
        overdue = list(takewhile(self._is_overdue, decisions))
        for decision in overdue:
            self._expire(decision)
        rest = decisions[len(overdue) :]
        self._change(call, rest, before)
        for index, decision in enumerate(rest):
            self._follow(decision, call, rest[:index])
        if isinstance(call, Offer):
            self._check_bounds(call.request, before, decisions)
        for key, each in self.live.items():
            is_new = isinstance(call, Offer) and call.request.key == key
            if not each.is_running and not is_new:
                assert self.deadline_s(each) > now_s, f"{key} outlived its time to live"
        return True

    def _is_ignored(self, call: Call) -> bool:
        match call:
            case FirstToken(key) | Requeue(key):
                return key not in self.live or not self.live[key].is_running
            case Finish(key, _) | Cancel(key, _):
                return key not in self.live
            case Offer() | EngineIs() | Preempted() | Configure() | Advance():
                return False
            case _:
                assert_never(call)

    def _change(self, call: Call, rest: Sequence[Decision], before: Statistics) -> None:
        match call:
            case Offer(request):
                self._arrive(request, rest, before)
            case FirstToken(key):
                self.live[key].unprefilled = 0
            case Finish(key, usage) | Cancel(key, usage):
                if key in self.live:  # else it has expired in this very call
                    self._end(key, usage, type(call).__name__.lower())
            case Requeue(key):
                self._take_back(self.live[key])
            case EngineIs(available):
                self.engine_up = available
            case Preempted(count):
                lowers = self.settings.concurrency.lower_seats_on_preemption
                self.was_lowered = self.was_lowered or (lowers and count > 0)
            case Configure(settings):
                self._configure(settings)
            case Advance():
                pass
            case _:
                assert_never(call)

    def _follow(self, decision: Decision, call: Call, before: Sequence[Decision]) -> None:
        match decision:
            case Dispatch():
                self._dispatch(decision, call, before)
            case Abort():
                self._abort(decision)
            case Evict():
                self._evict(decision, call)
            case Expire():
                assert isinstance(call, Configure | Requeue), f"{decision} after {call}"
                self._expire(decision)
            case Reject():
                self._reject(decision, call)
            case _:
                assert_never(decision)

    # Arriving

    def _arrive(self, request: Request, rest: Sequence[Decision], before: Statistics) -> None:
        assert request.key not in self.outcomes
        lowest = len(self.settings.classes) - 1
        rank = min(max(request.rank, 0), lowest)
        home = self.settings.classes[rank].name
        self.offered += 1
        output = request.maximum_output_tokens
        if output is None:
            output = before.classes[rank].output_estimate_tokens * request.answers
        output = min(output, self.settings.largest_output_estimate_tokens)
        live = Live(
            request=request,
            order=self.offered,
            offered_s=self.now_s,
            home=home,
            lift=self.settings.classes[max(rank, min(request.ceiling_rank, lowest))].name,
            cost=request.prompt_tokens + output,
            served_in=home,
            served_for=request.tenant,
        )
        self.live[request.key] = live
        self._stand(live, self._sources().get(request.key))
        if self.class_of(live.served_in).over_limit is OverLimit.REJECT:
            refusal = next((each for each in rest if isinstance(each, Reject)), None)
            is_refused = refusal is not None and refusal.reason.is_rate
            wait_s = self.wait_s(live)
            if abs(wait_s) > TOLERANCE_S:
                assert is_refused == (wait_s > 0.0), f"short by {wait_s} s, but {rest}"
            if is_refused:
                return
            self._pay(live, checked=True)
        self._relocate()

    def _check_bounds(
        self, request: Request, before: Statistics, decisions: Iterable[Decision]
    ) -> None:
        """A newcomer that stays leaves no queue fuller than it may be."""
        live = self.live.get(request.key)
        if live is None or live.is_running:
            return
        waiting = self.waiting()
        assert len(waiting) <= self.settings.queue_capacity
        assert sum(each.request.size_bytes for each in waiting) <= self.settings.queue_bytes
        mine = self.class_of(live.served_in)
        in_class = sum(each.served_in == mine.name for each in waiting)
        was_in_class = before.classes[self.rank_of(mine.name)].queued
        assert in_class <= max(mine.queue_capacity, was_in_class) + self.moves

    # Going and coming back

    def _dispatch(self, decision: Dispatch, call: Call, before: Sequence[Decision]) -> None:
        live = self.live[decision.request.key]
        assert decision.request == live.request
        assert not live.is_running, "dispatched twice"
        assert self.engine_up, "dispatched to an engine that is down"
        assert decision.waited_s == self.now_s - live.offered_s
        rank = self.rank_of(live.served_in)
        assert decision.rank == rank
        assert decision.priority == (rank if self.gate_is_open else 0)
        self._check_reason(decision, live, call, before)
        self._check_gate(decision, live)
        self._check_order(live)
        if live.paid is None:
            wait_s = self.wait_s(live)
            assert wait_s <= TOLERANCE_S, f"{decision} went {wait_s} s before it could pay"
            self._pay(live, checked=True)
        self._check_in_flight(live)
        ahead = self.gate_tokens
        live.is_running = True
        live.unprefilled = live.request.prompt_tokens
        if not live.request.shows_first_token:
            s_per_token = self.settings.concurrency.prompt_seconds_per_token
            live.release_s = self.now_s + (ahead + live.unprefilled) * s_per_token
        self._check_seats(live)

    def _check_reason(
        self, decision: Dispatch, live: Live, call: Call, before: Sequence[Decision]
    ) -> None:
        if decision.reason is DispatchReason.BOOSTED:
            rules = self.settings.anti_starvation
            assert rules is not None
            until_s = self.boosted_until_s.get(live.served_in, -math.inf)
            assert self.now_s < until_s, "boosted after its boost"
            self.promoted_s.append(self.now_s)
            for index, at_s in enumerate(self.promoted_s):
                most = 1.0 + rules.promotions_per_s * (self.now_s - at_s + TOLERANCE_S)
                assert len(self.promoted_s) - index <= most, "more promotions than allowed"
            return
        is_new = isinstance(call, Offer) and call.request.key == live.request.key
        if live.is_lifted:
            assert decision.reason is DispatchReason.LIFTED
        elif not is_new:
            assert decision.reason is DispatchReason.QUEUED
        elif not any(isinstance(each, Abort) for each in before):
            assert decision.reason is DispatchReason.IMMEDIATE

    def _check_gate(self, decision: Dispatch, live: Live) -> None:
        """A class below the first passes a closed gate only with a claim, one prompt at a time."""
        if self.gate_is_open or decision.rank == 0:
            return
        is_owed = (
            self.settings.algorithm.value == "SLOAware"
            and self.class_of(live.served_in).kind is Kind.BATCH
        )
        assert is_owed or decision.reason is DispatchReason.BOOSTED
        others = [each for each in self.running() if each.served_in == live.served_in]
        assert not any(each.unprefilled for each in others)

    def _check_order(self, live: Live) -> None:
        """Nothing is overtaken inside its own flow where the order is arrival.

        What is larger than the class's bucket stands in a flow of its own (B13).
        """
        if self.is_shortest_first(live.served_in):
            return
        is_large = self.is_large(live)
        for other in self.waiting():
            if (
                other.order < live.order
                and other.served_in == live.served_in
                and self.is_large(other) is is_large
            ):
                assert other.served_for != live.served_for, "overtaken inside its flow"

    def is_large(self, live: Live) -> bool:
        """Has it still to pay, out of a bucket of its class that can never hold as much?"""
        tokens = self.classes[live.served_in].tokens
        return live.paid is None and tokens is not None and live.cost > tokens.burst

    def _check_in_flight(self, live: Live) -> None:
        limit = self.in_flight_limit(live.served_for)
        others = sum(each.served_for == live.served_for for each in self.running())
        assert limit is None or others < limit, "over the tenant's requests in flight"

    def _check_seats(self, live: Live) -> None:
        """With the one that goes, no limit of seats that counts it is exceeded."""
        running = self.running()
        seats = self.statistics.seats
        assert len(running) <= seats
        if self.rank_of(live.served_in) == 0:
            return
        lower = [each for each in running if self.rank_of(each.served_in) > 0]
        assert len(lower) <= self.lower_seats
        if self.class_of(live.served_in).kind is Kind.BATCH:
            batch = [each for each in lower if self.class_of(each.served_in).kind is Kind.BATCH]
            assert len(batch) <= self.statistics.batch_seats

    def _take_back(self, live: Live) -> None:
        live.is_running = False
        live.unprefilled = 0
        live.release_s = math.inf
        self._relocate()

    def _abort(self, decision: Abort) -> None:
        live = self.live[decision.request.key]
        assert self.settings.preemption is Preemption.ABORT_BEFORE_FIRST_TOKEN
        assert live.is_running
        assert live.unprefilled, "aborted after its first token"
        assert live.request.repeatable
        assert live.request.shows_first_token
        assert decision.for_rank < self.rank_of(live.served_in)
        assert 0 <= decision.prompt_tokens_lost <= live.request.prompt_tokens
        live.aborts += 1
        assert live.aborts <= MOST_ABORTS
        self._take_back(live)

    # Leaving

    def _end(self, key: int, usage: Usage | None, outcome: str) -> None:
        live = self.live[key]
        if not live.is_running:
            self._withdraw(live)
        else:
            charged = self._charged(usage)
            left = live.cost - charged
            assert live.paid is not None, "it ran without having paid"
            for budget in live.paid:
                budget.put_back(left, self.now_s, permits=0.0)
            self.ledger.charged += charged
            self.ledger.refunded += max(left, 0.0)
            self.ledger.overrun += max(-left, 0.0)
        self._leave(key, outcome)

    def _is_overdue(self, decision: Decision) -> bool:
        if not isinstance(decision, Expire):
            return False
        live = self.live[decision.request.key]
        return not live.is_running and self.deadline_s(live) <= self.now_s

    def _expire(self, decision: Decision) -> None:
        assert isinstance(decision, Expire)
        live = self.live[decision.request.key]
        assert not live.is_running
        assert self.deadline_s(live) <= self.now_s, "expired too soon"
        assert decision.waited_s == self.now_s - live.offered_s
        self._withdraw(live)
        self._leave(decision.request.key, "expire")

    def _evict(self, decision: Evict, call: Call) -> None:
        assert isinstance(call, Offer)
        live, newcomer = self.live[decision.request.key], self.live[call.request.key]
        assert live is not newcomer
        assert not live.is_running
        assert decision.retry_after_s >= 1.0
        rank, own_rank = self.rank_of(live.served_in), self.rank_of(newcomer.served_in)
        assert rank >= own_rank
        peers = [each for each in self.waiting() if each.served_in == live.served_in]
        if rank == own_rank:
            peers = [each for each in peers if each.served_for == live.served_for]
            mine = [
                each
                for each in self.waiting()
                if each.served_in == live.served_in and each.served_for == newcomer.served_for
            ]
            assert len(peers) > len(mine), "displaced by a tenant with as many entries"
        elif not self.moves:
            below = [each for each in self.waiting() if self.rank_of(each.served_in) > rank]
            assert not below, "not of the lowest class"
        if not self.moves:
            assert live.order == max(each.order for each in peers), "not the newest"
        self._withdraw(live)
        self._leave(decision.request.key, "evict")

    def _reject(self, decision: Reject, call: Call) -> None:
        assert isinstance(call, Offer)
        assert decision.request == call.request
        live = self.live[call.request.key]
        assert decision.retry_after_s > 0.0
        if not decision.reason.is_rate:
            waiting = self.waiting()
            peers = [each for each in waiting if each.served_in == live.served_in]
            if decision.reason is RejectReason.CLASS_QUEUE_FULL:
                assert len(peers) > self.class_of(live.served_in).queue_capacity
            else:
                held = sum(each.request.size_bytes for each in waiting)
                assert (
                    len(waiting) > self.settings.queue_capacity or held > self.settings.queue_bytes
                )
            self._withdraw(live)
        self._leave(call.request.key, f"reject {decision.reason}")

    def _leave(self, key: int, outcome: str) -> None:
        assert key not in self.outcomes, f"{key} ended twice"
        self.outcomes[key] = outcome
        del self.live[key]
        self._relocate()
