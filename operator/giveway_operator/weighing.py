"""Which weights follow from what was measured?

A pure function of policy, state and observations. With `base` the policy's weight of a class and
`miss` how far its worst objective is below target, the published formula (H8) and damping (H9):

    wanted = base x (1 + miss x amplification), normalised to the sum of all bases
    weight = the last weight, moved towards wanted by at most `maximumStepPercent` of itself

A class acts only on a miss beyond its deadband. What the formula leaves open, and what is decided
here, so that nothing swings:
- The window forgets slowly, so a miss goes on being seen after its cause is mended. While a class
  misses it is never lowered, and as soon as it does not miss any more it is raised no further.
- Within the deadband nothing moves. At or above target a class goes back by one step, and again
  only after a whole window that knows no miss and nothing but the weight now in force. If a step
  back brought the miss back, it is undone, and the next one waits four times as long (up to 16
  windows).
- Classes that tug at each other are damped further (`stepping`); and when all have been below
  target for a whole window, so that none has anything to give, weights stay as they are.
- A class without traffic goes back step by step: nobody is hurt.
- What cannot be measured is never a miss: the weight holds, and decays if the policy says so, after
  `telemetryLossSeconds`. Too few requests for that long are as good as no traffic.

What always holds: weights are finite, not negative, sum up to the sum of the bases, and lie between
what the formula gives if all others, or this class alone, missed everything. Each moves by at most
the step. All weights go the same part of their way, so that each of these holds on the way too.

Mends of the published design: a deadband for each class (6); `infeasible`, when all that is
measured misses and the formula has nothing more to give (7).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum

from giveway_policy.enumerations import OnTelemetryLoss
from giveway_policy.fields import percent_to_ratio
from giveway_policy.resources import SLOPolicySpec

from giveway_operator.judging import Judgement, Verdict, judge
from giveway_operator.observations import Observation
from giveway_operator.stepping import Swing, move

DEFAULT_TELEMETRY_LOSS_WINDOWS = 2
"""A guess: one lost window is an incident, two are a state."""
BACKING_OFF = 4
"""A step back that failed is tried again after this many times the wait. With 2, a constant load
just above what the base gives made weights turn round four times in half an hour; with 4, twice."""
MOST_FAILURES = 2
_LEAST_RATIO = 1e-15
"""Of a published weight to its base: less, or as many times more, is nothing that was decided."""
_SLACK = 1e-9
"""What floats may add to a comparison of decimals, as in 0.99 - 0.94 > 0.05."""


class DecisionReason(StrEnum):
    AT_BASE = "AtBase"
    """Nothing is missed, and weights are the policy's."""
    RAISING = "Raising"
    """At least one class misses and weights move towards the formula's."""
    ARRIVED = "Arrived"
    """At least one class misses, and weights are the formula's: wait for their effect."""
    HOLDING = "Holding"
    """Weights are not the policy's and stay for now: within the deadband, or not yet time."""
    RETURNING = "Returning"
    """What was raised goes back by a step."""
    DECAYING = "Decaying"
    """Nothing was measured for too long, so weights go back by a step."""
    INFEASIBLE = "Infeasible"
    """For a whole window all classes have been below target, so weights help none: they stay."""
    NO_TELEMETRY = "NoTelemetry"
    """Nothing can be measured; weights stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMemory:
    """What the loop remembers of one class; all times on the scale of `now_s`."""

    known_s: float
    """When anything was last known of it."""
    missing_since_s: float | None = None
    """Since when it misses without a break. None: it does not."""
    quiet_since_s: float
    """The last time when it missed, or when its weight was moved for its own sake."""
    lowered_s: float | None = None
    """When it was last lowered. None: since then it missed, or never."""
    proven_lead: float = 1.0
    """The lead it was last lowered from: with it, the class did not miss."""
    failures: int = 0
    """How many steps back failed in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighingState:
    """What one decision hands to the next. Can be made anew from published weights (`resume`)."""

    weights: Mapping[str, float]
    bases: Mapping[str, float]
    classes: Mapping[str, ClassMemory]
    changed_s: float
    """When a weight was last changed."""
    swing: Swing
    contested_since_s: float | None = None
    """Since when classes miss and none has anything to give. None: some have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassInputs:
    """Why the weight of one class is what it is: enough to compute it again."""

    name: str
    base: float
    before: float
    after: float
    wanted: float
    """What the formula gives, before damping."""
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """New weights, and why."""

    weights: Mapping[str, float]
    """Of every class."""
    state: WeighingState
    reason: DecisionReason
    changed: bool
    infeasible: bool
    at_limit: frozenset[str]
    """Classes that went on missing for a whole window with all that the formula gives them."""
    inputs: tuple[ClassInputs, ...] = field(default=())


def resume(
    spec: SLOPolicySpec, published: Mapping[str, float] | None, *, now_s: float
) -> WeighingState:
    """Start where the published weights are; None: at the policy's own.

    Weights of another set of classes, or that make no sense, are followed as far as they fit.
    """
    bases = {each.name: float(each.weight) for each in spec.classes}
    memory = ClassMemory(known_s=now_s, quiet_since_s=now_s)
    return WeighingState(
        weights=_fitted(spec, bases, published or {}),
        bases=bases,
        classes=dict.fromkeys(bases, memory),
        changed_s=now_s,
        swing=Swing(turned_s=now_s),
    )


def step(
    spec: SLOPolicySpec,
    state: WeighingState,
    observations: Sequence[Observation],
    *,
    now_s: float,
) -> Decision:
    """Decide once. `observations` are those of the policy's window, up to now."""
    state = _follow(spec, state, now_s=now_s)
    leads = _leads(state)
    judgements = {each.name: judge(spec, each, observations) for each in spec.classes}
    window_s = float(spec.adjustment.window_seconds)
    factors, memories = {}, {}
    for name, judgement in judgements.items():
        factors[name], memories[name] = _reconsider(
            spec, judgement, state.classes[name], leads[name], now_s=now_s
        )
    wanted = _normalised(state.bases, factors)
    contested_since_s = _contested_since_s(state, judgements, now_s=now_s)
    contested = contested_since_s is not None and now_s - contested_since_s >= window_s
    weights, swing = dict(state.weights), state.swing
    if not contested:
        weights, swing = move(
            state.weights,
            wanted,
            state.swing,
            largest_step=percent_to_ratio(spec.adjustment.maximum_step_percent),
            is_way_back=all(factor <= 1.0 for factor in factors.values()),
            now_s=now_s,
            window_s=window_s,
        )
    changed = weights != state.weights
    changed_s = now_s if changed else state.changed_s
    after = WeighingState(
        weights=weights,
        bases=state.bases,
        classes=memories,
        changed_s=changed_s,
        swing=swing,
        contested_since_s=contested_since_s,
    )
    at_limit = frozenset(
        name
        for name, memory in memories.items()
        if not changed and _lasts(memory, changed_s, now_s, window_s)
    )
    measured = {name for name, each in judgements.items() if each.is_measured}
    infeasible = contested or (bool(measured) and measured == at_limit)
    return Decision(
        weights=weights,
        state=after,
        reason=DecisionReason.INFEASIBLE
        if contested
        else _reason(judgements, leads, factors, state=after, changed=changed),
        changed=changed,
        infeasible=infeasible,
        at_limit=at_limit,
        inputs=tuple(
            ClassInputs(
                name=name,
                base=state.bases[name],
                before=state.weights[name],
                after=weights[name],
                wanted=wanted[name],
                judgement=judgement,
            )
            for name, judgement in judgements.items()
        ),
    )


