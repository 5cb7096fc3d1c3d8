"""What do the rows say? Medians over the rounds, and ratios taken within each round.

Absolute times differ by up to 1.7 between minutes on a shared machine; both sides of a ratio were
measured next to each other.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from giveway_benchmarks.results import CrowdRow, MemoryRow, ResultRow, SpeedRow
from giveway_benchmarks.stands import DIRECT

Figure = Callable[[SpeedRow], float]


def units_per_s(row: SpeedRow) -> float:
    return row.units_per_s


def cpu_us(row: SpeedRow) -> float:
    return row.cpu_us


def p50_us(row: SpeedRow) -> float:
    return row.p50_us


def p99_us(row: SpeedRow) -> float:
    return row.p99_us


def load_share(row: SpeedRow) -> float:
    return row.load_share


class Speeds:
    """Rows of speed, asked for medians."""

    def __init__(self, rows: Sequence[ResultRow]) -> None:
        self.rows = [row for row in rows if isinstance(row, SpeedRow)]

    def pairs(self) -> list[tuple[str, str]]:
        """Scenarios with proxies."""
        return sorted({(row.scenario, row.proxy) for row in self.rows})

    def counted(self, scenario: str, proxy: str) -> tuple[int, int]:
        """Rows, and how many of them failed."""
        mine = [row for row in self.rows if (row.scenario, row.proxy) == (scenario, proxy)]
        return len(mine), sum(bool(row.problems) for row in mine)

    def median(self, scenario: str, proxy: str, figure: Figure) -> float | None:
        """None: no good row."""
        values = [figure(row) for row in self._good(scenario, proxy)]
        return median(values) if values else None

    def ratio(self, scenario: str, proxy: str, other: str, figure: Figure) -> float | None:
        """Median over the rounds in which both were measured. None: there is none."""
        others = {row.round: figure(row) for row in self._good(scenario, other)}
        ratios = [
            figure(row) / others[row.round]
            for row in self._good(scenario, proxy)
            if others.get(row.round)
        ]
        return median(ratios) if ratios else None

    def _good(self, scenario: str, proxy: str) -> list[SpeedRow]:
        return [
            row
            for row in self.rows
            if (row.scenario, row.proxy) == (scenario, proxy) and not row.problems
        ]


def held_mb(rows: Sequence[ResultRow], load: str, proxy: str) -> float | None:
    """Median memory that the held requests of a load take. None: no good row."""
    return _median_mb(
        row.held_bytes
        for row in rows
        if isinstance(row, MemoryRow)
        and (row.load, row.proxy) == (load, proxy)
        and not row.problems
    )


def idle_mb(rows: Sequence[ResultRow], proxy: str) -> float | None:
    """Median memory before anything is held."""
    return _median_mb(
        row.idle_bytes for row in rows if isinstance(row, MemoryRow) and row.proxy == proxy
    )


def _median_mb(sizes: Iterable[int]) -> float | None:
    found = list(sizes)
    return median(found) / 1e6 if found else None


def all_tables(rows: Sequence[ResultRow]) -> str:
    """Everything, as text."""
    parts = [
        _speed_table(Speeds(rows)),
        _memory_table([row for row in rows if isinstance(row, MemoryRow)]),
        _crowd_table([row for row in rows if isinstance(row, CrowdRow)]),
    ]
    return "\n\n".join(part for part in parts if part)


def _speed_table(speeds: Speeds) -> str:
    if not speeds.rows:
        return ""
    head = (
        f"{'scenario':12}{'proxy':10}{'per s':>10}{'x direct':>10}{'CPU us':>9}{'x common':>10}"
        f"{'p50 us':>10}{'p99 us':>10}{'load':>6}{'rounds':>8}{'failed':>8}"
    )
    return "\n".join([head, *(_speed_line(speeds, *pair) for pair in speeds.pairs())])


def _speed_line(speeds: Speeds, scenario: str, proxy: str) -> str:
    def of(figure: Figure, digits: int) -> str:
        return _number(speeds.median(scenario, proxy, figure), digits)

    rows, failed = speeds.counted(scenario, proxy)
    return (
        f"{scenario:12}{proxy:10}{of(units_per_s, 0):>10}"
        f"{_number(speeds.ratio(scenario, proxy, DIRECT, units_per_s), 2):>10}"
        f"{of(cpu_us, 1):>9}{_number(speeds.ratio(scenario, proxy, 'common', cpu_us), 2):>10}"
        f"{of(p50_us, 0):>10}{of(p99_us, 0):>10}{of(load_share, 2):>6}{rows:>8}{failed:>8}"
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _memory_table(rows: Sequence[MemoryRow]) -> str:
    if not rows:
        return ""
    head = f"{'load':12}{'proxy':10}{'idle MB':>9}{'held MB':>9}{'in engine':>11}  problems"
    lines = [
        f"{row.load:12}{row.proxy:10}{row.idle_bytes / 1e6:>9.1f}{row.held_bytes / 1e6:>9.1f}"
        f"{row.in_engine:>11}  {row.problems or ''}"
        for row in sorted(rows, key=lambda row: (row.load, row.proxy))
    ]
    return "\n".join([head, *lines])


def _crowd_table(rows: Sequence[CrowdRow]) -> str:
    if not rows:
        return ""
    head = (
        f"{'crowd':10}{'group':16}{'answers/s':>10}{'tokens/s':>10}{'answered':>10}{'refused':>9}"
        f"{'p50 ms':>8}{'p99 ms':>8}{'CPU':>6}{'MB':>7}  problems"
    )
    lines = [
        f"{row.crowd:10}{row.group:16}{row.answers_per_s:>10,.0f}{row.tokens_per_s:>10,.0f}"
        f"{row.all_answers:>10,}{row.refused:>9,}{row.p50_us / 1e3:>8.1f}{row.p99_us / 1e3:>8.1f}"
        f"{row.cpu_share:>6.2f}{row.pss_bytes / 1e6:>7.0f}  {row.problems or ''}"
        for row in rows
    ]
    return "\n".join([head, *lines])
