"""Does `giveway status` tell a person what the operator reported?"""

from pathlib import Path
from typing import Any

import pytest
from giveway_command.main import main
from giveway_operator.status_telling import is_well, tell_policies

OBJECTIVE = {
    "indicator": "TimeToFirstToken",
    "thresholdMilliseconds": 300,
    "targetPercent": "99",
    "attainedPercent": "97.25",
    "requests": 1234,
    "state": "Measured",
    "errorBudgetRemainingPercent": "-12.5",
}


def condition(kind: str, status: str, reason: str = "Because", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def policy(*conditions: dict[str, str], generation: int = 3, **status: Any) -> dict[str, Any]:
    """As the API server gives it."""
    return {
        "metadata": {"name": "chat", "namespace": "llm", "generation": generation},
        "status": {
            "observedGeneration": 3,
            "conditions": list(conditions),
            "published": {"epoch": 7, "generation": 12},
            "pods": {"ready": 4, "acknowledged": 3},
            "classes": [
                {
                    "name": "realtime",
                    "weight": "84.000",
                    "baseWeight": "70",
                    "objectives": [OBJECTIVE],
                },
                {"name": "batch", "weight": "5", "baseWeight": "5"},
            ],
            "lastDecision": {
                "time": "2026-01-31T10:00:00Z",
                "reason": "Raising",
                "inputs": "realtime 97.25 % of 99 %",
            },
            **status,
        },
    }


READY, MET = condition("Ready", "True"), condition("SLOMet", "True")


def test_table_has_weights_attainment_budget_and_pods() -> None:
    """Each number once, in the row of its class."""
    told = tell_policies([policy(READY, MET)], explains=False)
    assert told.splitlines()[0] == "llm/chat: published 7/12, 3 of 4 pods run it"
    (row,) = (line for line in told.splitlines() if "realtime" in line)
    numbers = "realtime 84.000 70 TimeToFirstToken <= 300 ms 99 % 97.25 % -12.5 % 1234"
    assert " ".join(row.split()) == numbers
    assert "batch" in told
    assert "Ready" not in told, "what is as it should be is not told"
    assert "Raising" not in told


def test_what_is_not_as_it_should_be_is_told_with_its_reason() -> None:
    """Conditions that are false where true is right, and the other way round."""
    wrong = condition("Frozen", "True", "WeightsUnused", "nobody to share with")
    told = tell_policies(
        [policy(READY, condition("SLOMet", "False", "Missed"), wrong)], explains=False
    )
    assert "SLOMet=False Missed" in told
    assert "Frozen=True WeightsUnused: nobody to share with" in told


def test_explained_decision_has_its_inputs() -> None:
    """So that anybody can replay it."""
    told = tell_policies([policy(READY, MET)], explains=True)
    assert "last decision, 2026-01-31T10:00:00Z: Raising" in told
    assert "realtime 97.25 % of 99 %" in told


def test_policy_without_status_is_told_so() -> None:
    """Nobody runs an operator there."""
    bare = {"metadata": {"name": "chat", "namespace": "llm", "generation": 1}}
    assert "is giveway operate running?" in tell_policies([bare], explains=False)
    assert not is_well(bare)


@pytest.mark.parametrize(
    ("found", "well"),
    [
        (policy(READY, MET), True),
        (policy(READY, condition("SLOMet", "Unknown")), True),
        (policy(READY, condition("SLOMet", "False")), False),
        (policy(condition("Ready", "False"), MET), False),
        (policy(READY, MET, generation=4), False),
    ],
    ids=["met", "not known", "missed", "not ready", "edited since"],
)
def test_well_is_published_as_it_is_and_not_missed(found: dict[str, Any], well: bool) -> None:
    """Pipelines ask by the exit code."""
    assert is_well(found) is well


def test_unreachable_cluster_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kubeconfig that is not there is no traceback."""
    assert main(["status", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert "--kubeconfig" in capsys.readouterr().err
