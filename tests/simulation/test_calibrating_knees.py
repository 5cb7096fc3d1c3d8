"""Knees and lines: where a curve bends is found on curves whose bend is known."""

import itertools
import math
import random

import pytest
from giveway_simulation.knees import (
    Line,
    Point,
    fewest_with,
    knee_of_latency,
    rising,
    robust_line,
)
from hypothesis import given
from hypothesis import strategies as st


def curve(*points: tuple[float, float]) -> list[Point]:
    return [Point(x=x, y=y) for x, y in points]


def queue_curve(capacity: float, *, service_s: float = 0.1) -> list[Point]:
    """Latency of a queue with one server, service / (1 - load), to just under saturation."""
    loads = [0.1 * step for step in range(1, 10)] + [0.95, 0.97]
    return [Point(x=load * capacity, y=service_s / (1 - load)) for load in loads]


@pytest.mark.parametrize(
    ("points", "knee"),
    [
        # Flat, then a wall: the last point before the wall.
        (curve((1, 1), (2, 1), (3, 1), (4, 1), (5, 9)), Point(x=4, y=1)),
        # Two straight parts of slope 0.1 and 4 meet at x = 6.
        (
            curve(*((x, 1 + 0.1 * x if x <= 6 else 1.6 + 4 * (x - 6)) for x in range(1, 11))),
            Point(x=6, y=1.6),
        ),
        # What comes after ten times the idle latency moves nothing.
        (curve((1, 1), (2, 1), (3, 1), (4, 2), (5, 12), (6, 900), (7, 5000)), Point(x=4, y=2)),
    ],
)
def test_a_known_bend_is_found(points: list[Point], knee: Point) -> None:
    """Y10: the knee of p95 is the last good point."""
    assert knee_of_latency(points) == knee


@pytest.mark.parametrize(
    "points",
    [
        curve((1, 1), (2, 2), (3, 3), (4, 4)),
        curve((1, 5), (2, 5), (3, 5)),
        curve((1, 5), (2, 4), (3, 3)),
        curve((1, 1), (2, 9)),
        [],
    ],
)
def test_a_curve_without_a_bend_has_no_knee(points: list[Point]) -> None:
    """Straight, flat, falling and too short curves say nothing instead of something."""
    assert knee_of_latency(points) is None


@pytest.mark.parametrize("capacity", [1.0, 14.2, 3000.0])
def test_the_knee_of_a_queue_scales_with_its_capacity(capacity: float) -> None:
    """For 1 / (1 - load) the knee lies between loads of 0.6 and 0.8, whatever the unit."""
    knee = knee_of_latency(queue_curve(capacity))
    assert knee is not None
    assert 0.6 <= knee.x / capacity <= 0.8


def test_noise_of_a_tenth_moves_the_knee_by_one_point_at_most() -> None:
    """Percentiles of short steps are noisy; the answer must not jump."""
    generator = random.Random(5)
    exact = queue_curve(10.0)
    true = knee_of_latency(exact)
    assert true is not None
    place = [point.x for point in exact].index(true.x)
    for _ in range(200):
        noisy = [Point(x=p.x, y=p.y * generator.uniform(0.9, 1.1)) for p in exact]
        knee = knee_of_latency(noisy)
        assert knee is not None
        assert abs([point.x for point in exact].index(knee.x) - place) <= 1


@pytest.mark.parametrize(
    ("share", "x"),
    [(0.5, 2), (0.9, 4), (0.95, 8), (1.0, 16)],
)
def test_the_fewest_with_a_share_of_the_best(share: float, x: float) -> None:
    """Throughput 5, 8, 9.4, 10 at 2, 4, 8, 16: half of 10 at 2, nine tenths at 8 and so on."""
    points = curve((1, 3), (2, 5), (4, 9.2), (8, 9.6), (16, 10))
    assert fewest_with(points, share=share).x == x


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_rising_never_falls_and_keeps_the_sum(values: list[float]) -> None:
    """Pooling neighbours is an average: nothing is invented."""
    points = [Point(x=index, y=value) for index, value in enumerate(values)]
    smooth = [point.y for point in rising(points)]
    assert all(one <= other + 1e-6 for one, other in itertools.pairwise(smooth))
    assert math.isclose(sum(smooth), sum(values), rel_tol=1e-9, abs_tol=1e-6)


def test_a_rising_curve_stays_as_it_is() -> None:
    """Smoothing changes only what falls."""
    points = curve((1, 1), (2, 4), (3, 3), (4, 9))
    assert rising(points) == curve((1, 1), (2, 3.5), (3, 3.5), (4, 9))


def test_a_quarter_of_wild_points_does_not_move_the_line() -> None:
    """Theil-Sen: 23.5 us a token are found beside stalls of seconds."""
    true = [Point(x=256 * step, y=0.007 + 23.5e-6 * 256 * step) for step in range(1, 17)]
    wild = [Point(x=point.x, y=point.y + 3.0) for point in true[::4]]
    points = [point for index, point in enumerate(true) if index % 4] + wild
    line = robust_line(points)
    assert line.slope == pytest.approx(23.5e-6, rel=0.02)
    assert line.base == pytest.approx(0.007, abs=0.001)


def test_a_line_needs_two_places() -> None:
    """One length alone has no slope."""
    with pytest.raises(ValueError, match="two different x"):
        robust_line(curve((5, 1), (5, 2)))
    assert robust_line(curve((0, 1), (2, 5))) == Line(base=1, slope=2)
