"""What does one pass do?

Look, render, publish, report: level-triggered, so that it does not matter why it runs, what it
missed, or how often. Where all is as it should be, it writes nothing.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from giveway_policy.documents import PolicyDocument, PolicyName
from giveway_policy.faults import Fault

from giveway_operator.kube_client import KubeClient
from giveway_operator.looking import Looking
from giveway_operator.publishing import Guard, publish, tell
from giveway_operator.rendering import Deciding, Order, Rendering, render
from giveway_operator.reporting import LoopEvent
from giveway_operator.reports import PolicyReport
from giveway_operator.snapshots import Snapshot
from giveway_operator.status_rendering import loop_notice, report

_NEVER: Final = object()
"""Equal to no inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """What a pass found and did."""

    snapshot: Snapshot
    documents: Mapping[PolicyName, PolicyDocument]
    """What is published now."""
    ready_pods: Mapping[PolicyName, int]
    faults: tuple[Fault, ...]
    failures: Mapping[str, str]
    """What could not be written, by namespace or resource, and why."""
    writes: int
    conflicts: int


class Passes:
    """Passes of one operator. Remembers the highest number of each policy, so that it never falls
    while it runs, whatever somebody deletes."""

    def __init__(
        self,
        kube: KubeClient,
        looking: Looking,
        *,
        now: Callable[[], str],
        reports_tenants: bool = True,
    ) -> None:
        self._kube = kube
        self._looking = looking
        self._now = now
        self._reports_tenants = reports_tenants
        """False for an operator of some namespaces: others may know a tenant that it does not."""
        self._highest: dict[PolicyName, Order] = {}
        self._last: PassResult | None = None
        self._settled: object = _NEVER
        """What the last pass followed from, if it found all as it should be; else _NEVER."""

    async def run(
        self,
        *,
        epoch: int,
        guard: Guard,
        weights: Deciding,
        reports: Mapping[PolicyName, PolicyReport],
        events: Mapping[PolicyName, tuple[LoopEvent, ...]],
    ) -> PassResult:
        """Raises `KubeError` if the API server does not answer, `NotLeadingError` from `guard`."""
        snapshot = await self._looking.look()
        last = self._last
        inputs = None if last is None else self._inputs(snapshot, last, weights, reports)
        if last is not None and inputs == self._settled and not any(events.values()):
            return replace(last, snapshot=snapshot, writes=0)
        result = await self._run(
            snapshot, epoch=epoch, guard=guard, weights=weights, reports=reports, events=events
        )
        # What is decided while it ran is not in `inputs`, and so makes the next one look closely.
        is_settled = not (result.writes or result.failures or result.conflicts)
        self._last, self._settled = result, inputs if is_settled else _NEVER
        return result

    def _inputs(
        self,
        snapshot: Snapshot,
        last: PassResult,
        weights: Deciding,
        reports: Mapping[PolicyName, PolicyReport],
    ) -> object:
        """All that a pass follows from. Equal to those of a pass that wrote nothing: neither would
        this one, and a large cluster need not be rendered to know it."""
        return (
            snapshot.versions(),
            {name: dict(weights(name, each.spec, each)) for name, each in last.documents.items()},
            {name: reports.get(name) for name in last.documents},
        )

    async def _run(
        self,
        snapshot: Snapshot,
        *,
        epoch: int,
        guard: Guard,
        weights: Deciding,
        reports: Mapping[PolicyName, PolicyReport],
        events: Mapping[PolicyName, tuple[LoopEvent, ...]],
    ) -> PassResult:
        self._remember(snapshot.published)
        # In a thread: with ten thousand tenants it takes longer than a Lease may wait.
        rendering = await asyncio.to_thread(
            render, snapshot, epoch=epoch, weights=weights, highest=dict(self._highest)
        )
        published = await publish(self._kube, snapshot, rendering, guard=guard)
        rendering = _without_failed(rendering, snapshot, {*published.failed, *published.conflicted})
        self._remember(rendering.documents)
        now = self._now()
        reporting = await asyncio.to_thread(
            report,
            self._to_report(snapshot, published.conflicted),
            rendering,
            reports=reports,
            failed=published.failed,
            now=now,
        )
        told = tuple(
            loop_notice(written, event)
            for written in snapshot.policies
            for event in events.get(PolicyName(namespace=written.namespace, name=written.name), ())
        )
        reporting = replace(reporting, notices=reporting.notices + told)
        outcome = await tell(self._kube, reporting, guard=guard, now=now)
        return PassResult(
            snapshot=snapshot,
            documents=rendering.documents,
            ready_pods=ready_pods(snapshot, rendering.documents),
            faults=rendering.faults,
            failures=published.failed | outcome.failed,
            writes=published.writes + outcome.writes,
            conflicts=len(published.conflicted),
        )

    def _to_report(self, snapshot: Snapshot, conflicted: Collection[str]) -> Snapshot:
        """Of what is looked at again at once nothing is said now."""
        return replace(
            snapshot,
            policies=tuple(each for each in snapshot.policies if each.namespace not in conflicted),
            tenants=snapshot.tenants if self._reports_tenants and not conflicted else (),
        )

    def _remember(self, documents: Mapping[PolicyName, PolicyDocument]) -> None:
        for name, document in documents.items():
            self._highest[name] = max(document.order, self._highest.get(name, (0, 0)))


def _without_failed(rendering: Rendering, snapshot: Snapshot, failed: Collection[str]) -> Rendering:
    """Where publishing failed, what was published before is in force."""
    if not failed:
        return rendering
    before = snapshot.published
    documents = {
        name: before[name] if name.namespace in failed else document
        for name, document in rendering.documents.items()
        if name.namespace not in failed or name in before
    }
    return replace(rendering, documents=documents)


def ready_pods(
    snapshot: Snapshot, documents: Mapping[PolicyName, PolicyDocument]
) -> dict[PolicyName, int]:
    """Ready pods that each policy selects."""
    found: dict[PolicyName, int] = {}
    for name, document in documents.items():
        labels = document.spec.selector.match_labels.items()
        found[name] = sum(
            pod.ready and pod.namespace == name.namespace and labels <= pod.labels.items()
            for pod in snapshot.pods
        )
    return found
