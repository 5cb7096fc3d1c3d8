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
from collections.abc import Callable, Iterable, Iterator

from giveway_policy.enumerations import Indicator
from giveway_scheduler import ClassStatistics, Statistics, Usage
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from giveway_admission import metric_names as names
from giveway_admission.class_counts import ClassCounts, ClassProgress, Counter
from giveway_admission.engine_watching import EngineReading
from giveway_admission.exposition import Family, write_family, write_histograms
from giveway_admission.histograms import (
    DURATION_BOUNDS_S,
    FIRST_TOKEN_BOUNDS_S,
    QUEUE_WAIT_BOUNDS_S,
    TOKEN_GAP_BOUNDS_S,
    HistogramFamily,
)
from giveway_admission.metric_gauges import (
    Sources,
    write_engine,
    write_gauges,
    write_policy,
    write_single,
)
from giveway_admission.outcomes import Outcome
from giveway_admission.policy_facts import HasDocument, PolicyFacts, policy_facts
from giveway_admission.tenant_counts import TenantCounting

MAXIMUM_CLASSES = 64
MAXIMUM_TOKENS = 2**32
"""Per request. More than any model's context: a usage above it is a fault in the answer."""
_COMPLETED = Outcome.COMPLETED


_MOST_UNKNOWN_NAMES = 8
"""Enough to see a mistake in, and nothing that clients could fill."""
_LONGEST_UNKNOWN_NAME = 63


class Metrics:
    """All counters of one proxy. `configure` must be called before anything is counted."""

    def __init__(
        self, *, version: str, seen_tenants: int = 100, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._version = version
        self._facts: PolicyFacts | None = None
        self._effective_s = clock()
        self._sources: Sources | None = None
        self._queue_wait = HistogramFamily(QUEUE_WAIT_BOUNDS_S)
        self._first_token = HistogramFamily(FIRST_TOKEN_BOUNDS_S)
        self._token_gap = HistogramFamily(TOKEN_GAP_BOUNDS_S)
        self._duration = HistogramFamily(DURATION_BOUNDS_S)
        self._none = ClassCounts(  # its histograms are not shown: nothing of it is ever served
            names.NO_CLASS,
            queue_wait=HistogramFamily(()).child(""),
            first_token=HistogramFamily(()).child(""),
            token_gap=HistogramFamily(()).child(""),
            duration=HistogramFamily(()).child(""),
        )
        self._classes: dict[str, ClassCounts] = {names.NO_CLASS: self._none}
        self._tenants = TenantCounting(seen_tenants, clock=clock)
        self._unknown_class = Counter(names.UNKNOWN_CLASS.name)
        self._unknown_names: dict[bytes, int] = {}  # the one asked for longest ago first
        self._implausible = Counter(names.IMPLAUSIBLE_USAGE.name)
        self._rejected = {
            reason: Counter(names.POLICY_REJECTED.series(reason))
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
        if outcome is _COMPLETED:
            counts.duration.observe(duration_s)
        owner = self._tenants.count(tenant, class_name, outcome=outcome)
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

    def usage_not_credible(self) -> None:
        """An answer reported token counts that can't be true; they were left out."""
        self._implausible.value += 1

    def asked_class_unknown(self, asked: bytes = b"") -> None:
        """A request asked for a class that the policy does not have."""
        self._unknown_class.value += 1
        names = self._unknown_names
        name = asked[:_LONGEST_UNKNOWN_NAME]
        names[name] = names.pop(name, 0) + 1
        if len(names) > _MOST_UNKNOWN_NAMES:
            del names[next(iter(names))]

    def unknown_classes(self) -> list[tuple[str, int]]:
        """What was asked for lately and is not there, and how often; the latest last."""
        return [
            (name.decode("ascii", "replace"), count) for name, count in self._unknown_names.items()
        ]

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
        self._tenants.configure(facts.tenants, facts.class_names)

    def policy_rejected(self, reason: str) -> None:
        """A policy was not taken into force; `reason` is the kind of its fault."""
        self._rejected.get(reason, self._rejected["other"]).value += 1

    def set_sources(
        self,
        statistics: Callable[[], Statistics],
        *,
        engine_up: Callable[[], bool],
        draining: Callable[[], bool] = lambda: False,
        engine: Callable[[], EngineReading | None] | None = None,
    ) -> None:
        """Where gauges are read at each scrape. `engine` None: its metrics are not watched."""
        self._sources = Sources(
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
        return self._classes.get(class_name, self._none).progress()

    def within(
        self, class_name: str, indicator: Indicator, *, threshold_s: float | None
    ) -> tuple[int, int]:
        """(how many kept the objective, how many there were) since the start."""
        counts = self._classes.get(class_name, self._none)
        return counts.within(indicator, threshold_s=threshold_s)

    # Children.

    def _add_class(self, name: str) -> None:
        if name in self._classes:
            self._classes[name] = self._classes.pop(name)  # the latest are kept longest
            return
        self._classes[name] = ClassCounts(
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
            self._tenants.forget_class(name)

    def _count_tokens(
        self, of_class: tuple[Counter, ...], of_tenant: tuple[Counter, ...], usage: Usage
    ) -> None:
        prompt, cached, output = usage.prompt_tokens, usage.cached_tokens, usage.output_tokens
        if not (0 <= cached <= prompt <= MAXIMUM_TOKENS and 0 <= output <= MAXIMUM_TOKENS):
            prompt, output = self._plausible(prompt), self._plausible(output)
            cached = min(prompt, self._plausible(cached))
        for counters in (of_class, of_tenant):
            counters[0].value += prompt
            counters[1].value += cached
            counters[2].value += output

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
            *self._render_state(),
            write_single(names.BUILD_INFO, 1, self._version),
        ]
        return "".join(parts).encode() + generate_latest(self._process)

    def _render_counters(self) -> str:
        classes = self._classes.values()
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
                _counters(names.TENANT_REQUESTS, self._tenants.requests()),
                _counters(names.TENANT_TOKENS, self._tenants.tokens()),
                _counters(names.UNKNOWN_CLASS, (self._unknown_class,)),
                _counters(names.IMPLAUSIBLE_USAGE, (self._implausible,)),
                _counters(names.POLICY_REJECTED, self._rejected.values()),
            )
        )

    def _render_state(self) -> Iterator[str]:
        if self._facts is not None:
            yield write_policy(self._facts, age_s=self.policy_age_s)
        if self._sources is not None:
            yield write_gauges(self._sources, boosts=self._boosts)
            reading = None if self._sources.engine is None else self._sources.engine()
            if reading is not None:
                yield write_engine(reading)

    def _boosts(self, of_class: ClassStatistics) -> float:
        counts = self._classes.get(of_class.name)
        return of_class.boosts if counts is None else counts.boosts.total(of_class.boosts)


def _counters(family: Family, counters: Iterable[Counter]) -> str:
    return write_family(family, [(counter.series, counter.value) for counter in counters])
