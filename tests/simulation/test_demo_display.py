"""What a person sees of the demonstration: a table, lines, a plot, all from the same figures."""

import io
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from giveway_policy.defaults import default_spec
from giveway_simulation.demo import DemoPicture, DemoResult
from giveway_simulation.demo_display import (
    PlainView,
    TerminalView,
    figures_table,
    plain_line,
    print_result,
)
from giveway_simulation.demo_figures import run_figures
from giveway_simulation.demo_traffic import demo_traffic
from giveway_simulation.demo_verdict import judge
from giveway_simulation.load_records import Ending, Measured, PlannedRequest
from giveway_simulation.plots import plot_demo
from rich.console import Console

WINDOW_S = 20.0


def record_of(wait_s: float) -> list[Measured]:
    """Twenty requests of each class, one a second, each with its first token after `wait_s`."""
    return [
        Measured(
            planned=PlannedRequest(
                due_s=float(second),
                class_name=class_name,
                tenant="a",
                prompt_tokens=100,
                output_tokens=2,
            ),
            token_times_s=array("d", [second + wait_s, second + wait_s + 0.05])
            if second + wait_s < WINDOW_S
            else array("d"),
            ending=Ending.COMPLETED if second + wait_s < WINDOW_S else Ending.UNFINISHED,
        )
        for second in range(20)
        for class_name in ("realtime", "standard", "batch")
    ]


@pytest.fixture(name="result")
def result_fixture() -> DemoResult:
    classes = demo_traffic(default_spec()).classes
    direct, giveway = record_of(4.0), record_of(0.2)
    figures = (
        run_figures(direct, classes, now_s=WINDOW_S, batch_from_s=3.0),
        run_figures(giveway, classes, now_s=WINDOW_S, batch_from_s=3.0),
    )
    return DemoResult(
        picture=DemoPicture(
            classes=classes,
            window_s=WINDOW_S,
            batch_from_s=3.0,
            elapsed_s=(WINDOW_S, WINDOW_S),
            figures=figures,
        ),
        direct=direct,
        giveway=giveway,
        verdict=judge(*figures, classes),
        work_per_s=36_000.0,
        requests=60,
        notes=("This machine did not keep up.",),
    )


def text_of(picture: DemoPicture) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(figures_table(picture))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_the_table_fits_a_terminal_and_shows_both_runs(result: DemoResult) -> None:
    """80 columns are enough; direct 4 s and 0 % stand over giveway 200 ms and 100 %."""
    lines = text_of(result.picture).splitlines()
    chat = next(index for index, line in enumerate(lines) if "chat, owed 300 ms" in line)
    assert "direct" in lines[chat]
    assert "4 s" in lines[chat]
    assert "0 %" in lines[chat]
    assert "giveway" in lines[chat + 1]
    assert "200 ms" in lines[chat + 1]
    assert "100 %" in lines[chat + 1]
    assert all(len(line) <= 80 for line in lines)
    assert any(line.rstrip().endswith("tokens/s") for line in lines)
    assert "…" not in text_of(result.picture)


def test_the_table_can_be_shown_before_anything_is_known(result: DemoResult) -> None:
    """The first refresh has no figures yet."""
    empty = run_figures([], result.picture.classes, now_s=0.0, batch_from_s=3.0)
    picture = DemoPicture(
        classes=result.picture.classes,
        window_s=WINDOW_S,
        batch_from_s=3.0,
        elapsed_s=(0.0, 0.0),
        figures=(empty, empty),
    )
    assert "chat" in text_of(picture)


def test_plain_output_is_a_line_now_and_then(
    result: DemoResult, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a log: no bar, no colour, not twice a second, and nothing on standard output."""
    with PlainView() as view:
        view.phase("60 requests", lasts_s=WINDOW_S)
        view.show(replace(result.picture, elapsed_s=(0.5, 0.5)))  # nothing to tell yet
        view.show(result.picture)
        view.show(result.picture)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["60 requests (20 s)", plain_line(result.picture)]
    assert "giveway: chat p95 200 ms in time 100 %" in captured.err
    assert "\x1b" not in captured.err


def test_an_interrupted_run_leaves_its_last_table(
    result: DemoResult, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever has seen enough keeps what was seen."""
    view = TerminalView()
    view.__enter__()
    view.show(result.picture)
    capsys.readouterr()
    view.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert "chat, owed 300 ms" in capsys.readouterr().err


def test_the_result_ends_with_the_sentence_and_what_one_has_to_know(
    result: DemoResult, capsys: pytest.CaptureFixture[str]
) -> None:
    """Table, verdict, notes and the plot's place on standard output."""
    print_result(result, plot="here.png")
    out = " ".join(capsys.readouterr().out.split())
    assert "Through giveway 100 % of chat requests" in out
    assert "Note: This machine did not keep up." in out
    assert out.endswith("Plot: here.png")


@pytest.mark.slow
def test_the_demonstration_is_plotted(result: DemoResult, tmp_path: Path) -> None:
    """A PNG file, in a folder that is made."""
    path = tmp_path / ".run" / "demo.png"
    plot_demo(result, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 20_000
