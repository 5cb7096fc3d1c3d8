"""The loop of one policy: measure, wait for what was published, decide, say so."""

from collections.abc import Sequence

import pytest
from giveway_operator.observations import Observation
from giveway_operator.promql import Sample, Selection
from giveway_operator.querying import QueryError, QueryFailure
from giveway_operator.reporting import Finding
from giveway_operator.slo_loop import Consideration, SLOLoop
from giveway_operator.statuses import ConditionType, ObservationState
from giveway_operator.weighing import DecisionReason
from giveway_policy.documents import PolicyDocument, PolicyName, make_document
from giveway_policy.mechanics import Scheduling
from giveway_policy.resources import SLOPolicySpec

from tests.operator.plants import measured, spec, unmeasured

POLICY = PolicyName(namespace="llm", name="chat")
MET = (measured("c0", 0.999), measured("c1", 0.999))
MISSED = (measured("c0", 0.999), measured("c1", 0.79))
LOST = tuple(unmeasured(name, ObservationState.QUERY_FAILED) for name in ("c0", "c1"))


class Cluster:
    """Prometheus and publishing, as the loop sees them."""

    def __init__(self, policy: SLOPolicySpec, *, pods: int = 2) -> None:
        self.spec = policy
        self.pods = pods
        self.observations: Sequence[Observation] = MET
        self.is_down = False
        self.published: PolicyDocument | None = None
        self.acknowledged: tuple[int, int] = (0, 0)
        self.loop = SLOLoop(self, acknowledge_timeout_s=120.0)
        self.now_s = 0.0

    def selection(self, policy: PolicyName, window_s: int) -> Selection:
        return Selection(policy=policy, window_s=window_s)

    async def observe(self, policy: PolicyName, spec: SLOPolicySpec) -> tuple[Observation, ...]:
        return LOST if self.is_down else tuple(self.observations)

    async def ask(self, promql: str) -> tuple[Sample, ...]:
        if self.is_down:
            raise QueryError(QueryFailure.UNREACHABLE, "refused")
        epoch, generation = self.acknowledged
        labels = {"epoch": str(epoch), "generation": str(generation)}
        return (Sample(labels=labels, value=float(self.pods)),)

    def publish(self, weights: dict[str, float], *, arrives: bool = True) -> None:
        generation = 1 if self.published is None else self.published.generation + 1
        self.published = make_document(
            POLICY, self.spec, epoch=1, generation=generation, weights=weights
        )
        if arrives:
            self.acknowledged = self.published.order

    async def turn(self, *, publishes: bool = True, arrives: bool = True) -> Consideration:
        """One interval later."""
        self.now_s += 30.0
        considered = await self.loop.consider(
            POLICY, self.spec, self.published, self.pods, now_s=self.now_s
        )
        weights = dict(considered.weights)
        if publishes and (self.published is None or self.published.weights != weights):
            self.publish(weights, arrives=arrives)
        return considered


def condition(considered: Consideration, kind: ConditionType) -> Finding:
    (found,) = [each for each in considered.findings if each.type is kind]
    return found


async def test_a_missed_objective_changes_weights_step_by_step_and_says_from_what() -> None:
    cluster = Cluster(spec())
    cluster.publish({})
    cluster.observations = MISSED
    first = await cluster.turn()
    assert first.decision is not None
    assert first.decision.reason is DecisionReason.RAISING
    assert first.weights["c1"] == pytest.approx(30.0)
    assert condition(first, ConditionType.SLO_MET).status == "False"
    assert "c1: TimeToFirstToken 300 ms 79.00 % of 99 (1000)" in (
        condition(first, ConditionType.SLO_MET).message
    )
    assert [each.reason for each in first.events] == ["WeightsChanged", "SLOMetFalse"]
    assert "c1 25 -> 30 of 40 (Missed: TimeToFirstToken 300 ms 79.00 % of 99 (1000))" in (
        first.inputs
    )
    second = await cluster.turn()
    assert second.weights["c1"] == pytest.approx(36.0)
    assert [each.reason for each in second.events] == ["WeightsChanged"]
    status = {each.name: each for each in second.classes}
    assert (status["c1"].base_weight, status["c1"].weight) == ("25", "36.000")
    assert status["c1"].objectives[0].attained_percent == "79.00"


