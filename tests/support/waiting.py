"""How does a test wait for something that another process or connection does?

By asking again until a condition holds, never by sleeping for as long as it "should" take: the
bound is what a loaded machine may need, the wait itself ends as soon as the condition holds. What
takes long is asked less often: asking costs the machine that is waited for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

PATIENCE_S = 20.0
"""Default bound: far above what any condition needs on an idle machine."""

_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.25
_OF_THE_WAIT = 0.1
"""At most so much longer than needed does a wait take."""


def pause_s(waited_s: float) -> float:
    """How long to wait before asking again, after so long."""
    return min(_LONGEST_PAUSE_S, max(_PAUSE_S, waited_s * _OF_THE_WAIT))


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
    started_s = time.monotonic()
    while True:
        answer = condition()
        value = await answer if isinstance(answer, Awaitable) else answer
        if value:
            return value
        waited_s = time.monotonic() - started_s
        if waited_s > within_s:
            raise NotInTimeError(f"{what}: not within {within_s} s (last answer: {value!r})")
        await asyncio.sleep(pause_s(waited_s))


def until_blocking(condition: Callable[[], T], *, what: str, within_s: float = PATIENCE_S) -> T:
    """The same for a test without an event loop."""
    started_s = time.monotonic()
    while not (value := condition()):
        waited_s = time.monotonic() - started_s
        if waited_s > within_s:
            raise NotInTimeError(f"{what}: not within {within_s} s (last answer: {value!r})")
        time.sleep(pause_s(waited_s))
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
