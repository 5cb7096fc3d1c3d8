"""From `kubectl apply` to changed behaviour in proxies, and from a missed objective to a weight.

A real API server, a real Prometheus, `giveway operate` and two proxies before emulated engines. The
ConfigMap reaches the proxies as a kubelet brings it: a folder that follows it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from giveway_operator.kube_client import CONFIG_MAPS, ApiServer, KubeError, load_configuration
from giveway_operator.snapshots import CONFIG_MAP_NAME
from giveway_policy.documents import PolicyDocument, parse_document

from tests.cluster.shared_policies import shared_policy
from tests.support.control_plane import ControlPlane
from tests.support.loads import Load
from tests.support.processes import Emulator, OperatorProcess, Proxy
from tests.support.prometheus import Prometheus, binaries
from tests.support.scraping import scrape
from tests.support.waiting import holds_for, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(500)]


class MountedConfigMap:
    """A folder with a file for each key of the ConfigMap, brought up to date again and again."""

    def __init__(self, control_plane: ControlPlane, namespace: str, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._api = ApiServer(load_configuration(control_plane.kubeconfig))
        self._namespace = namespace

    async def follow(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(0.5)

    async def refresh(self) -> None:
        try:
            found = await self._api.read(CONFIG_MAPS, CONFIG_MAP_NAME, namespace=self._namespace)
        except KubeError:
            return
        for name, text in (found.get("data") or {}).items():
            file, beside = self.folder / name, self.folder / f"{name}.tmp"
            if not file.exists() or file.read_text() != text:
                beside.write_text(text)
                beside.rename(file)

    def close(self) -> None:
        self._api.close()


@dataclass(slots=True)
class Scene:
    control_plane: ControlPlane
    namespace: str
    prometheus: Prometheus
    proxies: list[Proxy]
    operator: OperatorProcess
    mounted: MountedConfigMap

    def policy(self) -> dict[str, Any]:
        found: dict[str, Any] = self.control_plane.get("slop", "chat", "-n", self.namespace)
        return found

    def status(self) -> dict[str, Any]:
        return dict(self.policy().get("status") or {})

    def condition(self, kind: str) -> str | None:
        conditions = self.status().get("conditions") or []
        return next((each["status"] for each in conditions if each["type"] == kind), None)

    def weight(self, name: str = "standard") -> float | None:
        classes = self.status().get("classes") or []
        return next((float(each["weight"]) for each in classes if each["name"] == name), None)

    def document(self) -> PolicyDocument:
        return parse_document((self.mounted.folder / "chat.json").read_bytes())

    def events(self) -> list[dict[str, Any]]:
        listed = self.control_plane.get("events.v1.events.k8s.io", "-n", self.namespace)
        found: list[dict[str, Any]] = listed["items"]
        return found

    async def proxy_weights(self) -> list[float]:
        pages = [await scrape(each.admin_url) for each in self.proxies]
        return [
            each.value("giveway_class_weight", **{"class": "standard"})
            for each in pages
            if each.matching("giveway_policy_info", policy=f"{self.namespace}/chat")
        ]

    async def until_condition(self, kind: str, status: str, *, within_s: float = 60.0) -> None:
        def holds() -> bool:
            assert self.operator.exit_code is None, self.operator.stderr[-3000:]
            return self.condition(kind) == status

        await until(holds, what=f"{kind} is {status}", within_s=within_s)


def policy_resource(namespace: str) -> dict[str, Any]:
    spec = shared_policy().model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_unset=True
    )
    return {
        "apiVersion": "giveway.dev/v1alpha1",
        "kind": "SLOPolicy",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": spec,
    }


@pytest.fixture
async def scene(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[Scene]:
    found = binaries()
    assert found, "there is no Prometheus: set KUBEBUILDER_ASSETS, or install it"
    data = tmp_path / "prometheus"
    data.mkdir()
    mounted = MountedConfigMap(control_plane, namespace, tmp_path / "mounted")
    async with AsyncExitStack() as stack:
        stack.callback(mounted.close)
        following = asyncio.create_task(mounted.follow())
        stack.callback(following.cancel)
        prometheus = stack.enter_context(Prometheus(found[max(found)], data, scrape_interval_s=1.0))
        proxies = []
        for rank in range(2):
            engine = Emulator("--max-num-seqs", "8", logs=tmp_path, name=f"emulate-{rank}")
            await stack.enter_async_context(engine)
            proxy = Proxy(
                engine.url,
                *("--policy-document", str(mounted.folder)),
                logs=tmp_path,
                name=f"serve-{rank}",
            )
            proxies.append(await stack.enter_async_context(proxy))
            control_plane.pod(namespace, f"vllm-{rank}", {"app": "vllm"})
        prometheus.scrape(*(each.admin_url.removeprefix("http://") for each in proxies))
        operator = OperatorProcess(
            control_plane.kubeconfig,
            *("--namespace", namespace, "--lease-namespace", namespace),
            *("--prometheus-url", prometheus.url),
            logs=tmp_path,
        )
        await stack.enter_async_context(operator)
        yield Scene(control_plane, namespace, prometheus, proxies, operator, mounted)


async def test_applied_policy_reaches_proxies_and_a_missed_objective_moves_weights_and_back(
    scene: Scene,
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


def _versions(scene: Scene) -> list[str]:
    return [
        scene.control_plane.get(*what, "-n", scene.namespace)["metadata"]["resourceVersion"]
        for what in (("slop", "chat"), ("configmap", CONFIG_MAP_NAME))
    ]
