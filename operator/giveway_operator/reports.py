"""What does a policy's status say of its objectives?

A consideration of the SLO loop as it is written down: with the time of its decision, which stays
the same until weights change again.
"""

from dataclasses import dataclass

from giveway_operator.reporting import Finding
from giveway_operator.slo_loop import Consideration
from giveway_operator.statuses import (
    LONGEST_MESSAGE,
    ClassStatus,
    LastDecision,
    PodsStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReport:
    """The part of a status that the SLO loop fills in."""

    classes: tuple[ClassStatus, ...] = ()
    findings: tuple[Finding, ...] = ()
    pods: PodsStatus | None = None
    """None: not known."""
    last_decision: LastDecision | None = None
    """None: there was none."""


def report_of(consideration: Consideration, former: PolicyReport, *, now: str) -> PolicyReport:
    """`now` in RFC 3339, UTC, whole seconds."""
    decision = consideration.decision
    last = former.last_decision
    if decision is not None and decision.changed:
        inputs = consideration.inputs[:LONGEST_MESSAGE]
        last = LastDecision(time=now, reason=decision.reason.value, inputs=inputs)
    return PolicyReport(
        classes=consideration.classes,
        findings=consideration.findings,
        pods=consideration.pods,
        last_decision=last,
    )