async def test_it_acts_again_only_after_the_last_change_arrived() -> None:
    """Else it would raise a weight five times before the first raise took effect."""
    cluster = Cluster(spec())
    cluster.publish({})
    cluster.observations = MISSED
    raised = await cluster.turn(arrives=False)
    for _ in range(3):
        waiting = await cluster.turn()
        assert waiting.decision is None
        assert waiting.weights == raised.weights
        frozen = condition(waiting, ConditionType.FROZEN)
        assert (frozen.status, frozen.reason) == ("True", "AwaitingAcknowledgement")
        assert "0 of 2 ready pods run epoch 1 generation 2" in frozen.message
        assert waiting.events == ()
    assert cluster.published is not None
    cluster.acknowledged = cluster.published.order
    assert (await cluster.turn()).weights["c1"] > raised.weights["c1"]


async def test_a_change_that_does_not_arrive_in_time_is_said_and_not_waited_for() -> None:
    cluster = Cluster(spec())
    cluster.publish({})
    cluster.observations = MISSED
    await cluster.turn(arrives=False)
    for _ in range(4):
        assert (await cluster.turn()).decision is None
    late = await cluster.turn()
    assert late.decision is not None
    frozen = condition(late, ConditionType.FROZEN)
    assert (frozen.status, frozen.reason) == ("False", "AcknowledgementOverdue")


async def test_weights_that_were_not_published_are_asked_for_again_and_not_raised_further() -> None:
    cluster = Cluster(spec())
    cluster.publish({})
    cluster.observations = MISSED
    asked = await cluster.turn(publishes=False)
    again = await cluster.turn(publishes=False)
    assert again.decision is None
    assert again.weights == asked.weights
    assert "not published yet" in condition(again, ConditionType.FROZEN).message


async def test_nothing_is_decided_before_there_is_a_document() -> None:
    cluster = Cluster(spec())
    cluster.observations = MISSED
    first = await cluster.turn(publishes=False)
    assert (first.decision, dict(first.weights)) == (None, {})
    assert "nothing is published yet" in condition(first, ConditionType.FROZEN).message


async def test_e13_while_prometheus_is_down_weights_hold_and_it_is_told_once() -> None:
    """E13: at peak, for half an hour; and when it is back the loop goes on."""
    cluster = Cluster(spec())
    cluster.publish({})
    cluster.observations = MISSED
    held = dict((await cluster.turn()).weights)
    cluster.is_down = True
    told = []
    for _ in range(60):
        considered = await cluster.turn()
        assert dict(considered.weights) == held
        told += [each.reason for each in considered.events]
        available = condition(considered, ConditionType.METRICS_AVAILABLE)
        assert (available.status, available.reason) == ("False", "QueryFailed")
        assert condition(considered, ConditionType.SLO_MET).status == "Unknown"
    assert told == ["SLOMetUnknown", "MetricsAvailableFalse"]
    assert condition(considered, ConditionType.FROZEN).reason == "NoTelemetry"
    cluster.is_down = False
    back = await cluster.turn()
    assert "MetricsAvailable" in [each.reason for each in back.events]
    assert back.weights["c1"] > held["c1"]


async def test_e22_without_traffic_a_restart_settles_at_base() -> None:
    """E22: no series is not yet a fault of anybody's, and nothing waits for it for ever."""
    cluster = Cluster(spec())
    cluster.publish({})
    cluster.observations = tuple(unmeasured(c, ObservationState.NO_TRAFFIC) for c in ("c0", "c1"))
    for _ in range(2):
        considered = await cluster.turn()
    assert considered.decision is not None
    assert considered.decision.reason is DecisionReason.AT_BASE
    assert dict(considered.weights) == {}
    slo = condition(considered, ConditionType.SLO_MET)
    assert (slo.status, slo.reason) == ("Unknown", "NoTraffic")
    assert condition(considered, ConditionType.METRICS_AVAILABLE).status == "True"
    assert considered.events == ()


