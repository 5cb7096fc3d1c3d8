"""`giveway operate` on a real API server: from kubectl apply to what is published."""

import base64
import hashlib
import json

import pytest

from tests.cluster.places import KEY, Place, ready, some_passes, until_ready
from tests.support.control_plane import ControlPlane
from tests.support.operators import grant_documented_rights
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


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


async def test_edit_is_published_long_before_the_next_resync(place: Place) -> None:
    """A watch tells of it: the timer alone would take ten minutes."""
    async with place.operator(resync_s=600):
        for mode in ("Observe", "Enforce"):
            before = place.document()
            place.apply_policy(mode=mode)
            await place.published(above=before.order if before else (0, 0))
        place.kubectl("delete", "slopolicy", "chat")
        await until(
            lambda: place.get("configmap", "giveway-policy") is None, what="it is cleaned up"
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
