"""Recent decisions: what the admin page can tell of the last requests."""

import pytest
from giveway_admission.recent_decisions import DecisionKind, RecentDecisions
from giveway_admission.tenant_labels import HIDDEN
from giveway_scheduler import DispatchReason

from tests.admission.admin_support import Clock


def add(
    decisions: RecentDecisions,
    kind: DecisionKind = DecisionKind.DISPATCH,
    *,
    reason: str = DispatchReason.IMMEDIATE,
    tenant: str = "acme",
    name: str = "",
) -> None:
    decisions.add(kind, "realtime", tenant=tenant, reason=reason, waited_s=0.5, request_name=name)


def test_newest_comes_first_with_its_age() -> None:
    """A person looks at the top."""
    clock = Clock()
    decisions = RecentDecisions(clock=clock)
    add(decisions, name="first")
    clock.now_s += 2
    add(decisions, DecisionKind.REJECT, reason="queue_full", name="second")
    clock.now_s += 1
    latest = decisions.latest()
    assert [(each.request_name, each.age_s) for each in latest] == [("second", 1), ("first", 3)]
    assert latest[0].kind == "reject"
    assert latest[0].reason == "queue_full"
    assert latest[0].waited_s == 0.5


@pytest.mark.parametrize("kind", list(DecisionKind))
def test_never_more_than_its_size(kind: DecisionKind) -> None:
    """No growth, whatever is decided most."""
    decisions = RecentDecisions(200)
    for _ in range(10_000):
        add(decisions, kind, reason="queued")
        add(decisions)
    assert len(decisions.latest()) <= 200


def test_flood_of_dispatches_does_not_push_refusals_out() -> None:
    """At hundreds of requests a second the one that was refused can still be found."""
    decisions = RecentDecisions(200)
    add(decisions, DecisionKind.REJECT, reason="tenant_tokens", name="the-one")
    add(decisions, reason=DispatchReason.QUEUED, name="waited")
    for _ in range(10_000):
        add(decisions)
    names = {each.request_name for each in decisions.latest()}
    assert {"the-one", "waited"} <= names


def test_names_of_clients_are_cleaned() -> None:
    """G10, G03: long names, control bytes and credentials do not reach the page."""
    decisions = RecentDecisions()
    add(decisions, tenant="ops@example.com", name="a\r\nb\x00" + "x" * 6000)
    add(decisions, name="sk-CANARY0123456789")
    credential, long = decisions.latest()
    assert "CANARY" not in credential.request_name
    assert long.tenant == HIDDEN
    assert long.request_name.startswith(r"a\r\nb\x00xxx")
    assert len(long.request_name) == 64


def test_tenant_that_the_policy_names_is_shown() -> None:
    """Whoever asks decides how a tenant is called."""
    decisions = RecentDecisions()
    add(decisions, tenant="ops@example.com")
    (only,) = decisions.latest(shown=lambda tenant: tenant.upper())
    assert only.tenant == "OPS@EXAMPLE.COM"
