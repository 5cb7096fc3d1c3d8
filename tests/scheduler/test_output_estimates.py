"""What is reserved for an answer of unknown length."""

from giveway_scheduler.output_estimates import ENOUGH, HISTORY, OutputEstimate


def test_first_estimate_holds_until_there_is_a_history() -> None:
    """256 at first: a 90th percentile of nine answers is their maximum."""
    estimate = OutputEstimate(first_tokens=256)
    for _ in range(ENOUGH - 1):
        estimate.add(7)
    assert estimate.tokens == 256
    estimate.add(7)
    assert estimate.tokens == 7


def test_estimate_is_the_recent_ninetieth_percentile() -> None:
    """Of 1..100 the value with nine tenths below it is 91."""
    estimate = OutputEstimate(first_tokens=256)
    for tokens in range(1, 101):
        estimate.add(tokens)
    assert estimate.tokens == 91


def test_old_answers_are_forgotten() -> None:
    """After a full history of short answers, long ones count no more."""
    estimate = OutputEstimate(first_tokens=256)
    for tokens in [9000] * HISTORY + [5] * HISTORY:
        estimate.add(tokens)
    assert estimate.tokens == 5


def test_new_first_estimate_does_not_replace_a_history() -> None:
    """D05: a change of settings loses nothing that was learnt."""
    estimate = OutputEstimate(first_tokens=256)
    estimate.configure(first_tokens=100)
    assert estimate.tokens == 100
    for _ in range(ENOUGH):
        estimate.add(3)
    estimate.configure(first_tokens=999)
    assert estimate.tokens == 3
