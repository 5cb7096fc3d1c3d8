"""Policies that are right in every field, and still cannot work."""

from itertools import count

import pytest
from giveway_policy.checks import check_policy
from giveway_policy.defaults import default_spec
from giveway_policy.faults import path_text
from hypothesis import given

from tests.policy.policy_texts import policy_with, valid_policy
from tests.policy.resource_strategies import policies

A = {"name": "a", "kind": "Interactive", "weight": 1}
B = {"name": "b", "kind": "Batch", "weight": 1}
TTFT = {"indicator": "TimeToFirstToken", "thresholdMilliseconds": 300, "targetPercent": "99"}


def _with(**fields: object) -> list[dict[str, object]]:
    return [{**A, **fields}, B]


@pytest.mark.parametrize(
    ("spec", "path", "says"),
    [
        ({"classes": [A, B, A]}, "spec.classes[2].name", "stands twice, first as classes[0]"),
        ({"classes": _with(name="none")}, "spec.classes[0].name", "requests without a class"),
        (
            {"classes": [{**A, "weight": 0}, {**B, "weight": 0}]},
            "spec.classes",
            "all weights are 0",
        ),
        (
            {"classes": _with(limits={"requestBurst": 5})},
            "spec.classes[0].limits.requestBurst",
            "there is no limit",
        ),
        (
            {"classes": _with(limits={"requestsPerSecond": 1, "requestsPerMinute": 60})},
            "spec.classes[0].limits.requestsPerMinute",
            "requestsPerSecond is given too",
        ),
        (
            {"classes": _with(limits={"requestsPerMinute": 0, "requestBurst": 5})},
            "spec.classes[0].limits.requestBurst",
            "nothing passes at all",
        ),
        (
            {"classes": _with(limits={"tokensPerMinute": 0, "tokenBurst": 5})},
            "spec.classes[0].limits.tokenBurst",
            "nothing passes at all",
        ),
        (
            {"classes": _with(objectives=[{**TTFT, "indicator": "ErrorRate"}])},
            "spec.classes[0].objectives[0].thresholdMilliseconds",
            "an error rate has no threshold",
        ),
        (
            {"classes": _with(objectives=[{"indicator": "QueueWait", "targetPercent": "9"}])},
            "spec.classes[0].objectives[0].thresholdMilliseconds",
            "QueueWait needs a threshold",
        ),
        (
            {"classes": _with(objectives=[{**TTFT, "thresholdMilliseconds": 3_600_001}])},
            "spec.classes[0].objectives[0].thresholdMilliseconds",
            "too long for TimeToFirstToken",
        ),
        (
            {"classes": _with(objectives=[{**TTFT, "targetPercent": "100.0"}])},
            "spec.classes[0].objectives[0].targetPercent",
            "missed by a single slow request",
        ),
        (
            {"classes": _with(objectives=[{**TTFT, "targetPercent": "0"}])},
            "spec.classes[0].objectives[0].targetPercent",
            "asks for nothing",
        ),
        (
            {"classes": _with(objectives=[TTFT, {**TTFT, "targetPercent": "95"}])},
            "spec.classes[0].objectives[1]",
            "stand twice",
        ),
        (
            {"sources": [{"source": "x", "class": "nowhere"}]},
            "spec.sources[0].class",
            "there is no class nowhere",
        ),
        (
            {"sources": [{"source": "x", "class": "batch"}, {"source": "x", "class": "realtime"}]},
            "spec.sources[1].source",
            "stands twice",
        ),
        (
            {"concurrency": {"batch": {"minimum": 0}}},
            "spec.concurrency.batch.minimum",
            "starves batch",
        ),
        (
            {"concurrency": {"batch": {"minimum": 7, "maximum": 6}}},
            "spec.concurrency.batch.minimum",
            "the minimum 7 is above the maximum 6",
        ),
        (
            {"concurrency": {"seats": 8, "batch": {"maximum": 9}}},
            "spec.concurrency.batch.maximum",
            "above the 8 seats",
        ),
        (
            {"concurrency": {"seats": 8, "reservedSeats": 8}},
            "spec.concurrency.reservedSeats",
            "all 8 seats are reserved",
        ),
        (
            {
                "scheduling": {"algorithm": "InteractiveFirst"},
                "concurrency": {"seats": 8, "batch": {"maximum": 8}},
            },
            "spec.concurrency.batch.maximum",
            "none is left for interactive requests",
        ),
        (
            {"classes": [B], "scheduling": {"algorithm": "InteractiveFirst"}},
            "spec.scheduling.algorithm",
            "needs a class of kind Interactive",
        ),
        (
            {"scheduling": {"interactiveFirst": {"smoothing": "0.0"}}},
            "spec.scheduling.interactiveFirst.smoothing",
            "never moves",
        ),
        (
            {"scheduling": {"sloAware": {"batchTokenFloorPercent": "100"}}},
            "spec.scheduling.sloAware.batchTokenFloorPercent",
            "leaves nothing",
        ),
        (
            {
                "scheduling": {
                    "dynamicAging": {
                        "classes": [{"class": "x", "base": "1", "agingPerMillisecond": "1"}]
                    }
                }
            },
            "spec.scheduling.dynamicAging.classes[0].class",
            "there is no class x",
        ),
        (
            {
                "scheduling": {
                    "dynamicAging": {
                        "classes": [{"class": "batch", "base": "1", "agingPerMillisecond": "1"}] * 2
                    }
                }
            },
            "spec.scheduling.dynamicAging.classes[1].class",
            "stands twice",
        ),
        (
            {"identity": {"trustedHeaders": ["X-Giveway-Class", "X-Giveway-Class"]}},
            "spec.identity.trustedHeaders",
            "stands twice",
        ),
        (
            {"identity": {"fallbackClass": "x"}},
            "spec.identity.fallbackClass",
            "there is no class x",
        ),
        (
            {"identity": {"fallbackDefaultClass": "x"}},
            "spec.identity.fallbackDefaultClass",
            "there is no class x",
        ),
        (
            {"identity": {"fallbackClass": "batch", "fallbackDefaultClass": "realtime"}},
            "spec.identity.fallbackDefaultClass",
            "realtime is above batch",
        ),
        (
            {"identity": {"fallbackTenant": "other"}},
            "spec.identity.fallbackTenant",
            "many tenants together",
        ),
        ({"identity": {"jwt": {"issuer": "x"}}}, "spec.identity.jwt", "not yet supported"),
        (
            {"adjustment": {"windowSeconds": 30, "intervalSeconds": 60}},
            "spec.adjustment.windowSeconds",
            "shorter than the interval",
        ),
        (
            {"adjustment": {"maximumStepPercent": "0"}},
            "spec.adjustment.maximumStepPercent",
            "no weight ever moves",
        ),
        (
            {"accounting": {"largestOutputEstimateTokens": 255}},
            "spec.accounting.firstOutputEstimateTokens",
            "above the largest",
        ),
        (
            {"accounting": {"outputTokenWeight": "0"}},
            "spec.accounting.outputTokenWeight",
            "are free",
        ),
    ],
    ids=count(),
)
def test_what_cannot_work_is_refused_with_a_fix(
    spec: dict[str, object], path: str, says: str
) -> None:
    """Y7, Y8, D09: exactly one problem, at the field to change, with what to write instead."""
    (problem,) = check_policy(valid_policy(policy_with(**spec)).spec)
    assert path_text(problem.path) == path
    assert says in problem.reason
    assert problem.fix


@pytest.mark.parametrize(
    "spec",
    [
        {"classes": [A], "concurrency": {"seats": 1, "reservedSeats": 1}},
        {"classes": [B], "concurrency": {"seats": 8, "batch": {"maximum": 8}}},
        {"concurrency": {"seats": 64, "reservedSeats": 0}},
        {"classes": [{**A, "weight": 0}, B]},
        {"scheduling": {"algorithm": "InteractiveFirst"}},
        {"classes": _with(objectives=[TTFT, {**TTFT, "thresholdMilliseconds": 1000}])},
    ],
    ids=count(),
)
def test_what_can_work_is_let_through(spec: dict[str, object]) -> None:
    assert check_policy(valid_policy(policy_with(**spec)).spec) == []


@pytest.mark.slow
@given(policy=policies())
def test_a_policy_without_a_fault_has_none(policy: dict[str, object]) -> None:
    """No check is too strict for what the strategies know to be right."""
    assert check_policy(valid_policy(policy).spec) == []


def test_the_built_in_policy_has_no_fault() -> None:
    assert check_policy(default_spec()) == []
