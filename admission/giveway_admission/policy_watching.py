"""When does a change of the policy take effect?

`PolicyWatch` looks at the source's fingerprint every 0.4 s, in a thread, since a disk can be slow.
A change is read once it stood still from one look to the next, so that a file half written or a
folder half swapped is not taken; what never stands still is read all the same at the third look.
That makes 1.2 s and the reading. A reading during which something changed is thrown away. Since
times of change are coarse on some disks, every change is read a second time at the next look.

Polling, because inotify is silent where it matters: kubelet swaps a link, network disks tell
nobody. On a network disk the kernel may itself remember a file's state for some seconds.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from giveway_policy.documents import PolicyDocument
from giveway_policy.faults import Fault, FaultKind, PolicyError

from giveway_admission.policy_sources import NOTHING, Fingerprint, PolicySource, SourceReading

INTERVAL_S = 0.4
MOST_DEFERRALS = 2
MOST_ATTEMPTS = 5
"""Readings in a row that may be thrown away because something changed during them."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatistics:
    """What is in force, and why what was written is not."""

    document: PolicyDocument | None
    """None: not started."""
    faults: tuple[Fault, ...]
    readings: int
    changes: int


class PolicyWatch:
    """Calls `on_change` with each new document, and `on_fault` with all faults when they change.

    Both are called on the event loop, `on_fault(())` when all is well again. If `on_change` raises,
    the former document stays in force, and that is a fault like others.
    """

    def __init__(
        self,
        source: PolicySource,
        *,
        on_change: Callable[[PolicyDocument], None],
        on_fault: Callable[[tuple[Fault, ...]], None] = lambda _: None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._source = source
        self._on_change = on_change
        self._on_fault = on_fault
        self._interval_s = interval_s
        self._last: SourceReading = NOTHING
        self._seen: Fingerprint | None = None
        """What the last look saw."""
        self._read_once: Fingerprint | None = None
        """What was read last."""
        self._settled: Fingerprint | None = None
        """What was read twice. None: it is to be read at the next look."""
        self._deferrals = 0
        self._thrown_away = 0
        self._readings = 0
        self._changes = 0

    def start(self) -> PolicyDocument:
        """Look for the first time. The document is returned, and `on_change` not called.

        Raises `PolicyError` for any fault, if the source needs a policy at the start. Otherwise
        `on_fault` is called, and what is in force is the built-in default.
        """
        for _ in range(MOST_ATTEMPTS):
            before = self._source.fingerprint(NOTHING)
            reading = self._source.read(NOTHING)
            self._readings += 1
            if self._source.fingerprint(NOTHING) == before:
                break
        if reading.document is None or (self._source.needs_policy_at_start and reading.faults):
            raise PolicyError(reading.faults)
        self._last = reading
        self._seen = self._read_once = before
        if reading.faults:
            self._on_fault(reading.faults)
        return reading.document

    async def run(self) -> None:
        """Look for changes until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.look()

    async def look(self) -> None:
        """One look. Raises nothing but cancellation."""
        try:
            await self._look()
        except Exception:
            _log.exception("looking for a change of the policy failed")

    async def _look(self) -> None:
        last = self._last
        seen = await asyncio.to_thread(self._source.fingerprint, last)
        if seen == self._settled:
            return
        if seen != self._seen and self._deferrals < MOST_DEFERRALS:
            self._seen = seen
            self._deferrals += 1
            return
        reading = await asyncio.to_thread(self._source.read, last)
        after = await asyncio.to_thread(self._source.fingerprint, last)
        self._readings += 1
        if after != seen and self._thrown_away < MOST_ATTEMPTS:
            self._thrown_away += 1
            self._seen = after
            return
        self._deferrals = self._thrown_away = 0
        self._settled = seen if seen == self._read_once else None
        self._seen = self._read_once = seen
        self._take(reading)

    def _take(self, reading: SourceReading) -> None:
        last = self._last
        if reading.document is not None and reading.document != last.document:
            try:
                self._on_change(reading.document)
                self._changes += 1
            except Exception as error:
                _log.exception("a policy could not be put in force")
                fault = _not_applied(reading.document, error)
                reading = replace(last, faults=(*reading.faults, fault), watched=reading.watched)
        self._last = reading
        if reading.faults != last.faults:
            self._on_fault(reading.faults)

    def statistics(self) -> WatchStatistics:
        return WatchStatistics(
            document=self._last.document,
            faults=self._last.faults,
            readings=self._readings,
            changes=self._changes,
        )


def _not_applied(document: PolicyDocument, error: Exception) -> Fault:
    return Fault(
        kind=FaultKind.NOT_APPLIED,
        file=str(document.policy),
        reason=f"it could not be put in force: {type(error).__name__}",
        fix="undo the change, and report this as a fault of giveway with the log's traceback",
    )
