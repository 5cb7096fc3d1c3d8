"""Ratios are taken inside rounds, failures count for nothing, and targets are judged by them."""

import pytest
from giveway_benchmarks.results import CrowdRow, MemoryRow, ResultRow, SpeedRow
from giveway_benchmarks.tables import Speeds, all_tables, cpu_us, units_per_s
from giveway_benchmarks.targets import refusal_cpu_us, verdicts


def speed(
    proxy: str,
    round_: str,
    *,
    per_s: float = 1.0,
    cpu: float = 1.0,
    problems: dict[str, int] | None = None,
) -> SpeedRow:
    return SpeedRow(
        round=round_,
        scenario="requests",
        proxy=proxy,
        units_per_s=per_s,
        cpu_us=cpu,
        p50_us=1.0,
        p99_us=2.0,
        load_share=0.5,
        problems=problems or {},
    )


def crowd(name: str, group: str, *, p99_us: float = 1.0, refusals_per_s: float = 0.0) -> CrowdRow:
    return CrowdRow(
        round="1",
        crowd=name,
        group=group,
        answers_per_s=1.0,
        tokens_per_s=0.0,
        all_answers=1,
        refused=0,
        refusals_per_s=refusals_per_s,
        p50_us=1.0,
        p99_us=p99_us,
        refusal_p50_us=1.0,
        refusal_p99_us=1.0,
        cpu_share=0.2,
        pss_bytes=1,
        problems={},
    )


def test_ratio_is_the_median_of_the_rounds_ratios() -> None:
    """Rounds differ by a factor of ten, the ratio in each does not: 2, 2, 3 gives 2."""
    rows: list[ResultRow] = [
        speed("giveway", "a", per_s=20),
        speed("envoy", "a", per_s=10),
        speed("giveway", "b", per_s=200),
        speed("envoy", "b", per_s=100),
        speed("giveway", "c", per_s=6),
        speed("envoy", "c", per_s=2),
        speed("giveway", "alone", per_s=1_000_000),
    ]
    assert Speeds(rows).ratio("requests", "giveway", "envoy", units_per_s) == 2.0


def test_failed_rows_are_in_no_median() -> None:
    """However good they look; they are counted."""
    rows: list[ResultRow] = [
        speed("giveway", "a", cpu=10),
        speed("giveway", "b", cpu=1, problems={"cut": 1}),
        speed("giveway", "c", cpu=1, problems={"wrong_token": 5}),
    ]
    speeds = Speeds(rows)
    assert speeds.median("requests", "giveway", cpu_us) == 10
    assert speeds.counted("requests", "giveway") == (3, 2)
    assert "      3       2" in all_tables(rows)


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    """Without rows no target has a verdict."""
    found = verdicts([])
    assert len(found) > 12
    assert {(each.measured, each.met, each.word) for each in found} == {
        (None, None, "not measured")
    }


@pytest.mark.parametrize(("per_s", "met"), [(10.0, True), (9.9, False)])
def test_lower_bound_is_met_from_the_bound_on(per_s: float, met: bool) -> None:
    """At least as many requests as Envoy: equal is enough."""
    rows = [speed("giveway", "a", per_s=per_s), speed("envoy", "a", per_s=10.0)]
    (verdict,) = [each for each in verdicts(rows) if each.what == "requests/s / envoy's"]
    assert (verdict.met, verdict.bound) == (met, "≥ 1 x")


@pytest.mark.parametrize(("held_mb", "met"), [(16.0, True), (16.1, False)])
def test_upper_bound_is_met_up_to_the_bound(held_mb: float, met: bool) -> None:
    """16 MB for 1,000 queued requests."""
    row = MemoryRow(
        round="1",
        proxy="giveway",
        load="held-1000",
        requests=1000,
        in_engine=16,
        idle_bytes=1,
        held_bytes=int(held_mb * 1e6),
        problems={},
    )
    (verdict,) = [each for each in verdicts([row]) if "1,000 queued" in each.what]
    assert (verdict.measured, verdict.met) == (held_mb, met)


def test_what_a_refusal_costs_is_seen_where_all_are_refused() -> None:
    """0.2 of a core by 4,000 refusals a second: 50 us."""
    rows = [
        crowd("overload", "standard", refusals_per_s=1_000),
        crowd("refusals", "refused", refusals_per_s=4_000),
    ]
    assert refusal_cpu_us(rows) == pytest.approx(50)


def test_top_class_is_compared_with_itself_alone() -> None:
    """42 ms in the overload, 40 ms alone."""
    rows = [
        crowd("calm", "realtime", p99_us=40_000),
        crowd("overload", "realtime", p99_us=42_000),
    ]
    (verdict,) = [each for each in verdicts(rows) if "twenty-fold" in each.what]
    assert verdict.measured == pytest.approx(1.05)
    assert verdict.met
