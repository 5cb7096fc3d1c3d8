"""Measures by hand, and the fair share against its definition."""

import pytest
from giveway_simulation.engine_model import EngineStatistics
from giveway_simulation.measures import (
    Window,
    attainment_ratio,
    jain_index,
    longest_dispatch_gap_s,
    max_min_jain,
    max_min_shares,
    percentile,
    service_gap_tokens,
    tokens_per_s,
)
from giveway_simulation.simulating import Record, Run
from giveway_simulation.workloads import Arrival, Objective
from hypothesis import given
from hypothesis import strategies as st

WINDOW = Window(start_s=10.0, end_s=20.0)
OBJECTIVE = Objective(first_token_s=1.0, token_s=0.1)


def record(
    at_s: float,
    *,
    first: float | None = None,
    end: float | None = None,
    sent: float | None = None,
    tenant: str = "a",
    rank: int = 0,
    output: int = 11,
) -> Record:
    arrival = Arrival(at_s=at_s, rank=rank, tenant=tenant, prompt_tokens=89, output_tokens=output)
    return Record(arrival, sent_s=sent, first_token_s=first, finished_s=end)


def make_run(*records: Record) -> Run:
    engine = EngineStatistics(
        running=0,
        waiting=0,
        kv_blocks_used=0,
        kv_usage_ratio=0.0,
        preemptions=0,
        prompt_tokens=0,
        generation_tokens=0,
        steps=0,
    )
    return Run(records=records, engine=engine, duration_s=30.0)


@pytest.mark.parametrize(
    ("case", "met"),
    [
        (record(12.0, first=13.0, end=14.0), True),  # 1 s, and 10 tokens in 1 s
        (record(12.0, first=13.1, end=13.2), False),  # first token too late
        (record(12.0, first=12.5, end=13.6), False),  # 10 tokens in 1.1 s
        (record(12.0, first=12.5), False),  # never finished
        (record(12.0), False),  # never served
        (record(12.0, first=12.5, end=12.5, output=1), True),  # no second token to wait for
    ],
)
def test_attainment_asks_for_first_token_and_pace_together(case: Record, met: bool) -> None:
    """Who is unserved has missed."""
    ratio = attainment_ratio(make_run(case), rank=0, objective=OBJECTIVE, window=WINDOW)
    assert ratio == (1.0 if met else 0.0)


def test_attainment_counts_arrivals_of_the_window_the_class_and_the_tenant() -> None:
    """Two of three here; one of one for tenant b; those outside do not count."""
    run = make_run(
        record(15.0, first=15.1, end=15.2),
        record(15.0, first=15.1, end=15.2, tenant="b"),
        record(15.0),
        record(9.9),
        record(20.0),
        record(15.0, rank=1),
    )
    whole = attainment_ratio(run, rank=0, objective=OBJECTIVE, window=WINDOW)
    assert whole == pytest.approx(2 / 3)
    only_b = attainment_ratio(run, rank=0, objective=OBJECTIVE, window=WINDOW, tenant="b")
    assert only_b == 1.0


def test_throughput_counts_tokens_of_what_finished_in_the_window() -> None:
    """Two of 100 tokens in 10 s."""
    run = make_run(
        record(1.0, first=2.0, end=10.0),
        record(12.0, first=13.0, end=19.0, rank=1),
        record(12.0, first=13.0, end=20.0),
        record(12.0),
    )
    assert tokens_per_s(run, window=WINDOW) == 20.0
    assert tokens_per_s(run, window=WINDOW, rank=1) == 10.0


def test_max_min_shares_by_hand() -> None:
    """10 among demands 2, 8, 3: the modest get all, the greedy one the rest; 9 among 2, 8, 8."""
    assert max_min_shares({"a": 2, "b": 8, "c": 3}, capacity=10) == {"a": 2, "b": 5, "c": 3}
    assert max_min_shares({"a": 2, "b": 8, "c": 8}, capacity=9) == {"a": 2, "b": 3.5, "c": 3.5}


@given(
    demands=st.lists(st.floats(0, 1000), min_size=1, max_size=8),
    capacity=st.floats(0, 5000),
)
def test_max_min_shares_give_nobody_more_than_asked_and_favour_the_smallest(
    demands: list[float], capacity: float
) -> None:
    """The definition: all capacity is used unless all are content, and whoever is not content has
    at least as much as everybody else."""
    named = {str(at): demand for at, demand in enumerate(demands)}
    shares = max_min_shares(named, capacity=capacity)
    assert sum(shares.values()) == pytest.approx(min(capacity, sum(demands)), abs=1e-6)
    for name, share in shares.items():
        assert share <= named[name] + 1e-9
        if share < named[name] - 1e-6:
            assert share >= max(shares.values()) - 1e-6


@pytest.mark.parametrize(
    ("values", "index"),
    [([3, 3, 3], 1.0), ([1, 0, 0, 0], 0.25), ([2, 1], 0.9), ([], 1.0), ([0, 0], 1.0)],
)
def test_jain_index_by_hand(values: list[float], index: float) -> None:
    """(2 + 1)^2 / (2 * (4 + 1)) = 0.9."""
    assert jain_index(values) == pytest.approx(index)


def test_tenant_that_asks_for_little_does_not_make_the_class_unfair() -> None:
    """a asked for and got 400 tokens, b 100: both got their fair share."""
    run = make_run(
        *[record(11.0, sent=11.0, end=12.0, tenant="a") for _ in range(4)],
        record(11.0, sent=11.0, end=12.0, tenant="b"),
    )
    assert max_min_jain(run, rank=0, window=WINDOW) == 1.0


def test_tenant_that_is_kept_waiting_makes_the_class_unfair() -> None:
    """Both asked for 400; a got 400, b nothing: (2 + 0)^2 / (2 * 4) = 0.5."""
    run = make_run(
        *[record(11.0, sent=11.0, end=12.0, tenant="a") for _ in range(4)],
        *[record(11.0, tenant="b") for _ in range(4)],
    )
    assert max_min_jain(run, rank=0, window=WINDOW) == pytest.approx(0.5)


def test_service_gap_compares_tenants_that_had_work_waiting_all_the_time() -> None:
    """a got 300 tokens, b 100, both with a request that waits throughout; c had none waiting."""
    run = make_run(
        *[record(0.0, sent=11.0, end=12.0, tenant="a") for _ in range(3)],
        record(0.0, sent=11.0, end=12.0, tenant="b"),
        record(0.0, tenant="a"),
        record(0.0, tenant="b"),
        record(0.0, sent=0.0, end=12.0, tenant="c"),
    )
    assert service_gap_tokens(run, rank=0, window=WINDOW) == 200.0


def test_longest_dispatch_gap_counts_only_while_something_waits() -> None:
    """Waiting from 11 to 15, dispatches at 12 and 15: 3 s; the idle time after it is none."""
    run = make_run(
        record(11.0, sent=12.0),
        record(11.5, sent=15.0),
        record(18.0, sent=18.5),
    )
    assert longest_dispatch_gap_s(run, rank=0, window=WINDOW) == pytest.approx(3.0)


def test_percentile_is_a_value_that_occurred() -> None:
    """Of 1 to 10: the 50th is 5, the 99th 10, the first 1."""
    values = list(range(1, 11))
    assert percentile(values, percent=50) == 5
    assert percentile(values, percent=99) == 10
    assert percentile(values, percent=1) == 1
