"""What the API server can do to an operator, and that nothing of it lasts longer than the fault."""

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml

from tests.cluster.places import Place, ready, some_passes, until_ready
from tests.support.control_plane import ControlPlane
from tests.support.operators import OperatorProcess, grant_documented_rights
from tests.support.tcp_faults import FaultyRelay
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


def kubeconfig_through(place: Place, relay: FaultyRelay) -> Path:
    """The same credentials, by way of the relay."""
    config = yaml.safe_load(place.plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = relay.url
    file = place.logs / "kubeconfig-relay"
    file.write_text(yaml.safe_dump(config))
    return file


def operator_through(place: Place, relay: FaultyRelay, *, resync_s: float) -> OperatorProcess:
    return OperatorProcess(
        kubeconfig_through(place, relay),
        *("--namespace", place.namespace, "--lease-namespace", place.namespace),
        logs=place.logs,
        resync_s=resync_s,
        lease_duration_s=5,
    )


def errors_of(operator: OperatorProcess) -> list[str]:
    lines = [json.loads(each) for each in operator.stderr.splitlines() if each.startswith("{")]
    return [each["message"] for each in lines if each["level"] in ("error", "critical")]


@pytest.mark.timeout(400)
async def test_e01_operator_whose_connections_are_cut_or_refused_follows_the_next_edit(
    place: Place,
) -> None:
    """E01: at the opening of a watch, in the middle of one, and for a while."""
    place.apply_policy()
    async with (
        FaultyRelay(place.plane.url) as relay,
        operator_through(place, relay, resync_s=20) as operator,
    ):
        order = (await place.published()).order
        for mode in ("Observe", "Enforce", "Observe"):
            relay.reset()
            place.apply_policy(mode=mode)
            order = (await place.published(above=order)).order
        relay.refusing = True
        relay.reset()

        async def says_so() -> bool:
            return (await ready(operator))[0] == 503

        await until(says_so, what="the operator is not ready", within_s=60)
        place.apply_policy(mode="Enforce")
        relay.refusing = False
        order = (await place.published(above=order)).order
        await until_ready(operator)
        assert operator.exit_code is None


async def test_operator_whose_connections_hang_gives_the_lead_up_and_comes_back(
    place: Place,
) -> None:
    place.apply_policy()
    async with (
        FaultyRelay(place.plane.url) as relay,
        operator_through(place, relay, resync_s=2) as cut_off,
    ):
        first = await place.published()
        async with place.operator(name="other", lease_duration_s=5) as other:
            await until_ready(other)
            relay.hold()

            async def leads() -> bool:
                return bool((await ready(other))[1]["leading"])

            await until(leads, what="the other one leads", within_s=60)
            assert (await ready(cut_off))[1]["leading"] is False
            place.apply_policy(mode="Observe")
            second = await place.published(above=first.order)
            assert second.epoch == first.epoch + 1
            relay.release()
            await until_ready(cut_off)
            await some_passes(other)
            assert place.document() == second


async def test_e10_writes_of_others_all_the_time_are_no_error(place: Place) -> None:
    """E10: another client edits policy and ConfigMap again and again."""
    place.apply_policy()
    async with place.operator() as operator:
        order = (await place.published()).order
        stop = asyncio.Event()

        async def disturb() -> None:
            count = 0
            while not stop.is_set():
                count += 1
                patch = json.dumps({"metadata": {"annotations": {"turn": str(count)}}})
                for what in ("configmap/giveway-policy", "slopolicy/chat"):
                    await asyncio.to_thread(
                        place.kubectl, "patch", what, "--type=merge", "-p", patch
                    )

        disturbing = [asyncio.create_task(disturb()) for _ in range(2)]
        for mode in ("Observe", "Enforce", "Observe"):
            await asyncio.to_thread(place.apply_policy, mode=mode)
            order = (await place.published(above=order)).order
        stop.set()
        await asyncio.gather(*disturbing)
        assert errors_of(operator) == []
        annotations = place.get("configmap", "giveway-policy")["metadata"]["annotations"]
        assert "turn" in annotations, "what others keep there stays"
        await until(
            lambda: (place.condition() or {}).get("status") == "True", what="its status is right"
        )


async def test_e11_each_right_that_is_taken_away_is_named_and_nothing_ends(
    place: Place, control_plane: ControlPlane
) -> None:
    """E11: one verb after the other, and back again."""
    grant_documented_rights(control_plane, "operator", lease_namespace=place.namespace)
    whole = json.loads(
        control_plane.kubectl("get", "clusterrole", "giveway-operator", "-o", "json")
    )
    place.apply_policy()
    async with place.operator(user="operator") as operator:
        await place.published()
        for resource, verb, told, mode in (
            ("slopolicies", "list", "list slopolicies.giveway.dev", "Observe"),
            ("slopolicies/status", "patch", "patch slopolicies/status.giveway.dev", "Enforce"),
            ("configmaps", "patch", "patch configmaps giveway-policy", "Observe"),
        ):
            less = json.loads(json.dumps(whole["rules"]))
            for rule in less:
                if resource in rule["resources"] and verb in rule["verbs"]:
                    rule["verbs"].remove(verb)
            control_plane.apply(_role([each for each in less if each["verbs"]]))
            place.apply_policy(mode=mode)

            async def says_so(told: str = told) -> bool:
                status, body = await ready(operator)
                return status == 503 and any(told in each for each in body["reasons"])

            await until(says_so, what=f"{told} is missed", within_s=60)
            assert told in operator.stderr
            control_plane.apply(_role(whole["rules"]))
            await until_ready(operator)
            await runs_in(place, mode)
        assert operator.exit_code is None


async def runs_in(place: Place, mode: str) -> None:
    def is_so() -> bool:
        document = place.document()
        return document is not None and document.spec.mode == mode

    await until(is_so, what=f"{mode} is published", within_s=60)


def _role(rules: list[object]) -> dict[str, object]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "giveway-operator"},
        "rules": rules,
    }


def writes_so_far(plane: ControlPlane, *resources: str) -> float:
    """Writes to these resources that the API server has counted."""
    text = plane.kubectl("get", "--raw", "/metrics")
    total = 0.0
    for line in text.splitlines():
        found = re.match(r"apiserver_request_total\{(.*)\} (\S+)$", line)
        if found is None:
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1]))
        if labels["resource"] in resources and labels["verb"] not in ("GET", "LIST", "WATCH"):
            total += float(found[2])
    return total


async def test_e05_idle_operator_asks_for_no_write_and_its_status_wakes_nobody(
    place: Place,
) -> None:
    """E05: counted on the API server. No pass follows from the operator's own writes."""
    place.apply_policy()
    async with place.operator(resync_s=1) as operator:
        await place.published()
        await some_passes(operator)
        resources = ("slopolicies", "tenantpriorities", "secrets", "events")
        before = writes_so_far(place.plane, *resources)
        await some_passes(operator, 10)
        assert writes_so_far(place.plane, *resources) == before
