"""The load of the comparison is the one that is claimed."""

from collections import Counter, defaultdict

import pytest
from giveway_simulation.workloads import (
    CLASS_LOADS,
    FULL_LOAD_PER_S,
    JOB_REQUESTS,
    OUTPUT_TOKEN_WORK,
    Pace,
    comparison_workload,
    rates,
    tenant_name,
    uneven_tenants,
)

DURATION_S = 900.0


def test_rates_add_up_to_the_load_and_divide_the_work_as_said() -> None:
    """30, 30 and 40 % of the work: requests a second times mean work of a request."""
    assert sum(rates(2.0)) == pytest.approx(2.0 * FULL_LOAD_PER_S)
    work: defaultdict[int, float] = defaultdict(float)
    for seed in range(4):
        for arrival in comparison_workload(1.0, seed=seed, duration_s=DURATION_S):
            work[arrival.rank] += arrival.prompt_tokens + OUTPUT_TOKEN_WORK * arrival.output_tokens
    shares = [work[rank] / sum(work.values()) for rank in range(3)]
    assert shares == pytest.approx([0.3, 0.3, 0.4], abs=0.02)


def test_tenants_send_their_shares_and_times_are_in_order() -> None:
    """Within a few points, over some thousand arrivals."""
    arrivals = comparison_workload(1.2, seed=5, duration_s=DURATION_S)
    times = [arrival.at_s for arrival in arrivals]
    assert times == sorted(times)
    assert times[0] >= 0.0
    assert times[-1] <= DURATION_S
    for rank, class_load in enumerate(CLASS_LOADS):
        counts = Counter(arrival.tenant for arrival in arrivals if arrival.rank == rank)
        for number, share in enumerate(class_load.tenant_shares):
            sent = counts[tenant_name(rank, number)] / counts.total()
            assert sent == pytest.approx(share, abs=0.05)


def test_one_batch_tenant_dumps_whole_jobs() -> None:
    """A hundred requests at one instant, again and again."""
    arrivals = comparison_workload(1.0, seed=2, duration_s=DURATION_S)
    dumped = Counter(arrival.at_s for arrival in arrivals if arrival.tenant == tenant_name(2, 0))
    assert set(dumped.values()) == {JOB_REQUESTS}
    assert len(dumped) >= 10


def test_code_arrivals_keep_the_bursts_of_their_trace() -> None:
    """Variance over mean of arrivals in 10 s: 72 in the whole trace, 1 if they were Poisson."""
    arrivals = comparison_workload(1.0, seed=4, duration_s=DURATION_S)
    counts = Counter(int(arrival.at_s // 10) for arrival in arrivals if arrival.rank == 1)
    values = [counts[at] for at in range(90)]
    mean = sum(values) / 90
    variance = sum((value - mean) ** 2 for value in values) / 90
    assert variance / mean > 5


@pytest.mark.slow
def test_stretched_cuts_offer_equally_many_and_the_recorded_pace_what_its_place_has() -> None:
    """The first two classes of eight seeds: one count, or quite different ones."""
    wanted = sum(rates(1.0)[:2]) * 300.0
    counts = {
        pace: [
            sum(
                arrival.rank < 2
                for arrival in comparison_workload(1.0, seed=seed, duration_s=300.0, pace=pace)
            )
            for seed in range(8)
        ]
        for pace in Pace
    }
    (stretched,) = set(counts[Pace.STRETCHED])
    assert stretched == pytest.approx(wanted, abs=1)
    recorded = counts[Pace.RECORDED]
    assert max(recorded) > 1.3 * min(recorded)


@pytest.mark.slow
def test_recorded_pace_over_the_length_of_a_trace_sends_each_row_once() -> None:
    """The factor is of the whole trace: wherever it starts, all rows come in that time."""
    all_rows = 19_366
    per_s = rates(1.0)[0]
    arrivals = comparison_workload(1.0, seed=3, duration_s=all_rows / per_s, pace=Pace.RECORDED)
    assert sum(arrival.rank == 0 for arrival in arrivals) == pytest.approx(all_rows, abs=2)


def test_seeds_differ_and_repeat() -> None:
    """Equal seeds give equal loads."""
    one = comparison_workload(0.8, seed=1, duration_s=60.0)
    assert one == comparison_workload(0.8, seed=1, duration_s=60.0)
    assert one != comparison_workload(0.8, seed=2, duration_s=60.0)


def test_uneven_tenants_send_what_they_are_told_to() -> None:
    """82 % from one of ten."""
    shares = (0.82,) + (0.02,) * 9
    arrivals = uneven_tenants(shares, 20.0, rank=1, seed=1, duration_s=200.0)
    counts = Counter(arrival.tenant for arrival in arrivals)
    assert counts[tenant_name(1, 0)] / counts.total() == pytest.approx(0.82, abs=0.02)
    assert len(arrivals) == pytest.approx(4000, rel=0.06)