async def test_a_restarted_operator_goes_on_from_what_is_published() -> None:
    cluster = Cluster(spec())
    cluster.publish({})
    cluster.observations = MISSED
    for _ in range(2):
        before = await cluster.turn()
    cluster.loop = SLOLoop(cluster)
    assert dict(cluster.loop.weights(POLICY, cluster.spec, cluster.published)) == before.weights
    cluster.observations = (measured("c0", 1.0), measured("c1", 0.97))
    after = await cluster.turn()
    assert dict(after.weights) == dict(before.weights)


async def test_what_is_published_between_two_turns_fits_an_edited_policy() -> None:
    """A class renamed away has no weight any more, a new one its own, the raised one its lead."""
    cluster = Cluster(spec(50, 25, 25))
    cluster.publish({})
    cluster.observations = MISSED
    for _ in range(3):
        considered = await cluster.turn()
    lead = considered.weights["c1"] / considered.weights["c0"] * 2
    edited = spec(50, 25, 25)
    renamed = edited.classes[2].model_copy(update={"name": "c9"})
    edited = edited.model_copy(update={"classes": (*edited.classes[:2], renamed)})
    weights = cluster.loop.weights(POLICY, edited, cluster.published)
    assert set(weights) == {"c0", "c1", "c9"}
    assert weights["c1"] / weights["c0"] * 2 == pytest.approx(lead)
    assert sum(weights.values()) == pytest.approx(100.0)
    make_document(POLICY, edited, weights=weights)


async def test_a_long_list_of_classes_is_reported_within_the_bounds_of_the_status() -> None:
    names = [f"c{rank}" for rank in range(16)]
    policy = spec(*([10] * 16), targets=["99"] * 16)
    cluster = Cluster(policy)
    cluster.publish({})
    cluster.observations = [measured(name, 0.5 if name == "c1" else 0.98) for name in names]
    considered = await cluster.turn()
    assert len(considered.inputs) <= 1024
    assert all(len(each.message) <= 1024 for each in considered.findings)
    assert len(considered.classes) == 16


async def test_where_weights_mean_nothing_they_are_not_moved_and_the_reason_is_told() -> None:
    """Under SLOAware one class between the first and batch has nobody to share with. Weights that
    were raised under another algorithm are taken back."""
    cluster = Cluster(spec())
    cluster.publish({})
    cluster.observations = MISSED
    assert (await cluster.turn()).weights
    cluster.spec = cluster.spec.model_copy(update={"scheduling": Scheduling()})
    edited = await cluster.turn()
    assert (dict(edited.weights), edited.decision) == ({}, None)
    frozen = condition(edited, ConditionType.FROZEN)
    assert (frozen.status, frozen.reason) == ("True", "WeightsUnused")
    assert condition(edited, ConditionType.SLO_MET).status == "False"


async def test_a_small_weight_is_never_published_as_0() -> None:
    """With 0 a class would be served only when no other contends."""
    cluster = Cluster(
        spec(1, 1_000_000, targets=("99", "99"), amplification="9999999", step_percent="100")
    )
    cluster.publish({})
    cluster.observations = (measured("c0", 1.0), measured("c1", 0.0))
    for _ in range(3):
        considered = await cluster.turn()
    assert 0.0 < considered.weights["c0"] < 1e-6
    cluster.loop = SLOLoop(cluster)
    resumed = cluster.loop.weights(POLICY, cluster.spec, cluster.published)
    assert resumed["c0"] == pytest.approx(considered.weights["c0"], rel=1e-6)


async def test_an_objective_that_is_not_measured_keeps_the_others_from_being_all() -> None:
    """One met and one unknown is not "all are met"; one missed and one unknown is a miss."""
    cluster = Cluster(spec())
    cluster.publish({})
    lost = unmeasured("c1", ObservationState.QUERY_FAILED)
    cluster.observations = (measured("c0", 0.999), lost)
    slo = condition(await cluster.turn(), ConditionType.SLO_MET)
    assert (slo.status, slo.reason) == ("Unknown", "QueryFailed")
    cluster.observations = (measured("c0", 0.5), lost)
    slo = condition(await cluster.turn(), ConditionType.SLO_MET)
    assert (slo.status, slo.reason) == ("False", "ObjectiveMissed")
    idle = unmeasured("c1", ObservationState.NO_TRAFFIC)
    cluster.observations = (measured("c0", 0.999), idle)
    assert condition(await cluster.turn(), ConditionType.SLO_MET).status == "True"
