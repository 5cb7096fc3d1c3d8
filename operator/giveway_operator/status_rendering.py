"""Which statuses and events follow from a rendering?

Pure. A condition keeps the time of its last transition while its status is the same, so a status
that says nothing new is equal to the one before, and is not written. Events are for transitions.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from giveway_policy.documents import PolicyDocument, PolicyName
from giveway_policy.faults import Fault, FaultKind, ResourceKey

from giveway_operator.candidates import key_of
from giveway_operator.kube_client import Object
from giveway_operator.rendering import Rendering
from giveway_operator.reporting import Finding, LoopEvent
from giveway_operator.reports import PolicyReport
from giveway_operator.snapshots import Snapshot, Written
from giveway_operator.statuses import (
    LONGEST_MESSAGE,
    Condition,
    ConditionType,
    Published,
    SLOPolicyStatus,
    TenantPriorityStatus,
)

MOST_POLICIES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An event to be created."""

    about: ResourceKey
    uid: str
    warning: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    statuses: Mapping[ResourceKey, Object] = field(default_factory=dict)
    """As JSON, only of resources whose status is to change."""
    notices: tuple[Notice, ...] = ()


def report(
    snapshot: Snapshot,
    rendering: Rendering,
    *,
    reports: Mapping[PolicyName, PolicyReport],
    failed: Mapping[str, str],
    now: str,
) -> Reporting:
    """`failed` are namespaces in which nothing could be published, and why. `now` in RFC 3339,
    UTC, whole seconds."""
    faults: dict[ResourceKey, list[Fault]] = {}
    for fault in rendering.faults:
        if fault.resource is not None:
            faults.setdefault(fault.resource, []).append(fault)
    misfits: dict[ResourceKey, list[Fault]] = {}
    for fault in rendering.misfits:
        if fault.resource is not None:
            misfits.setdefault(fault.resource, []).append(fault)
    statuses: dict[ResourceKey, Object] = {}
    notices: list[Notice] = []
    for written in snapshot.policies:
        key = key_of(written, "SLOPolicy")
        name = PolicyName(namespace=written.namespace, name=written.name)
        told = reports.get(name) or former_report(written)
        ready = _policy_findings(name, faults.get(key, ()), rendering, failed.get(name.namespace))
        findings = [*ready, *told.findings]
        conditions = _conditions(written, findings, now=now)
        status = _policy_status(written, conditions, told, rendering.documents.get(name))
        notices += _transitions(key, written, conditions)
        _add_changed(statuses, key, written, status)
    members = _members(rendering)
    for written in snapshot.tenants:
        key = key_of(written, "TenantPriority")
        policies = members.get(str(written.spec.get("tenant")), [])
        findings = _tenant_findings(
            faults.get(key, ()), misfits.get(key, ()), policies, len(rendering.documents)
        )
        conditions = _conditions(written, findings, now=now)
        tenant_status = TenantPriorityStatus(
            observed_generation=written.generation,
            conditions=conditions,
            policies=tuple(policies[:MOST_POLICIES]),
        )
        notices += _transitions(key, written, conditions)
        _add_changed(statuses, key, written, tenant_status)
    return Reporting(statuses=statuses, notices=tuple(notices))


def loop_notice(written: Written, event: LoopEvent) -> Notice:
    """What the SLO loop wants to be found in the events."""
    return Notice(
        about=key_of(written, "SLOPolicy"),
        uid=written.uid,
        warning=event.type == "Warning",
        reason=event.reason,
        message=_short(event.message),
    )


def _policy_findings(
    name: PolicyName, faults: Sequence[Fault], rendering: Rendering, failed: str | None
) -> list[Finding]:
    document = rendering.documents.get(name)
    if faults:
        kept = (
            f"; epoch {document.epoch} generation {document.generation} stays in force"
            if document
            else "; nothing was published"
        )
        return _stalled(_reason(faults), _fault_text(faults) + kept)
    if name in rendering.refused:
        return _stalled("TooLarge", rendering.refused[name])
    if failed is not None:
        return [_not_ready("NotPublished", failed)]
    if document is None:
        return _stalled("Invalid", "it could not be compiled; look at the operator's log")
    return [
        Finding(
            type=ConditionType.READY,
            status="True",
            reason="Published",
            message="accepted, and published for the proxies",
        )
    ]


