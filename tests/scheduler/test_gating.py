"""The prompt gate: un-prefilled prompt tokens at the engine."""

from giveway_scheduler import Settings, Usage

from tests.scheduler.driving import CLASSES, Driver, dispatched, request, seats


def gated(**more: object) -> Driver:
    concurrency = seats(100, prompt_gate_tokens=1000, prompt_seconds_per_token=1e-3, **more)
    return Driver(
        Settings(
            classes=CLASSES,
            concurrency=concurrency,
            anti_starvation=None,
            batch_token_floor_ratio=0.0,
        )
    )


def test_lower_classes_wait_while_enough_prompt_is_unprefilled() -> None:
    """600 and 600 go (600 < 1,000), the third waits until a first token."""
    driver = gated()
    driver.offer(*(request(key, 1, prompt_tokens=600) for key in range(4)))
    assert driver.running == [0, 1]
    assert driver.statistics().unprefilled_tokens == 1200
    assert not driver.statistics().gate_open
    assert dispatched(driver.first_token(0)) == [2]
    assert dispatched(driver.first_token(0)) == []
    assert dispatched(driver.first_token(1)) == [3]


def test_first_class_is_counted_and_never_held() -> None:
    """It goes through a closed gate, and closes it for the others."""
    driver = gated()
    assert dispatched(driver.offer(request(0, 0, prompt_tokens=5000))) == [0]
    assert dispatched(driver.offer(request(1, 1))) == []
    assert dispatched(driver.offer(request(2, 0, prompt_tokens=5000))) == [2]


def test_one_request_may_always_go() -> None:
    """A prompt larger than the gate goes when nothing is un-prefilled."""
    driver = gated()
    assert dispatched(driver.offer(request(0, 1, prompt_tokens=50_000))) == [0]
    assert dispatched(driver.offer(request(1, 1, prompt_tokens=50_000))) == []
    assert dispatched(driver.finish(0)) == [1]


def test_gate_lets_go_of_what_ended_before_its_first_token() -> None:
    """Finish, cancel and requeue all stop the counting."""
    driver = gated()
    driver.offer(*(request(key, 1, prompt_tokens=1000) for key in range(5)))
    assert driver.running == [0]
    assert dispatched(driver.end(0, None)) == [1]
    assert dispatched(driver.cancel(1, Usage(prompt_tokens=1000))) == [2]
    driver.set_engine_available(False)
    driver.requeue(2)
    assert driver.statistics().unprefilled_tokens == 0
    assert dispatched(driver.set_engine_available(True)) == [2]


def test_answer_without_first_token_is_counted_for_its_estimated_time() -> None:
    """Not streamed: 2,000 tokens at 1 ms hold the gate for 2 s; the next 500 for 0.5 s more."""
    driver = gated()
    driver.offer(request(0, 1, prompt_tokens=2000, shows_first_token=False))
    driver.offer(
        request(1, 1, prompt_tokens=500, shows_first_token=False),
        request(2, 1, prompt_tokens=500),
    )
    assert driver.running == [0]
    assert driver.scheduler.next_event_s() is not None
    driver.until(1.99)
    assert driver.running == [0]
    driver.until(2.0)
    assert driver.running == [0, 1, 2]
    driver.until(2.5)
    assert driver.statistics().unprefilled_tokens == 500


def test_estimate_of_an_earlier_attempt_does_not_open_the_gate() -> None:
    """A requeued request that goes again is counted for the time of its second attempt."""
    driver = gated()
    driver.offer(request(0, 1, prompt_tokens=2000, shows_first_token=False))
    driver.now_s = 1.5
    driver.set_engine_available(False)
    driver.requeue(0)
    driver.set_engine_available(True)
    driver.offer(request(1, 1))
    driver.until(3.4)
    assert driver.running == [0]
    driver.until(3.5)
    assert driver.running == [0, 1]


def test_no_gate_means_seats_alone() -> None:
    """None: no gate."""
    driver = gated()
    concurrency = seats(100)
    driver.configure(Settings(classes=CLASSES, concurrency=concurrency, anti_starvation=None))
    driver.offer(*(request(key, 1, prompt_tokens=10_000) for key in range(5)))
    assert len(driver.running) == 5
