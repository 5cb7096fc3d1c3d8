"""How is what the loop found said to people and programs?

Statuses, conditions and events out of observations and a decision. Nothing here decides. Events are
for changes alone: a state that lasts is in the conditions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from giveway_policy.fields import percent_to_ratio
from giveway_policy.resources import Objective, SLOPolicySpec

from giveway_operator.acknowledging import Acknowledgement, Arrival
from giveway_operator.burning import Burn, Key
from giveway_operator.judging import attained
from giveway_operator.observations import Observation
from giveway_operator.sharing import weights_mean_something
from giveway_operator.statuses import (
    LONGEST_MESSAGE,
    BurnRate,
    ClassStatus,
    ConditionType,
    ObjectiveStatus,
    ObservationState,
    decimal_text,
)
from giveway_operator.weighing import ClassInputs, Decision, DecisionReason

_FAILED = (
    ObservationState.QUERY_FAILED,
    ObservationState.PARTIAL_RESPONSE,
    ObservationState.NO_SERIES,
)
_SLACK = 1e-9

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A condition before it is known of which generation, and since when."""

    type: ConditionType
    status: Truth
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEvent:
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def findings(
    spec: SLOPolicySpec,
    observations: Sequence[Observation],
    decision: Decision | None,
    awaited: Acknowledgement,
    *,
    last: Sequence[Finding],
) -> tuple[Finding, ...]:
    """All conditions of the loop. What only a decision tells stays as it was without one."""
    found = [_slo_met(spec, observations), _metrics_available(observations)]
    if decision is None:
        kept = (ConditionType.INFEASIBLE, ConditionType.WEIGHT_AT_LIMIT)
        found += [each for each in last if each.type in kept]
    else:
        found += [_infeasible(decision), _at_limit(decision)]
    return (*found, _frozen(spec, decision, awaited))


def _slo_met(spec: SLOPolicySpec, observations: Sequence[Observation]) -> Finding:
    missed, met = [], 0
    for each, objective in _with_objectives(spec, observations):
        ratio = attained(each)
        if ratio is None:
            continue
        if percent_to_ratio(objective.target_percent) - ratio > _SLACK:
            missed.append(f"{each.class_name}: {_objective_text(each, objective)}")
        else:
            met += 1
    if missed:
        return _finding(ConditionType.SLO_MET, "False", "ObjectiveMissed", "; ".join(missed))
    failed = next((each for each in observations if each.state in _FAILED), None)
    if failed is not None:
        return _finding(ConditionType.SLO_MET, "Unknown", failed.state.value, _why(failed))
    if met:
        return _finding(ConditionType.SLO_MET, "True", "ObjectivesMet", f"{met} objectives are met")
    if not observations:
        return _finding(
            ConditionType.SLO_MET, "Unknown", "NoObjectives", "no class has an objective"
        )
    few = [each for each in observations if each.state is ObservationState.TOO_FEW_REQUESTS]
    telling = (few or list(observations))[0]
    return _finding(ConditionType.SLO_MET, "Unknown", telling.state.value, _why(telling))


def _metrics_available(observations: Sequence[Observation]) -> Finding:
    kind = ConditionType.METRICS_AVAILABLE
    failed = [each for each in observations if each.state in _FAILED]
    if failed:
        worst = min(failed, key=lambda each: _FAILED.index(each.state))
        return _finding(kind, "False", worst.state.value, _why(worst))
    if not observations:
        return _finding(kind, "Unknown", "NoObjectives", "nothing has to be measured")
    return _finding(kind, "True", "Measured", "every objective can be measured")


def _infeasible(decision: Decision) -> Finding:
    if not decision.infeasible:
        return _finding(ConditionType.INFEASIBLE, "False", "WeightsCanHelp", "")
    missing = [each for each in decision.inputs if each.judgement.miss > 0]
    names = ", ".join(each.name for each in missing)
    return _finding(
        ConditionType.INFEASIBLE,
        "True",
        "EverythingMissed",
        f"{names} went on missing their objectives with all that weights can do: more engines, "
        "lower targets or lower limits are needed",
    )


def _at_limit(decision: Decision) -> Finding:
    if not decision.at_limit:
        return _finding(ConditionType.WEIGHT_AT_LIMIT, "False", "WeightsHaveRoom", "")
    names = ", ".join(sorted(decision.at_limit))
    return _finding(
        ConditionType.WEIGHT_AT_LIMIT,
        "True",
        "StillMissed",
        f"{names}: the weight is all that this miss and amplification give, for a whole window",
    )


def _frozen(spec: SLOPolicySpec, decision: Decision | None, awaited: Acknowledgement) -> Finding:
    kind = ConditionType.FROZEN
    if not weights_mean_something(spec):
        return _finding(
            kind,
            "True",
            "WeightsUnused",
            f"no class with objectives shares by weight under {spec.scheduling.algorithm.value}",
        )
    if decision is None:
        return _finding(kind, "True", awaited.arrival.value, awaited.message)
    if decision.reason is DecisionReason.NO_TELEMETRY:
        message = "nothing can be measured, so weights stay"
        return _finding(kind, "True", decision.reason.value, message)
    if awaited.arrival is Arrival.OVERDUE:
        return _finding(kind, "False", awaited.arrival.value, awaited.message)
    return _finding(kind, "False", "Deciding", "")


