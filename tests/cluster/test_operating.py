"""`giveway operate` on a real API server: from kubectl apply to what is published."""

import base64
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from giveway_policy.documents import DocumentError, PolicyDocument, parse_document

from tests.support.control_plane import ControlPlane
from tests.support.operators import OperatorProcess, grant_documented_rights
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

CLASSES = [
    {"name": "realtime", "kind": "Interactive", "weight": 70},
    {"name": "batch", "kind": "Batch", "weight": 5},
]
KEY = "sk-acme-123456"


class Place:
    """A namespace of the control plane, and what is in it."""

    def __init__(self, plane: ControlPlane, namespace: str, logs: Path) -> None:
        self.plane = plane
        self.namespace = namespace
        self.logs = logs
        self.tenant = f"t-{namespace}"
        """Tenants are in no namespace, so each test has its own."""

    def operator(
        self, *options: str, user: str = "admin", name: str = "operate", **settings: float
    ) -> AbstractAsyncContextManager[OperatorProcess]:
        """For this namespace alone, with a Lease of its own."""
        return OperatorProcess(
            self.plane.kubeconfig_of(user),
            *("--namespace", self.namespace, "--lease-namespace", self.namespace),
            *options,
            logs=self.logs,
            name=name,
            **settings,
        )

    def apply_policy(self, name: str = "chat", **spec: Any) -> None:
        self.plane.apply(
            {
                "apiVersion": "giveway.dev/v1alpha1",
                "kind": "SLOPolicy",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"classes": CLASSES, **spec},
            }
        )

    def apply_tenant(self, **spec: Any) -> None:
        self.plane.apply(
            {
                "apiVersion": "giveway.dev/v1alpha1",
                "kind": "TenantPriority",
                "metadata": {"name": self.tenant},
                "spec": {"tenant": self.tenant, "maximumClass": "realtime", **spec},
            }
        )

    def apply_keys(self) -> None:
        self.plane.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "keys", "namespace": self.namespace},
                "stringData": {"one": KEY},
            }
        )

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        return self.plane.kubectl("-n", self.namespace, *arguments, check=check)

    def get(self, *arguments: str) -> Any:
        """None: it is not there."""
        told = self.kubectl("get", *arguments, "-o", "json", "--ignore-not-found")
        return json.loads(told) if told.strip() else None

    def document(self, name: str = "chat") -> PolicyDocument | None:
        found = self.get("configmap", "giveway-policy")
        text = found and found.get("data", {}).get(f"{name}.json")
        try:
            return parse_document(text.encode()) if text else None
        except DocumentError:
            return None

    def condition(self, kind: str = "Ready", name: str = "chat") -> Mapping[str, Any] | None:
        found = self.get("slopolicy", name) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), None)

    async def published(
        self, name: str = "chat", *, above: tuple[int, int] = (0, 0)
    ) -> PolicyDocument:
        """Wait for a document with a higher number."""

        def look() -> PolicyDocument | None:
            found = self.document(name)
            return found if found is not None and found.order > above else None

        found = await until(look, what=f"{name} is published", within_s=60)
        assert found is not None
        return found

    def versions(self) -> list[str]:
        """Of everything that the operator writes but its Lease."""
        kinds = ("configmap", "secret", "slopolicy")
        return [
            f"{kind}/{each['metadata']['name']} {each['metadata']['resourceVersion']}"
            for kind in kinds
            for each in (self.get(kind) or {"items": []})["items"]
        ]


@pytest.fixture
def place(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Place]:
    with control_plane.namespace(f"op-{uuid.uuid4().hex[:8]}") as namespace:
        place = Place(control_plane, namespace, tmp_path)
        yield place
        control_plane.kubectl("delete", "tenantpriority", place.tenant, "--ignore-not-found")


async def passes(operator: OperatorProcess) -> float:
    url = f"{operator.admin_url}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    (line,) = (each for each in text.splitlines() if 'passes_total{outcome="good"}' in each)
    return float(line.split()[-1])


async def ready(operator: OperatorProcess) -> tuple[int, dict[str, Any]]:
    url = f"{operator.admin_url}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.json()


async def some_passes(operator: OperatorProcess, count: int = 3) -> None:
    wanted = await passes(operator) + count

    async def enough() -> bool:
        return await passes(operator) >= wanted

    await until(enough, what=f"{count} more passes", within_s=60)


async def test_applied_policy_and_tenant_are_published_and_an_edit_follows(place: Place) -> None:
    place.apply_keys()
    place.apply_tenant(
        recognizedBy=[{"apiKey": {"secretRef": {"namespace": place.namespace, "name": "keys"}}}]
    )
    place.apply_policy()
    async with place.operator():
        first = await place.published()
        assert [each.name for each in first.tenants if each.name == place.tenant]
        digests = place.get("secret", "giveway-key-digests")["data"]["digests.json"]
        wanted = hashlib.sha256(KEY.encode()).hexdigest()
        assert json.loads(base64.b64decode(digests)) == {place.tenant: [wanted]}
        place.apply_policy(mode="Observe")
        second = await place.published(above=first.order)
        assert second.spec.mode == "Observe"
        assert second.order == (first.epoch, first.generation + 1)
        await until(
            lambda: (place.condition() or {}).get("observedGeneration") == 2,
            what="the status is of the second generation",
        )


