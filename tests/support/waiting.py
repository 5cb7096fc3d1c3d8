"""How does a test wait for something that another process or connection does?

By asking again until a condition holds, never by sleeping for as long as it "should" take: the
bound is what a loaded machine may need, the wait itself ends as soon as the condition holds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

PATIENCE_S = 20.0
"""Default bound: far above what any condition needs on an idle machine."""

_PAUSE_S = 0.01


class NotInTimeError(AssertionError):
    """The condition did not hold within its bound: the test fails."""


@overload
async def until(
    condition: Callable[[], Awaitable[T]], *, what: str, within_s: float = PATIENCE_S
) -> T: ...
@overload
async def until(condition: Callable[[], T], *, what: str, within_s: float = PATIENCE_S) -> T: ...
async def until(
    condition: Callable[[], object], *, what: str, within_s: float = PATIENCE_S
) -> object:
    """Ask `condition` until its answer is true; return that answer. `what` names it in failures."""
    deadline_s = time.monotonic() + within_s
    while True:
        answer = condition()
        value = await answer if isinstance(answer, Awaitable) else answer
        if value:
            return value
        if time.monotonic() > deadline_s:
            raise NotInTimeError(f"{what}: not within {within_s} s (last answer: {value!r})")
        await asyncio.sleep(_PAUSE_S)


def until_blocking(condition: Callable[[], T], *, what: str, within_s: float = PATIENCE_S) -> T:
    """The same for a test without an event loop."""
    deadline_s = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise NotInTimeError(f"{what}: not within {within_s} s (last answer: {value!r})")
        time.sleep(_PAUSE_S)
    return value


async def holds_for(condition: Callable[[], object], *, what: str, for_s: float) -> None:
    """Fail as soon as `condition` is false within the next `for_s` seconds.

    For claims that something does *not* happen: `for_s` is how long it is looked for.
    """
    deadline_s = time.monotonic() + for_s
    while time.monotonic() < deadline_s:
        if not condition():
            raise AssertionError(f"{what}: did not hold")
        await asyncio.sleep(_PAUSE_S)
