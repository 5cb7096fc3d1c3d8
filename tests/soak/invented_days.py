"""Some days of a scheduler's life, in invented time, with everything that happens to one.

Requests are served, fail, are given back, are left by their clients, report other usage than was
reserved; the engine is away for a while; the policy changes; and the machine sleeps: then all that
would have happened meanwhile happens at once when it wakes. Beside it run the books: exact buckets
that pay and get back what the decisions say.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from giveway_scheduler import (
    Abort,
    Algorithm,
    ClassName,
    ClassStatistics,
    Decision,
    Dispatch,
    Evict,
    Expire,
    OverLimit,
    Reject,
    Request,
    RequestKey,
    Scheduler,
    Settings,
    TenantName,
    TenantStatistics,
    Usage,
)

from tests.soak.day_load import CUSTOMER, HOUR_S, QUIET_HOURS, Ask, DayLoad
from tests.soak.day_settings import BATCH, FLOWS, passing_customer, settings_at, settings_at_rest
from tests.soak.exact_buckets import ExactBudget

START_S = 100_000.0
"""Of the machine's clock: it has been up for a day."""
CHANGE_S = 1200.0
"""Between two policies."""
SLEEP_HOURS = 5
"""Each so many hours the machine sleeps, in the busy stretch."""
SLEEP_S = 1900.0
OUTAGE_HOURS = 11
OUTAGE_S = 120.0
MOST_TIMERS = 5_000
"""Between two events of the load, which lie a minute apart at most."""
_PREFILL_S = 23.5e-6
_TOKEN_S = 0.012


@dataclass(slots=True)
class Life:
    """One request: what it is, where it is, and who holds what it paid."""

    request: Request
    output_tokens: int
    attempt: int = 0
    """Counts the times it was sent or taken back: what was planned for another attempt is void."""
    is_running: bool = False
    payers: tuple[ExactBudget, ExactBudget] | None = None
    """None: it has not paid."""

    @property
    def cost_tokens(self) -> int:
        return self.request.prompt_tokens + (self.request.maximum_output_tokens or 0)


@dataclass(slots=True)
class Tally:
    """What has happened, so that a test can tell that it has."""

    requests: int = 0
    tenants: set[str] = field(default_factory=set)
    ends: dict[str, int] = field(default_factory=dict)
    """By kind of end."""
    lifted: int = 0
    changes: int = 0
    sleeps: int = 0
    timers: int = 0
    """Times that the scheduler was woken because it had asked for it."""
    compared: int = 0
    """Buckets that were compared with their books while they were not full."""
    drift: float = 0.0
    """The most that any bucket was ever seen away from its books."""

    def end(self, kind: str) -> None:
        self.ends[kind] = self.ends.get(kind, 0) + 1


