"""What does the operator report on a resource?

The models of `status`, with the same rules as those of `spec` (`giveway_policy.fields`): everything
is bounded, numbers with a point are decimal strings. Times of a status are RFC 3339 in UTC.

`Ready` means accepted and published, and never that an objective is met: GitOps tools wait for it.
"""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal

from giveway_policy.enumerations import Indicator
from giveway_policy.fields import ClassName, DecimalText, Model, Percent
from pydantic import Field, StringConstraints

LONGEST_MESSAGE = 1024
LARGEST_NUMBER = 2**53
"""Above it JSON readers that know only doubles lose digits."""

Time = Annotated[
    str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", max_length=20)
]
"""2026-01-31T23:59:59Z."""
Reason = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=64)]
Message = Annotated[str, StringConstraints(max_length=LONGEST_MESSAGE)]
SignedDecimalText = Annotated[
    str, StringConstraints(pattern=r"^-?[0-9]{1,7}(\.[0-9]{1,6})?$", max_length=15)
]
"""A number as a decimal string: "-12.5"."""


class ObservationState(StrEnum):
    """Whether an objective could be measured. Only `Measured` says how well it is kept."""

    MEASURED = "Measured"
    NO_TRAFFIC = "NoTraffic"
    TOO_FEW_REQUESTS = "TooFewRequests"
    NO_SERIES = "NoSeries"
    QUERY_FAILED = "QueryFailed"
    PARTIAL_RESPONSE = "PartialResponse"


class ConditionType(StrEnum):
    READY = "Ready"
    STALLED = "Stalled"
    """It cannot work until somebody edits it."""
    SLO_MET = "SLOMet"
    METRICS_AVAILABLE = "MetricsAvailable"
    INFEASIBLE = "Infeasible"
    """Weights cannot meet the objectives: there is too little capacity or too much asked."""
    FROZEN = "Frozen"
    """Weights are not moved for now, and why."""
    WEIGHT_AT_LIMIT = "WeightAtLimit"


class Condition(Model):
    type: ConditionType = Field(description="What is told.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so.")
    reason: Reason = Field(description="Why, in one word for programs.")
    message: Message = Field(default="", description="Why, for people.")
    observed_generation: int = Field(
        ge=0, le=LARGEST_NUMBER, description="Generation of the resource that this was said of."
    )
    last_transition_time: Time = Field(description="When the status last changed.")


class BurnRate(Model):
    window_seconds: int = Field(ge=1, le=LARGEST_NUMBER, description="Over how long.")
    rate: DecimalText = Field(
        description="How many times faster than allowed the error budget is used: with 1 it is "
        "used up exactly at its end."
    )


class ObjectiveStatus(Model):
    indicator: Indicator = Field(description="What is measured.")
    threshold_milliseconds: int | None = Field(
        default=None,
        ge=1,
        le=LARGEST_NUMBER,
        description="Up to this is good. Absent for an error rate.",
    )
    target_percent: Percent = Field(description="Share that has to be good.")
    attained_percent: DecimalText | None = Field(
        default=None, description="Share that was good in the policy's window."
    )
    requests: int = Field(
        default=0, ge=0, le=LARGEST_NUMBER, description="Measurements in the window, about."
    )
    state: ObservationState = Field(description="Whether it could be measured.")
    error_budget_remaining_percent: SignedDecimalText | None = Field(
        default=None,
        description="How much of the allowed misses is left of the budget's window; below 0: more "
        "than it allows were missed.",
    )
    burn_rates: tuple[BurnRate, ...] = Field(
        default=(), max_length=8, description="How fast the error budget is used."
    )


class ClassStatus(Model):
    name: ClassName = Field(description="Name of the class.")
    base_weight: DecimalText = Field(description="The policy's weight.")
    weight: DecimalText = Field(description="The weight that is published.")
    objectives: tuple[ObjectiveStatus, ...] = Field(
        default=(), max_length=8, description="What is owed, and how it is kept."
    )


class Published(Model):
    epoch: int = Field(
        ge=0, le=LARGEST_NUMBER, description="Which life of the operator wrote the document."
    )
    generation: int = Field(
        ge=0, le=LARGEST_NUMBER, description="Which document of that life it is."
    )
    hash: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of its content.")


class PodsStatus(Model):
    ready: int = Field(
        default=0, ge=0, le=LARGEST_NUMBER, description="Ready pods that the policy selects."
    )
    acknowledged: int | None = Field(
        default=None,
        ge=0,
        le=LARGEST_NUMBER,
        description="How many of them run the published document. Absent: it is not known.",
    )


class LastDecision(Model):
    time: Time = Field(description="When weights were last decided otherwise than before.")
    reason: Reason = Field(description="Why.")
    inputs: Message = Field(default="", description="From what, class by class.")


class SLOPolicyStatus(Model):
    observed_generation: int = Field(
        default=0,
        ge=0,
        le=LARGEST_NUMBER,
        description="Generation of the spec that all of this is about.",
    )
    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=16, description="What holds of the policy, one of each type."
    )
    published: Published | None = Field(
        default=None, description="The document that proxies are to run. Absent: none yet."
    )
    pods: PodsStatus | None = Field(default=None, description="The pods that it governs.")
    classes: tuple[ClassStatus, ...] = Field(
        default=(), max_length=16, description="The classes, highest first."
    )
    last_decision: LastDecision | None = Field(
        default=None, description="The last change of weights. Absent: there was none."
    )


class TenantPriorityStatus(Model):
    observed_generation: int = Field(
        default=0,
        ge=0,
        le=LARGEST_NUMBER,
        description="Generation of the spec that all of this is about.",
    )
    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=16, description="What holds of the tenant, one of each type."
    )
    policies: tuple[Annotated[str, StringConstraints(max_length=507)], ...] = Field(
        default=(),
        max_length=64,
        description="Policies that the tenant is part of, as namespace/name; the first 64.",
    )


def decimal_text(value: float, *, places: int = 2) -> str:
    """A finite number as these models write it, rounded and kept within their digits."""
    largest = 10.0**7 - 10.0**-places
    bounded = round(Decimal(min(largest, max(-largest, value))), places)
    return f"{bounded:.{places}f}" if bounded else f"{0:.{places}f}"
