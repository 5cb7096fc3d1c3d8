"""Which events wake a pass: what it would look at, and not what it wrote itself."""

from typing import Any

import pytest
from giveway_operator.waking import Novelties

POLICY, POD = "SLOPolicy", "Pod"


class Sleeper:
    def __init__(self) -> None:
        self.woken = 0
        self.novelties = Novelties(self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def see(self, kind: str, event: str | None, body: dict[str, Any]) -> bool:
        """Whether it woke."""
        before = self.woken
        self.novelties.see(kind, event, body)
        return self.woken > before


def policy(generation: int, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", "generation": generation, **metadata}, "spec": {}}


def pod(*, ready: bool, labels: dict[str, str] | None = None, uid: str = "p") -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "labels": labels or {}},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


def test_new_edited_and_deleted_resources_wake(sleeper: Sleeper) -> None:
    assert sleeper.see(POLICY, None, policy(1))
    assert sleeper.see(POLICY, "MODIFIED", policy(2))
    assert sleeper.see(POLICY, "MODIFIED", policy(2, deletionTimestamp="now"))
    assert sleeper.see(POLICY, "DELETED", policy(2, deletionTimestamp="now"))
    assert sleeper.see(POLICY, "ADDED", policy(1))


def test_our_own_status_and_labels_of_others_do_not_wake(sleeper: Sleeper) -> None:
    """E05."""
    sleeper.see(POLICY, "ADDED", policy(1))
    assert not sleeper.see(POLICY, "MODIFIED", {**policy(1), "status": {"conditions": []}})
    assert not sleeper.see(POLICY, "MODIFIED", policy(1, labels={"a": "b"}))


def test_pod_wakes_when_it_becomes_ready_or_is_no_more(sleeper: Sleeper) -> None:
    assert sleeper.see(POD, "ADDED", pod(ready=False))
    assert not sleeper.see(POD, "MODIFIED", pod(ready=False))
    assert sleeper.see(POD, "MODIFIED", pod(ready=True))
    assert sleeper.see(POD, "MODIFIED", pod(ready=True, labels={"app": "x"}))
    assert sleeper.see(POD, "DELETED", pod(ready=True))


def test_what_is_gone_is_forgotten(sleeper: Sleeper) -> None:
    for number in range(1000):
        sleeper.see(POD, "ADDED", pod(ready=True, uid=str(number)))
        sleeper.see(POD, "DELETED", pod(ready=True, uid=str(number)))
    assert sleeper.novelties.remembered == 0


def test_end_of_what_was_never_seen_wakes_nobody(sleeper: Sleeper) -> None:
    assert not sleeper.see(POD, "DELETED", pod(ready=True))
