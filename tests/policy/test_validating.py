"""What is wrong with the form of a resource, said so that its author can mend it."""

from itertools import count
from pathlib import Path

import pytest
from giveway_policy.faults import FaultKind, path_text

from tests.policy.policy_texts import (
    POLICY,
    TENANT,
    load_text,
    policy_with,
    problems_of,
    tenant_with,
)

CONCURRENCY = (
    "batch, lowerSeatsOnPreemption, prefillMicrosecondsPer1000Tokens, promptGateTokens, "
    "reservedSeats, seats"
)
DEADBAND = "Deviation from the target, in percentage points, below which nothing is changed"
A_CLASS = {"name": "a", "kind": "Interactive"}


@pytest.mark.parametrize(
    ("value", "path", "reason", "fix"),
    [
        (
            policy_with(clases=[]),
            "spec.clases",
            "is not a field here",
            "did you mean classes?",
        ),
        (
            policy_with(classes=[{**A_CLASS, "limits": {"requestPerSecond": 1}}]),
            "spec.classes[0].limits.requestPerSecond",
            "is not a field here",
            "did you mean requestsPerSecond?",
        ),
        (
            policy_with(concurrency={"zzz": 1}),
            "spec.concurrency.zzz",
            "is not a field here",
            f"fields here: {CONCURRENCY}",
        ),
        (
            policy_with(classes=[{"name": "a"}]),
            "spec.classes[0].kind",
            "is required",
            "add kind: Interactive: somebody watches the answer appear",
        ),
        (
            policy_with(classes=[]),
            "spec.classes",
            "must have at least 1 entry",
            "The service classes, highest first",
        ),
        (
            policy_with(concurrency=50),
            "spec.concurrency",
            "must be a mapping, not 50",
            f"fields here: {CONCURRENCY}",
        ),
        (
            policy_with(classes=[{**A_CLASS, "kind": "interactive"}]),
            "spec.classes[0].kind",
            "must be 'Interactive' or 'Batch', not the text 'interactive'",
            "did you mean Interactive?",
        ),
        (
            policy_with(concurrency={"seats": "64"}),
            "spec.concurrency.seats",
            "must be a whole number, not the text '64'",
            "write it without quotes",
        ),
        (
            policy_with(concurrency={"seats": "64 seats"}),
            "spec.concurrency.seats",
            "must be a whole number, not the text '64 seats'",
            "write it without a unit",
        ),
        (
            policy_with(concurrency={"seats": 1.5}),
            "spec.concurrency.seats",
            "must be a whole number, not 1.5",
            "write it without a point; the field's name tells the unit",
        ),
        (
            policy_with(concurrency={"seats": 0}),
            "spec.concurrency.seats",
            "must be at least 1, not 0",
            "Requests at one engine at once",
        ),
        (
            policy_with(concurrency={"seats": 10**20}),
            "spec.concurrency.seats",
            "must be at most 100000, not 100000000000000000000",
            "Requests at one engine at once",
        ),
        (
            policy_with(concurrency={"seats": True}),
            "spec.concurrency.seats",
            "must be a whole number, not true",
            "write it without a point; the field's name tells the unit",
        ),
        (
            policy_with(adjustment={"amplification": 5}),
            "spec.adjustment.amplification",
            "must be text, not 5",
            "put it in quotes",
        ),
        (
            policy_with(adjustment={"deadbandPercent": "5%"}),
            "spec.adjustment.deadbandPercent",
            "must be a percentage from 0 to 100 in quotes, like \"99.5\", not the text '5%'",
            f"{DEADBAND}, as a decimal string",
        ),
        (
            policy_with(antiStarvation="off"),
            "spec.antiStarvation",
            "must be a mapping, not the text 'off'",
            (
                "fields here: boostSeconds, checkSeconds, enabled, promotionsPerSecond, "
                "thresholdSeconds"
            ),
        ),
        (
            policy_with(classes={"a": 1}),
            "spec.classes",
            "must be a list, not a mapping",
            "The service classes, highest first",
        ),
        (
            policy_with(classes=[{**A_CLASS, "name": "A_b"}]),
            "spec.classes[0].name",
            "must be lower-case letters, digits and dashes inside, not the text 'A_b'",
            "Name of the class, unique in the policy",
        ),
        (
            policy_with(classes=[{**A_CLASS, "name": "a" * 64}]),
            "spec.classes[0].name",
            f"must be at most 63 characters, not the text '{'a' * 64}'",
            "Name of the class, unique in the policy",
        ),
        (
            tenant_with(weight=None, maximumClas="x"),
            "spec.maximumClas",
            "is not a field here",
            "did you mean maximumClass?",
        ),
    ],
    ids=count(),
)
def test_each_kind_of_mistake_has_its_reason_and_fix(
    value: dict[str, object], path: str, reason: str, fix: str
) -> None:
    """D09: refused, naming the path."""
    (problem,) = problems_of(value)
    assert (path_text(problem.path), problem.reason, problem.fix) == (path, reason, fix)
    assert problem.kind is FaultKind.SCHEMA


