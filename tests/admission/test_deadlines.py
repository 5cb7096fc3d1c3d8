"""When must something have happened?"""

import asyncio
import time
from collections.abc import Callable

from giveway_admission.deadlines import Deadline

from tests.support.waiting import until


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the timers that are set."""

    timers = 0

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *arguments: object
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_later(delay, callback, *arguments)


async def test_it_is_missed_once_and_not_before_its_time() -> None:
    """The moment that was set last counts."""
    missed: list[float] = []
    deadline = Deadline(asyncio.get_running_loop(), lambda: missed.append(time.monotonic()))
    deadline.set_in(30.0)
    at_s = time.monotonic() + 0.02
    deadline.set_at(at_s)
    await until(lambda: missed, what="it is missed")
    assert len(missed) == 1
    assert missed[0] >= at_s


async def test_what_is_cleared_is_not_missed() -> None:
    """Cleared before its time, also when the timer goes off; it can be set again."""
    missed: list[str] = []
    cleared = Deadline(asyncio.get_running_loop(), lambda: missed.append("cleared"))
    cleared.set_in(0.001)
    cleared.clear()
    other = Deadline(asyncio.get_running_loop(), lambda: missed.append("other"))
    other.set_in(0.02)
    await until(lambda: missed, what="the later one is missed")
    assert missed == ["other"]
    cleared.set_in(0.001)
    await until(lambda: len(missed) == 2, what="it is missed after all")


def test_moving_a_deadline_later_sets_no_timer() -> None:
    """A connection that serves a thousand requests has one timer."""
    loop = CountingLoop()
    try:
        deadline = Deadline(loop, lambda: None)
        for index in range(1000):
            deadline.set_in(100.0 + index)
            deadline.clear()
        assert loop.timers == 1
        deadline.close()
    finally:
        loop.close()
