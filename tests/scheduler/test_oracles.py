"""The oracles are themselves right: tables, and what defines their answers."""

import pytest
from giveway_scheduler import Request, RequestKey, TenantName
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.oracles import (
    Claimant,
    Take,
    best_by,
    chi_square,
    first_come_waits_s,
    jain_index,
    max_min_shares,
    most_over_bound,
    sources,
)


def test_max_min_shares_of_a_textbook_case() -> None:
    """Demands 2, 2.6, 4, 5 of 10: 2, 2.6, then (10 - 4.6) / 2 = 2.7 each."""
    shares = max_min_shares(
        {"a": 2.0, "b": 2.6, "c": 4.0, "d": 5.0}, weights=dict.fromkeys("abcd", 1.0), capacity=10.0
    )
    assert shares == pytest.approx({"a": 2.0, "b": 2.6, "c": 2.7, "d": 2.7})


def test_max_min_shares_follow_weights() -> None:
    """Weights 4 and 1 of 10, both asking for all: 8 and 2; if the first asks 5: 5 and 5."""
    weights = {"a": 4.0, "b": 1.0}
    assert max_min_shares({"a": 99.0, "b": 99.0}, weights=weights, capacity=10.0) == pytest.approx(
        {"a": 8.0, "b": 2.0}
    )
    assert max_min_shares({"a": 5.0, "b": 99.0}, weights=weights, capacity=10.0) == pytest.approx(
        {"a": 5.0, "b": 5.0}
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    demands=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    weights=st.lists(st.integers(1, 9), min_size=6, max_size=6),
    capacity=st.integers(1, 100),
)
def test_max_min_shares_are_max_min(demands: list[int], weights: list[int], capacity: int) -> None:
    """The definition: nothing is wasted, and who lacks something has for its weight at least as
    much as anybody who could give."""
    asked = {i: float(demand) for i, demand in enumerate(demands)}
    weight = {i: float(weights[i]) for i in asked}
    shares = max_min_shares(asked, weights=weight, capacity=float(capacity))
    assert sum(shares.values()) == pytest.approx(min(capacity, sum(demands)))
    for i, share in shares.items():
        assert -1e-9 <= share <= asked[i] + 1e-6
        if share < asked[i] - 1e-6:
            assert all(share / weight[i] >= other / weight[j] - 1e-6 for j, other in shares.items())


def test_jain_index_at_its_ends() -> None:
    """All equal: 1. One of four has everything: 1/4."""
    assert jain_index([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain_index([8.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


def test_first_come_waits_of_a_burst_in_closed_form() -> None:
    """n at once, c seats, s seconds each: the i-th waits floor(i / c) x s."""
    waits_s = first_come_waits_s([0.0] * 10, [2.0] * 10, seats=3)
    assert waits_s == [i // 3 * 2.0 for i in range(10)]


def test_first_come_waits_obey_lindley_with_one_seat() -> None:
    """w' = max(0, w + s - gap): 0; 0 + 4 - 1 = 3; 3 + 1 - 1 = 3; max(0, 3 + 2 - 9) = 0."""
    assert first_come_waits_s([0.0, 1.0, 2.0, 11.0], [4.0, 1.0, 2.0, 1.0], seats=1) == [
        0.0,
        3.0,
        3.0,
        0.0,
    ]


def test_window_bound_is_broken_by_one_more_than_burst_and_rate() -> None:
    """Burst 5, 2/s: 5 at 0 s and 2 at 1 s are just right, 3 at 1 s are one too many."""
    first = Take(at_s=0.0, amount=5.0, checked=True)
    right = Take(at_s=1.0, amount=2.0, checked=True)
    wrong = Take(at_s=1.0, amount=3.0, checked=True)
    assert most_over_bound([first, right], burst=5.0, per_s=2.0) == pytest.approx(0.0)
    assert most_over_bound([first, wrong], burst=5.0, per_s=2.0) == pytest.approx(1.0)


def test_window_bound_knows_refunds_and_debts() -> None:
    """What was put back may be taken again; 8 of a burst of 5 is a debt of 3 of its own."""
    first = Take(at_s=0.0, amount=5.0, checked=True)
    back = Take(at_s=0.0, amount=-4.0, checked=False)
    again = Take(at_s=0.0, amount=4.0, checked=True)
    large = Take(at_s=0.0, amount=8.0, checked=True)
    assert most_over_bound([first, back, again], burst=5.0, per_s=1.0) == pytest.approx(0.0)
    assert most_over_bound([large], burst=5.0, per_s=1.0) == pytest.approx(0.0)
    assert most_over_bound([large, again], burst=5.0, per_s=1.0) == pytest.approx(7.0)


def claimant(
    key: int, rank: int, *, name: str = "", waits_for: str | None = None, tenant: str = "a"
) -> Claimant:
    """A request of the workflow `w` that lifts to its own class."""
    request = Request(
        key=RequestKey(key),
        rank=rank,
        tenant=TenantName(tenant),
        prompt_tokens=1,
        name=name,
        waits_for=waits_for,
        workflow="w",
    )
    return Claimant(request=request, order=key, home_rank=rank, lift_rank=rank)


def lifts(*live: Claimant) -> dict[int, int]:
    """Keys of the lifted, with the key of who lifts them."""
    return {key: int(source.request.key) for key, source in sources(live).items()}


def test_sources_follow_chains_and_take_the_highest_then_the_oldest() -> None:
    """A9: 1 (rank 1) -> 3 -> 4, and 2 (rank 0) -> 4: 3 is lifted by 1, 4 by 2."""
    assert lifts(
        claimant(1, 1, waits_for="b"),
        claimant(2, 0, waits_for="c"),
        claimant(3, 2, name="b", waits_for="c"),
        claimant(4, 2, name="c"),
    ) == {3: 1, 4: 2}


def test_sources_end_with_the_path() -> None:
    """A9: without the one in the middle nothing leads from 1 to 4."""
    assert lifts(claimant(1, 0, waits_for="b"), claimant(4, 2, name="c")) == {}


def test_sources_of_a_cycle_are_the_others_in_it() -> None:
    """A9: 1 and 2 wait for each other: the lower is lifted by the higher, nobody by itself."""
    assert lifts(
        claimant(1, 0, name="x", waits_for="y"), claimant(2, 2, name="y", waits_for="x")
    ) == {2: 1}


def test_best_by_names_all_of_the_highest() -> None:
    """Ties are all best."""
    assert best_by([1, -3, 3, 2], lambda item: float(abs(item))) == [-3, 3]


def test_chi_square_of_a_small_table() -> None:
    """(12 - 10)^2 / 10 + (8 - 10)^2 / 10 = 0.8."""
    assert chi_square([12.0, 8.0], [10.0, 10.0]) == pytest.approx(0.8)
