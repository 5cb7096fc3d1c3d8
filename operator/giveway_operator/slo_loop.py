"""What is to be done about a policy's objectives now?

Once in each interval of a policy: look which document its proxies run, measure, decide, and say so.
Deciding is in `weighing`, measuring in `observing`; this is the order of things:

- Weights are decided again only after the last ones were published and have arrived at all ready
  pods, or are overdue (`acknowledging`).
- Where the algorithm shares nothing by weight, nothing is decided (`sharing`).
- All that is remembered can be lost: a restart goes on where the published weights are.
- Nothing here writes or publishes. Whoever calls publishes `weights`, and reports the rest.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from giveway_policy.documents import PolicyDocument, PolicyName
from giveway_policy.resources import SLOPolicySpec

from giveway_operator.acknowledging import TIMEOUT_S, Acknowledgement, Arrival, acknowledge
from giveway_operator.burning import Budgets, Burn, Key
from giveway_operator.observations import Observation, Observer
from giveway_operator.promql import Sample, Selection, acknowledged_query
from giveway_operator.querying import QueryError
from giveway_operator.reporting import (
    Finding,
    LoopEvent,
    class_statuses,
    events,
    findings,
    inputs_text,
)
from giveway_operator.sharing import weights_mean_something
from giveway_operator.statuses import ClassStatus, PodsStatus
from giveway_operator.weighing import Decision, WeighingState, resume, step

_DIGITS = 9
"""Of a published weight. Not places after the point: a small weight must never become 0."""


class Asking(Observer, Protocol):
    """What the loop asks Prometheus by: an observer that knows which series a policy has."""

    def selection(self, policy: PolicyName, window_s: int) -> Selection: ...

    async def ask(self, promql: str) -> tuple[Sample, ...]:
        """Raises `QueryError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Consideration:
    """What came of it, for publishing and for the status."""

    weights: Mapping[str, float]
    """To be published; {}: the policy's own."""
    classes: tuple[ClassStatus, ...]
    findings: tuple[Finding, ...]
    pods: PodsStatus
    decision: Decision | None
    """None: nothing was decided, the last change is awaited."""
    inputs: str
    """What the decision was made from, in a line; empty if there is none."""
    events: tuple[LoopEvent, ...] = ()
    """What changed since the last time, and is worth an event."""
    observations: tuple[Observation, ...] = ()


@dataclass(slots=True)
class _Memory:
    state: WeighingState
    order: tuple[int, int] = (-1, -1)
    published_s: float = 0.0
    findings: tuple[Finding, ...] = field(default=())


class SLOLoop:
    """The loops of all policies. `consider` may run for several policies at once."""

    def __init__(
        self,
        observer: Asking,
        *,
        budgets: Budgets | None = None,
        acknowledge_timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._observer = observer
        self._budgets = budgets
        self._timeout_s = acknowledge_timeout_s
        self._memories: dict[PolicyName, _Memory] = {}
        self._latest: dict[PolicyName, Consideration] = {}

    @property
    def latest(self) -> Mapping[PolicyName, Consideration]:
        """What came of each policy last; for metrics."""
        return self._latest

    def weights(
        self, policy: PolicyName, spec: SLOPolicySpec, published: PolicyDocument | None
    ) -> Mapping[str, float]:
        """What to publish between two considerations; fits the spec as it is now."""
        memory = self._memories.get(policy)
        if memory is not None:
            return _wanted(spec, memory.state)
        known = None if published is None else published.class_weights
        return _rounded(spec, resume(spec, known, now_s=0.0))

    def forget(self, policy: PolicyName) -> None:
        """The policy is gone, or another one leads."""
        self._memories.pop(policy, None)
        self._latest.pop(policy, None)
        if self._budgets is not None:
            self._budgets.forget(policy)

    async def consider(
        self,
        policy: PolicyName,
        spec: SLOPolicySpec,
        published: PolicyDocument | None,
        pods: int,
        *,
        now_s: float,
    ) -> Consideration:
        """Decide once. `pods` are the ready ones that the policy selects; `now_s` never goes back.

        Raises nothing but cancellation, and takes as long as Prometheus may (its time-outs).
        """
        memory = self._remember(policy, spec, published, now_s=now_s)
        observations, samples = await asyncio.gather(
            self._observer.observe(policy, spec), self._acknowledged(policy)
        )
        burns = (
            {}
            if self._budgets is None
            else self._budgets.burns(policy, spec, observations, now_s=now_s)
        )
        awaited = self._awaited(memory, spec, published, samples, pods=pods, now_s=now_s)
        decision = None
        if not weights_mean_something(spec):
            memory.state = resume(spec, None, now_s=now_s)
        elif awaited.arrival is not Arrival.AWAITED:
            decision = step(spec, memory.state, observations, now_s=now_s)
            memory.state = decision.state
        return self._report(policy, spec, memory, decision, awaited, observations, burns, pods=pods)

    def _remember(
        self,
        policy: PolicyName,
        spec: SLOPolicySpec,
        published: PolicyDocument | None,
        *,
        now_s: float,
    ) -> _Memory:
        memory = self._memories.get(policy)
        if memory is None:
            weights = None if published is None else published.class_weights
            memory = self._memories[policy] = _Memory(resume(spec, weights, now_s=now_s))
        if published is not None and published.order != memory.order:
            memory.order, memory.published_s = published.order, now_s
        return memory

    async def _acknowledged(self, policy: PolicyName) -> tuple[Sample, ...] | None:
        selection = self._observer.selection(policy, window_s=0)
        try:
            return await self._observer.ask(acknowledged_query(selection))
        except QueryError:
            return None

    def _awaited(
        self,
        memory: _Memory,
        spec: SLOPolicySpec,
        published: PolicyDocument | None,
        samples: Sequence[Sample] | None,
        *,
        pods: int,
        now_s: float,
    ) -> Acknowledgement:
        if published is None:
            return Acknowledgement(
                arrival=Arrival.AWAITED, acknowledged=None, message="nothing is published yet"
            )
        found = acknowledge(
            published.order,
            samples,
            ready=pods,
            waited_s=now_s - memory.published_s,
            timeout_s=self._timeout_s,
        )
        if published.spec == spec and published.weights != _wanted(spec, memory.state):
            return Acknowledgement(
                arrival=Arrival.AWAITED,
                acknowledged=found.acknowledged,
                message="the weights that were decided are not published yet",
            )
        return found

    def _report(
        self,
        policy: PolicyName,
        spec: SLOPolicySpec,
        memory: _Memory,
        decision: Decision | None,
        awaited: Acknowledgement,
        observations: tuple[Observation, ...],
        burns: Mapping[Key, Burn],
        *,
        pods: int,
    ) -> Consideration:
        found = findings(spec, observations, decision, awaited, last=memory.findings)
        told = events(decision, found, last=memory.findings)
        memory.findings = found
        weights = _wanted(spec, memory.state)
        consideration = Consideration(
            weights=weights,
            classes=class_statuses(spec, weights, observations, burns),
            findings=found,
            pods=PodsStatus(ready=pods, acknowledged=awaited.acknowledged),
            decision=decision,
            inputs="" if decision is None else inputs_text(decision),
            events=told,
            observations=observations,
        )
        self._latest[policy] = consideration
        return consideration


def _wanted(spec: SLOPolicySpec, state: WeighingState) -> dict[str, float]:
    """The remembered weights under the bases that the policy has now, for publishing."""
    scaled = {
        each.name: each.weight * state.weights[each.name] / base
        for each in spec.classes
        if (base := state.bases.get(each.name, 0.0)) > 0.0
    }
    return _rounded(spec, resume(spec, scaled, now_s=0.0))


def _rounded(spec: SLOPolicySpec, state: WeighingState) -> dict[str, float]:
    """{} where they are the policy's own."""
    weights = {name: float(f"{weight:.{_DIGITS}g}") for name, weight in state.weights.items()}
    own = {each.name: float(each.weight) for each in spec.classes}
    return {} if weights == own else weights
