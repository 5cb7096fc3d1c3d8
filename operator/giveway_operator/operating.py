"""How do the parts become a running operator?

Three things go on beside each other: the Lease is held, passes run while it is ours, and kopf's
watch wakes them. A pass runs when something is new, when a policy is due or was considered, and at
the latest after `resync_s`. One that fails is tried again with growing pauses.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from giveway_operator.considering import Considering
from giveway_operator.kube_client import KubeError, UnavailableError
from giveway_operator.leases import Leadership, NotLeadingError
from giveway_operator.passes import Passes, PassResult

FIRST_BACKOFF_S: Final = 0.5
PAUSE_PER_PASS: Final = 4.0
"""A pass that takes long is followed by this many times its own time, so that passes of a large
cluster use a fifth of a core at most."""

_log = logging.getLogger(__name__)


def utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_now_exactly() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def minutes_since_1970() -> int:
    return int(datetime.now(UTC).timestamp() // 60)


@dataclass(slots=True, kw_only=True)
class OperatorStatistics:
    """What the admin port shows."""

    passes: int = 0
    failed_passes: int = 0
    writes: int = 0
    conflicts: int = 0
    last_pass_s: float | None = None
    """On the clock, when the last good pass ended. None: there was none."""
    last_end_s: float | None = None
    """The same of the last pass, good or not."""
    last_pass_duration_s: float = 0.0
    last_pass_time: float = 0.0
    """Seconds since 1970; 0: none."""
    last_error: str = ""
    """Empty: the last pass was good."""


class Operator:
    """Passes while it leads."""

    def __init__(
        self,
        passes: Passes,
        considering: Considering,
        leadership: Leadership,
        *,
        resync_s: float,
        shortest_pause_s: float,
        longest_backoff_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._passes = passes
        self._considering = considering
        self.leadership = leadership
        self._resync_s = resync_s
        self._shortest_pause_s = shortest_pause_s
        self._longest_backoff_s = longest_backoff_s
        self._clock = clock
        self._news = asyncio.Event()
        self._leads = asyncio.Event()
        self.statistics = OperatorStatistics()
        self.result: PassResult | None = None
        """Of the last pass. None: there was none, or another one leads."""
        self.started_s = clock()
        self.leading_s: float | None = None
        """Since when it leads. None: it does not."""

    def wake(self) -> None:
        """Something is new: let a pass run soon."""
        self._news.set()

    def in_trouble(self) -> bool:
        """Whether the last pass failed, or left something unwritten."""
        return bool(self.statistics.last_error or (self.result and self.result.failures))

    async def run(self) -> None:
        """Until cancelled. Then the Lease is given back."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._hold_lease(), name="lease")
                group.create_task(self._run_passes(), name="passes")
        finally:
            await self._considering.stop()
            await self.leadership.release()

    async def _hold_lease(self) -> None:
        while True:
            pause_s = await self.leadership.tick()
            if self.leadership.leading:
                if self.leading_s is None:
                    self.leading_s = self._clock()
                self._leads.set()
            await asyncio.sleep(pause_s)

    async def _run_passes(self) -> None:
        failures = 0
        while True:
            await self._leads.wait()
            self._news.clear()
            began_s = self._clock()
            try:
                again_soon = await self.run_pass()
                failures = 0
                pause_s = max(
                    self._shortest_pause_s, PAUSE_PER_PASS * self.statistics.last_pass_duration_s
                )
                await asyncio.sleep(pause_s)
                if not again_soon:
                    await self._wait_for_news(began_s)
            except NotLeadingError as error:
                _log.warning("another operator leads: %s", error)
                await self._stand_by()
            except KubeError as error:
                failures += 1
                self._note_failure(error)
                await asyncio.sleep(self._backoff_s(failures, error))
            except Exception as error:
                failures += 1
                self._note_failure(error)
                _log.exception("a pass failed")
                await asyncio.sleep(self._backoff_s(failures, error))

    async def run_pass(self) -> bool:
        """One pass now. Whether it is to run again at once, since something changed meanwhile."""
        began_s = self._clock()
        self.leadership.guard()
        events = self._considering.take_events()
        try:
            result = await self._passes.run(
                epoch=self.leadership.epoch,
                guard=self.leadership.guard,
                weights=self._considering.weights,
                reports=self._considering.reports,
                events=events,
            )
        except BaseException:
            self._considering.put_back(events)
            raise
        self._note(result, began_s)
        self._considering.start_due(result)
        return bool(result.conflicts)

    def _note(self, result: PassResult, began_s: float) -> None:
        told = self.result.failures if self.result else {}
        for what, why in result.failures.items():
            if told.get(what) != why:
                _log.error("%s: %s", what, why)
        known = set(self.result.faults) if self.result else set()
        for fault in result.faults:
            if fault not in known:
                _log.warning("left out: %s", fault)
        self.result = result
        statistics = self.statistics
        statistics.passes += 1
        statistics.writes += result.writes
        statistics.conflicts += result.conflicts
        statistics.last_pass_s = statistics.last_end_s = self._clock()
        statistics.last_pass_duration_s = statistics.last_pass_s - began_s
        statistics.last_pass_time = datetime.now(UTC).timestamp()
        statistics.last_error = ""

    def _note_failure(self, error: Exception) -> None:
        self.statistics.failed_passes += 1
        self.statistics.last_end_s = self._clock()
        text = str(error) or type(error).__name__
        if text != self.statistics.last_error:
            _log.error("a pass failed: %s", text)
        self.statistics.last_error = text

    async def _wait_for_news(self, began_s: float) -> None:
        until_s = began_s + self._resync_s
        due_s = self._considering.next_due_s()
        if due_s is not None:
            until_s = min(until_s, due_s)
        try:
            async with asyncio.timeout(max(0.0, until_s - self._clock())):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _stand_by(self) -> None:
        self._leads.clear()
        self.leading_s = None
        self.result = None
        await self._considering.stop()

    def _backoff_s(self, failures: int, error: Exception) -> float:
        """Doubling, with jitter; not before the API server says."""
        backoff_s = min(self._longest_backoff_s, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 16))
        backoff_s *= random.uniform(0.5, 1.0)  # noqa: S311 - to spread, not to hide
        if isinstance(error, UnavailableError) and error.retry_after_s is not None:
            backoff_s = max(backoff_s, min(error.retry_after_s, self._longest_backoff_s))
        return backoff_s