def events(
    decision: Decision | None, found: Sequence[Finding], *, last: Sequence[Finding]
) -> tuple[LoopEvent, ...]:
    """What is new, and worth telling once."""
    before = {each.type: each for each in last}
    told: list[LoopEvent] = []
    if decision is not None and decision.changed:
        told.append(
            LoopEvent(type="Normal", reason="WeightsChanged", message=inputs_text(decision))
        )
    for each in found:
        former = before.get(each.type)
        if former is not None and former.status == each.status:
            continue
        if former is None and each.status in _QUIET[each.type]:
            continue
        bad = each.status == _BAD[each.type]
        if bad or (former is not None and former.status == _BAD[each.type]):
            reason = f"{each.type.value}{'' if each.status == 'True' else each.status}"
            message = each.message or f"{each.type.value} is {each.status} now"
            told.append(
                LoopEvent(type="Warning" if bad else "Normal", reason=reason, message=message)
            )
    return tuple(told)


_BAD: dict[ConditionType, Truth] = {
    ConditionType.SLO_MET: "False",
    ConditionType.METRICS_AVAILABLE: "False",
    ConditionType.INFEASIBLE: "True",
    ConditionType.WEIGHT_AT_LIMIT: "True",
    ConditionType.FROZEN: "Unknown",  # never: that a change is awaited is nothing new each time
}
_QUIET: dict[ConditionType, tuple[Truth, ...]] = {
    ConditionType.SLO_MET: ("True", "Unknown"),
    ConditionType.METRICS_AVAILABLE: ("True", "Unknown"),
    ConditionType.INFEASIBLE: ("False", "Unknown"),
    ConditionType.WEIGHT_AT_LIMIT: ("False", "Unknown"),
    ConditionType.FROZEN: ("True", "False", "Unknown"),
}


def class_statuses(
    spec: SLOPolicySpec,
    weights: Mapping[str, float],
    observations: Sequence[Observation],
    burns: Mapping[Key, Burn],
) -> tuple[ClassStatus, ...]:
    """One for each class; `weights` as published, {} for the policy's own."""
    return tuple(
        ClassStatus(
            name=each.name,
            base_weight=decimal_text(each.weight, places=0),
            weight=decimal_text(weights.get(each.name, float(each.weight)), places=3),
            objectives=tuple(
                _objective_status(observation, objective, burns)
                for observation, objective in _with_objectives(spec, observations)
                if observation.class_name == each.name
            ),
        )
        for each in spec.classes
    )


def _objective_status(
    observation: Observation, objective: Objective, burns: Mapping[Key, Burn]
) -> ObjectiveStatus:
    ratio = attained(observation)
    key = (observation.class_name, objective.indicator, objective.threshold_milliseconds)
    burned = burns.get(key, Burn())
    remaining = burned.remaining_percent
    return ObjectiveStatus(
        indicator=objective.indicator,
        threshold_milliseconds=objective.threshold_milliseconds,
        target_percent=objective.target_percent,
        attained_percent=None if ratio is None else decimal_text(100 * ratio),
        requests=round(observation.requests),
        state=observation.state,
        error_budget_remaining_percent=None if remaining is None else decimal_text(remaining),
        burn_rates=tuple(
            BurnRate(window_seconds=window_s, rate=decimal_text(rate))
            for window_s, rate in burned.rates
        ),
    )


def inputs_text(decision: Decision) -> str:
    """One line from which the decision can be computed again."""
    parts = [_input_text(each) for each in decision.inputs]
    return _bounded(f"{decision.reason.value}: {'; '.join(parts)}")


def _input_text(each: ClassInputs) -> str:
    text = f"{each.name} {each.before:.4g} -> {each.after:.4g}"
    if abs(each.wanted - each.after) > 0.005 * each.wanted:
        text = f"{text} of {each.wanted:.4g}"
    judgement = each.judgement
    if judgement.objective is None or judgement.observation is None:
        return f"{text} ({judgement.verdict.value})"
    shown = _objective_text(judgement.observation, judgement.objective)
    return f"{text} ({judgement.verdict.value}: {shown})"


def _objective_text(observation: Observation, objective: Objective) -> str:
    ratio = attained(observation) or 0.0
    threshold = objective.threshold_milliseconds
    within = "" if threshold is None else f" {threshold} ms"
    return (
        f"{objective.indicator.value}{within} {100 * ratio:.2f} % of {objective.target_percent} "
        f"({observation.requests:.0f})"
    )


def _with_objectives(
    spec: SLOPolicySpec, observations: Sequence[Observation]
) -> list[tuple[Observation, Objective]]:
    return [
        (observation, objective)
        for each in spec.classes
        for objective in each.objectives
        for observation in observations
        if observation.class_name == each.name and observation.is_of(objective)
    ]


def _why(observation: Observation) -> str:
    detail = observation.detail or "there was no request in the window"
    return f"{observation.class_name} {observation.indicator.value}: {detail}"


def _finding(kind: ConditionType, status: Truth, reason: str, message: str) -> Finding:
    return Finding(type=kind, status=status, reason=reason, message=_bounded(message))


def _bounded(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 3]}..."
