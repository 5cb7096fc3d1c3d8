"""What was measured of one objective?

The one type between whoever measures (`observing`) and whoever decides (`weighing`, `burning`).
Nothing measured is never the same as nothing good: `attained_ratio` is there only if the state is
`Measured`.
"""

from dataclasses import dataclass
from typing import Protocol

from giveway_policy.documents import PolicyName
from giveway_policy.enumerations import Indicator
from giveway_policy.resources import Objective, SLOPolicySpec

from giveway_operator.statuses import ObservationState


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One objective of one class over the policy's window."""

    class_name: str
    indicator: Indicator
    threshold_milliseconds: int | None = None
    """None: the objective has no threshold in time (an error rate)."""
    state: ObservationState
    attained_ratio: float | None = None
    """Good measurements of all, 0 to 1. None: it could not be measured."""
    requests: float = 0.0
    """How many measurements there were, as Prometheus extrapolates them."""
    detail: str = ""
    """Why it could not be measured, for a person. Empty: the state says all."""

    def is_of(self, objective: Objective) -> bool:
        return (self.indicator, self.threshold_milliseconds) == (
            objective.indicator,
            objective.threshold_milliseconds,
        )


class Observer(Protocol):
    async def observe(self, policy: PolicyName, spec: SLOPolicySpec) -> tuple[Observation, ...]:
        """One observation for each objective of each class. Raises nothing but cancellation: what
        fails is a state of the observation."""
        ...
