"""What does the proxy count, and how is it read?

The data plane calls one cheap method per thing that happened; text is made when somebody scrapes.
Names and meanings are in `metric_names`; docs/metrics.md lists them for people.

What always holds
- Counters never go down while the process lives, whatever policies come and go. A class that is
  gone keeps its series (the latest `MAXIMUM_CLASSES` of them), so that its last requests are seen.
- Every class of the policy has all its series, at 0, from `configure` on. The class `none` stands
  for what was answered before a class was known.
- For every class: arrived = all outcomes together + running + queued.
- The number of series is bounded (`tenant_labels`), and so is the page.
- Gauges are read from their owners when scraped, never counted up and down: they cannot drift.
- An amount that cannot be (negative, or beyond `MAXIMUM_TOKENS`) is clamped and counted; it never
  raises.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from giveway_policy.enumerations import Indicator
from giveway_scheduler import ClassStatistics, Statistics, Usage
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from giveway_admission import metric_names as names
from giveway_admission.engine_watching import EngineReading, RisingTotal
from giveway_admission.exposition import Family, write_family, write_histograms
from giveway_admission.histograms import (
    DURATION_BOUNDS_S,
    FIRST_TOKEN_BOUNDS_S,
    QUEUE_WAIT_BOUNDS_S,
    TOKEN_GAP_BOUNDS_S,
    Histogram,
    HistogramFamily,
)
from giveway_admission.outcomes import Outcome
from giveway_admission.policy_facts import HasDocument, PolicyFacts, policy_facts
from giveway_admission.tenant_labels import OTHER, TenantLabels

MAXIMUM_CLASSES = 64
MAXIMUM_TOKENS = 2**32
"""Per request. More than any model's context: a usage above it is a fault in the answer."""

FAILURES = (
    *(Outcome.ENGINE_FAILED, Outcome.ENGINE_TIMEOUT, Outcome.ENGINE_UNAVAILABLE),
    *(Outcome.QUEUE_TIMEOUT, Outcome.DRAINING),
)
"""Ends for which neither the client nor its limits are the cause: what an error rate counts."""
MAXIMUM_TENANT_SERIES = 8000
"""Of `giveway_tenant_requests_total`: about 800 kB of text. Beyond it everything is `other`."""


@dataclass(slots=True)
class _Counter:
    """One series and its value."""

    series: str
    value: int = 0


class _ClassCounts:
    """Everything that is counted for one class."""

    __slots__ = (
        "arrived",
        "boosts",
        "duration",
        "first_token",
        "outcomes",
        "queue_wait",
        "token_gap",
        "tokens",
    )

    def __init__(
        self,
        label: str,
        *,
        queue_wait: Histogram,
        first_token: Histogram,
        token_gap: Histogram,
        duration: Histogram,
    ) -> None:
        self.arrived = _Counter(names.ARRIVED.series(label))
        self.outcomes = {
            outcome: _Counter(names.REQUESTS.series(label, outcome)) for outcome in Outcome
        }
        self.tokens = tuple(
            _Counter(names.TOKENS.series(label, kind)) for kind in names.TOKEN_KINDS
        )
        self.boosts = RisingTotal()
        self.queue_wait = queue_wait
        self.first_token = first_token
        self.token_gap = token_gap
        self.duration = duration


