"""What is Prometheus asked, and what do its answers mean?

One query for each indicator, for all classes of a policy:

    sum by (class, le) (
      increase(HISTOGRAM_bucket{le=~"THRESHOLDS"}[WINDOW]) and on (job, instance) PODS)

- PODS are the proxies that run this policy now: `giveway_policy_info{policy="NAMESPACE/NAME"}`, as
  far as its last sample is fresh. So series of pods that are gone, or that a stuck Prometheus still
  holds, do not count, and two policies with classes of the same name do not mix. All that this asks
  of the scrape are the labels `job` and `instance`, which every scrape has.
- Thresholds are bucket bounds, so how many were good is read off and not interpolated. A bound may
  be written `1` or `1.0` (Prometheus 3 writes all as `1.0`); both are asked for, and added.
- The count of scrapes in the window comes along for each bucket: a bucket that is younger than the
  count of all, because the policy has a new threshold, would make the ratio too small.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from giveway_policy.documents import PolicyName
from giveway_policy.enumerations import Indicator
from giveway_policy.resources import SLOPolicySpec

HISTOGRAMS: Final[Mapping[Indicator, str]] = {
    Indicator.TIME_TO_FIRST_TOKEN: "giveway_time_to_first_token_seconds",
    Indicator.INTER_TOKEN_LATENCY: "giveway_inter_token_latency_seconds",
    Indicator.REQUEST_DURATION: "giveway_request_duration_seconds",
    Indicator.QUEUE_WAIT: "giveway_queue_wait_seconds",
}
FAILED_OUTCOMES: Final = frozenset(
    {
        *("engine_failed", "engine_timeout", "engine_unavailable"),
        *("queue_timeout", "draining"),
    }
)
"""Values of the label `outcome` that count against an error rate, as on the proxy's own page."""
_NO_CLASS = "none"
_KIND = "giveway_kind"
_INCREASE, _SCRAPES = "increase", "scrapes"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series of an answer."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which series are asked for."""

    policy: PolicyName
    window_s: int
    freshness_s: int = 120
    """How old the last sample of a proxy may be. Two scrapes a minute apart may fail."""
    matchers: str = ""
    """More label matchers for every series, like `cluster="a"`."""
    includes_gone: bool = False
    """Whether proxies count that ran the policy within the window and are gone."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one class and one label value: events, and scrapes that saw them."""

    events: float | None
    """None: there is no number, since there was one scrape only."""
    scrapes: float


def latency_query(indicator: Indicator, thresholds_ms: Iterable[int], selection: Selection) -> str:
    """Samples have the labels `class` and `le`; read them by `read_counts(..., label="le")`."""
    written = [text for each in sorted(set(thresholds_ms)) for text in _bounds(each / 1000)]
    bounds = "|".join((*(re.escape(each) for each in written), r"\+Inf"))
    series = _series(
        f"{HISTOGRAMS[indicator]}_bucket", selection, f'le=~"{bounds.translate(_ESCAPES)}"'
    )
    return _counted(series, "le", selection)


def outcomes_query(selection: Selection) -> str:
    """Samples have the labels `class` and `outcome`."""
    return _counted(_series("giveway_requests_total", selection), "outcome", selection)


def acknowledged_query(selection: Selection) -> str:
    """How many fresh proxies run which document: labels `epoch`, `generation` and `hash`."""
    return f"count by (epoch, generation, hash) ({_fresh(selection)})"


def thresholds_by_indicator(spec: SLOPolicySpec) -> dict[Indicator, tuple[int, ...]]:
    """The thresholds of the policy in milliseconds; an indicator without any has ()."""
    found: dict[Indicator, set[int]] = {}
    for each in spec.classes:
        for objective in each.objectives:
            thresholds = found.setdefault(objective.indicator, set())
            if objective.threshold_milliseconds is not None:
                thresholds.add(objective.threshold_milliseconds)
    return {indicator: tuple(sorted(each)) for indicator, each in found.items()}


def read_counts(samples: Sequence[Sample], *, label: str) -> dict[tuple[str, str], Counts]:
    """By class and value of `label`; bounds of a histogram as `bound_text` writes them.

    Raises `ValueError` for what is no count: not finite or below 0.
    """
    events: dict[tuple[str, str], float] = {}
    scrapes: dict[tuple[str, str], float] = {}
    for sample in samples:
        value = sample.labels.get(label, "")
        if label == "le":
            value = bound_text(_number(value))
        if not (math.isfinite(sample.value) and sample.value >= 0.0):
            raise ValueError(f"a count is {sample.value}")
        kind = sample.labels.get(_KIND)
        counts = events if kind == _INCREASE else scrapes
        key = (sample.labels.get("class", ""), value)
        counts[key] = counts.get(key, 0.0) + sample.value
    return {key: Counts(events.get(key), count) for key, count in scrapes.items()}


def bound_text(bound_s: float) -> str:
    """One way of writing a bound: as floats are compared, not texts."""
    return "+Inf" if bound_s == math.inf else repr(bound_s)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"a bucket bound is {text[:20]!r}") from None


def _bounds(bound_s: float) -> tuple[str, ...]:
    return (f"{bound_s:.0f}", repr(bound_s)) if bound_s.is_integer() else (repr(bound_s),)


def _counted(series: str, label: str, selection: Selection) -> str:
    pods = _pods(selection)
    ranged = f"{series}[{selection.window_s}s]"
    return " or ".join(
        f"label_replace(sum by (class, {label}) ({function}({ranged}) and on (job, instance) "
        f'({pods})), "{_KIND}", "{kind}", "", "")'
        for function, kind in (("increase", _INCREASE), ("count_over_time", _SCRAPES))
    )


def _pods(selection: Selection) -> str:
    if selection.includes_gone:
        return f"last_over_time({_info(selection)}[{selection.window_s}s])"
    return _fresh(selection)


def _fresh(selection: Selection) -> str:
    return f"timestamp({_info(selection)}) > time() - {selection.freshness_s}"


def _info(selection: Selection) -> str:
    name = str(selection.policy).translate(_ESCAPES)
    return _join("giveway_policy_info", f'policy="{name}"', selection.matchers)


def _series(name: str, selection: Selection, *matchers: str) -> str:
    return _join(name, f'class!="{_NO_CLASS}"', *matchers, selection.matchers)


def _join(name: str, *matchers: str) -> str:
    return f"{name}{{{','.join(each for each in matchers if each)}}}"
