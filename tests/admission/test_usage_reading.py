"""Which reports of usage are believed?"""

import math

import pytest
from giveway_admission.endpoints import Dialect
from giveway_admission.usage_reading import LARGEST_CREDIBLE_TOKENS, UsageReport
from giveway_scheduler import Usage
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_texts import values

CHAT = Dialect.OPENAI_CHAT


def _reported(report: object, dialect: Dialect = CHAT) -> Usage | None:
    usage = UsageReport(dialect)
    usage.add(report)
    return usage.reported()


@pytest.mark.parametrize(
    ("dialect", "report", "expected"),
    [
        (CHAT, {"prompt_tokens": 5, "completion_tokens": 7}, (5, 0, 7)),
        (
            CHAT,
            {
                "prompt_tokens": 5,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
            (5, 4, 7),
        ),
        (
            CHAT,
            {
                "prompt_tokens": 5,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 40},
            },
            (5, 5, 7),
        ),
        (
            Dialect.OPENAI_RESPONSES,
            {
                "input_tokens": 5,
                "output_tokens": 7,
                "input_tokens_details": {"cached_tokens": 3},
            },
            (5, 3, 7),
        ),
        (Dialect.ANTHROPIC_MESSAGES, {"input_tokens": 5, "output_tokens": 7}, (5, 0, 7)),
        (
            Dialect.ANTHROPIC_MESSAGES,
            {
                "input_tokens": 5,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "output_tokens": 7,
            },
            (125, 100, 7),
        ),
        (Dialect.EMBEDDINGS, {"prompt_tokens": 5, "total_tokens": 5}, (5, 0, 0)),
        (Dialect.EMBEDDINGS, {"prompt_tokens": 5}, (5, 0, 0)),
    ],
)
def test_each_dialect_names_its_counts(
    dialect: Dialect, report: object, expected: tuple[int, int, int]
) -> None:
    """(prompt, cached, output); Anthropic's input leaves the cached out (B06)."""
    prompt, cached, output = expected
    assert _reported(report, dialect) == Usage(
        prompt_tokens=prompt, cached_tokens=cached, output_tokens=output
    )


@pytest.mark.parametrize(
    "lie", [None, -1, "12", 12.5, math.nan, math.inf, 1e18, 10**18, True, [], {}]
)
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_a_count_that_cannot_be_true_is_left_out(name: str, lie: object) -> None:
    """Null, negative, text, fraction, absurd: not reported, and no exception (B26)."""
    report: dict[str, object] = {"prompt_tokens": 5, "completion_tokens": 7, name: lie}
    usage = UsageReport(CHAT)
    usage.add(report)
    assert usage.reported() is None
    charged = usage.charge(prompt_tokens=50, output_tokens=70)
    assert charged.prompt_tokens == (50 if name == "prompt_tokens" else 5)
    assert charged.output_tokens == (70 if name == "completion_tokens" else 7)
    assert usage.doubtful is (lie is not None)


def test_a_missing_count_follows_from_the_total() -> None:
    """12 in all, 5 of them prompt (B26)."""
    assert _reported({"prompt_tokens": 5, "total_tokens": 12}) == Usage(
        prompt_tokens=5, output_tokens=7
    )
    assert _reported({"completion_tokens": 7, "total_tokens": 12}) == Usage(
        prompt_tokens=5, output_tokens=7
    )
    assert _reported({"completion_tokens": 70, "total_tokens": 12}) is None


def test_a_whole_float_is_a_count() -> None:
    """Some writers of JSON know no integers."""
    assert _reported({"prompt_tokens": 5.0, "completion_tokens": 7.0}) == Usage(
        prompt_tokens=5, output_tokens=7
    )


def test_the_last_credible_report_stays() -> None:
    """A lie after the truth takes nothing away (B03, B26)."""
    usage = UsageReport(CHAT)
    for report in (
        {"prompt_tokens": 5, "completion_tokens": 1},
        {"prompt_tokens": 5, "completion_tokens": 2},
        {"prompt_tokens": -5, "completion_tokens": None},
        None,
        "usage",
    ):
        usage.add(report)
    assert usage.reported() == Usage(prompt_tokens=5, output_tokens=2)
    assert usage.doubtful


@given(st.lists(values, max_size=4), st.sampled_from(Dialect))
def test_any_report_leaves_counts_in_bounds(reports: list[object], dialect: Dialect) -> None:
    """Counters stay monotonic: nothing negative, nothing absurd ever comes out (B26)."""
    usage = UsageReport(dialect)
    for report in reports:
        usage.add(report)
        usage.add({"prompt_tokens": report, "completion_tokens": report, "input_tokens": report})
    charged = usage.charge(prompt_tokens=1, output_tokens=0)
    assert 0 <= charged.cached_tokens <= charged.prompt_tokens <= 3 * LARGEST_CREDIBLE_TOKENS
    assert 0 <= charged.output_tokens <= LARGEST_CREDIBLE_TOKENS
