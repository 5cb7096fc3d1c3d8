"""What do the records of a load run say? Latency, attainment and throughput of each kind.

Judged are requests whose time is up: due at least their target ago. Every one of them counts, also
those that were refused, broke, or still wait: without a first token in time it missed. In
percentiles a request that still waits stands with the time it has waited so far, as a lower bound,
so that a stalled engine cannot look fast; one that got no answer at all stands at infinity.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from giveway_simulation.demo_load import DemoClass
from giveway_simulation.load_records import Ending, Measured

_UNTARGETED_WAIT_S = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A percentile."""

    value_s: float
    """Infinite: that share of requests got no answer."""
    at_least: bool
    """The request at this place still waited: the true value is higher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """One class in one run."""

    judged: int
    in_time: int
    """Of `judged`, those with a first token within the target; all answered ones without one."""
    unanswered: int
    """Of `judged`, those that were refused or broke before their first token."""
    p50: Latency | None
    """None, as below: nothing judged yet."""
    p95: Latency | None
    p99: Latency | None
    tokens_per_s: float
    """Prompt and output, over the time that was asked for."""
    finished: int

    @property
    def attainment(self) -> float | None:
        """Share in time, 0 to 1. None: nothing judged yet."""
        return self.in_time / self.judged if self.judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """All classes of one run, in the order of the traffic."""

    classes: tuple[ClassFigures, ...]
    tokens_per_s: float
    """Of all classes, since the start."""
    gap_p50_s: float | None
    """Time between two tokens of a stream of the first class. None: too few yet."""
    gap_p99_s: float | None
    failed: int
    """Requests of any class that broke: not refused, not cut by the end of the run."""
    first_failure: str | None
    """None: none failed."""


def class_figures(
    record: Iterable[Measured],
    demo_class: DemoClass,
    *,
    now_s: float,
    throughput_from_s: float = 0.0,
) -> ClassFigures:
    """The figures of one class at a moment of the run, or at its end."""
    own = [m for m in record if m.planned.class_name == demo_class.class_name]
    target_s = demo_class.first_token_target_s
    patience_s = _UNTARGETED_WAIT_S if target_s is None else target_s
    judged = [m for m in own if m.planned.due_s + patience_s <= now_s]
    waits = sorted((first_token_wait_s(m, now_s=now_s) for m in judged), key=lambda wait: wait[0])
    limit_s = math.inf if target_s is None else target_s
    spent_s = now_s - throughput_from_s
    tokens = sum(tokens_between(m, throughput_from_s, now_s) for m in own)
    return ClassFigures(
        judged=len(judged),
        in_time=sum(not waiting and wait_s <= limit_s for wait_s, waiting in waits),
        unanswered=sum(math.isinf(wait_s) for wait_s, _ in waits),
        p50=percentile(waits, 0.50),
        p95=percentile(waits, 0.95),
        p99=percentile(waits, 0.99),
        tokens_per_s=tokens / spent_s if spent_s > 0 else 0.0,
        finished=sum(m.ending is Ending.COMPLETED for m in own),
    )


def run_figures(
    record: Sequence[Measured],
    classes: Sequence[DemoClass],
    *,
    now_s: float,
    batch_from_s: float,
) -> RunFigures:
    """All figures of a run; classes without a target are counted from `batch_from_s` on."""
    first = [m for m in record if m.planned.class_name == classes[0].class_name]
    gaps = sorted(
        later - earlier
        for m in first
        for earlier, later in zip(m.token_times_s, m.token_times_s[1:], strict=False)
    )
    failures = [m for m in record if m.ending is Ending.FAILED or m.ending is Ending.NOT_SENT]
    return RunFigures(
        classes=tuple(
            class_figures(
                record,
                demo_class,
                now_s=now_s,
                throughput_from_s=batch_from_s if demo_class.first_token_target_s is None else 0.0,
            )
            for demo_class in classes
        ),
        tokens_per_s=sum(tokens_between(m, 0.0, now_s) for m in record) / now_s if now_s else 0.0,
        gap_p50_s=_at(gaps, 0.50),
        gap_p99_s=_at(gaps, 0.99),
        failed=len(failures),
        first_failure=next(
            (m.error or str(m.ending) for m in failures if m.error or m.ending), None
        ),
    )


def tokens_between(measured: Measured, from_s: float, to_s: float) -> int:
    """Tokens that the engine did for a request in a time: its prompt when the first one came."""
    times = measured.token_times_s
    if not times or times[0] >= to_s:
        return 0
    output = bisect_left(times, to_s) - bisect_left(times, from_s)
    return output + (measured.prompt_tokens if times[0] >= from_s else 0)


def percentile(waits: Sequence[tuple[float, bool]], ratio: float) -> Latency | None:
    """Nearest rank of sorted (time, still waiting) pairs; None if there are none.

    A higher rank may hide behind one that still waits, so from the first such pair on every
    percentile is a lower bound.
    """
    if not waits:
        return None
    rank = max(0, math.ceil(ratio * len(waits)) - 1)
    return Latency(
        value_s=waits[rank][0], at_least=any(waiting for _, waiting in waits[: rank + 1])
    )


def first_token_wait_s(measured: Measured, *, now_s: float) -> tuple[float, bool]:
    """How long the first token took, and whether it is still awaited at `now_s`.

    Infinite: the request ended without one.
    """
    latency_s = measured.first_token_latency_s
    if latency_s is not None and measured.planned.due_s + latency_s <= now_s:
        return latency_s, False
    if measured.ending in {None, Ending.UNFINISHED} or latency_s is not None:
        return max(0.0, now_s - measured.planned.due_s), True
    return math.inf, False


def _at(ordered: Sequence[float], ratio: float) -> float | None:
    return ordered[max(0, math.ceil(ratio * len(ordered)) - 1)] if len(ordered) >= 100 else None
