"""How do the proxies look beside each other? Two small PNG files."""

from collections.abc import Sequence
from pathlib import Path

from giveway_simulation.plots import DIRECT_COLOR, GIVEWAY_COLOR, plot_style, save_plot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from giveway_benchmarks.results import MemoryRow, ResultRow
from giveway_benchmarks.tables import Figure as Value
from giveway_benchmarks.tables import Speeds, cpu_us, held_mb, p50_us, p99_us
from giveway_benchmarks.targets import GIVEWAY

_OTHER_COLOR = "#9ca3af"
_FAR = 20
"""So many times as long, a bar would leave no room for the others."""


def plot_cpu(rows: Sequence[ResultRow], path: Path) -> None:
    """CPU time for a request and for a chunk."""
    speeds = Speeds(rows)
    with plot_style():
        figure = Figure(figsize=(9.5, 3.0), layout="constrained")
        axes = figure.subplots(1, 3)
        for axis, (scenario, title) in zip(
            axes,
            (
                ("requests", "a request"),
                ("chunks-64", "a chunk, 64 streams"),
                ("chunks-512", "a chunk, 512 streams"),
            ),
            strict=True,
        ):
            values = _medians(speeds, scenario, cpu_us)
            _bars(axis, values)
            if values and max(values.values()) > _FAR * min(values.values()):
                axis.set_xscale("log")
            axis.set_title(f"CPU µs for {title}", fontsize=9)
        save_plot(figure, path)


def plot_delays_and_memory(rows: Sequence[ResultRow], path: Path) -> None:
    """Added delay at 5,000 chunks a second, and memory of 1,000 requests that wait."""
    speeds = Speeds(rows)
    with plot_style():
        figure = Figure(figsize=(9.5, 3.0), layout="constrained")
        axes = figure.subplots(1, 3)
        _delays(axes[0], speeds, "spread", "tokens spread in time")
        _delays(axes[1], speeds, "step", "100 tokens at once")
        memory = [row for row in rows if isinstance(row, MemoryRow) and not row.problems]
        names = sorted({row.proxy for row in memory if row.load == "held-1000"})
        _bars(axes[2], {name: held_mb(memory, "held-1000", name) or 0.0 for name in names})
        axes[2].set_title("MB for 1,000 held requests")
        save_plot(figure, path)


def _medians(speeds: Speeds, scenario: str, figure: Value) -> dict[str, float]:
    found = {
        proxy: speeds.median(scenario, proxy, figure)
        for each, proxy in speeds.pairs()
        if each == scenario and proxy != "direct"
    }
    return {proxy: value for proxy, value in found.items() if value}


def _bars(axis: Axes, values: dict[str, float]) -> None:
    """The lowest on top."""
    names = sorted(values, key=lambda name: -values[name])
    colors = [GIVEWAY_COLOR if name == GIVEWAY else _OTHER_COLOR for name in names]
    bars = axis.barh(names, [values[name] for name in names], color=colors, height=0.65)
    axis.bar_label(bars, fmt=_label, padding=3, fontsize=8)
    axis.margins(x=0.25)
    axis.grid(visible=False, axis="y")


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _delays(axis: Axes, speeds: Speeds, scenario: str, title: str) -> None:
    p50, p99 = _medians(speeds, scenario, p50_us), _medians(speeds, scenario, p99_us)
    names = sorted(p50, key=lambda name: -p50[name])
    for row, name in enumerate(names):
        color = GIVEWAY_COLOR if name == GIVEWAY else _OTHER_COLOR
        axis.plot([p50[name], p99[name]], [row, row], color=color, linewidth=2)
        axis.plot(p50[name], row, "o", color=color)
        axis.plot(p99[name], row, "|", color=color, markersize=11, markeredgewidth=2)
    direct = speeds.median(scenario, "direct", p50_us)
    if direct is not None:
        axis.axvline(direct, color=DIRECT_COLOR, linewidth=1, linestyle="--")
    axis.set_yticks(range(len(names)), names)
    axis.set_xscale("log")
    axis.grid(visible=False, axis="y")
    axis.set_title(f"Delay µs, p50 to p99: {title}", fontsize=9)
