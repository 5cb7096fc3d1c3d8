"""What is counted for one class?

Counters and histograms as plain attributes, so that counting is one addition. The text of each
series is made once, when the class appears.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from giveway_policy.enumerations import Indicator

from giveway_admission import metric_names as names
from giveway_admission.engine_watching import RisingTotal
from giveway_admission.histograms import Histogram
from giveway_admission.outcomes import Outcome

FAILURES = (
    *(Outcome.ENGINE_FAILED, Outcome.ENGINE_TIMEOUT, Outcome.ENGINE_UNAVAILABLE),
    *(Outcome.QUEUE_TIMEOUT, Outcome.DRAINING),
)
"""Ends for which neither the client nor its limits are the cause: what an error rate counts."""


@dataclass(slots=True)
class Counter:
    """One series and its value."""

    series: str
    value: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassProgress:
    """What was counted for a class since the start."""

    arrived: int
    outcomes: Mapping[str, int]
    """By outcome; those that never happened are left out."""
    tokens: Mapping[str, int]
    """By kind."""


class ClassCounts:
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
        self.arrived = Counter(names.ARRIVED.series(label))
        self.outcomes = {
            outcome: Counter(names.REQUESTS.series(label, outcome)) for outcome in Outcome
        }
        self.tokens = tuple(Counter(names.TOKENS.series(label, kind)) for kind in names.TOKEN_KINDS)
        self.boosts = RisingTotal()
        self.queue_wait = queue_wait
        self.first_token = first_token
        self.token_gap = token_gap
        self.duration = duration

    def progress(self) -> ClassProgress:
        return ClassProgress(
            arrived=self.arrived.value,
            outcomes={
                str(outcome): counter.value
                for outcome, counter in self.outcomes.items()
                if counter.value
            },
            tokens={
                kind: counter.value
                for kind, counter in zip(names.TOKEN_KINDS, self.tokens, strict=True)
            },
        )

    def within(self, indicator: Indicator, *, threshold_s: float | None) -> tuple[int, int]:
        """(how many kept the objective, how many there were) since the start."""
        match indicator:
            case Indicator.TIME_TO_FIRST_TOKEN:
                histogram = self.first_token
            case Indicator.INTER_TOKEN_LATENCY:
                histogram = self.token_gap
            case Indicator.REQUEST_DURATION:
                histogram = self.duration
            case Indicator.QUEUE_WAIT:
                histogram = self.queue_wait
            case Indicator.ERROR_RATE:
                ended = sum(counter.value for counter in self.outcomes.values())
                failed = sum(self.outcomes[outcome].value for outcome in FAILURES)
                return ended - failed, ended
            case _:
                assert_never(indicator)
        return histogram.within(threshold_s or 0.0), histogram.count
