"""Figures and verdict: everybody who arrived counts, and nothing is called won that was not."""

import math
from array import array

import pytest
from giveway_simulation.demo_figures import (
    ClassFigures,
    Latency,
    RunFigures,
    class_figures,
    percentile,
    run_figures,
    tokens_between,
)
from giveway_simulation.demo_load import DemoClass
from giveway_simulation.demo_verdict import Won, duration, judge, latency, percent
from giveway_simulation.load_records import Ending, Measured, PlannedRequest

CHAT = DemoClass(label="chat", class_name="realtime", first_token_target_s=1.0)
BATCH = DemoClass(label="batch", class_name="batch", first_token_target_s=None)


def measured(
    due_s: float,
    *token_times_s: float,
    class_name: str = "realtime",
    ending: Ending | None = Ending.COMPLETED,
    prompt_tokens: int = 100,
) -> Measured:
    return Measured(
        planned=PlannedRequest(
            due_s=due_s,
            class_name=class_name,
            tenant="a",
            prompt_tokens=prompt_tokens,
            output_tokens=8,
        ),
        token_times_s=array("d", token_times_s),
        ending=ending,
    )


def test_every_arrival_whose_time_is_up_counts() -> None:
    """In time, late, still waiting, refused: one each of four; one that came just now does not."""
    record = [
        measured(0.0, 0.5),
        measured(1.0, 2.5),
        measured(2.0, ending=None),
        measured(3.0, ending=Ending.REFUSED),
        measured(9.5, ending=None),
    ]
    figures = class_figures(record, CHAT, now_s=10.0)
    assert (figures.judged, figures.in_time, figures.unanswered) == (4, 1, 1)
    assert figures.attainment == 0.25


def test_a_stalled_engine_does_not_look_fast() -> None:
    """Mend 8: what still waits stands in the percentile with its age, and says so."""
    record = [measured(0.0, 0.1), *(measured(float(at), ending=None) for at in range(1, 9))]
    p95 = class_figures(record, CHAT, now_s=10.0).p95
    assert p95 is not None
    assert p95 == Latency(value_s=9.0, at_least=True)
    assert latency(p95) == ">9 s"


def test_figures_of_a_moment_do_not_see_later_tokens() -> None:
    """At second 2 the token of second 3 has not come."""
    record = [measured(0.5, 3.0, 3.1)]
    figures = class_figures(record, CHAT, now_s=2.0)
    assert figures.in_time == 0
    assert figures.p50 == Latency(value_s=1.5, at_least=True)
    assert figures.tokens_per_s == 0


def test_tokens_count_the_prompt_when_its_first_token_comes() -> None:
    """100 prompt tokens and three of output: 103 in all, 2 after the first."""
    one = measured(0.0, 1.0, 1.1, 1.2)
    assert tokens_between(one, 0.0, 2.0) == 103
    assert tokens_between(one, 1.05, 2.0) == 2
    assert tokens_between(one, 0.0, 1.0) == 0


def test_batch_is_counted_from_its_arrival_on() -> None:
    """1,001 tokens in the 5 s after the job came are 200.2 a second; of the whole run 100.1."""
    record = [measured(5.0, 6.0, class_name="batch", prompt_tokens=1000)]
    figures = run_figures(record, [CHAT, BATCH], now_s=10.0, batch_from_s=5.0)
    assert figures.classes[1].tokens_per_s == pytest.approx(200.2)
    assert figures.tokens_per_s == pytest.approx(100.1)
    assert figures.classes[0].attainment is None


@pytest.mark.parametrize(
    ("ratio", "value_s", "at_least"),
    [(0.25, 1.0, False), (0.5, 2.0, False), (0.75, 3.0, True), (1.0, 4.0, True)],
)
def test_percentiles_are_nearest_ranks(ratio: float, value_s: float, at_least: bool) -> None:
    """Of 1, 2, 3 (waiting), 4: the third and all above may in truth be higher."""
    waits = [(1.0, False), (2.0, False), (3.0, True), (4.0, False)]
    assert percentile(waits, ratio) == Latency(value_s=value_s, at_least=at_least)
    assert percentile([], ratio) is None


