"""Do two simulators that share no code and no seeds find the same?

An earlier simulation of the same pod, written apart from this one, left its figures: means of five
seeds, for which places of the traces is not known. The place matters more than anything else: at
0.8 times the load, vLLM's priorities keep 41 to 75 % of the second class in time, depending on
where in the recorded hour a run begins. So there are two tests. The traces' own clock is how the
earlier figures were found, as far as can be told: stretched cuts, superposed copies and other
arrivals fit them worse or not at all. Under it the question is whether they could be five runs of
this simulator. Under the stretched cuts of the published comparison, whose five runs are always the
same, what is checked is how far its figures are from the earlier ones, cell by cell.
"""

from statistics import fmean, stdev

import pytest
from giveway_scheduler import Algorithm
from giveway_simulation.comparing import (
    ENGINE_PRIORITY,
    FIFO,
    LOADS,
    SEEDS,
    STRICT,
    Figures,
    judge,
    mean_of,
)
from giveway_simulation.workloads import Pace

SLO_AWARE = Algorithm.SLO_AWARE.value
BASELINES = (FIFO, STRICT, ENGINE_PRIORITY)

Cell = tuple[float, float, float]
"""Share of the first two classes within their objective in %, batch tokens a second."""

FOUND_BEFORE: dict[str, tuple[Cell, Cell, Cell]] = {
    FIFO: ((46, 46, 7814), (0, 1, 8726), (0, 0, 9265)),
    STRICT: ((85, 78, 7789), (84, 30, 4871), (88, 0, 3)),
    ENGINE_PRIORITY: ((100, 79, 7847), (100, 27, 5832), (100, 0, 21)),
    SLO_AWARE: ((100, 93, 7818), (100, 81, 5430), (100, 56, 1368)),
}
AWAY_BY_AT_MOST: dict[str, tuple[Cell, Cell, Cell]] = {
    FIFO: ((2, 10, 230), (3, 2, 490), (1, 1, 360)),
    STRICT: ((10, 9, 250), (12, 4, 790), (8, 1, 50)),
    ENGINE_PRIORITY: ((1, 4, 190), (1, 2, 620), (1, 1, 50)),
    SLO_AWARE: ((1, 3, 230), (1, 6, 1000), (1, 1, 150)),
}
"""What was measured, and a point or fifty tokens. More than four points is the five places: fifteen
other ones bring strict order's first class from 73 to 80 % at 1.2 times the load, and from 81 to
85 % at twice. The 6 of SLOAware go with 950 tokens a second more for batch; its settings (gate,
weight of outputs, boosts, batch seats, one step sooner) move it by one."""

RUNS = 12
EARLIER_RUNS = 5
STANDARD_ERRORS = 3.0
LEAST_ERRORS: Cell = (1.0, 1.0, 60.0)
"""Of a cell: figures were rounded, and constants of the engine differ a little."""


def cell_of(figures: Figures) -> Cell:
    first, second = figures.attained
    return (100 * first, 100 * second, figures.batch_tokens_per_s)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", BASELINES)
def test_earlier_figures_could_be_five_runs_under_the_traces_own_clock(name: str) -> None:
    """Each lies within three standard errors of a mean of five, all together about one away."""
    away: list[float] = []
    for load, before in zip(LOADS, FOUND_BEFORE[name], strict=True):
        runs = [cell_of(judge(name, load, seed=seed, pace=Pace.RECORDED)) for seed in range(RUNS)]
        for value, least, ours in zip(before, LEAST_ERRORS, zip(*runs, strict=True), strict=True):
            error = max(least, stdev(ours) / EARLIER_RUNS**0.5)
            away.append((value - fmean(ours)) / error)
    assert max(map(abs, away)) <= STANDARD_ERRORS, away
    assert fmean(each**2 for each in away) <= 1.5, away


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FOUND_BEFORE)
def test_published_figures_are_no_farther_from_the_earlier_ones_than_is_known(name: str) -> None:
    """Cell by cell."""
    for load, before, most in zip(LOADS, FOUND_BEFORE[name], AWAY_BY_AT_MOST[name], strict=True):
        figures = cell_of(mean_of([judge(name, load, seed=seed) for seed in SEEDS]))
        for value, ours, by in zip(before, figures, most, strict=True):
            assert abs(value - ours) <= by, (load, figures, before)
