"""How do policies stand, for a person at a terminal?

Pure: the operator's own words in the resources' status, as a table. Nothing is computed here that
the operator did not report.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from giveway_operator.statuses import ConditionType

Object = Mapping[str, Any]

_EXPECTED = {
    ConditionType.READY: "True",
    ConditionType.STALLED: "False",
    ConditionType.SLO_MET: "True",
    ConditionType.METRICS_AVAILABLE: "True",
    ConditionType.INFEASIBLE: "False",
    ConditionType.FROZEN: "False",
    ConditionType.WEIGHT_AT_LIMIT: "False",
}
"""What each condition says when there is nothing to tell."""
_HEAD = ("CLASS", "WEIGHT", "BASE", "OBJECTIVE", "TARGET", "ATTAINED", "BUDGET LEFT", "REQUESTS")


def tell_policies(policies: Sequence[Object], *, explains: bool) -> str:
    """All policies, one after the other. `explains`: with the last decision and its inputs."""
    return "\n".join("".join(f"{line}\n" for line in _policy(each, explains)) for each in policies)


def is_well(policy: Object) -> bool:
    """Accepted and published as it is now, and no objective missed."""
    conditions = _conditions(policy)
    status = policy.get("status") or {}
    return (
        conditions.get(ConditionType.READY, {}).get("status") == "True"
        and conditions.get(ConditionType.SLO_MET, {}).get("status") != "False"
        and status.get("observedGeneration") == policy["metadata"].get("generation")
    )


def _policy(policy: Object, explains: bool) -> Iterator[str]:
    metadata, status = policy["metadata"], policy.get("status") or {}
    name = f"{metadata.get('namespace', '')}/{metadata['name']}"
    if not status:
        yield f"{name}: no operator has reported on it; is giveway operate running?"
        return
    published, pods = status.get("published") or {}, status.get("pods") or {}
    number = f"{published.get('epoch', '?')}/{published.get('generation', '?')}"
    current = f"{pods.get('acknowledged', '?')} of {pods.get('ready', '?')} pods"
    yield f"{name}: published {number}, {current} run it"
    if status.get("observedGeneration") != metadata.get("generation"):
        yield "  the operator has not seen the last edit yet"
    for each in _conditions(policy).values():
        expected = _EXPECTED.get(each["type"])
        if expected is not None and each["status"] != expected:
            message = each.get("message") or ""
            yield f"  {each['type']}={each['status']} {each['reason']}: {message}".rstrip(": ")
    rows = [_HEAD, *_rows(status.get("classes") or ())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()
    decision = status.get("lastDecision")
    if explains and decision:
        yield f"  last decision, {decision['time']}: {decision['reason']}"
        yield f"    {decision.get('inputs', '')}"


def _rows(classes: Iterable[Object]) -> Iterator[tuple[str, ...]]:
    for each in classes:
        first = (each["name"], each["weight"], each["baseWeight"])
        objectives = each.get("objectives") or ()
        if not objectives:
            yield (*first, "none", "", "", "", "")
        for objective in objectives:
            threshold = objective.get("thresholdMilliseconds")
            what = objective["indicator"] + ("" if threshold is None else f" <= {threshold} ms")
            attained = objective.get("attainedPercent")
            left = objective.get("errorBudgetRemainingPercent")
            yield (
                *first,
                what,
                f"{objective['targetPercent']} %",
                objective["state"] if attained is None else f"{attained} %",
                "" if left is None else f"{left} %",
                str(objective.get("requests", 0)),
            )
            first = ("", "", "")


def _conditions(policy: Object) -> dict[str, Object]:
    status = policy.get("status") or {}
    return {each["type"]: each for each in status.get("conditions") or ()}
