"""What was won? One plain sentence from the figures, and an honest one when nothing was."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from giveway_simulation.demo_figures import ClassFigures, Latency, RunFigures
from giveway_simulation.demo_load import DemoClass

_POINTS = 0.02
"""Attainment that differs by less is called the same."""
_STANDARD_ERRORS = 2.0
"""And by less than so many standard errors: a few requests of a short run."""
_FASTER = 2.0
"""Where a target is out of reach anyway, a p95 that is shorter by this factor is a gain too."""
_TOKENS_KEPT = 0.95


class Won(StrEnum):
    """The verdict in one word."""

    YES = "yes"
    PARTLY = "partly"
    """One interactive class gained, another lost; or the engine did clearly less."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run proved."""

    won: Won
    sentence: str


def judge(direct: RunFigures, giveway: RunFigures, classes: Sequence[DemoClass]) -> Verdict:
    """Compare two runs of the same plan; both figures are in the order of `classes`."""
    triples = list(zip(classes, direct.classes, giveway.classes, strict=True))
    targeted = [triple for triple in triples if triple[0].first_token_target_s is not None]
    kept = giveway.tokens_per_s / direct.tokens_per_s if direct.tokens_per_s else 1.0
    gained = any(_is_better(with_it, without) for _, without, with_it in targeted)
    lost = kept < _TOKENS_KEPT or any(
        _is_better(without, with_it) for _, without, with_it in targeted
    )
    match gained, lost:
        case True, False:
            won, opening = Won.YES, "Through giveway "
        case True, True:
            won, opening = Won.PARTLY, "A mixed result. Through giveway "
        case _:
            won, opening = Won.NOTHING, "Nothing was won in this run. Through giveway "
    parts = [opening + "; ".join(_latency_clause(*triple) for triple in targeted) + "."]
    batch = [triple for triple in triples if triple[0].first_token_target_s is None]
    rest = [*(_batch_clause(*triple) for triple in batch), _total_clause(kept)]
    parts.append("Meanwhile " + ", and ".join(rest) + ".")
    if won is Won.NOTHING and all(
        (direct_class.attainment or 0.0) > 1.0 - _POINTS for _, direct_class, _ in targeted
    ):
        parts.append("The engine was not full, so nothing had to give way: try a higher --load.")
    return Verdict(won=won, sentence=" ".join(parts))


def _is_better(one: ClassFigures, other: ClassFigures) -> bool:
    """Did clearly more of its requests come in time, or, at no cost there, much faster?"""
    if not one.judged or not other.judged:
        return False
    pooled = (one.in_time + other.in_time) / (one.judged + other.judged)
    error = math.sqrt(pooled * (1 - pooled) * (1 / one.judged + 1 / other.judged))
    margin = max(_POINTS, _STANDARD_ERRORS * error)
    difference = one.in_time / one.judged - other.in_time / other.judged
    if abs(difference) >= margin:
        return difference > 0
    if one.p95 is None or other.p95 is None:
        return False
    return one.p95.value_s * _FASTER <= other.p95.value_s and pooled < 1 - _POINTS


def _latency_clause(demo_class: DemoClass, direct: ClassFigures, giveway: ClassFigures) -> str:
    target = duration(demo_class.first_token_target_s or 0.0)
    return (
        f"{percent(giveway.attainment)} of {demo_class.label} requests had their first token "
        f"within {target}, directly {percent(direct.attainment)} "
        f"(p95 {latency(giveway.p95)}, directly {latency(direct.p95)})"
    )


def _batch_clause(demo_class: DemoClass, direct: ClassFigures, giveway: ClassFigures) -> str:
    part = (
        f" ({giveway.tokens_per_s / direct.tokens_per_s * 100:.0f} % of direct)"
        if direct.tokens_per_s
        else ""
    )
    return f"{demo_class.label} went on at {giveway.tokens_per_s:,.0f} tokens/s{part}"


def _total_clause(kept: float) -> str:
    return f"the engine did {kept * 100:.1f} % of the tokens that it did directly"


def latency(value: Latency | None) -> str:
    """A percentile for people."""
    if value is None:
        return "-"
    if math.isinf(value.value_s):
        return "never"
    return f"{'>' if value.at_least else ''}{duration(value.value_s)}"


def duration(seconds: float) -> str:
    """Two or three digits with a unit."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s".replace(".0 s", " s") if seconds < 9.95 else f"{seconds:.0f} s"


def percent(ratio: float | None) -> str:
    """A share; 100 % only when it is all of them."""
    if ratio is None:
        return "-"
    if ratio in {0.0, 1.0}:
        return f"{ratio:.0%}".replace("%", " %")
    return f"{min(ratio * 100, 99.9):.1f} %"
