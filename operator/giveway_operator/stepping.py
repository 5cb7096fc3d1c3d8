"""How far do weights go at once?

All weights go the same part of their way, the largest that no weight's step forbids: so their sum
is kept, and what holds at both ends of the way holds on it. Classes that tug at each other make
weights turn round: at each turn within two windows the step shrinks to a quarter, down to a
sixteenth, and it grows again after four calm windows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

SMALLEST_STEP_PART = 1 / 16
TURN_DIVISOR = 4
"""Of 1,500 random constant loads, half an hour each, 24 made a weight turn round more than twice
with 2 (by 5 % or more); with 4 it was 3, and none still did in the last ten minutes."""
TURN_WINDOWS = 2
"""A weight that goes the other way within this many windows has turned round."""
CALM_WINDOWS = 4
"""After so long without a turn the step is doubled again."""
NOTICEABLE_RATIO = 0.02
"""Changes below this part of every weight are not worth a new document in every proxy; the last one
on the way to the policy's own weights is."""
_SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """Which way weights went last, so that turning to and fro can be seen and damped."""

    directions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By class: 1 or -1, and when."""
    turned_s: float = 0.0
    """When a weight last turned round, or the step last grew."""
    step_part: float = 1.0
    """Part of the largest step that is taken."""


def move(
    weights: Mapping[str, float],
    wanted: Mapping[str, float],
    swing: Swing,
    *,
    largest_step: float,
    is_way_back: bool,
    now_s: float,
    window_s: float,
) -> tuple[dict[str, float], Swing]:
    """One step of the weights. `is_way_back`: `wanted` are the policy's own weights."""
    noticeable = _SLACK if is_way_back else NOTICEABLE_RATIO
    swing = _calmed(swing, now_s=now_s, window_s=window_s)
    moved = _approach(weights, wanted, largest_step * swing.step_part, noticeable=noticeable)
    if _turns(swing, weights, moved, now_s=now_s, window_s=window_s):
        part = max(SMALLEST_STEP_PART, swing.step_part / TURN_DIVISOR)
        swing = replace(swing, step_part=part, turned_s=now_s)
        moved = _approach(weights, wanted, largest_step * part, noticeable=noticeable)
    return moved, replace(swing, directions=_directions(swing, weights, moved, now_s=now_s))


def _approach(
    weights: Mapping[str, float],
    wanted: Mapping[str, float],
    largest_step: float,
    *,
    noticeable: float,
) -> dict[str, float]:
    """All go the same part of their way: the largest that no weight's step forbids."""
    ways = {name: wanted[name] - weight for name, weight in weights.items()}
    if all(abs(way) <= noticeable * weights[name] + _SLACK for name, way in ways.items()):
        return dict(weights)
    part = min(
        (
            largest_step * weights[name] / abs(way)
            for name, way in ways.items()
            if abs(way) > _SLACK
        ),
        default=1.0,
    )
    if part >= 1.0:
        return dict(wanted)
    return {name: weight + part * ways[name] for name, weight in weights.items()}


def _calmed(swing: Swing, *, now_s: float, window_s: float) -> Swing:
    """The step grows again when nothing turned for a while."""
    if swing.step_part >= 1.0 or now_s - swing.turned_s < CALM_WINDOWS * window_s:
        return swing
    return replace(swing, step_part=min(1.0, swing.step_part * 2), turned_s=now_s)


def _turns(
    swing: Swing,
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    now_s: float,
    window_s: float,
) -> bool:
    return any(
        way * direction < 0 and now_s - moved_s <= TURN_WINDOWS * window_s
        for name, way in _moves(before, after).items()
        for direction, moved_s in (swing.directions.get(name, (0.0, now_s)),)
    )


def _directions(
    swing: Swing, before: Mapping[str, float], after: Mapping[str, float], *, now_s: float
) -> dict[str, tuple[float, float]]:
    moves = {name: (1.0 if way > 0 else -1.0, now_s) for name, way in _moves(before, after).items()}
    kept = {name: each for name, each in swing.directions.items() if name in after}
    return kept | moves


def _moves(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """By how much each weight moved that did so noticeably."""
    ways = {name: after[name] - weight for name, weight in before.items()}
    return {name: way for name, way in ways.items() if abs(way) > NOTICEABLE_RATIO * before[name]}
