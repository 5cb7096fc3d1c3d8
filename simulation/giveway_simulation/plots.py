"""How do the results look? PNG plots of a demonstration and of a calibration.

matplotlib is loaded here alone, when a plot is made, and without its window toolkits.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from giveway_simulation.demo_figures import tokens_between
from giveway_simulation.demo_load import DemoClass
from giveway_simulation.demo_verdict import duration, percent
from giveway_simulation.load_records import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from giveway_simulation.demo import DemoResult

_DIRECT, _GIVEWAY, _TARGET = "#c2410c", "#1d4ed8", "#6b7280"
_SMOOTHING_S = 3
_DPI = 110


def plot_demo(result: "DemoResult", path: Path) -> None:
    """TTFT over time and its distribution per class, and what batch got; a PNG file."""
    from matplotlib.figure import Figure

    classes = result.picture.classes
    watched = [each for each in classes if each.first_token_target_s is not None]
    with _style():
        figure = Figure(figsize=(11.5, 7.2), layout="constrained")
        axes = figure.subplots(2, 2)
        for axis, demo_class in zip(axes[0], watched, strict=False):
            _latency_over_time(axis, result, demo_class)
        _distribution(axes[1][0], result, watched)
        _batch_over_time(axes[1][1], result, classes[-1])
        figure.suptitle(
            "The same requests on the same engine, directly and through giveway",
            x=0.01,
            ha="left",
            fontweight="bold",
        )
        _save(figure, path)


def _save(figure: "Figure", path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)


def _style() -> AbstractContextManager[None]:
    import matplotlib as mpl

    return mpl.rc_context(
        {
            "font.size": 9.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e5e7eb",
            "axes.edgecolor": "#9ca3af",
            "axes.titlelocation": "left",
            "axes.titlesize": 10.5,
            "legend.frameon": False,
            "figure.facecolor": "white",
            "axes.facecolor": "white",
        }
    )


def _latency_over_time(axis: "Axes", result: "DemoResult", demo_class: DemoClass) -> None:
    window_s = result.picture.window_s
    for name, record, color in _runs(result):
        own = _of(record, demo_class)
        answered = [m for m in own if m.token_times_s]
        axis.scatter(
            [m.planned.due_s for m in answered],
            [m.first_token_latency_s or 0.0 for m in answered],
            s=9,
            color=color,
            alpha=0.65,
            linewidths=0,
            label=name,
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
            label=f"{name}: still no token at the end" if silent else None,
        )
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(lambda value, _: duration(value))
    _target_line(axis, demo_class, horizontal=True)
    _dump_line(axis, result)
    axis.set_xlim(0, window_s)
    axis.set_title(f"{demo_class.label}: time to first token")
    axis.set_xlabel("sent after (s)")
    axis.legend(loc="upper left", fontsize=8)


def _distribution(axis: "Axes", result: "DemoResult", watched: Sequence[DemoClass]) -> None:
    for demo_class, line in zip(watched, ("-", "--"), strict=False):
        for name, record, color in _runs(result):
            own = _of(record, demo_class)
            times = sorted(m.first_token_latency_s or 0.0 for m in own if m.token_times_s)
            if not times:
                continue
            axis.step(
                times,
                [(index + 1) / len(own) for index in range(len(times))],
                where="post",
                color=color,
                linestyle=line,
                linewidth=1.6,
                label=f"{demo_class.label}, {name}",
            )
        _target_line(axis, demo_class, horizontal=False, linestyle=line)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: duration(value))
    axis.set_ylim(0, 1.02)
    axis.yaxis.set_major_formatter(lambda value, _: percent(round(value, 3)))
    axis.set_title("requests with a first token within ...")
    axis.legend(loc="lower right", fontsize=8)


def _batch_over_time(axis: "Axes", result: "DemoResult", demo_class: DemoClass) -> None:
    window_s = result.picture.window_s
    seconds = range(int(window_s))
    for name, record, color in _runs(result):
        own = _of(record, demo_class)
        rates = []
        for second in seconds:
            from_s = max(0.0, second + 1.0 - _SMOOTHING_S)
            tokens = sum(tokens_between(m, from_s, second + 1.0) for m in own)
            rates.append(tokens / (second + 1.0 - from_s))
        axis.plot(
            [second + 1.0 for second in seconds], rates, color=color, label=name, linewidth=1.6
        )
    _dump_line(axis, result)
    axis.set_xlim(0, window_s)
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_title(f"{demo_class.label}: tokens per second, prompt and output")
    axis.set_xlabel("after (s)")
    axis.legend(loc="upper right", fontsize=8)


def _runs(result: "DemoResult") -> tuple[tuple[str, Sequence[Measured], str], ...]:
    return (("direct", result.direct, _DIRECT), ("giveway", result.giveway, _GIVEWAY))


def _of(record: Sequence[Measured], demo_class: DemoClass) -> list[Measured]:
    return [m for m in record if m.planned.class_name == demo_class.class_name]


def _target_line(
    axis: "Axes", demo_class: DemoClass, *, horizontal: bool, linestyle: str = "-"
) -> None:
    target_s = demo_class.first_token_target_s
    if target_s is None:
        return
    if horizontal:
        axis.axhline(target_s, color=_TARGET, linewidth=1)
        axis.annotate(
            f"target {duration(target_s)}",
            (1.0, target_s),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=8,
            color=_TARGET,
        )
    else:
        axis.axvline(target_s, color=_TARGET, linewidth=1, linestyle=linestyle)


def _dump_line(axis: "Axes", result: "DemoResult") -> None:
    at_s = result.picture.batch_from_s
    axis.axvline(at_s, color=_TARGET, linewidth=1, linestyle=":")
    axis.annotate(
        "batch job arrives",
        (at_s, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, -2),
        textcoords="offset points",
        rotation=90,
        va="top",
        fontsize=7.5,
        color=_TARGET,
    )
