"""Where does a measured curve bend, and how steep is it? Pure functions on points.

- `knee_of_latency`: Kneedle (Satopaa, Albrecht, Irwin, Raghavan: "Finding a Kneedle in a Haystack:
  Detecting Knee Points in System Behavior", ICDCS Workshops 2011,
  https://doi.org/10.1109/ICDCSW.2011.20) for an increasing convex curve: scale both axes to 0..1,
  the knee is where the curve lies farthest below the diagonal. Changed: the curve is first made
  increasing (`rising`), because a percentile of a short step is noisy; and latencies above a
  multiple of the smallest count as that multiple, because beyond saturation they only say how long
  the step lasted, and would pull the knee to the end.
- `fewest_with`: throughput saturates without a sharp bend, and Kneedle's answer would depend on how
  far the curve was measured. So: the smallest place that has a stated share of the best.
- `robust_line`: Theil-Sen, the median of all pairwise slopes (Theil 1950, Sen 1968); up to 29 % of
  the points may be anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

SATURATED_MULTIPLE = 10.0
"""A p95 of ten times that of a nearly idle engine is a queue that grows, however long one waits."""
LEAST_BEND = 0.1
"""Distance from the diagonal, on axes of 0..1, under which a curve is called straight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement."""

    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """y = base + slope x."""

    base: float
    slope: float


def knee_of_latency(curve: Sequence[Point]) -> Point | None:
    """The last good point of latency over load; None if the curve does not bend upwards.

    `curve` is in the order of rising load. The answer is one of its points, after smoothing.
    """
    if len(curve) < 3:
        return None
    ceiling = SATURATED_MULTIPLE * min(point.y for point in curve)
    smooth = rising([Point(x=point.x, y=min(point.y, ceiling)) for point in curve])
    first, last = smooth[0], smooth[-1]
    if last.x <= first.x or last.y <= first.y:
        return None
    below = [
        (point.x - first.x) / (last.x - first.x) - (point.y - first.y) / (last.y - first.y)
        for point in smooth
    ]
    best = max(below)
    return smooth[below.index(best)] if best >= LEAST_BEND else None


def fewest_with(curve: Sequence[Point], *, share: float) -> Point:
    """The point of smallest x that has `share` of the largest y; the curve has a point at least."""
    enough = share * max(point.y for point in curve)
    return min((point for point in curve if point.y >= enough), key=lambda point: point.x)


def rising(curve: Sequence[Point]) -> list[Point]:
    """The non-decreasing curve nearest in squares: neighbours that fall become their mean."""
    pools: list[tuple[float, int]] = []
    for point in curve:
        mean, count = point.y, 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean = (before * many + mean * count) / (many + count)
            count += many
        pools.append((mean, count))
    levels = [mean for mean, count in pools for _ in range(count)]
    return [Point(x=point.x, y=level) for point, level in zip(curve, levels, strict=True)]


def robust_line(points: Sequence[Point]) -> Line:
    """The line through most of the points; raises `ValueError` without two different x."""
    slopes = [
        (other.y - one.y) / (other.x - one.x)
        for one, other in combinations(points, 2)
        if other.x != one.x
    ]
    if not slopes:
        raise ValueError("a line needs two different x")
    slope = median(slopes)
    return Line(base=median(point.y - slope * point.x for point in points), slope=slope)
