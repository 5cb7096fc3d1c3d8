"""From `kubectl apply` to changed behaviour in proxies, and from a missed objective to a weight.

A real API server, a real Prometheus, `giveway operate` and two proxies before emulated engines. The
ConfigMap reaches the proxies as a kubelet brings it: a folder that follows it.
"""

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from giveway_operator.snapshots import CONFIG_MAP_NAME

from tests.cluster.shared_policies import policy_resource
from tests.support.control_plane import ControlPlane
from tests.support.loads import Load
from tests.support.raw_client import ask
from tests.support.stages import Stage, open_stage
from tests.support.waiting import holds_for, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.fixture
async def scene(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with open_stage(control_plane, namespace, tmp_path) as stage:
        yield stage


async def test_applied_policy_reaches_proxies_and_a_missed_objective_moves_weights_and_back(
    scene: Stage,
) -> None:
    """H8, H9 from end to end: applied, followed, missed, raised, acknowledged, met, back at base;
    and then nothing is written any more (E05)."""
    scene.control_plane.apply(policy_resource(scene.namespace))
    await scene.until_condition("Ready", "True")

    async def followed() -> bool:
        return await scene.proxy_weights() == [10.0, 10.0]

    await until(followed, what="both proxies follow")
    await until(
        lambda: (scene.status().get("pods") or {}).get("acknowledged") == 2,
        what="both acknowledged",
    )
    async with Load([each.url for each in scene.proxies]) as load:
        load.keeping("batch", at_once=16)
        load.arriving("standard", per_s=8.0)
        await scene.until_condition("SLOMet", "False")
        await until(lambda: (scene.weight() or 0.0) > 10.0, what="it is raised", within_s=60.0)
        await scene.until_condition("SLOMet", "True", within_s=150.0)
        raised = scene.weight()
        assert raised is not None
        assert raised > 10.0
        weights = await scene.proxy_weights()
        assert weights == pytest.approx([raised, raised], abs=0.001)
    decision = scene.status()["lastDecision"]
    assert decision["reason"] == "Raising"
    assert "standard" in decision["inputs"]
    told = [each for each in scene.events() if each["reason"] == "WeightsChanged"]
    assert told, [each["reason"] for each in scene.events()]
    await until(lambda: scene.weight() == 10.0, what="it is back at base", within_s=150.0)

    async def returned() -> bool:
        return await scene.proxy_weights() == [10.0, 10.0]

    await until(returned, what="the proxies are too")
    document = scene.document()
    assert document.weights == {}
    published = scene.status()["published"]
    assert (published["epoch"], published["generation"]) == document.order
    await scene.until_condition("SLOMet", "Unknown")
    versions = _versions(scene)
    await holds_for(lambda: _versions(scene) == versions, what="nothing is written", for_s=12.0)
    assert await scene.operator.stop() == 0
    assert "Traceback" not in scene.operator.stderr, json.dumps(scene.operator.stderr[-2000:])


def _versions(scene: Stage) -> list[str]:
    return [
        scene.control_plane.get(*what, "-n", scene.namespace)["metadata"]["resourceVersion"]
        for what in (("slop", "chat"), ("configmap", CONFIG_MAP_NAME))
    ]


async def test_what_fails_on_the_way_makes_no_weight_jump(scene: Stage) -> None:
    """E13, E19, E22: under load Prometheus hangs and comes back, the operator is killed and started
    anew, a proxy joins, the API server is killed and comes back. After all of it the loop goes on;
    numbers rose, and no weight ever moved by more than its step."""
    scene.control_plane.apply(policy_resource(scene.namespace))
    await scene.until_condition("Ready", "True")
    async with Load([each.url for each in scene.proxies]) as load:
        load.keeping("batch", at_once=16)
        load.arriving("standard", per_s=8.0)
        await until(lambda: (scene.weight() or 0.0) > 10.0, what="it is raised", within_s=90.0)

        scene.prometheus.pause()
        await scene.until_condition("MetricsAvailable", "False")
        held = scene.document()
        await holds_for(lambda: scene.document() == held, what="weights hold", for_s=8.0)
        assert (await ask(scene.operator.admin_url, "/livez")).status == 200
        scene.prometheus.resume()
        await scene.until_condition("MetricsAvailable", "True")

        before = scene.document()
        await scene.operator.kill()
        await scene.start_operator("operate-again")

        async def leads() -> bool:
            page = await ask(scene.operator.admin_url, "/metrics")
            return b"giveway_leader 1.0" in page.body

        await until(leads, what="the new operator leads", within_s=60.0)
        await scene.start_proxy()
        await until(
            lambda: (scene.status().get("pods") or {}).get("acknowledged") == 3,
            what="the new proxy acknowledged too",
            within_s=60.0,
        )
        assert scene.document().order >= before.order

        scene.control_plane.kill_apiserver()
        await scene.operator_complains()
        scene.control_plane.start_apiserver()
        await until(leads, what="it leads again", within_s=90.0)
        await load.end()
    await until(lambda: scene.weight() == 10.0, what="it is back at base", within_s=180.0)
    history = scene.mounted.history
    weights = [each.class_weights["standard"] for each in history]
    assert max(weights) > 10.0
    for one, next_one in itertools.pairwise(history):
        assert one.order < next_one.order
    for one_weight, next_weight in itertools.pairwise(weights):
        assert abs(next_weight - one_weight) <= 0.5 * one_weight + 0.001