class Days:
    """Runs the load; `quiet_moments` stops where nothing is left to do."""

    def __init__(self, load: DayLoad, algorithm: Algorithm | None = None) -> None:
        """`algorithm` None: each policy has another one."""
        self.settings: Settings = settings_at(0, algorithm)
        self.now_s = START_S
        self.scheduler = Scheduler(self.settings, now_s=START_S, generator=random.Random(load.seed))
        self.tally = Tally()
        self.live: dict[int, Life] = {}
        self._load = load
        self._algorithm = algorithm
        self._generator = random.Random(load.seed + 1)
        self._plan: list[tuple[float, int, str, int, int]] = []
        """Heap of (time, number, what, key, attempt)."""
        self._numbers = 0
        self._asleep_until_s = START_S
        self._prefilled_s = START_S
        self._engine_is_up = True
        self._classes: dict[ClassName, ExactBudget] = {}
        self._tenants: dict[str, ExactBudget] = {}
        self._configure_books()

    def quiet_moments(self) -> Iterator[int]:
        """Live through it all; yields the hours lived at the end of each quiet quarter."""
        asks = self._load.requests()
        ask = next(asks, None)
        for hour in range(self._load.hours):
            self._plan_hour(hour)
            end_s = START_S + (hour + 1) * HOUR_S
            while True:
                ask_s = START_S + ask.at_s if ask is not None else float("inf")
                plan_s = self._plan[0][0] if self._plan else float("inf")
                if min(ask_s, plan_s) >= end_s:
                    break
                if ask is not None and ask_s <= plan_s:
                    self._reach(ask_s)
                    self._arrive(ask)
                    ask = next(asks, None)
                else:
                    at_s, _, what, key, attempt = heappop(self._plan)
                    self._reach(at_s)
                    self._happen(what, key, attempt)
            self._reach(end_s)
            self._compare()
            if (hour + 1) % QUIET_HOURS == 0:
                yield hour + 1

    def _plan_hour(self, hour: int) -> None:
        start_s = START_S + hour * HOUR_S
        for change in range(int(HOUR_S / CHANGE_S)):
            self._will_happen(start_s + change * CHANGE_S + 333.3, "change")
        for look in range(59):
            self._will_happen(start_s + look * 60.1, "compare")
        if hour % SLEEP_HOURS == SLEEP_HOURS - 2:
            self._will_happen(start_s + 312.0, "sleep")
        if hour % OUTAGE_HOURS == OUTAGE_HOURS - 1:
            self._will_happen(start_s + 320.0, "engine down")
            self._will_happen(start_s + 320.0 + OUTAGE_S, "engine up")

    # Time.

    def _reach(self, at_s: float) -> None:
        """Go there as a shell does: woken whenever the scheduler asked to be."""
        at_s = max(at_s, self._asleep_until_s)
        most = self.tally.timers + MOST_TIMERS
        while (due_s := self.scheduler.next_event_s()) is not None and due_s <= at_s:
            self.now_s = max(self.now_s, due_s, self._asleep_until_s)
            self.tally.timers += 1
            assert self.tally.timers < most, "events are announced without end"
            self._follow(self.scheduler.advance(now_s=self.now_s))
        self.now_s = max(self.now_s, at_s)

    def _will_happen(self, at_s: float, what: str, life: Life | None = None) -> None:
        self._numbers += 1
        key, attempt = (life.request.key, life.attempt) if life is not None else (0, 0)
        heappush(self._plan, (at_s, self._numbers, what, key, attempt))

    def _happen(self, what: str, key: int, attempt: int) -> None:
        now_s, scheduler = self.now_s, self.scheduler
        life = self.live.get(key)
        if life is not None and (what == "leaves" or life.attempt == attempt):
            match what:
                case "token":
                    self._follow(scheduler.first_token(RequestKey(key), now_s=now_s))
                case "end":
                    self._end(
                        life,
                        Usage(
                            prompt_tokens=life.request.prompt_tokens,
                            output_tokens=life.output_tokens,
                        ),
                        what,
                    )
                case "engine did nothing":
                    self._end(life, None, what)
                case "refused":
                    life.is_running = False
                    life.attempt += 1
                    self._follow(scheduler.requeue(RequestKey(key), now_s=now_s))
                case "leaves":
                    self._leave(life)
            return
        match what:
            case "change":
                self._change()
            case "compare":
                self._compare()
            case "sleep":
                self.tally.sleeps += 1
                self._asleep_until_s = now_s + SLEEP_S
            case "engine down" | "engine up":
                self._switch_engine(up=what == "engine up")

    # What happens to requests.

    def _arrive(self, ask: Ask) -> None:
        names = [each.name for each in self.settings.classes]
        if ask.class_name not in names:
            return
        self.tally.requests += 1
        key = self.tally.requests
        if key % 20 == 0:
            self._compare()
        tenant = passing_customer(self.tally.changes) if ask.tenant == CUSTOMER else ask.tenant
        self.tally.tenants.add(tenant)
        waits_for = None
        if ask.class_name == FLOWS:
            tenant, waits_for = "flowing", "awaited"
        elif ask.class_name == BATCH and key % 9 == 0:
            tenant = "flowing"
        request = Request(
            key=RequestKey(key),
            rank=names.index(ask.class_name),
            tenant=TenantName(tenant),
            prompt_tokens=ask.prompt_tokens,
            maximum_output_tokens=ask.output_tokens * 2,
            size_bytes=4 * ask.prompt_tokens,
            name="awaited" if tenant == "flowing" and waits_for is None else f"request-{key}",
            waits_for=waits_for,
            shows_first_token=key % 4 != 0,
        )
        life = self.live[key] = Life(request, ask.output_tokens)
        self._tenant_books(tenant)
        if self._generator.random() < 0.05:
            self._will_happen(self.now_s + self._generator.expovariate(0.2), "leaves", life)
        decisions = self.scheduler.offer(request, now_s=self.now_s)
        self._follow(decisions, newcomer=life)

    def _send(self, decision: Dispatch) -> None:
        life = self.live[decision.request.key]
        if life.payers is None:
            name = self.settings.classes[decision.rank].name
            self._pay(life, self._classes[name])
        if decision.reason.value == "lifted":
            self.tally.lifted += 1
        life.is_running = True
        life.attempt += 1
        lot = self._generator.random()
        if lot < 0.01:
            self._will_happen(self.now_s + 0.01, "refused", life)
            return
        self._prefilled_s = max(self._prefilled_s, self.now_s)
        self._prefilled_s += life.request.prompt_tokens * _PREFILL_S
        if life.request.shows_first_token:
            self._will_happen(self._prefilled_s, "token", life)
        end_s = self._prefilled_s + life.output_tokens * _TOKEN_S
        self._will_happen(end_s, "engine did nothing" if lot < 0.02 else "end", life)
        if lot > 0.98:  # the engine's own count is another one, and may be above what was reserved
            life.output_tokens *= 3

    def _end(self, life: Life, usage: Usage | None, kind: str) -> None:
        self.tally.end(kind)
        key = life.request.key
        decisions = self.scheduler.finish(key, now_s=self.now_s, usage=usage)
        self._follow(decisions, settled=(life, usage))

    def _leave(self, life: Life) -> None:
        self.tally.end("left running" if life.is_running else "left waiting")
        usage = None
        if life.is_running:
            usage = Usage(prompt_tokens=life.request.prompt_tokens, output_tokens=1)
        decisions = self.scheduler.cancel(life.request.key, now_s=self.now_s, usage=usage)
        self._follow(decisions, settled=(life, usage))

    def _switch_engine(self, *, up: bool) -> None:
        self._follow(self.scheduler.set_engine_available(up, now_s=self.now_s))
        for life in [] if up else [each for each in self.live.values() if each.is_running]:
            life.is_running = False
            life.attempt += 1
            self._follow(self.scheduler.requeue(life.request.key, now_s=self.now_s))

    def rest(self) -> None:
        """In a quiet moment: let the policy be one that remembers as little as it can."""
        self._use(settings_at_rest(self._algorithm))

    def _change(self) -> None:
        self.tally.changes += 1
        self._use(settings_at(self.tally.changes, self._algorithm))

    def _use(self, settings: Settings) -> None:
        self._follow(self.scheduler.advance(now_s=self.now_s))
        self.settings = settings
        decisions = self.scheduler.configure(self.settings, now_s=self.now_s)
        self._configure_books()
        self._follow(decisions)

    # What the decisions mean, and the books.

    def _follow(
        self,
        decisions: Iterable[Decision],
        *,
        newcomer: Life | None = None,
        settled: tuple[Life, Usage | None] | None = None,
    ) -> None:
        """In the scheduler's order: what time brought, the call's own change, what follows."""
        left = list(decisions)
        while left and isinstance(expired := left[0], Expire):
            self._give_back(expired)
            del left[0]
        if newcomer is not None:
            self._take_in(newcomer, left)
        if settled is not None:
            self._settle(*settled)
        for decision in left:
            match decision:
                case Dispatch():
                    self._send(decision)
                case Abort():
                    life = self.live[decision.request.key]
                    life.is_running = False
                    life.attempt += 1
                    self.tally.end("aborted")
                case Reject() | Evict() | Expire():
                    self._give_back(decision)

    def _take_in(self, life: Life, decisions: Iterable[Decision]) -> None:
        """Who is refused over a limit at once pays at the door, if he gets in."""
        settings = self.settings.classes[life.request.rank]
        if settings.over_limit is OverLimit.REJECT and not any(
            isinstance(each, Reject) and each.request is life.request and each.reason.is_rate
            for each in decisions
        ):
            self._pay(life, self._classes[settings.name])

    def _pay(self, life: Life, of_class: ExactBudget) -> None:
        life.payers = (of_class, self._tenant_books(life.request.tenant))
        for payer in life.payers:
            payer.take(tokens=life.cost_tokens, permits=1, now_s=self.now_s)

    def _give_back(self, decision: Reject | Evict | Expire) -> None:
        self.tally.end(type(decision).__name__)
        self._withdraw(self.live[decision.request.key])

    def _settle(self, life: Life, usage: Usage | None) -> None:
        if not life.is_running:
            self._withdraw(life)
            return
        used = 0 if usage is None else usage.prompt_tokens + usage.output_tokens
        for payer in life.payers or ():
            payer.take(tokens=used - life.cost_tokens, permits=0, now_s=self.now_s)
        del self.live[life.request.key]

    def _withdraw(self, life: Life) -> None:
        for payer in life.payers or ():
            payer.take(tokens=-life.cost_tokens, permits=-1, now_s=self.now_s)
        del self.live[life.request.key]

    def _tenant_books(self, name: str) -> ExactBudget:
        """The scheduler makes a tenant's buckets, full, when it first hears of him."""
        budget = self._tenants.get(name)
        if budget is None:
            budget = ExactBudget()
            named = self.settings.tenants.get(TenantName(name))
            if named is None:
                return budget  # no limits, ever
            budget.configure(named.limits, now_s=self.now_s)
            self._tenants[name] = budget
        return budget

    def _configure_books(self) -> None:
        for each in self.settings.classes:
            budget = self._classes.setdefault(each.name, ExactBudget())
            budget.configure(each.limits, now_s=self.now_s)
        for name in list(self._tenants):
            named = self.settings.tenants.get(TenantName(name))
            if named is None:
                del self._tenants[name]
            else:
                self._tenants[name].configure(named.limits, now_s=self.now_s)

    def _compare(self) -> None:
        """How far is any bucket from its books?"""
        self._follow(self.scheduler.advance(now_s=self.now_s))
        statistics = self.scheduler.statistics(now_s=self.now_s)
        pairs: list[tuple[ExactBudget, ClassStatistics | TenantStatistics]] = [
            (self._classes[each.name], each) for each in statistics.classes
        ]
        pairs += [
            (self._tenants[each.name], each)
            for each in statistics.tenants
            if each.name in self._tenants
        ]
        for books, each in pairs:
            drift = books.drift_of(each.requests, each.tokens, now_s=self.now_s)
            self.tally.drift = max(self.tally.drift, drift)
            for bucket in (each.requests, each.tokens):
                if bucket is not None and bucket.level < bucket.burst:
                    self.tally.compared += 1
