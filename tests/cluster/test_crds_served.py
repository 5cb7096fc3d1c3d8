"""The CRDs on a real API server."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from giveway_policy.checks import check_policy
from giveway_policy.resources import SLOPolicy, SLOPolicySpec
from hypothesis import HealthCheck, given, settings

from tests.policy.policy_texts import valid_policy
from tests.policy.resource_strategies import policies
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
POLICY: dict[str, Any] = {
    "apiVersion": "giveway.dev/v1alpha1",
    "kind": "SLOPolicy",
    "metadata": {"name": "chat"},
    "spec": {
        "classes": [
            {"name": "realtime", "kind": "Interactive", "weight": 70},
            {"name": "batch", "kind": "Batch", "weight": 5},
        ],
        "concurrency": {"seats": 8, "batch": {"minimum": 1, "maximum": 4}},
    },
}


def changed(*path: str | int, value: object) -> dict[str, Any]:
    found = copy.deepcopy(POLICY)
    inner: Any = found
    for each in path[:-1]:
        inner = inner.setdefault(each, {}) if isinstance(inner, dict) else inner[each]
    inner[path[-1]] = value
    return found


def apply(control_plane: ControlPlane, namespace: str, found: dict[str, Any]) -> dict[str, Any]:
    text = yaml.safe_dump(found)
    command = ("apply", "--server-side", "-n", namespace, "-o", "yaml", "-f", "-")
    stored: dict[str, Any] = yaml.safe_load(control_plane.kubectl(*command, stdin=text))
    return stored


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_stored_means_what_was_written(
    control_plane: ControlPlane, namespace: str, example: Path
) -> None:
    """The server's defaults are the reader's: a policy is the same from a file and a cluster."""
    for written in yaml.safe_load_all(example.read_text()):
        if written["kind"] != "SLOPolicy":
            continue
        written["metadata"].pop("namespace", None)
        stored = apply(control_plane, namespace, written)
        assert SLOPolicy.model_validate_json(
            json.dumps(stored), by_alias=True, by_name=False
        ).spec == (
            SLOPolicySpec.model_validate_json(
                json.dumps(written["spec"]), by_alias=True, by_name=False
            )
        )


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (changed("spec", "concurrency", "batch", "minimum", value=0), "starves batch"),
        (changed("spec", "concurrency", "batch", "minimum", value=5), "at most maximum"),
        (changed("spec", "concurrency", "batch", "maximum", value=9), "at most seats"),
        (changed("spec", "classes", 1, "name", value="realtime"), "duplicate entries for key"),
        (changed("spec", "classes", 0, "kind", value="Fast"), "Unsupported value"),
        (
            changed("spec", "adjustment", value={"windowSeconds": 30, "intervalSeconds": 60}),
            "window",
        ),
        (
            changed(
                "spec",
                "classes",
                0,
                "objectives",
                value=[{"indicator": "TimeToFirstToken", "targetPercent": "99"}],
            ),
            "needs thresholdMilliseconds",
        ),
        (changed("spec", "classes", 0, "surprise", value=1), "surprise"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_within_one_object_is_refused_at_once(
    control_plane: ControlPlane, namespace: str, found: dict[str, Any], says: str
) -> None:
    with pytest.raises(AssertionError, match=says):
        apply(control_plane, namespace, found)


def test_the_tenant_of_a_tenant_priority_never_changes(control_plane: ControlPlane) -> None:
    tenant = {
        "apiVersion": "giveway.dev/v1alpha1",
        "kind": "TenantPriority",
        "metadata": {"name": "immutable"},
        "spec": {"tenant": "acme", "maximumClass": "realtime"},
    }
    apply(control_plane, "default", tenant)
    tenant["spec"] = {"tenant": "zeta", "maximumClass": "realtime"}
    with pytest.raises(AssertionError, match="make another TenantPriority"):
        apply(control_plane, "default", tenant)
    control_plane.kubectl("delete", "tprio", "immutable")


def test_a_gitops_tool_that_applies_twice_sees_no_difference(
    control_plane: ControlPlane, namespace: str
) -> None:
    """And `kubectl diff` neither."""
    first = apply(control_plane, namespace, POLICY)
    second = apply(control_plane, namespace, POLICY)
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    text = yaml.safe_dump(POLICY)
    diff = ("diff", "--server-side", "-n", namespace, "-f", "-")
    assert control_plane.kubectl(*diff, stdin=text) == ""


def test_short_names_and_the_category_list_them(
    control_plane: ControlPlane, namespace: str
) -> None:
    apply(control_plane, namespace, POLICY)
    for name in ("slop", "giveway"):
        listed = control_plane.kubectl("get", name, "-n", namespace)
        assert "chat" in listed
    head = control_plane.kubectl("get", "slop", "-n", namespace).splitlines()[0].split()
    assert {"NAME", "READY", "MODE", "PODS", "AGE"} <= set(head)


@pytest.fixture(scope="module")
def dry_namespace(control_plane: ControlPlane) -> Iterator[str]:
    with control_plane.namespace("dry") as name:
        yield name


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(policy=policies())
def test_the_server_accepts_whatever_the_products_own_checks_accept(
    control_plane: ControlPlane, dry_namespace: str, policy: dict[str, object]
) -> None:
    """No rule in CEL refuses what a proxy would run from a file."""
    assert check_policy(valid_policy(policy).spec) == []
    found = json.dumps({**policy, "metadata": {"name": "any"}})
    command = ("create", "--dry-run=server", "--validate=strict", "-n", dry_namespace, "-f", "-")
    control_plane.kubectl(*command, stdin=found)