def _contested_since_s(
    state: WeighingState, judgements: Mapping[str, Judgement], *, now_s: float
) -> float | None:
    """Since when nobody has anything to give, if somebody misses."""
    verdicts = [each.verdict for name, each in judgements.items() if state.bases[name] > 0.0]
    if Verdict.MISSED not in verdicts or not set(verdicts) <= {Verdict.MISSED, Verdict.WITHIN}:
        return None
    return now_s if state.contested_since_s is None else state.contested_since_s


def _reconsider(
    spec: SLOPolicySpec,
    judgement: Judgement,
    memory: ClassMemory,
    lead: float,
    *,
    now_s: float,
) -> tuple[float, ClassMemory]:
    """By how much the class is to be raised above the lowest one, and what is remembered of it."""
    adjustment = spec.adjustment
    back = max(1.0, lead * (1.0 - percent_to_ratio(adjustment.maximum_step_percent)))
    if judgement.verdict is not Verdict.MISSED:
        memory = replace(memory, missing_since_s=None)
    unknown_s = now_s - memory.known_s
    match judgement.verdict:
        case Verdict.MISSED:
            came_back = memory.lowered_s is not None and (
                now_s - memory.lowered_s <= _patience_s(spec, memory)
            )
            is_new = memory.missing_since_s is None
            proven = memory.proven_lead if came_back or not is_new else 1.0
            factor = 1.0 + judgement.miss * float(Decimal(adjustment.amplification))
            return max(lead, factor, proven), ClassMemory(
                known_s=now_s,
                missing_since_s=now_s if is_new else memory.missing_since_s,
                quiet_since_s=now_s,
                proven_lead=proven,
                failures=min(MOST_FAILURES, memory.failures + came_back),
            )
        case Verdict.WITHIN:
            return lead, replace(memory, known_s=now_s)
        case Verdict.MET:
            memory = replace(memory, known_s=now_s)
            if now_s - memory.quiet_since_s < _patience_s(spec, memory):
                return lead, memory
            if lead <= 1.0:
                return 1.0, replace(memory, failures=0, quiet_since_s=now_s, lowered_s=None)
            return back, replace(memory, quiet_since_s=now_s, lowered_s=now_s, proven_lead=lead)
        case Verdict.IDLE | Verdict.UNWATCHED:
            return back, replace(memory, known_s=now_s, quiet_since_s=now_s, failures=0)
        case Verdict.TOO_FEW:
            return (back if unknown_s >= telemetry_loss_s(spec) else lead), memory
        case Verdict.UNKNOWN:
            decays = adjustment.on_telemetry_loss is OnTelemetryLoss.DECAY_TO_BASE
            return (back if decays and unknown_s >= telemetry_loss_s(spec) else lead), memory