def test_every_mistake_is_told_at_once() -> None:
    """Its author mends all in one go; what only follows from another is not told."""
    broken = {"name": "A", "kind": "x", "limits": {"requestsPerSecond": "1"}, "weight": -1}
    paths = [each.path[2:] for each in problems_of(policy_with(classes=[broken]))]
    assert paths == [
        (0, "name"),
        (0, "kind"),
        (0, "weight"),
        (0, "limits", "requestsPerSecond"),
    ]


def test_a_fault_names_file_line_path_reason_and_fix(tmp_path: Path) -> None:
    """D09: as one line that an editor can jump to."""
    loading = load_text(tmp_path, POLICY.replace("weight: 5", "weigth: 5"))
    (fault,) = loading.faults
    # the weight of the second class is the twelfth line
    assert POLICY.splitlines()[11].strip() == "weight: 5"
    assert str(fault) == (
        f"{tmp_path}/policy.yaml:12: spec.classes[1].weigth: is not a field here "
        "(did you mean weight?)"
    )
    assert str(fault.resource) == "SLOPolicy llm/chat"


def test_a_missing_field_points_to_what_it_is_missing_in(tmp_path: Path) -> None:
    loading = load_text(tmp_path, TENANT.replace("  maximumClass: realtime\n", ""))
    (fault,) = loading.faults
    # `spec:` is the fourth line
    assert (fault.line, fault.path) == (4, "spec.maximumClass")


@pytest.mark.parametrize(
    "recognition",
    [
        {"apiKey": "sk-secret"},
        {"apiKey": {"sk-secret": 1}, "header": 5},
        {"apiKey": {"keyFile": ["sk-secret"]}},
        {"header": {"name": "bad name", "value": "sk-secret\n"}},
        ["sk-secret"],
    ],
)
def test_no_fault_shows_what_may_be_a_credential(recognition: object, tmp_path: Path) -> None:
    """G03: who writes a key into the wrong field does not find it in the logs."""
    problems = problems_of(tenant_with(recognizedBy=[recognition]))
    assert problems
    assert not [each for each in problems if "sk-secret" in each.reason + each.fix]


def test_one_resource_is_told_at_most_fifty_mistakes() -> None:
    broken = [{"name": "A", "kind": "x", "weight": "1", "more": 1, "queue": 3} for _ in range(15)]
    assert len(problems_of(policy_with(classes=broken))) == 50


def test_unreadable_values_stay_one_line() -> None:
    """A control character or a long text from a file does not break a log line."""
    (problem,) = problems_of(policy_with(mode="a\nb\x1b[31m" + "x" * 60))
    assert "\n" not in problem.reason
    assert "\x1b" not in problem.reason
