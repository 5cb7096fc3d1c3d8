"""Whether a class gets what it is owed."""

from dataclasses import replace

import pytest
from giveway_operator.judging import Verdict, attained, judge
from giveway_operator.statuses import ObservationState

from tests.operator.plants import measured, objective, spec, unmeasured

POLICY = spec(10, targets=("99",))
OWED_TWICE = POLICY.classes[0].model_copy(
    update={"objectives": (objective("99"), objective("99", threshold_ms=900))}
)


@pytest.mark.parametrize("ratio", [float("nan"), float("inf"), float("-inf"), -0.1, 1.1, None])
def test_e14_what_is_no_ratio_is_not_measured(ratio: float | None) -> None:
    """E14: whoever observes may be wrong; nothing is decided by it."""
    observation = replace(measured("c0", 0.5), attained_ratio=ratio)
    assert attained(observation) is None
    assert judge(POLICY, POLICY.classes[0], [observation]).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (ObservationState.NO_TRAFFIC, ObservationState.NO_TRAFFIC, Verdict.IDLE),
        (ObservationState.NO_TRAFFIC, ObservationState.TOO_FEW_REQUESTS, Verdict.TOO_FEW),
        (ObservationState.NO_TRAFFIC, ObservationState.QUERY_FAILED, Verdict.UNKNOWN),
        (ObservationState.TOO_FEW_REQUESTS, ObservationState.NO_SERIES, Verdict.UNKNOWN),
        (ObservationState.QUERY_FAILED, ObservationState.PARTIAL_RESPONSE, Verdict.UNKNOWN),
    ],
)
def test_a_class_is_idle_only_if_all_that_it_is_owed_saw_no_traffic(
    first: ObservationState, second: ObservationState, verdict: Verdict
) -> None:
    seen = [
        unmeasured("c0", first),
        replace(unmeasured("c0", second), threshold_milliseconds=900),
    ]
    assert judge(POLICY, OWED_TWICE, seen).verdict is verdict


def test_no_observation_at_all_is_unknown() -> None:
    assert judge(POLICY, POLICY.classes[0], []).verdict is Verdict.UNKNOWN
    assert judge(POLICY, POLICY.classes[0], [measured("other", 0.0)]).verdict is Verdict.UNKNOWN
