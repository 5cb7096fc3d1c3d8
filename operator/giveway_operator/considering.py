"""When is each policy considered, and what came of it?

One task for each policy that is due, beside the passes: a Prometheus that hangs holds up nobody
but the policies that wait for it. What comes of it wakes a pass, which publishes and reports it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from giveway_policy.documents import PolicyDocument, PolicyName
from giveway_policy.resources import SLOPolicySpec

from giveway_operator.passes import PassResult
from giveway_operator.reporting import LoopEvent
from giveway_operator.reports import PolicyReport, report_of
from giveway_operator.slo_loop import Consideration
from giveway_operator.status_rendering import former_report

_log = logging.getLogger(__name__)


class Loop(Protocol):
    """What is asked of an `SLOLoop`."""

    def weights(
        self, policy: PolicyName, spec: SLOPolicySpec, published: PolicyDocument | None
    ) -> Mapping[str, float]: ...

    def forget(self, policy: PolicyName) -> None: ...

    async def consider(
        self,
        policy: PolicyName,
        spec: SLOPolicySpec,
        published: PolicyDocument | None,
        pods: int,
        *,
        now_s: float,
    ) -> Consideration: ...


class Considering:
    """The SLO loop between passes. Without a loop all weights are the policies' own."""

    def __init__(
        self,
        loop: Loop | None,
        *,
        clock: Callable[[], float],
        now: Callable[[], str],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._now = now
        self.wake: Callable[[], None] = lambda: None
        """Called when something came of a consideration."""
        self._due_s: dict[PolicyName, float] = {}
        self._tasks: dict[PolicyName, asyncio.Task[None]] = {}
        self._reports: dict[PolicyName, PolicyReport] = {}
        self._events: dict[PolicyName, tuple[LoopEvent, ...]] = {}

    @property
    def reports(self) -> Mapping[PolicyName, PolicyReport]:
        return self._reports

    def take_events(self) -> dict[PolicyName, tuple[LoopEvent, ...]]:
        """What happened since the last call."""
        taken, self._events = self._events, {}
        return taken

    def put_back(self, events: Mapping[PolicyName, tuple[LoopEvent, ...]]) -> None:
        """They could not be told: once more with the next pass."""
        for name, told in events.items():
            self._events[name] = told + self._events.get(name, ())

    def weights(
        self, name: PolicyName, spec: SLOPolicySpec, published: PolicyDocument | None
    ) -> Mapping[str, float]:
        return {} if self._loop is None else self._loop.weights(name, spec, published)

    def next_due_s(self) -> float | None:
        """None: nothing is."""
        return min((s for name, s in self._due_s.items() if name not in self._tasks), default=None)

    def start_due(self, result: PassResult) -> None:
        """Start what is due, with what the pass found; forget policies that are gone."""
        if self._loop is None:
            return
        for name in set(self._due_s) - set(result.documents):
            self._forget(name)
        now_s = self._clock()
        written = {
            PolicyName(namespace=each.namespace, name=each.name): each
            for each in result.snapshot.policies
        }
        for name, document in result.documents.items():
            if name not in self._reports and name in written:
                self._reports[name] = former_report(written[name])
            if name not in self._tasks and now_s >= self._due_s.get(name, now_s):
                self._due_s[name] = now_s + document.spec.adjustment.interval_seconds
                self._tasks[name] = asyncio.create_task(
                    self._consider(name, document, result.ready_pods.get(name, 0)),
                    name=f"consider {name}",
                )

    async def stop(self) -> None:
        """Forget everything: another operator leads, or this one ends."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in list(self._due_s):
            self._forget(name)
        self._events.clear()

    def _forget(self, name: PolicyName) -> None:
        assert self._loop is not None
        if (task := self._tasks.pop(name, None)) is not None:
            task.cancel()
        self._due_s.pop(name, None)
        self._reports.pop(name, None)
        self._events.pop(name, None)
        self._loop.forget(name)

    async def _consider(self, name: PolicyName, document: PolicyDocument, pods: int) -> None:
        assert self._loop is not None
        try:
            found = await self._loop.consider(
                name, document.spec, document, pods, now_s=self._clock()
            )
            former = self._reports.get(name, PolicyReport())
            self._reports[name] = report_of(found, former, now=self._now())
            if found.events:
                self._events[name] = self._events.get(name, ()) + found.events
        except Exception:
            _log.exception("considering %s failed", name)
        finally:
            self._tasks.pop(name, None)
            self.wake()
