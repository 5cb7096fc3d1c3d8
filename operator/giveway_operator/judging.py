"""Does a class get what it is owed?

One verdict for each class, from the worst of its objectives that could be measured. What could not
be measured is no miss, and says why.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from giveway_policy.fields import percent_to_ratio
from giveway_policy.resources import Objective, ServiceClass, SLOPolicySpec

from giveway_operator.observations import Observation
from giveway_operator.statuses import ObservationState

_SLACK = 1e-9
"""What floats may add to a comparison of decimals, as in 0.99 - 0.94 > 0.05."""


class Verdict(StrEnum):
    MISSED = "Missed"
    """Below target by more than the deadband."""
    WITHIN = "Within"
    """Below target, within the deadband."""
    MET = "Met"
    IDLE = "Idle"
    """No traffic at all."""
    TOO_FEW = "TooFew"
    """Some traffic, too little to judge by."""
    UNKNOWN = "Unknown"
    """It could not be measured."""
    UNWATCHED = "Unwatched"
    """The class has no objectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    verdict: Verdict
    miss: float = 0.0
    """How far the worst objective is below its target, as a ratio; negative: above it."""
    objective: Objective | None = None
    """The worst one. None: none was measured."""
    observation: Observation | None = None
    """Of the worst one, or of one that tells why none was measured."""

    @property
    def is_measured(self) -> bool:
        return self.verdict in (Verdict.MISSED, Verdict.WITHIN, Verdict.MET)


def judge(
    spec: SLOPolicySpec, service_class: ServiceClass, observations: Sequence[Observation]
) -> Judgement:
    """The verdict on one class."""
    if not service_class.objectives:
        return Judgement(verdict=Verdict.UNWATCHED)
    found = [
        (objective, each)
        for objective in service_class.objectives
        for each in observations
        if each.class_name == service_class.name and each.is_of(objective)
    ]
    measured = [
        (percent_to_ratio(objective.target_percent) - ratio, objective, each)
        for objective, each in found
        if (ratio := attained(each)) is not None
    ]
    if not measured:
        return _not_measured([each for _, each in found])
    miss, objective, observation = max(measured, key=lambda each: each[0])
    deadband = percent_to_ratio(
        spec.adjustment.deadband_percent
        if service_class.deadband_percent is None
        else service_class.deadband_percent
    )
    verdict = Verdict.MET
    if miss > _SLACK:
        verdict = Verdict.MISSED if miss > deadband + _SLACK else Verdict.WITHIN
    return Judgement(verdict=verdict, miss=miss, objective=objective, observation=observation)


def attained(observation: Observation) -> float | None:
    """The ratio, if it was measured and is one. None: nothing is known."""
    ratio = observation.attained_ratio
    if observation.state is not ObservationState.MEASURED or ratio is None:
        return None
    return ratio if math.isfinite(ratio) and 0.0 <= ratio <= 1.0 else None


def _not_measured(observations: Sequence[Observation]) -> Judgement:
    by_state = {each.state: each for each in observations}
    if by_state.keys() == {ObservationState.NO_TRAFFIC}:
        return Judgement(verdict=Verdict.IDLE, observation=observations[0])
    usable = {ObservationState.NO_TRAFFIC, ObservationState.TOO_FEW_REQUESTS}
    if by_state and by_state.keys() <= usable:
        few = by_state[ObservationState.TOO_FEW_REQUESTS]
        return Judgement(verdict=Verdict.TOO_FEW, observation=few)
    failed = [each for state, each in by_state.items() if state not in usable]
    return Judgement(verdict=Verdict.UNKNOWN, observation=failed[0] if failed else None)