def _tenant_findings(
    faults: Sequence[Fault], misfits: Sequence[Fault], policies: Sequence[str], published: int
) -> list[Finding]:
    if faults:
        kept = "; its last good version stays in force" if policies else "; it is not in force"
        if faults[0].kind is FaultKind.CREDENTIALS:
            # The Secret may still come: nobody has to edit this resource.
            message = _fault_text(faults) + kept
            return [_not_ready("CredentialsUnusable", message)]
        return _stalled(_reason(faults), _fault_text(faults) + kept)
    if not published:
        message = "accepted; there is no SLOPolicy yet that it could be part of"
    elif misfits:
        message = (
            f"in force in {len(policies)} of {published} policies; "
            f"not in another: {_fault_text(misfits)}"
        )
    else:
        message = f"in force in {len(policies)} of {published} policies"
    return [
        Finding(
            type=ConditionType.READY, status="True", reason="Published", message=_short(message)
        )
    ]


def _stalled(reason: str, message: str) -> list[Finding]:
    """It cannot work until somebody edits it: kstatus reports `Stalled` as failed at once."""
    stalled = Finding(
        type=ConditionType.STALLED, status="True", reason=reason, message=_short(message)
    )
    return [_not_ready(reason, message), stalled]


def _not_ready(reason: str, message: str) -> Finding:
    return Finding(type=ConditionType.READY, status="False", reason=reason, message=_short(message))


def _reason(faults: Sequence[Fault]) -> str:
    return "Conflict" if faults[0].kind is FaultKind.CONFLICT else "Invalid"


def _fault_text(faults: Sequence[Fault]) -> str:
    first = faults[0]
    path = f"{first.path}: " if first.path else ""
    more = f"; and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{path}{first.reason} ({first.fix}){more}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 3]}..."


def _conditions(
    written: Written, findings: Iterable[Finding], *, now: str
) -> tuple[Condition, ...]:
    before = _conditions_before(written)
    found: dict[ConditionType, Condition] = {}
    for each in findings:
        former = before.get(each.type.value, {})
        since = former.get("lastTransitionTime") if former.get("status") == each.status else None
        found[each.type] = Condition(
            type=each.type,
            status=each.status,
            reason=each.reason,
            message=_short(each.message),
            observed_generation=written.generation,
            last_transition_time=since or now,
        )
    return tuple(sorted(found.values(), key=lambda each: each.type.value))


def _conditions_before(written: Written) -> dict[str, Mapping[str, Any]]:
    conditions = written.status.get("conditions")
    if not isinstance(conditions, list):
        return {}
    return {str(each.get("type")): each for each in conditions if isinstance(each, dict)}


def _policy_status(
    written: Written,
    conditions: tuple[Condition, ...],
    told: PolicyReport,
    document: PolicyDocument | None,
) -> SLOPolicyStatus:
    published = (
        Published(epoch=document.epoch, generation=document.generation, hash=document.hash)
        if document
        else None
    )
    return SLOPolicyStatus(
        observed_generation=written.generation,
        conditions=conditions,
        published=published,
        pods=told.pods,
        classes=told.classes,
        last_decision=told.last_decision,
    )


def former_report(written: Written) -> PolicyReport:
    """What the status says already, until the loop has looked: an operator that starts anew takes
    nothing back that it only does not know yet."""
    try:
        status = SLOPolicyStatus.model_validate_json(json.dumps(written.status))
    except ValueError:
        return PolicyReport()
    return PolicyReport(
        classes=status.classes,
        findings=tuple(
            Finding(type=each.type, status=each.status, reason=each.reason, message=each.message)
            for each in status.conditions
            if each.type not in (ConditionType.READY, ConditionType.STALLED)
        ),
        pods=status.pods,
        last_decision=status.last_decision,
    )


def _members(rendering: Rendering) -> dict[str, list[str]]:
    """Policies by tenant."""
    found: dict[str, list[str]] = {}
    for name in sorted(rendering.documents, key=str):
        for tenant in rendering.documents[name].tenants:
            found.setdefault(tenant.name, []).append(str(name))
    return found


def _add_changed(
    statuses: dict[ResourceKey, Object],
    key: ResourceKey,
    written: Written,
    status: SLOPolicyStatus | TenantPriorityStatus,
) -> None:
    wanted = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    if wanted != written.status:
        statuses[key] = wanted


def _transitions(
    key: ResourceKey, written: Written, conditions: Sequence[Condition]
) -> Iterable[Notice]:
    """That it became ready, or is no more. Stalled says the same, and the loop has its own."""
    before = _conditions_before(written).get(ConditionType.READY.value, {})
    for each in conditions:
        is_same = (before.get("status"), before.get("reason")) == (each.status, each.reason)
        if each.type is ConditionType.READY and not is_same:
            yield Notice(
                about=key,
                uid=written.uid,
                warning=each.status != "True",
                reason=each.reason,
                message=each.message,
            )
