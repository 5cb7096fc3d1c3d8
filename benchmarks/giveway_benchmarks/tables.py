"""What do the rows say? Medians over the rounds, and ratios taken within each round.

Absolute times differ by up to 1.7 between minutes on a shared machine; both sides of a ratio were
measured next to each other.
"""

from collections.abc import Callable, Sequence
from statistics import median

from giveway_benchmarks.measuring import DIRECT, Row

Figure = Callable[[Row], float]


def median_of(rows: Sequence[Row], scenario: str, proxy: str, figure: Figure) -> float | None:
    """None: no good row."""
    values = [figure(row) for row in _good(rows, scenario, proxy)]
    return median(values) if values else None


def median_ratio(
    rows: Sequence[Row], scenario: str, proxy: str, other: str, figure: Figure
) -> float | None:
    """Of the rounds in which both were measured. None: there is none."""
    others = {row.round: figure(row) for row in _good(rows, scenario, other)}
    ratios = [
        figure(row) / others[row.round]
        for row in _good(rows, scenario, proxy)
        if others.get(row.round)
    ]
    return median(ratios) if ratios else None


def _good(rows: Sequence[Row], scenario: str, proxy: str) -> list[Row]:
    return [r for r in rows if r.scenario == scenario and r.proxy == proxy and not r.failed]


def table(rows: Sequence[Row]) -> str:
    """All medians, as text."""
    head = (
        f"{'scenario':12}{'proxy':10}{'per s':>10}{'x direct':>10}{'CPU us':>9}{'x common':>10}"
        f"{'p50 us':>10}{'p99 us':>10}{'load':>6}{'rounds':>8}{'failed':>8}"
    )
    pairs = dict.fromkeys((row.scenario, row.proxy) for row in rows)
    lines = [_line(rows, scenario, proxy) for scenario, proxy in sorted(pairs)]
    return "\n".join([head, *lines])


def _line(rows: Sequence[Row], scenario: str, proxy: str) -> str:
    def of(figure: Figure, digits: int) -> str:
        value = median_of(rows, scenario, proxy, figure)
        return "-" if value is None else f"{value:,.{digits}f}"

    def ratio(other: str, figure: Figure) -> str:
        value = median_ratio(rows, scenario, proxy, other, figure)
        return "-" if value is None else f"{value:.2f}"

    mine = [row for row in rows if row.scenario == scenario and row.proxy == proxy]
    return (
        f"{scenario:12}{proxy:10}{of(lambda r: r.units_per_s, 0):>10}"
        f"{ratio(DIRECT, lambda r: r.units_per_s):>10}{of(lambda r: r.cpu_us, 1):>9}"
        f"{ratio('common', lambda r: r.cpu_us):>10}{of(lambda r: r.p50_us, 0):>10}"
        f"{of(lambda r: r.p99_us, 0):>10}{of(lambda r: r.load_share, 2):>6}"
        f"{len(mine):>8}{sum(row.failed for row in mine):>8}"
    )