def telemetry_loss_s(spec: SLOPolicySpec) -> float:
    """After how long without measurement weights decay, if they are to."""
    seconds = spec.adjustment.telemetry_loss_seconds
    if seconds is None:
        return float(DEFAULT_TELEMETRY_LOSS_WINDOWS * spec.adjustment.window_seconds)
    return float(seconds)


def _patience_s(spec: SLOPolicySpec, memory: ClassMemory) -> float:
    return float(spec.adjustment.window_seconds * BACKING_OFF**memory.failures)


def _lasts(memory: ClassMemory, changed_s: float, now_s: float, window_s: float) -> bool:
    since_s = memory.missing_since_s
    return since_s is not None and now_s - max(since_s, changed_s) >= window_s


def _leads(state: WeighingState) -> dict[str, float]:
    """How far each class is raised above the lowest one, as the weights now stand; from 1."""
    ratios = {name: state.weights[name] / base for name, base in state.bases.items() if base > 0.0}
    lowest = min(ratios.values(), default=1.0)
    leads = {name: ratios[name] / lowest if name in ratios else 1.0 for name in state.bases}
    return {name: lead if lead > 1.0 + _SLACK else 1.0 for name, lead in leads.items()}


def _normalised(bases: Mapping[str, float], factors: Mapping[str, float]) -> dict[str, float]:
    raised = {name: base * factors[name] for name, base in bases.items()}
    total, whole = sum(bases.values()), sum(raised.values())
    if whole <= 0.0:
        return dict(bases)
    return {name: value * total / whole for name, value in raised.items()}


def _fitted(
    spec: SLOPolicySpec, bases: Mapping[str, float], published: Mapping[str, float]
) -> dict[str, float]:
    """The published weights as far as they are possible ones under this policy."""
    limit = 1.0 + float(Decimal(spec.adjustment.amplification))
    ratios = {
        name: ratio
        for name, base in bases.items()
        if base > 0.0
        and _LEAST_RATIO < (ratio := published.get(name, 0.0) / base) < 1.0 / _LEAST_RATIO
    }
    lowest = min(ratios.values(), default=1.0)
    factors = {name: min(limit, ratios.get(name, lowest) / lowest) for name in bases}
    return _normalised(bases, factors)


def _follow(spec: SLOPolicySpec, state: WeighingState, *, now_s: float) -> WeighingState:
    """The same leads under a policy that was edited: its own weights hold at once."""
    bases = {each.name: float(each.weight) for each in spec.classes}
    limit = 1.0 + float(Decimal(spec.adjustment.amplification))
    leads = _leads(state)
    if bases == state.bases and max(leads.values()) <= limit + _SLACK:
        return state
    fresh = resume(
        spec, {name: base * leads.get(name, 1.0) for name, base in bases.items()}, now_s=now_s
    )
    classes = {name: state.classes.get(name, memory) for name, memory in fresh.classes.items()}
    return replace(fresh, classes=classes)


def _reason(
    judgements: Mapping[str, Judgement],
    leads: Mapping[str, float],
    factors: Mapping[str, float],
    *,
    state: WeighingState,
    changed: bool,
) -> DecisionReason:
    verdicts = {each.verdict for each in judgements.values()}
    if Verdict.MISSED in verdicts:
        return DecisionReason.RAISING if changed else DecisionReason.ARRIVED
    if changed:
        lowered = {judgements[name].verdict for name in leads if factors[name] < leads[name]}
        if lowered and lowered <= {Verdict.UNKNOWN}:
            return DecisionReason.DECAYING
        return DecisionReason.RETURNING
    watched = verdicts - {Verdict.UNWATCHED}
    if watched and watched <= {Verdict.UNKNOWN}:
        return DecisionReason.NO_TELEMETRY
    if all(abs(state.weights[name] - base) <= _SLACK for name, base in state.bases.items()):
        return DecisionReason.AT_BASE
    return DecisionReason.HOLDING