async def test_where_nothing_changed_nothing_is_written(place: Place) -> None:
    place.apply_policy()
    place.apply_tenant()
    async with place.operator() as operator:
        await place.published()
        await some_passes(operator)
        before = place.versions()
        await some_passes(operator)
        assert place.versions() == before
    async with place.operator(name="second") as operator:
        await some_passes(operator)
        assert place.versions() == before, "neither by an operator that starts anew"


async def test_of_a_policy_the_operator_owns_the_status_alone(place: Place) -> None:
    place.apply_policy()
    async with place.operator() as operator:
        await place.published()
        await some_passes(operator)
    policy = place.kubectl("get", "slopolicy", "chat", "-o", "json", "--show-managed-fields")
    owners = {each["manager"]: each for each in json.loads(policy)["metadata"]["managedFields"]}
    assert owners["giveway-operator"]["subresource"] == "status"
    assert list(owners["giveway-operator"]["fieldsV1"]) == ["f:status"]
    assert "finalizers" not in json.loads(policy)["metadata"]


async def test_documented_rights_are_enough(place: Place) -> None:
    grant_documented_rights(place.plane, "operator", lease_namespace=place.namespace)
    place.apply_policy()
    place.apply_tenant()
    async with place.operator(user="operator") as operator:
        await place.published()
        await some_passes(operator)
        assert await ready(operator) == (200, {"ok": True, "reasons": [], "leading": True})
        place.kubectl("delete", "slopolicy", "chat")
        await until(
            lambda: place.get("configmap", "giveway-policy") is None, what="it is cleaned up"
        )
        assert "a right is missing" not in operator.stderr
        assert "Forbidden" not in operator.stderr


async def test_each_missing_right_has_a_line_and_nobody_is_ready_without(place: Place) -> None:
    async with place.operator(user="nobody") as operator:
        await until(lambda: "a right is missing" in operator.stderr, what="it says what is missing")
        lines = [each for each in operator.stderr.splitlines() if "a right is missing" in each]
        assert len(lines) == len(set(lines))
        told = "\n".join(lines)
        assert "list slopolicies.giveway.dev in namespace" in told
        assert "patch slopolicies/status.giveway.dev" in told
        assert "update leases.coordination.k8s.io giveway-operator" in told
        status, body = await ready(operator)
        assert status == 503
        assert body["reasons"]


async def test_deleted_policy_takes_its_objects_along(place: Place) -> None:
    place.apply_policy()
    async with place.operator():
        await place.published()
        place.kubectl("delete", "slopolicy", "chat", "--timeout=20s")
        await until(
            lambda: place.get("configmap", "giveway-policy") is None, what="it is cleaned up"
        )


async def test_policy_is_deleted_at_once_while_no_operator_runs(place: Place) -> None:
    place.apply_policy()
    async with place.operator() as operator:
        first = await place.published()
        await operator.kill()
    place.kubectl("delete", "slopolicy", "chat", "--timeout=20s")
    assert place.document() == first
    place.apply_policy(mode="Observe")
    async with place.operator(name="second"):
        second = await place.published(above=first.order)
        assert second.epoch > first.epoch


async def test_config_map_that_was_deleted_or_broken_comes_back(place: Place) -> None:
    place.apply_policy()
    async with place.operator():
        first = await place.published()
        place.kubectl("delete", "configmap", "giveway-policy")
        second = await place.published(above=first.order)
        patch = {"data": {"chat.json": "{", "theirs.json": "{}"}}
        place.kubectl("patch", "configmap", "giveway-policy", "-p", json.dumps(patch))
        third = await place.published(above=second.order)
        assert third.hash == first.hash
        await until(
            lambda: list(place.get("configmap", "giveway-policy")["data"]) == ["chat.json"],
            what="what somebody added is gone",
        )


async def test_namespace_that_is_deleted_goes_away(
    control_plane: ControlPlane, place: Place
) -> None:
    place.apply_policy()
    async with place.operator() as operator:
        await place.published()
        control_plane.kubectl("delete", "namespace", place.namespace, "--timeout=60s")
        assert operator.exit_code is None


async def test_killed_leader_is_followed_by_the_other_one(place: Place) -> None:
    place.apply_policy()
    async with place.operator(name="one") as one:
        first = await place.published()
        async with place.operator(name="two") as two:
            await until_ready(two)
            assert (await ready(two))[1]["leading"] is False
            await one.kill()
            place.apply_policy(mode="Observe")
            second = await place.published(above=first.order)
            assert second.epoch == first.epoch + 1
            assert (await ready(two))[1]["leading"] is True


async def test_leader_that_is_stopped_hands_over_at_once(place: Place) -> None:
    place.apply_policy()
    async with place.operator(name="one", lease_duration_s=60) as one:
        first = await place.published()
        async with place.operator(name="two", lease_duration_s=60) as two:
            await until_ready(two)
            assert await one.stop() == 0
            place.apply_policy(mode="Observe")
            second = await place.published(above=first.order)
            assert second.epoch == first.epoch + 1
            assert two.exit_code is None


async def until_ready(operator: OperatorProcess) -> None:
    async def is_ready() -> bool:
        return (await ready(operator))[0] == 200

    await until(is_ready, what=f"{operator.name} is ready", within_s=60)
