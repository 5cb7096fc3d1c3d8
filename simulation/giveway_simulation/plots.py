"""How does a demonstration look? A PNG plot of its two runs.

matplotlib is loaded only when a plot is made, and without its window toolkits.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from giveway_simulation.demo_figures import tokens_between
from giveway_simulation.demo_load import DemoClass
from giveway_simulation.demo_verdict import duration
from giveway_simulation.load_records import Measured

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from giveway_simulation.demo import DemoResult

DIRECT_COLOR, GIVEWAY_COLOR, GUIDE_COLOR = "#c2410c", "#1d4ed8", "#6b7280"
_LINES: tuple[Literal["-", "--"], ...] = ("-", "--")
_SMOOTHING_S = 3
_DPI = 110


def plot_demo(result: "DemoResult", path: Path) -> None:
    """TTFT over time and its distribution per class, and what batch got; a PNG file."""
    from matplotlib.figure import Figure

    classes = result.picture.classes
    watched = [each for each in classes if each.first_token_target_s is not None]
    with plot_style():
        figure = Figure(figsize=(11.5, 7.4), layout="constrained")
        axes = figure.subplots(2, 2)
        for axis, demo_class in zip(axes[0], watched, strict=False):
            _latency_over_time(axis, result, demo_class)
        _distribution(axes[1][0], result, watched)
        _batch_over_time(axes[1][1], result, classes[-1])
        figure.suptitle(
            "The same requests, directly to the engine and through giveway",
            x=0.01,
            ha="left",
            fontweight="bold",
        )
        _legend(figure)
        save_plot(figure, path)


def save_plot(figure: "Figure", path: Path) -> None:
    """As PNG; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI, format="png")


def plot_style() -> AbstractContextManager[None]:
    """Light and without frames."""
    import matplotlib as mpl

    return mpl.rc_context(
        {
            "font.size": 9.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#e5e7eb",
            "axes.edgecolor": "#9ca3af",
            "axes.titlelocation": "left",
            "axes.titlesize": 10.5,
            "legend.frameon": False,
            "figure.facecolor": "white",
            "axes.facecolor": "white",
        }
    )


def _legend(figure: "Figure") -> None:
    from matplotlib.lines import Line2D

    dot = {"marker": "o", "linestyle": "-", "markersize": 4}
    handles = [
        Line2D([], [], color=DIRECT_COLOR, label="direct", **dot),  # type: ignore[arg-type]
        Line2D([], [], color=GIVEWAY_COLOR, label="through giveway", **dot),  # type: ignore[arg-type]
        Line2D(
            [],
            [],
            color=GUIDE_COLOR,
            marker="^",
            markerfacecolor="none",
            linestyle="none",
            markersize=5,
            label="no token until the end",
        ),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)


def _latency_over_time(axis: "Axes", result: "DemoResult", demo_class: DemoClass) -> None:
    window_s = result.picture.window_s
    for record, color in _runs(result):
        own = _of(record, demo_class)
        answered = [m for m in own if m.token_times_s]
        axis.scatter(
            [m.planned.due_s for m in answered],
            [m.first_token_latency_s or 0.0 for m in answered],
            s=10,
            color=color,
            alpha=0.65,
            linewidths=0,
        )
        silent = [m for m in own if not m.token_times_s]
        axis.scatter(
            [m.planned.due_s for m in silent],
            [max(window_s - m.planned.due_s, 1e-3) for m in silent],
            s=16,
            marker="^",
            facecolors="none",
            edgecolors=color,
            linewidths=0.7,
        )
    axis.set_yscale("log")
    axis.set_ylim(0.01, max(30.0, window_s))
    axis.yaxis.set_major_formatter(lambda value, _: duration(value))
    target_s = demo_class.first_token_target_s or 0.0
    axis.axhline(target_s, color=GUIDE_COLOR, linewidth=1)
    axis.set_title(f"{demo_class.label}: time to first token (target {duration(target_s)})")
    axis.set_xlim(0, window_s)
    axis.set_xlabel("sent after (s)")
    _dump_line(axis, result)


def _distribution(axis: "Axes", result: "DemoResult", watched: Sequence[DemoClass]) -> None:
    from matplotlib.lines import Line2D

    styles: list[tuple[DemoClass, Literal["-", "--"]]] = list(zip(watched, _LINES, strict=False))
    for demo_class, line in styles:
        for record, color in _runs(result):
            own = _of(record, demo_class)
            times = sorted(m.first_token_latency_s or 0.0 for m in own if m.token_times_s)
            shares = [(index + 1) / len(own) for index in range(len(times))]
            axis.step(times, shares, where="post", color=color, linestyle=line, linewidth=1.6)
        target_s = demo_class.first_token_target_s or 0.0
        axis.axvline(target_s, color=GUIDE_COLOR, linewidth=1, linestyle=line)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: duration(value))
    axis.set_ylim(0, 1.02)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.0f} %")
    axis.set_title("share of requests with a first token within this time")
    handles: list[Artist | tuple[Artist, ...]] = [
        Line2D([], [], color=GUIDE_COLOR, linestyle=line, label=demo_class.label)
        for demo_class, line in styles
    ]
    axis.legend(handles=handles, loc="upper left")


def _batch_over_time(axis: "Axes", result: "DemoResult", demo_class: DemoClass) -> None:
    window_s = result.picture.window_s
    ends_s = [float(second + 1) for second in range(int(window_s))]
    for record, color in _runs(result):
        own = _of(record, demo_class)
        rates = []
        for end_s in ends_s:
            from_s = max(0.0, end_s - _SMOOTHING_S)
            rates.append(sum(tokens_between(m, from_s, end_s) for m in own) / (end_s - from_s))
        axis.plot(ends_s, rates, color=color, linewidth=1.6)
    axis.set_xlim(0, window_s)
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_title(f"{demo_class.label}: tokens per second, prompt and output")
    axis.set_xlabel("after (s)")
    _dump_line(axis, result)


def _runs(result: "DemoResult") -> tuple[tuple[Sequence[Measured], str], ...]:
    return ((result.direct, DIRECT_COLOR), (result.giveway, GIVEWAY_COLOR))


def _of(record: Sequence[Measured], demo_class: DemoClass) -> list[Measured]:
    return [m for m in record if m.planned.class_name == demo_class.class_name]


def _dump_line(axis: "Axes", result: "DemoResult") -> None:
    at_s = result.picture.batch_from_s
    axis.axvline(at_s, color=GUIDE_COLOR, linewidth=1, linestyle=":")
    axis.annotate(
        "batch job arrives",
        (at_s, 0.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, 4),
        textcoords="offset points",
        rotation=90,
        va="bottom",
        fontsize=7.5,
        color=GUIDE_COLOR,
    )
