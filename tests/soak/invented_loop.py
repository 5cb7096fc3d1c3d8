"""How can a whole proxy, with its sockets, live hours in seconds?

An event loop whose clock is invented. Bytes travel over real sockets; where the loop would sit and
wait for a timer, the clock jumps to it instead. A moment of real time is granted before each jump,
so that bytes on their way inside the kernel, and threads, come first.

`time.monotonic` has to be that clock too: `clock.patch(monkeypatch)`.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine

import pytest

GRACE_S = 0.0005
"""Of real time. Loopback needs none; nothing that is asserted depends on it."""


class InventedClock:
    """Stands still unless it is moved."""

    def __init__(self, now_s: float = 1_000.0) -> None:
        self.now_s = now_s
        self.jumps = 0

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this be the process's monotonic clock for the rest of the test."""
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def sleep_on(self, seconds: float) -> None:
        """The machine stands still for so long, and its clock does not."""
        self.now_s += seconds


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, clock: InventedClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        found = super().select(GRACE_S if timeout is not None else None)
        if not found and timeout is not None:
            self._clock.now_s += timeout
            self._clock.jumps += 1
        return found


class InventedLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop on an invented clock."""

    def __init__(self, clock: InventedClock) -> None:
        self._invented = clock
        super().__init__(_JumpingSelector(clock))

    def time(self) -> float:
        return self._invented.now_s

    @property
    def timers(self) -> int:
        """Timers that are set and were not taken back."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return sum(not each.cancelled() for each in scheduled)


def live(
    clock: InventedClock, main: Callable[[InventedLoop], Coroutine[object, object, None]]
) -> None:
    """Run to the end in a loop of its own."""
    loop = InventedLoop(clock)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(loop))
