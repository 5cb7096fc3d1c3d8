"""Who waits, who runs, in whose place is each served, and who has paid what?

The state of a scheduler by the book, for the state machine's model. Where it computes something
that the scheduler computes too, it does so by looking at everything.
"""

import math
from dataclasses import dataclass, field

from giveway_scheduler import (
    ClassName,
    ClassSettings,
    Kind,
    OverLimit,
    Request,
    Settings,
    Statistics,
    TenantName,
    TenantSettings,
    Usage,
)

from tests.scheduler.machine_budget_support import Budget
from tests.scheduler.oracles import Claimant, sources


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
class Books:
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

    def is_shortest_first(self, name: ClassName) -> bool:
        """Does SLOAware order the tenant's requests in this class by their prompts?"""
        return (
            self.settings.algorithm.value == "SLOAware"
            and self.rank_of(name) > 0
            and self.class_of(name).kind is Kind.INTERACTIVE
            and self.class_of(name).first_token_target_s is not None
        )

    def in_flight_limit(self, name: TenantName) -> int | None:
        tenant = self.settings.tenants.get(name, TenantSettings())
        return tenant.limits.in_flight

    # Paying

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

    def _charged(self, usage: Usage | None) -> float:
        if usage is None:
            return 0.0
        prompt = max(usage.prompt_tokens, 0)
        cached = min(max(usage.cached_tokens, 0), prompt)
        ratio = self.settings.cached_token_ratio
        return (prompt - cached) + ratio * cached + max(usage.output_tokens, 0)

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
