"""What would the engine do under these weights?

A fluid model of engines shared by weight, seen as the operator sees them: through a window. Each
class offers work at a rate; capacity is shared by weight among the classes that have work, what one
does not use goes to the others (max-min). Of a class that gets less than it offers only the part
served is good: steep, as queues are.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from giveway_operator.observations import Observation
from giveway_operator.statuses import ObservationState
from giveway_operator.weighing import Decision, resume, step
from giveway_policy.enumerations import Algorithm, Indicator, Kind, OnTelemetryLoss
from giveway_policy.mechanics import Adjustment, Scheduling
from giveway_policy.resources import Objective, ServiceClass, SLOPolicySpec

INDICATOR, THRESHOLD_MS = Indicator.TIME_TO_FIRST_TOKEN, 300


def objective(target_percent: str = "99", *, threshold_ms: int = THRESHOLD_MS) -> Objective:
    return Objective(
        indicator=INDICATOR, threshold_milliseconds=threshold_ms, target_percent=target_percent
    )


def spec(
    *weights: int,
    targets: Sequence[str | None] = ("99", "99", None),
    interval_s: int = 30,
    window_s: int = 300,
    amplification: str = "5",
    deadband: str = "5",
    step_percent: str = "20",
    on_loss: OnTelemetryLoss = OnTelemetryLoss.HOLD,
    loss_s: int | None = None,
) -> SLOPolicySpec:
    """Classes c0, c1, ...; a target of None: no objective."""
    weights = weights or (70, 25, 5)
    return SLOPolicySpec(
        classes=tuple(
            ServiceClass(
                name=f"c{rank}",
                kind=Kind.INTERACTIVE if target else Kind.BATCH,
                weight=weight,
                objectives=(objective(target),) if target else (),
            )
            for rank, (weight, target) in enumerate(zip(weights, targets, strict=False))
        ),
        scheduling=Scheduling(algorithm=Algorithm.WEIGHTED_RANDOM),
        adjustment=Adjustment(
            interval_seconds=interval_s,
            window_seconds=window_s,
            amplification=amplification,
            deadband_percent=deadband,
            maximum_step_percent=step_percent,
            on_telemetry_loss=on_loss,
            telemetry_loss_seconds=loss_s,
        ),
    )


def measured(name: str, ratio: float, *, requests: float = 1000.0) -> Observation:
    return Observation(
        class_name=name,
        indicator=INDICATOR,
        threshold_milliseconds=THRESHOLD_MS,
        state=ObservationState.MEASURED,
        attained_ratio=ratio,
        requests=requests,
    )


def unmeasured(name: str, state: ObservationState) -> Observation:
    return Observation(
        class_name=name, indicator=INDICATOR, threshold_milliseconds=THRESHOLD_MS, state=state
    )


def shares(
    weights: Mapping[str, float], demand: Mapping[str, float], capacity: float
) -> dict[str, float]:
    """Max-min by weight: what a class does not want goes to those that do."""
    given = dict.fromkeys(demand, 0.0)
    hungry = {name for name, want in demand.items() if want > 0 and weights[name] > 0}
    while hungry and capacity > 1e-12:
        whole = sum(weights[name] for name in hungry)
        offer = {name: capacity * weights[name] / whole for name in hungry}
        full = {name for name in hungry if demand[name] - given[name] <= offer[name]}
        taken = full or hungry
        for name in taken:
            part = demand[name] - given[name] if full else offer[name]
            given[name] += part
            capacity -= part
        hungry = hungry - taken if full else set()
    return given


@dataclass(slots=True)
class Plant:
    """Runs a policy against a load; `demand(t)` is what each class offers per second."""

    spec: SLOPolicySpec
    demand: Callable[[float], Mapping[str, float]]
    capacity: float = 1.0
    scrape_s: float = 15.0
    acknowledged_after_s: float = 0.0
    """How long new weights need until they are in force."""
    history: list[Decision] = field(default_factory=list)

    def run(self, *, for_s: float) -> list[Decision]:
        adjustment = self.spec.adjustment
        state = resume(self.spec, None, now_s=0.0)
        in_force = dict(state.weights)
        pending: tuple[float, dict[str, float]] | None = None
        window: deque[dict[str, tuple[float, float]]] = deque(
            maxlen=max(1, int(adjustment.window_seconds / self.scrape_s))
        )
        next_decision_s = float(adjustment.interval_seconds)
        now_s = 0.0
        while now_s < for_s:
            now_s += self.scrape_s
            demand = self.demand(now_s)
            given = shares(in_force, demand, self.capacity)
            window.append({name: (given[name], demand[name]) for name in demand})
            if pending is not None and now_s >= pending[0]:
                in_force, pending = pending[1], None
            if now_s < next_decision_s:
                continue
            next_decision_s += adjustment.interval_seconds
            if pending is not None:
                continue  # the loop acts again only when the last change arrived
            decision = step(self.spec, state, self._observe(window), now_s=now_s)
            state = decision.state
            self.history.append(decision)
            if decision.changed:
                pending = (now_s + self.acknowledged_after_s, dict(decision.weights))
        return self.history

    def _observe(self, window: deque[dict[str, tuple[float, float]]]) -> list[Observation]:
        found = []
        for each in self.spec.classes:
            if not each.objectives:
                continue
            good = sum(row[each.name][0] for row in window)
            whole = sum(row[each.name][1] for row in window)
            found.append(
                measured(each.name, min(1.0, good / whole), requests=whole)
                if whole > 0
                else unmeasured(each.name, ObservationState.NO_TRAFFIC)
            )
        return found


def reversals(history: Sequence[Decision], name: str, *, least_ratio: float = 0.01) -> int:
    """How often the weight of a class turned round, after moves of at least this part of it."""
    turns, direction = 0, 0
    extreme = last = history[0].weights[name]
    for decision in history:
        last = decision.weights[name]
        if direction >= 0 and last < extreme * (1 - least_ratio):
            turns += direction == 1
            direction, extreme = -1, last
        elif direction <= 0 and last > extreme * (1 + least_ratio):
            turns += direction == -1
            direction, extreme = 1, last
        elif (direction > 0 and last > extreme) or (direction < 0 and last < extreme):
            extreme = last
    return turns
