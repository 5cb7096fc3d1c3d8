"""How does a person watch the demonstration?

On a terminal: a live table of both runs above a progress bar, on standard error, gone when it ends;
the last table stays on standard output. Elsewhere: a plain line now and then, no bars, no colours.
"""

import sys
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from giveway_simulation.demo import DemoPicture, DemoResult
from giveway_simulation.demo_figures import ClassFigures
from giveway_simulation.demo_load import DemoClass
from giveway_simulation.demo_verdict import Won, duration, latency, percent

PLAIN_FIRST_S = 5.0
"""Before that hardly anything has been answered."""
PLAIN_EVERY_S = 10.0
RUNS = ("direct", "giveway")
_GOOD, _POOR = 0.99, 0.9


def figures_table(picture: DemoPicture) -> Table:
    """Both runs side by side, class by class."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("time to first token", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("p50", "p95", "p99", "in time", "tokens/s"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    for index, demo_class in enumerate(picture.classes):
        for run, figures in zip(RUNS, picture.figures, strict=True):
            own = figures.classes[index]
            table.add_row(_label(demo_class, run), run, *_cells(demo_class, own))
        table.add_section()
    for run, figures in zip(RUNS, picture.figures, strict=True):
        label = "all together" if run == RUNS[0] else ""
        table.add_row(label, run, "", "", "", "", f"{figures.tokens_per_s:,.0f}")
    return table


def _label(demo_class: DemoClass, run: str) -> str:
    if run != RUNS[0]:
        return ""
    target_s = demo_class.first_token_target_s
    return demo_class.label + ("" if target_s is None else f", owed {duration(target_s)}")


def _cells(demo_class: DemoClass, own: ClassFigures) -> tuple[str | Text, ...]:
    tokens = f"{own.tokens_per_s:,.0f}"
    if demo_class.first_token_target_s is None:
        return ("", "", "", "", tokens)
    ratio = own.attainment
    style = "" if ratio is None else "green" if ratio >= _GOOD else "red" if ratio < _POOR else ""
    return (
        latency(own.p50),
        latency(own.p95),
        latency(own.p99),
        Text(percent(ratio), style=style),
        tokens,
    )


class TerminalView:
    """A live table and a bar; a context manager."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeRemainingColumn(),
            console=self._console,
            auto_refresh=False,
        )
        self._live = Live(self._progress, console=self._console, auto_refresh=False, transient=True)
        self._task: TaskID | None = None
        self._shown: DemoPicture | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()
        if kind is not None and self._shown is not None:  # what was seen so far, not a bare end
            self._console.print(figures_table(self._shown))

    def phase(self, text: str, *, lasts_s: float | None) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(text, total=lasts_s)
        self._live.refresh()

    def show(self, picture: DemoPicture) -> None:
        self.advance(_done_s(picture))
        self._shown = picture
        self._live.update(Group(figures_table(picture), self._progress), refresh=True)

    def advance(self, done_s: float) -> None:
        """Move the bar of the present phase."""
        if self._task is not None:
            self._progress.update(self._task, completed=done_s)
            self._live.refresh()


class PlainView:
    """Lines on standard error, for logs and pipes; a context manager like the other."""

    def __init__(self) -> None:
        self._next_s = PLAIN_FIRST_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def phase(self, text: str, *, lasts_s: float | None) -> None:
        ending = "" if lasts_s is None else f" ({lasts_s:.0f} s)"
        print(f"{text}{ending}", file=sys.stderr, flush=True)
        self._next_s = PLAIN_FIRST_S

    def show(self, picture: DemoPicture) -> None:
        done_s = _done_s(picture)
        if done_s < self._next_s:
            return
        self._next_s = done_s + PLAIN_EVERY_S
        print(plain_line(picture), file=sys.stderr, flush=True)

    def advance(self, done_s: float) -> None:
        """Plain output has no bar."""


def plain_line(picture: DemoPicture) -> str:
    """The picture in one line."""
    parts = []
    for run, elapsed_s, figures in zip(RUNS, picture.elapsed_s, picture.figures, strict=True):
        if elapsed_s == 0:
            continue
        cells = [
            f"{demo_class.label} p95 {latency(own.p95)} in time {percent(own.attainment)}"
            if demo_class.first_token_target_s is not None
            else f"{demo_class.label} {own.tokens_per_s:,.0f} tokens/s"
            for demo_class, own in zip(picture.classes, figures.classes, strict=True)
        ]
        parts.append(f"{run}: {', '.join(cells)}")
    return f"{_done_s(picture):4.0f} s  {' | '.join(parts)}"


def _done_s(picture: DemoPicture) -> float:
    """How far the run is that is going on (together: both)."""
    direct_s, giveway_s = picture.elapsed_s
    in_turn = direct_s >= picture.window_s and giveway_s < picture.window_s
    return giveway_s if in_turn else max(direct_s, giveway_s)


def print_result(result: DemoResult, *, plot: str | None) -> None:
    """The last table, the sentence, what a reader has to know."""
    console = Console()
    console.print(figures_table(result.picture))
    style = {Won.YES: "bold green", Won.PARTLY: "bold yellow", Won.NOTHING: "bold"}
    console.print()
    console.print(result.verdict.sentence, style=style[result.verdict.won], highlight=False)
    for note in result.notes:
        console.print(f"Note: {note}", style="yellow", highlight=False)
    if plot is not None:
        console.print(f"Plot: {plot}", highlight=False, soft_wrap=True)
