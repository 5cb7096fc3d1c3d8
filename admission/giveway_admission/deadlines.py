"""When must something have happened?

A `Deadline` is one moment that moves often and is reached rarely. Moving it later costs an
assignment: the timer of the event loop stays where it is, and when it goes off too early it is set
anew. So a connection that serves a thousand requests has one timer and not a thousand.

A process that was stopped for a while (a suspended machine, a frozen container) finds all its
moments passed before it has read what came meanwhile. So a timer that goes off far too late lets
the event loop read first: what has happened in time is not taken as missed.
"""

import asyncio
import time
from collections.abc import Callable

_SLACK_S = 0.001
"""The event loop's clock counts whole milliseconds."""
_FAR_TOO_LATE_S = 1.0
"""No event loop that works is that late."""
_READING_S = 0.05
"""Time for what lies in the sockets after standing still."""


class Deadline:
    """Calls `missed` once when the moment set last has passed. Nothing is set at first."""

    __slots__ = ("_at_s", "_loop", "_missed", "_timer", "_timer_at_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, missed: Callable[[], None]) -> None:
        self._loop = loop
        self._missed = missed
        self._at_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0

    def set_in(self, delay_s: float) -> None:
        """Let the moment be `delay_s` from now, whatever it was."""
        self.set_at(time.monotonic() + delay_s)

    def set_at(self, at_s: float) -> None:
        self._at_s = at_s
        if self._timer is None or at_s < self._timer_at_s:
            self._arm(at_s)

    def clear(self) -> None:
        """Nothing is awaited any more; the timer may still go off, and does nothing."""
        self._at_s = None

    def close(self) -> None:
        """As `clear`, and the timer is taken back: the owner is about to go."""
        self._at_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_s = time.monotonic()
        self._timer_at_s = max(at_s, now_s)
        delay_s = self._timer_at_s - now_s + _SLACK_S
        self._timer = self._loop.call_later(delay_s, self._go_off)

    def _go_off(self) -> None:
        self._timer = None
        at_s = self._at_s
        if at_s is None:
            return
        now_s = time.monotonic()
        if at_s > now_s:
            self._arm(at_s)
            return
        if now_s - self._timer_at_s > _FAR_TOO_LATE_S:
            self._arm(now_s + _READING_S)
            return
        self._at_s = None
        self._missed()