def test_broken_requests_are_counted_with_their_first_reason() -> None:
    """A run with failures cannot look clean."""
    broken = measured(0.0, ending=Ending.FAILED)
    broken.error = "connection lost"
    figures = run_figures([broken, measured(0.0, 0.1)], [CHAT], now_s=5.0, batch_from_s=0.0)
    assert (figures.failed, figures.first_failure) == (1, "connection lost")
    assert figures.classes[0].p99 == Latency(value_s=math.inf, at_least=False)
    assert latency(figures.classes[0].p99) == "never"


def figures_of(
    attainment: float, *, batch: float, total: float, judged: int = 1000, p95_s: float = 0.3
) -> RunFigures:
    def one(in_time: int, tokens_per_s: float) -> ClassFigures:
        return ClassFigures(
            judged=judged,
            in_time=in_time,
            unanswered=0,
            p50=Latency(value_s=0.1, at_least=False),
            p95=Latency(value_s=p95_s, at_least=False),
            p99=Latency(value_s=0.5, at_least=False),
            tokens_per_s=tokens_per_s,
            finished=1,
        )

    return RunFigures(
        classes=(one(round(attainment * judged), 10.0), one(judged, batch)),
        tokens_per_s=total,
        gap_p50_s=None,
        gap_p99_s=None,
        failed=0,
        first_failure=None,
    )


@pytest.mark.parametrize(
    ("direct", "giveway", "won", "says"),
    [
        ((0.12, 9000, 27000), (1.0, 7000, 27100), Won.YES, "100 % of chat requests"),
        ((0.12, 9000, 27000), (1.0, 7000, 27100), Won.YES, "directly 12.0 %"),
        ((0.12, 9000, 27000), (1.0, 7000, 27100), Won.YES, "7,000 tokens/s (78 % of direct)"),
        ((0.12, 9000, 27000), (1.0, 7000, 20000), Won.PARTLY, "74.1 % of the tokens"),
        ((0.99, 9000, 27000), (0.99, 9000, 27000), Won.NOTHING, "The engine was not full"),
        ((0.60, 9000, 27000), (0.60, 9000, 27000), Won.NOTHING, "Nothing was won"),
        ((0.60, 9000, 27000), (0.30, 9000, 27000), Won.NOTHING, "Nothing was won"),
        ((0.60, 9000, 27000), (0.63, 9000, 27000), Won.NOTHING, "Nothing was won"),
        ((0.60, 9000, 27000), (0.66, 9000, 27000), Won.YES, "66.0 %"),
        ((0.60, 9000, 27000), (0.61, 9000, 27000), Won.NOTHING, "Nothing was won"),
        ((0.60, 0, 0), (0.90, 100, 100), Won.YES, "100 tokens/s"),
    ],
)
def test_the_verdict_says_what_the_figures_say(
    direct: tuple[float, float, float],
    giveway: tuple[float, float, float],
    won: Won,
    says: str,
) -> None:
    """Y14: won, partly won and not won are told apart, with the figures in the sentence."""
    verdict = judge(
        figures_of(direct[0], batch=direct[1], total=direct[2]),
        figures_of(giveway[0], batch=giveway[1], total=giveway[2]),
        [CHAT, BATCH],
    )
    assert verdict.won is won
    assert says in verdict.sentence


def test_where_the_target_is_out_of_reach_a_much_shorter_wait_is_a_gain() -> None:
    """A slow engine: nobody within the target, p95 2.4 s instead of 21 s. One of 25 requests more
    or less is noise, neither gain nor loss."""
    direct = figures_of(0.12, batch=1, total=100, judged=25, p95_s=21.0)
    giveway = figures_of(0.08, batch=1, total=100, judged=25, p95_s=2.4)
    assert judge(direct, giveway, [CHAT, BATCH]).won is Won.YES
    assert judge(giveway, direct, [CHAT, BATCH]).won is Won.NOTHING
    same = figures_of(0.08, batch=1, total=100, judged=25, p95_s=21.0)
    assert judge(direct, same, [CHAT, BATCH]).won is Won.NOTHING


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0043, "4 ms"), (0.3, "300 ms"), (0.9999, "1 s"), (2.34, "2.3 s"), (27.4, "27 s")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    """Two or three digits."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(None, "-"), (0.0, "0 %"), (0.9996, "99.9 %"), (1.0, "100 %")]
)
def test_a_hundred_percent_means_all(ratio: float | None, text: str) -> None:
    """99.96 % is not rounded up."""
    assert percent(ratio) == text
