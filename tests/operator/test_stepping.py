"""How far weights go at once."""

import pytest
from giveway_operator.stepping import SMALLEST_STEP_PART, Swing, move

WINDOW_S = 300.0


def go(
    weights: dict[str, float], wanted: dict[str, float], swing: Swing, *, now_s: float
) -> tuple[dict[str, float], Swing]:
    return move(
        weights,
        wanted,
        swing,
        largest_step=0.2,
        is_way_back=False,
        now_s=now_s,
        window_s=WINDOW_S,
    )


def test_a_small_weight_that_is_lowered_limits_the_step_of_all() -> None:
    """1 of 1001 may lose a fifth of itself; so the other gains a fifth of 1."""
    moved, _ = go({"a": 1000.0, "b": 1.0}, {"a": 1000.9, "b": 0.1}, Swing(), now_s=0.0)
    assert moved == pytest.approx({"a": 1000.2, "b": 0.8})


def test_a_weight_that_turns_round_goes_a_quarter_as_far_down_to_a_sixteenth() -> None:
    weights, swing = {"a": 50.0, "b": 50.0}, Swing()
    parts = []
    for turn in range(4):
        wanted = {"a": 90.0, "b": 10.0} if turn % 2 == 0 else {"a": 10.0, "b": 90.0}
        before = weights
        weights, swing = go(weights, wanted, swing, now_s=turn * 30.0)
        parts.append(max(abs(weights[name] / before[name] - 1) for name in weights) / 0.2)
    assert parts[:2] == pytest.approx([1.0, 0.25])
    assert swing.step_part == SMALLEST_STEP_PART


def test_after_calm_windows_the_step_grows_again() -> None:
    swing = Swing(step_part=0.25, turned_s=0.0)
    up = {"a": 90.0, "b": 10.0}
    for now_s, part in ((WINDOW_S * 4 - 1, 0.25), (WINDOW_S * 4, 0.5)):
        moved, _ = go({"a": 50.0, "b": 50.0}, up, swing, now_s=now_s)
        assert moved["a"] == pytest.approx(50.0 * (1 + 0.2 * part))


def test_a_change_that_nobody_would_notice_is_not_made_but_the_last_one_back_is() -> None:
    weights, wanted = {"a": 50.5, "b": 49.5}, {"a": 50.0, "b": 50.0}
    assert go(weights, wanted, Swing(), now_s=0.0)[0] == weights
    moved, _ = move(
        weights,
        wanted,
        Swing(),
        largest_step=0.2,
        is_way_back=True,
        now_s=0.0,
        window_s=WINDOW_S,
    )
    assert moved == wanted
