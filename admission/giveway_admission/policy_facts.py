"""What do metrics and the admin page need to know of the policy in force?

A few plain values, taken out of the policy document in one place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from giveway_policy.defaults import is_default
from giveway_policy.documents import PolicyDocument
from giveway_policy.enumerations import Indicator


class HasDocument(Protocol):
    """A policy made ready for use, such as `RuntimePolicy`."""

    @property
    def document(self) -> PolicyDocument: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveFacts:
    """One objective of one class."""

    indicator: Indicator
    threshold_s: float | None
    """None: the objective has no threshold in time (an error rate)."""
    target_percent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """The policy as it shows outside."""

    policy: str
    """namespace/name, or the name alone."""
    epoch: int
    generation: int
    hash: str
    built_in: bool
    """True: nobody gave a policy, the built-in default is in force."""
    class_names: tuple[str, ...]
    tenants: tuple[str, ...] = ()
    objectives: Mapping[str, tuple[ObjectiveFacts, ...]] = field(default_factory=dict)
    """By class."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """By class: Interactive or Batch."""
    mode: str = "Enforce"

    @property
    def identity(self) -> tuple[str, int, int, str]:
        """Differs between any two documents that a proxy can tell apart."""
        return self.policy, self.epoch, self.generation, self.hash

    def thresholds_s(self, indicator: Indicator) -> tuple[float, ...]:
        """Thresholds of one indicator over all classes."""
        return tuple(
            objective.threshold_s
            for objectives in self.objectives.values()
            for objective in objectives
            if objective.indicator == indicator and objective.threshold_s is not None
        )


def policy_facts(document: PolicyDocument) -> PolicyFacts:
    classes = document.spec.classes
    return PolicyFacts(
        policy=str(document.policy),
        epoch=document.epoch,
        generation=document.generation,
        hash=document.hash,
        built_in=is_default(document),
        class_names=tuple(each.name for each in classes),
        tenants=(
            document.spec.identity.fallback_tenant,
            *(tenant.name for tenant in document.tenants),
        ),
        objectives={
            each.name: tuple(
                ObjectiveFacts(
                    indicator=objective.indicator,
                    threshold_s=None
                    if objective.threshold_milliseconds is None
                    else objective.threshold_milliseconds / 1000,
                    target_percent=objective.target_percent,
                )
                for objective in each.objectives
            )
            for each in classes
        },
        kinds={each.name: each.kind.value for each in classes},
        mode=document.spec.mode.value,
    )