class _TenantCounts:
    """Everything that is counted for one tenant that has a label."""

    __slots__ = ("requests", "tokens")

    def __init__(self, label: str) -> None:
        self.requests: dict[tuple[str, Outcome], _Counter] = {}
        self.tokens = tuple(
            _Counter(names.TENANT_TOKENS.series(label, kind)) for kind in names.TOKEN_KINDS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassProgress:
    """What was counted for a class since the start."""

    arrived: int
    outcomes: Mapping[str, int]
    """By outcome; those that never happened are left out."""
    tokens: Mapping[str, int]
    """By kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """Where gauges are read."""

    statistics: Callable[[], Statistics]
    engine_up: Callable[[], bool]
    draining: Callable[[], bool]
    engine: Callable[[], EngineReading] | None


class Metrics:
    """All counters of one proxy. `configure` must be called before anything is counted."""

    def __init__(
        self, *, version: str, seen_tenants: int = 100, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._version = version
        self._facts: PolicyFacts | None = None
        self._effective_s = clock()
        self._sources: _Sources | None = None
        self._queue_wait = HistogramFamily(QUEUE_WAIT_BOUNDS_S)
        self._first_token = HistogramFamily(FIRST_TOKEN_BOUNDS_S)
        self._token_gap = HistogramFamily(TOKEN_GAP_BOUNDS_S)
        self._duration = HistogramFamily(DURATION_BOUNDS_S)
        self._none = _ClassCounts(  # its histograms are not shown: nothing of it is ever served
            names.NO_CLASS,
            queue_wait=HistogramFamily(()).child(""),
            first_token=HistogramFamily(()).child(""),
            token_gap=HistogramFamily(()).child(""),
            duration=HistogramFamily(()).child(""),
        )
        self._classes: dict[str, _ClassCounts] = {names.NO_CLASS: self._none}
        self._tenants = TenantLabels(seen_tenants, released=self._release, clock=clock)
        self._other = _TenantCounts(OTHER)
        self._tenant_counts: dict[str, _TenantCounts] = {OTHER: self._other}
        self._tenant_series = 0
        self._unknown_class = _Counter(names.UNKNOWN_CLASS.name)
        self._implausible = _Counter(names.IMPLAUSIBLE_USAGE.name)
        self._rejected = {
            reason: _Counter(names.POLICY_REJECTED.series(reason))
            for reason in names.POLICY_REJECTIONS
        }
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)

    # What the data plane calls.

    def arrived(self, class_name: str) -> None:
        """A request of a known class came in. Each is followed by one `ended`."""
        self._classes.get(class_name, self._none).arrived.value += 1

    def refused_early(self, outcome: Outcome) -> None:
        """A request came and was answered before its class was known: class `none`."""
        self._none.arrived.value += 1
        self._none.outcomes[outcome].value += 1

    def ended(
        self,
        class_name: str,
        tenant: str,
        outcome: Outcome,
        *,
        duration_s: float,
        usage: Usage | None = None,
    ) -> None:
        """A request ended, for good. `usage` None: the engine did nothing for it."""
        counts = self._classes.get(class_name)
        if counts is None:
            class_name, counts = names.NO_CLASS, self._none
        counts.outcomes[outcome].value += 1
        if outcome is Outcome.COMPLETED:
            counts.duration.observe(duration_s)
        label = self._tenants.label(tenant)
        owner = self._tenant_counts.get(label) or self._add_tenant(label)
        counter = owner.requests.get((class_name, outcome))
        if counter is None:
            counter = self._tenant_counter(label, class_name, outcome)
        counter.value += 1
        if usage is not None:
            self._count_tokens(counts.tokens, owner.tokens, usage)

    def queue_waited(self, class_name: str, waited_s: float) -> None:
        """A request was dispatched, `waited_s` after it arrived."""
        self._classes.get(class_name, self._none).queue_wait.observe(waited_s)

    def first_token(self, class_name: str, after_s: float) -> None:
        """The first token of an answer went out, `after_s` after the request arrived."""
        self._classes.get(class_name, self._none).first_token.observe(after_s)

    def tokens_gap(self, class_name: str, gap_s: float) -> None:
        """Two tokens of one stream came `gap_s` apart."""
        self._classes.get(class_name, self._none).token_gap.observe(gap_s)

    def gap_observer(self, class_name: str) -> Callable[[float], None]:
        """`tokens_gap` of one class, to be kept for a whole stream: the cheapest way to count."""
        return self._classes.get(class_name, self._none).token_gap.observe

    def asked_class_unknown(self) -> None:
        """A request asked for a class that the policy does not have."""
        self._unknown_class.value += 1

    # What the shell around it calls.

    def configure(self, policy: HasDocument | PolicyFacts) -> None:
        """This policy is in force from now on."""
        facts = policy if isinstance(policy, PolicyFacts) else policy_facts(policy.document)
        if self._facts is None or self._facts.identity != facts.identity:
            self._effective_s = self._clock()
        self._facts = facts
        self._first_token.require(facts.thresholds_s(Indicator.TIME_TO_FIRST_TOKEN))
        self._token_gap.require(facts.thresholds_s(Indicator.INTER_TOKEN_LATENCY))
        self._duration.require(facts.thresholds_s(Indicator.REQUEST_DURATION))
        self._queue_wait.require(facts.thresholds_s(Indicator.QUEUE_WAIT))
        for name in facts.class_names:
            self._add_class(name)
        self._forget_classes(facts.class_names)
        self._tenants.configure(facts.tenants)
        for tenant in (*self._tenants.named(), OTHER):
            self._add_tenant(tenant)
            for name in facts.class_names:
                self._tenant_counter(tenant, name, Outcome.COMPLETED)

    def policy_rejected(self, reason: str) -> None:
        """A policy was not taken into force; `reason` is the kind of its fault."""
        self._rejected.get(reason, self._rejected["other"]).value += 1

    def set_sources(
        self,
        statistics: Callable[[], Statistics],
        *,
        engine_up: Callable[[], bool],
        draining: Callable[[], bool] = lambda: False,
        engine: Callable[[], EngineReading] | None = None,
    ) -> None:
        """Where gauges are read at each scrape. `engine` None: its metrics are not watched."""
        self._sources = _Sources(
            statistics=statistics, engine_up=engine_up, draining=draining, engine=engine
        )

    @property
    def facts(self) -> PolicyFacts:
        """The policy in force."""
        if self._facts is None:
            raise RuntimeError("Metrics.configure was not called yet")
        return self._facts

    @property
    def policy_age_s(self) -> float:
        return self._clock() - self._effective_s

    def shown_tenant(self, tenant: str) -> str:
        """How the admin page may call a tenant."""
        return self._tenants.shown(tenant)

    def progress(self, class_name: str) -> ClassProgress:
        counts = self._classes.get(class_name, self._none)
        return ClassProgress(
            arrived=counts.arrived.value,
            outcomes={
                str(outcome): counter.value
                for outcome, counter in counts.outcomes.items()
                if counter.value
            },
            tokens={
                kind: counter.value
                for kind, counter in zip(names.TOKEN_KINDS, counts.tokens, strict=True)
            },
        )

    def within(
        self, class_name: str, indicator: Indicator, *, threshold_s: float | None
    ) -> tuple[int, int]:
        """(how many kept the objective, how many there were) since the start."""
        counts = self._classes.get(class_name, self._none)
        match indicator:
            case Indicator.TIME_TO_FIRST_TOKEN:
                histogram = counts.first_token
            case Indicator.INTER_TOKEN_LATENCY:
                histogram = counts.token_gap
            case Indicator.REQUEST_DURATION:
                histogram = counts.duration
            case Indicator.QUEUE_WAIT:
                histogram = counts.queue_wait
            case Indicator.ERROR_RATE:
                ended = sum(counter.value for counter in counts.outcomes.values())
                failed = sum(counts.outcomes[outcome].value for outcome in FAILURES)
                return ended - failed, ended
            case _:
                assert_never(indicator)
        return histogram.within(threshold_s or 0.0), histogram.count

    # Children.

    def _add_class(self, name: str) -> None:
        if name in self._classes:
            self._classes[name] = self._classes.pop(name)  # the latest are kept longest
            return
        self._classes[name] = _ClassCounts(
            name,
            queue_wait=self._queue_wait.child(name),
            first_token=self._first_token.child(name),
            token_gap=self._token_gap.child(name),
            duration=self._duration.child(name),
        )

    def _forget_classes(self, wanted: Iterable[str]) -> None:
        kept = {names.NO_CLASS, *wanted}
        gone = [name for name in self._classes if name not in kept]
        for name in gone[: max(0, len(self._classes) - MAXIMUM_CLASSES)]:
            del self._classes[name]
            for family in (self._queue_wait, self._first_token, self._token_gap, self._duration):
                family.drop(name)
            for owner in self._tenant_counts.values():
                for key in [key for key in owner.requests if key[0] == name]:
                    del owner.requests[key]
                    self._tenant_series -= 1

    def _add_tenant(self, label: str) -> _TenantCounts:
        owner = self._tenant_counts.get(label)
        if owner is None:
            owner = self._tenant_counts[label] = _TenantCounts(label)
        return owner

    def _tenant_counter(self, label: str, class_name: str, outcome: Outcome) -> _Counter:
        owner = self._tenant_counts[label]
        if owner is not self._other and self._tenant_series >= MAXIMUM_TENANT_SERIES:
            label, owner = OTHER, self._other
        counter = owner.requests.get((class_name, outcome))
        if counter is None:
            counter = _Counter(names.TENANT_REQUESTS.series(label, class_name, outcome))
            owner.requests[class_name, outcome] = counter
            self._tenant_series += 1
        return counter

    def _release(self, label: str) -> None:
        owner = self._tenant_counts.pop(label, None)
        if owner is not None:
            self._tenant_series -= len(owner.requests)

    def _count_tokens(
        self, of_class: tuple[_Counter, ...], of_tenant: tuple[_Counter, ...], usage: Usage
    ) -> None:
        prompt = self._plausible(usage.prompt_tokens)
        amounts = (
            prompt,
            min(prompt, self._plausible(usage.cached_tokens)),
            self._plausible(usage.output_tokens),
        )
        for counter, other, amount in zip(of_class, of_tenant, amounts, strict=True):
            counter.value += amount
            other.value += amount

    def _plausible(self, tokens: int) -> int:
        if 0 <= tokens <= MAXIMUM_TOKENS:
            return int(tokens)
        self._implausible.value += 1
        return MAXIMUM_TOKENS if tokens > 0 else 0

    # What Prometheus reads.

    def render(self) -> bytes:
        """The whole page, in `exposition.CONTENT_TYPE`."""
        parts = [
            self._render_counters(),
            write_histograms(names.QUEUE_WAIT, self._queue_wait),
            write_histograms(names.FIRST_TOKEN, self._first_token),
            write_histograms(names.TOKEN_GAP, self._token_gap),
            write_histograms(names.DURATION, self._duration),
            self._render_policy(),
            "" if self._sources is None else self._render_gauges(self._sources),
            "" if self._sources is None else self._render_engine(self._sources),
            _single(names.BUILD_INFO, 1, self._version),
        ]
        return "".join(parts).encode() + generate_latest(self._process)

    def _render_counters(self) -> str:
        classes = self._classes.values()
        tenants = self._tenant_counts.values()
        return "".join(
            (
                _counters(names.ARRIVED, (counts.arrived for counts in classes)),
                _counters(
                    names.REQUESTS,
                    (counter for counts in classes for counter in counts.outcomes.values()),
                ),
                _counters(
                    names.TOKENS,
                    (
                        counter
                        for counts in classes
                        if counts is not self._none
                        for counter in counts.tokens
                    ),
                ),
                _counters(
                    names.TENANT_REQUESTS,
                    (counter for owner in tenants for counter in owner.requests.values()),
                ),
                _counters(
                    names.TENANT_TOKENS, (counter for owner in tenants for counter in owner.tokens)
                ),
                _counters(names.UNKNOWN_CLASS, (self._unknown_class,)),
                _counters(names.IMPLAUSIBLE_USAGE, (self._implausible,)),
                _counters(names.POLICY_REJECTED, self._rejected.values()),
            )
        )

    def _render_policy(self) -> str:
        if self._facts is None:
            return ""
        policy, epoch, generation, digest = self._facts.identity
        return _single(names.POLICY_INFO, 1, policy, str(epoch), str(generation), digest) + _single(
            names.POLICY_AGE, round(self.policy_age_s, 3)
        )

    def _render_gauges(self, sources: _Sources) -> str:
        now = sources.statistics()
        by_class: tuple[tuple[Family, Callable[[ClassStatistics], float]], ...] = (
            (names.QUEUED, lambda each: each.queued),
            (names.OLDEST, lambda each: round(each.oldest_waited_s, 6)),
            (names.RUNNING, lambda each: each.running),
            (names.WEIGHT, lambda each: each.weight),
            (names.BOOSTS, self._boosts),
        )
        parts = [
            write_family(family, [(family.series(each.name), read(each)) for each in now.classes])
            for family, read in by_class
        ]
        parts += (
            _single(names.SEATS, now.seats),
            _single(names.BATCH_SEATS, now.batch_seats),
            _single(names.UNPREFILLED, now.unprefilled_tokens),
            _single(names.ENGINE_UP, int(sources.engine_up())),
            _single(names.DRAINING, int(sources.draining())),
        )
        return "".join(parts)

    def _boosts(self, of_class: ClassStatistics) -> float:
        counts = self._classes.get(of_class.name)
        return of_class.boosts if counts is None else counts.boosts.total(of_class.boosts)

    def _render_engine(self, sources: _Sources) -> str:
        if sources.engine is None:
            return ""
        reading = sources.engine()
        parts = [
            write_family(
                names.ENGINE_SCRAPES,
                [
                    (names.ENGINE_SCRAPES.series(result), count)
                    for result, count in reading.scrapes.items()
                ],
            )
        ]
        if reading.requests_total is not None:
            parts.append(_single(names.ENGINE_REQUESTS, reading.requests_total))
        if reading.preemptions_total is not None:
            parts.append(_single(names.ENGINE_PREEMPTIONS, reading.preemptions_total))
        if reading.kv_cache_usage_ratio is not None:
            parts.append(_single(names.ENGINE_CACHE, reading.kv_cache_usage_ratio))
        return "".join(parts)


def _single(family: Family, value: float, *labels: str) -> str:
    return write_family(family, [(family.series(*labels), value)])


def _counters(family: Family, counters: Iterable[_Counter]) -> str:
    return write_family(family, [(counter.series, counter.value) for counter in counters])
