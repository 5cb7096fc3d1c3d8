"""What must be true after each call, whatever the algorithm?

`Model` follows the decisions of a scheduler and keeps by itself who waits, who runs, in whose
place each is served, who has paid what, and which prompts the gate counts. It chooses nothing: it
only holds each decision against what the contract allows. Where it computes something that the
scheduler computes too, it does so by looking at everything.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import assert_never

from giveway_scheduler import (
    Abort,
    ClassName,
    ClassSettings,
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
    Settings,
    Statistics,
    TenantName,
    TenantSettings,
    Usage,
)

from tests.scheduler.machine_budget_support import TOLERANCE_S, Budget
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
from tests.scheduler.oracles import Claimant, sources

MOST_ABORTS = 2


@dataclass(slots=True)
class Live:
    """One request that has no final outcome yet."""

    request: Request
    order: int
    offered_s: float
    home: ClassName
    lift: ClassName
    cost: int
    served_in: ClassName
    """The class it is served in now: its own, or that of who waits for it."""
    served_for: TenantName
    is_lifted: bool = False
    is_running: bool = False
    unprefilled: int = 0
    release_s: float = math.inf
    paid: tuple[Budget, Budget] | None = None
    """Class's and tenant's budget that hold its reservation."""
    aborts: int = 0


@dataclass(slots=True)
class Ledger:
    reserved: float = 0.0
    overrun: float = 0.0
    charged: float = 0.0
    refunded: float = 0.0


@dataclass(slots=True)
class Model:
    """The state by the book."""

    settings: Settings
    now_s: float
    statistics: Statistics
    """As of the last call."""
    live: dict[int, Live] = field(default_factory=dict)
    outcomes: dict[int, str] = field(default_factory=dict)
    """Final outcome by key."""
    engine_up: bool = True
    classes: dict[ClassName, Budget] = field(default_factory=dict)
    tenants: dict[TenantName, Budget] = field(default_factory=dict)
    former_budgets: list[Budget] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    offered: int = 0
    moves: int = 0
    """Requests that changed their place in this call."""
    is_reconfigured: bool = False
    """This call changed the settings."""
    boosted_until_s: dict[ClassName, float] = field(default_factory=dict)
    """Till when each class may be boosted."""
    promoted_s: list[float] = field(default_factory=list)
    """Promotions of the boost in progress."""
    was_lowered: bool = False
    """The engine has reported preemptions: seats may be below the settings'."""

    def __post_init__(self) -> None:
        self._follow_settings(self.settings)

    # Following a call

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

    def running(self) -> list[Live]:
        return [each for each in self.live.values() if each.is_running]

    def waiting(self) -> list[Live]:
        return [each for each in self.live.values() if not each.is_running]

    def class_of(self, name: ClassName) -> ClassSettings:
        return next(each for each in self.settings.classes if each.name == name)

    def rank_of(self, name: ClassName) -> int:
        return [each.name for each in self.settings.classes].index(name)

    def deadline_s(self, live: Live) -> float:
        time_to_live_s = self.class_of(live.home).time_to_live_s
        if live.request.patience_s is not None:
            time_to_live_s = min(time_to_live_s, max(live.request.patience_s, 0.0))
        return live.offered_s + time_to_live_s

    @property
    def lower_seats(self) -> int:
        """Seats of all classes but the first: the reserve shrinks with the limit, but not to a
        part of a seat, and one is left whatever is reserved."""
        concurrency, seats = self.settings.concurrency, self.statistics.seats
        reserved = math.ceil(concurrency.reserved_seats * seats / concurrency.seats)
        return max(1, seats - reserved)

    @property
    def gate_tokens(self) -> int:
        return sum(each.unprefilled for each in self.running())

    @property
    def gate_is_open(self) -> bool:
        threshold = self.settings.concurrency.prompt_gate_tokens
        return threshold is None or not self.gate_tokens or self.gate_tokens < threshold

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

    # Arriving and paying

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

    def wait_s(self, live: Live) -> float:
        """Until class and tenant have what it costs."""
        of_class, of_tenant = self._budgets(live)
        return max(of_class.wait_s(live.cost, self.now_s), of_tenant.wait_s(live.cost, self.now_s))

    def _budgets(self, live: Live) -> tuple[Budget, Budget]:
        return self.classes[live.served_in], self.tenant_budget(live.served_for)

    def tenant_budget(self, name: TenantName) -> Budget:
        """The tenant's budget: new ones are full when the tenant is first seen."""
        budget = self.tenants.get(name)
        if budget is None:
            budget = self.tenants[name] = Budget()
            tenant = self.settings.tenants.get(name, TenantSettings())
            budget.configure(tenant.limits, self.now_s)
        return budget

    def _pay(self, live: Live, *, checked: bool) -> None:
        live.paid = self._budgets(live)
        for budget in live.paid:
            budget.take(live.cost, self.now_s, checked=checked)
        self.ledger.reserved += live.cost

    def _withdraw(self, live: Live) -> None:
        if live.paid is not None:
            for budget in live.paid:
                budget.put_back(live.cost, self.now_s, permits=1.0)
            live.paid = None
            self.ledger.refunded += live.cost

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
        """Nothing is overtaken inside its own flow where the order is arrival."""
        if self.is_shortest_first(live.served_in):
            return
        for other in self.waiting():
            if other.order < live.order and other.served_in == live.served_in:
                assert other.served_for != live.served_for, "overtaken inside its flow"

    def is_shortest_first(self, name: ClassName) -> bool:
        """Does SLOAware order the tenant's requests in this class by their prompts?"""
        return (
            self.settings.algorithm.value == "SLOAware"
            and self.rank_of(name) > 0
            and self.class_of(name).kind is Kind.INTERACTIVE
            and self.class_of(name).first_token_target_s is not None
        )

    def _check_in_flight(self, live: Live) -> None:
        limit = self.in_flight_limit(live.served_for)
        others = sum(each.served_for == live.served_for for each in self.running())
        assert limit is None or others < limit, "over the tenant's requests in flight"

    def in_flight_limit(self, name: TenantName) -> int | None:
        tenant = self.settings.tenants.get(name, TenantSettings())
        return tenant.limits.in_flight

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

    def _charged(self, usage: Usage | None) -> float:
        if usage is None:
            return 0.0
        prompt = max(usage.prompt_tokens, 0)
        cached = min(max(usage.cached_tokens, 0), prompt)
        ratio = self.settings.cached_token_ratio
        return (prompt - cached) + ratio * cached + max(usage.output_tokens, 0)

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

    # Standing in another's place

    def _sources(self) -> dict[int, Claimant]:
        return sources(
            Claimant(
                request=each.request,
                order=each.order,
                home_rank=self.rank_of(each.home),
                lift_rank=self.rank_of(each.lift),
            )
            for each in self.live.values()
        )

    def _stand(self, live: Live, source: Claimant | None) -> None:
        live.is_lifted = source is not None
        live.served_in = live.home
        live.served_for = live.request.tenant
        if source is not None:
            live.served_in = self.settings.classes[source.lift_rank].name
            live.served_for = source.request.tenant

    def _relocate(self) -> None:
        """Everybody that waits stands where it should by now."""
        lifting = self._sources()
        for key, live in self.live.items():
            source = lifting.get(key)
            if live.is_running:
                continue
            former = live.served_in, live.served_for
            self._stand(live, source)
            if former == (live.served_in, live.served_for):
                continue
            self.moves += 1
            had_paid = live.paid is not None
            self._withdraw(live)
            if had_paid or self.class_of(live.served_in).over_limit is OverLimit.REJECT:
                self._pay(live, checked=False)

    # Following settings

    def _configure(self, settings: Settings) -> None:
        self.settings = settings
        names = [each.name for each in settings.classes]
        for live in self.live.values():
            live.home = live.home if live.home in names else names[-1]
            live.lift = live.lift if live.lift in names else names[-1]
            live.served_in = live.served_in if live.served_in in names else names[-1]
        self._follow_settings(settings)
        self.promoted_s = []
        self._relocate()
        self.was_lowered = self.was_lowered and settings.concurrency.lower_seats_on_preemption

    def _follow_settings(self, settings: Settings) -> None:
        names = {each.name for each in settings.classes}
        self.former_budgets += [
            budget for name, budget in self.classes.items() if name not in names
        ]
        self.classes = {name: self.classes.get(name, Budget()) for name in names}
        for each in settings.classes:
            self.classes[each.name].configure(each.limits, self.now_s)
        for name, budget in self.tenants.items():
            tenant = settings.tenants.get(name, TenantSettings())
            budget.configure(tenant.limits, self.now_s)

    def _note_boosts(self, before: Statistics) -> None:
        rules = self.settings.anti_starvation
        former = {each.name: each.boosts for each in before.classes}
        for each in self.statistics.classes:
            if rules is not None and each.boosts > former.get(each.name, 0):
                self.boosted_until_s[each.name] = self.now_s + rules.boost_s
                self.promoted_s = []
