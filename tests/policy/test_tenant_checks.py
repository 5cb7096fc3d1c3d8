"""Tenants that cannot be, alone or under a policy."""

from itertools import count

import pytest
from giveway_policy.faults import path_text
from giveway_policy.tenant_checks import check_tenant, check_tenant_under

from tests.policy.policy_texts import policy_with, tenant_with, valid_policy, valid_tenant

HEADER = {"header": {"name": "X-Tenant", "value": "acme"}}
KEY = {"apiKey": {"keyFile": "a"}}
SECRET = {"apiKey": {"secretRef": {"namespace": "llm", "name": "keys"}}}


@pytest.mark.parametrize(
    ("spec", "path", "says"),
    [
        ({"tenant": "other"}, "spec.tenant", "many tenants together"),
        ({"limits": {"requestBurst": 1}}, "spec.limits.requestBurst", "there is no limit"),
        ({"recognizedBy": [{}]}, "spec.recognizedBy[0]", "exactly one way"),
        ({"recognizedBy": [KEY, {**HEADER, **KEY}]}, "spec.recognizedBy[1]", "exactly one way"),
        (
            {"recognizedBy": [{"apiKey": {}}]},
            "spec.recognizedBy[0].apiKey",
            "exactly one place",
        ),
        (
            {"recognizedBy": [{"apiKey": {**KEY["apiKey"], **SECRET["apiKey"]}}]},
            "spec.recognizedBy[0].apiKey",
            "exactly one place",
        ),
        (
            {"recognizedBy": [{"header": {"name": "authorization", "value": "x"}}]},
            "spec.recognizedBy[0].header.name",
            "carries the API key",
        ),
        (
            {"recognizedBy": [{"header": {"name": "X-Giveway-Tenant", "value": "x"}}]},
            "spec.recognizedBy[0].header.name",
            "giveway's own",
        ),
        (
            {"recognizedBy": [{"jwtClaim": {"claim": "org", "value": "acme"}}]},
            "spec.recognizedBy[0].jwtClaim",
            "not yet supported",
        ),
    ],
    ids=count(),
)
def test_a_tenant_that_cannot_be_is_refused(spec: dict[str, object], path: str, says: str) -> None:
    """G01: trust is named, and never by accident."""
    (problem,) = check_tenant(valid_tenant(tenant_with(**spec)).spec)
    assert path_text(problem.path) == path
    assert says in problem.reason
    assert problem.fix


@pytest.mark.parametrize(
    ("spec", "path", "says"),
    [
        ({"maximumClass": "gold"}, "spec.maximumClass", "there is no class gold"),
        ({"defaultClass": "gold"}, "spec.defaultClass", "there is no class gold"),
        (
            {"maximumClass": "batch", "defaultClass": "realtime"},
            "spec.defaultClass",
            "realtime is above batch",
        ),
        (
            {"sources": [{"source": "a", "class": "gold"}]},
            "spec.sources[0].class",
            "there is no class gold",
        ),
        (
            {"maximumClass": "standard", "sources": [{"source": "a", "class": "realtime"}]},
            "spec.sources[0].class",
            "realtime is above standard",
        ),
        (
            {"sources": [{"source": "a", "class": "batch"}] * 2},
            "spec.sources[1].source",
            "stands twice",
        ),
        ({"tenant": "anonymous"}, "spec.maximumClass", "the policy's fallback tenant"),
    ],
    ids=count(),
)
def test_a_tenant_that_does_not_fit_the_policy_is_refused(
    spec: dict[str, object], path: str, says: str
) -> None:
    """H1: a source never lifts a request above its tenant's ceiling."""
    policy = valid_policy(policy_with()).spec
    (problem,) = check_tenant_under(valid_tenant(tenant_with(**spec)).spec, policy)
    assert path_text(problem.path) == path
    assert says in problem.reason
    assert problem.fix


def test_the_fallback_tenant_may_have_limits() -> None:
    """If it says the same classes as the policy does."""
    policy = valid_policy(policy_with()).spec
    value = tenant_with(tenant="anonymous", maximumClass="batch", limits={"inFlight": 2})
    assert check_tenant_under(valid_tenant(value).spec, policy) == []


def test_a_tenant_may_be_known_in_several_ways() -> None:
    tenant = valid_tenant(tenant_with(recognizedBy=[HEADER, KEY, SECRET])).spec
    assert check_tenant(tenant) == []
