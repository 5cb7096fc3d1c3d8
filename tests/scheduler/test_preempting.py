"""Aborting a batch request before its first token, by cost (A10)."""

from dataclasses import replace

import pytest
from giveway_scheduler import Abort, Decision, Dispatch, Preemption, Settings

from tests.scheduler.driving import CLASSES, Driver, dispatched, request, seats


def aborting(
    preemption: Preemption = Preemption.ABORT_BEFORE_FIRST_TOKEN, **more: object
) -> Driver:
    """Two seats, 1 ms a prompt token, and no floor to protect batch."""
    concurrency = seats(2, prompt_seconds_per_token=1e-3, **more)
    return Driver(
        Settings(
            classes=CLASSES,
            concurrency=concurrency,
            preemption=preemption,
            batch_token_floor_ratio=0.0,
            anti_starvation=None,
        )
    )


def aborted(decisions: list[Decision]) -> list[int]:
    return [each.request.key for each in decisions if isinstance(each, Abort)]


def test_batch_that_lost_little_is_stopped_for_a_higher_class() -> None:
    """A10: two prompts of 5,000 tokens; 1 s later the second has not begun (the first is ahead):
    it is stopped, loses nothing, and the seat is the other's in the same call."""
    driver = aborting()
    driver.offer(request(1, 2, prompt_tokens=5000), request(2, 2, prompt_tokens=5000))
    driver.now_s = 1.0
    abort, dispatch = driver.offer(request(3, 0))
    assert isinstance(abort, Abort)
    assert isinstance(dispatch, Dispatch)
    assert (abort.request.key, abort.for_rank, abort.prompt_tokens_lost) == (2, 0, 0)
    assert dispatch.request.key == 3
    assert driver.statistics().classes[2].queued == 1


@pytest.mark.parametrize("preemption", [Preemption.NONE, Preemption.ENGINE])
def test_nothing_is_stopped_unless_asked_for(preemption: Preemption) -> None:
    """A10: with Engine the order is passed down, lower goes first, and the engine may preempt."""
    driver = aborting(preemption)
    first, second = driver.offer(request(1, 2), request(2, 0))
    assert isinstance(first, Dispatch)
    assert isinstance(second, Dispatch)
    assert (first.priority, second.priority) == (2, 0)
    driver.offer(request(3, 2))
    assert driver.offer(request(4, 0)) == []


@pytest.mark.parametrize(
    ("waited_s", "stops"),
    [(0.3, True), (0.7, False)],
)
def test_it_is_stopped_only_if_less_is_lost_than_saved(waited_s: float, stops: bool) -> None:
    """A10: seats come free about twice a second, so 0.5 s are saved; 300 of 1,000 prompt tokens
    are 0.3 s lost, 700 are 0.7 s."""
    driver = aborting()
    driver.offer(request(0, 0), request(1, 0))
    for step in range(200):
        driver.now_s += 0.5
        driver.finish(driver.running[0])
        driver.offer(request(10 + step, 0))
    driver.finish(driver.running[0])
    driver.offer(request(1000, 2, prompt_tokens=1000))
    (other,) = (key for key in driver.running if key != 1000)
    driver.first_token(other)
    driver.now_s += waited_s
    assert aborted(driver.offer(request(2000, 0))) == ([1000] if stops else [])


@pytest.mark.parametrize(
    "harmless",
    [
        {"repeatable": False},
        {"shows_first_token": False},
        {"rank": 1},
        {"patience_s": 0.0},
    ],
)
def test_only_repeatable_batch_with_time_left_is_stopped(harmless: dict[str, object]) -> None:
    """A10: a body that is gone, an answer that may be nearly done, an interactive request and one
    that would expire at once are left alone."""
    rank = harmless.get("rank", 2)
    more = {name: value for name, value in harmless.items() if name != "rank"}
    driver = aborting()
    driver.offer(*(request(key, rank, prompt_tokens=5000, **more) for key in (1, 2)))  # type: ignore[arg-type]
    driver.now_s = 0.1
    assert driver.offer(request(3, 0)) == []


def test_request_with_a_token_is_never_stopped() -> None:
    """A10: after the first token its prompt work is done."""
    driver = aborting()
    driver.offer(request(1, 2), request(2, 2))
    driver.first_token(1)
    driver.first_token(2)
    assert driver.offer(request(3, 0)) == []


def test_nobody_is_stopped_more_than_twice() -> None:
    """A10: batch gets through any amount of such traffic."""
    driver = aborting()
    driver.offer(request(0, 0))
    driver.offer(request(1, 2, prompt_tokens=5000))
    stops = 0
    for step in range(10):
        driver.now_s += 0.01
        stops += aborted(driver.offer(request(100 + step, 0))).count(1)
        for key in tuple(driver.running):
            if key >= 100:
                driver.finish(key)
    assert stops == 2
    assert 1 in driver.running


def test_the_one_that_lost_least_is_stopped() -> None:
    """A10: of several the newest has least prompt work done."""
    driver = aborting()
    concurrency = seats(3, prompt_seconds_per_token=1e-3)
    driver.configure(replace(driver.settings, concurrency=concurrency))
    for key in (1, 2, 3):
        driver.offer(request(key, 2, prompt_tokens=1000))
        driver.now_s += 0.2
    assert aborted(driver.offer(request(9, 1))) == [3]


def test_closed_gate_is_a_reason_too() -> None:
    """A10: seats are free, but a batch prompt of 8,000 tokens keeps the gate closed for standard.
    It is stopped, and sent again behind the other one."""
    driver = aborting(seats=10, prompt_gate_tokens=1000)
    driver.offer(request(1, 2, prompt_tokens=8000))
    driver.now_s = 0.5
    decisions = driver.offer(request(2, 1, prompt_tokens=100))
    assert aborted(decisions) == [1]
    assert dispatched(decisions) == [2, 1]


def test_stopped_request_keeps_its_place_and_its_reservation() -> None:
    """A10: it goes before later batch, and pays once."""
    driver = aborting()
    driver.offer(request(0, 0), request(1, 2, prompt_tokens=5000), request(2, 2))
    driver.offer(request(3, 0))
    assert driver.running == [0, 3]
    held = driver.statistics().ledger.held_tokens
    assert dispatched(driver.finish(0)) == [1]
    ledger = driver.statistics().ledger
    assert ledger.held_tokens == pytest.approx(held - 10 - 256)
    assert ledger.reserved_tokens == pytest.approx(10 + 256 + 5256 + 10 + 256)


def test_class_that_is_owed_its_floor_is_not_stopped() -> None:
    """The floor of batch holds against this too."""
    driver = aborting()
    driver.configure(replace(driver.settings, batch_token_floor_ratio=0.5))
    driver.offer(request(0, 0, prompt_tokens=9000))
    driver.offer(request(1, 2, prompt_tokens=100))
    assert driver.offer(request(3, 0)) == []
