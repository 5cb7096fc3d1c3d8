"""What stands in the README: targets, tables, machine. Written anew from the rows each time."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from giveway_benchmarks.machines import machine, versions
from giveway_benchmarks.memory import HELD_LOADS
from giveway_benchmarks.plots import plot_cpu, plot_delays_and_memory
from giveway_benchmarks.results import CrowdRow, MemoryRow, ResultRow
from giveway_benchmarks.scenarios import SCENARIOS, Scenario
from giveway_benchmarks.tables import (
    Figure,
    Speeds,
    cpu_us,
    held_mb,
    idle_mb,
    load_share,
    p50_us,
    p99_us,
    units_per_s,
)
from giveway_benchmarks.targets import verdicts

FOLDER = Path(__file__).parents[1]
_BEGIN, _END = "<!-- results begin -->", "<!-- results end -->"


def publish(rows: Sequence[ResultRow]) -> None:
    """Replace the results in the README, the plots and the rows beside it."""
    plot_cpu(rows, FOLDER / "results" / "cpu.png")
    plot_delays_and_memory(rows, FOLDER / "results" / "delays-and-memory.png")
    (FOLDER / "results" / "rows.jsonl").write_bytes(
        b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    )
    readme = FOLDER / "README.md"
    before, _, rest = readme.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    readme.write_text(f"{before}{_BEGIN}\n\n{_results(rows)}\n\n{_END}{after}")


def _results(rows: Sequence[ResultRow]) -> str:
    known = ", ".join(f"{proxy} {version}" for proxy, version in sorted(versions().items()))
    speeds = Speeds(rows)
    parts = [
        f"Measured on: {machine()}.\nVersions: {known}.",
        "### Targets\n\n" + _targets(rows),
        "![CPU time for a request and a chunk](results/cpu.png)",
        "![Delays and memory](results/delays-and-memory.png)",
        *(_speed(speeds, scenario) for scenario in SCENARIOS.values()),
        "### Memory\n\n" + _memory([row for row in rows if isinstance(row, MemoryRow)]),
        "### Crowds\n\n" + _crowds([row for row in rows if isinstance(row, CrowdRow)]),
    ]
    return "\n\n".join(parts)


def _targets(rows: Sequence[ResultRow]) -> str:
    lines = [
        f"| {each.what} | {each.bound} | {_number(each.measured)} {each.unit} | {each.word} |"
        for each in verdicts(rows)
    ]
    return _table("| what | wanted | measured | |", lines)


def _speed(speeds: Speeds, scenario: Scenario) -> str:
    names = [proxy for each, proxy in speeds.pairs() if each == scenario.name]
    lines = [_speed_line(speeds, scenario.name, name) for name in sorted(names)]
    head = (
        "| proxy | per s | x direct | CPU µs each | x common | x HAProxy | p50 µs | p99 µs "
        "| load's core | rows, failed |"
    )
    return f"### {scenario.title}\n\n" + _table(head, lines)


def _speed_line(speeds: Speeds, scenario: str, proxy: str) -> str:
    def of(figure: Figure) -> str:
        return _number(speeds.median(scenario, proxy, figure))

    def ratio(other: str, figure: Figure) -> str:
        return "" if proxy == "direct" else _number(speeds.ratio(scenario, proxy, other, figure))

    rows, failed = speeds.counted(scenario, proxy)
    cpu = "" if proxy == "direct" else of(cpu_us)
    return (
        f"| {proxy} | {of(units_per_s)} | {ratio('direct', units_per_s)} | {cpu} "
        f"| {ratio('common', cpu_us)} | {ratio('haproxy', cpu_us)} | {of(p50_us)} | {of(p99_us)} "
        f"| {of(load_share)} | {rows}, {failed} |"
    )


def _memory(rows: Sequence[MemoryRow]) -> str:
    lines = []
    for proxy in sorted({row.proxy for row in rows}):
        cells = [_number(idle_mb(rows, proxy))]
        for load in HELD_LOADS:
            mine = [row for row in rows if (row.load, row.proxy) == (load, proxy)]
            cells.append(_number(held_mb(rows, load, proxy)))
            cells.append(", ".join(sorted({str(row.in_engine) for row in mine})) or "–")
        lines.append(f"| {proxy} | {' | '.join(cells)} |")
    head = "| proxy | idle MB | MB more for 1,000 of 2 KB | of them at the engine "
    return _table(head + "| MB more for 100 of 10 MB | of them at the engine |", lines)


def _crowds(rows: Sequence[CrowdRow]) -> str:
    lines = [
        f"| {row.crowd} | {row.group} | {row.answers_per_s:,.0f} | {row.tokens_per_s:,.0f} "
        f"| {row.all_answers:,} | {row.refused:,} | {row.p50_us / 1e3:,.2f} "
        f"| {row.p99_us / 1e3:,.2f} | {row.cpu_share:.2f} | {row.pss_bytes / 1e6:,.0f} "
        f"| {', '.join(f'{name}: {count}' for name, count in row.problems.items())} |"
        for row in rows
    ]
    head = (
        "| crowd | group | answers/s | tokens/s | answered | refused | p50 ms | p99 ms "
        "| CPU share | MB | problems |"
    )
    return _table(head, lines)


def _table(head: str, lines: Sequence[str]) -> str:
    columns = head.count("|") - 1
    return "\n".join([head, "|" + " --- |" * columns, *lines])


def _number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
