"""From `kubectl apply` to changed behaviour in proxies, and from a missed objective to a weight.

A real API server, a real Prometheus, `giveway operate` and two proxies before emulated engines. The
ConfigMap reaches the proxies as a kubelet brings it: a folder that follows it.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
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
from tests.support.raw_client import ask
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
        self.history: list[PolicyDocument] = []
        """Every document of the policy `chat` that was seen, in this order."""

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
                if name == "chat.json":
                    self.history.append(parse_document(text.encode()))

    def close(self) -> None:
        self._api.close()


@dataclass(slots=True)
class Scene:
    control_plane: ControlPlane
    namespace: str
    prometheus: Prometheus
    mounted: MountedConfigMap
    stack: AsyncExitStack
    logs: Path
    proxies: list[Proxy] = field(default_factory=list)
    operator: OperatorProcess = field(init=False)

    async def start_proxy(self) -> None:
        """One more, with its pod; Prometheus scrapes it."""
        rank = len(self.proxies)
        engine = Emulator("--max-num-seqs", "8", logs=self.logs, name=f"emulate-{rank}")
        await self.stack.enter_async_context(engine)
        proxy = Proxy(
            engine.url,
            *("--policy-document", str(self.mounted.folder)),
            logs=self.logs,
            name=f"serve-{rank}",
        )
        self.proxies.append(await self.stack.enter_async_context(proxy))
        self.control_plane.pod(self.namespace, f"vllm-{rank}", {"app": "vllm"})
        self.prometheus.scrape(*(each.admin_url.removeprefix("http://") for each in self.proxies))

    async def start_operator(self, name: str = "operate") -> None:
        operator = OperatorProcess(
            self.control_plane.kubeconfig,
            *("--namespace", self.namespace, "--lease-namespace", self.namespace),
            *("--prometheus-url", self.prometheus.url, "--prometheus-timeout", "3"),
            *("--lease-duration", "5"),
            logs=self.logs,
            name=name,
        )
        self.operator = await self.stack.enter_async_context(operator)

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

    async def operator_complains(self) -> None:
        """It noticed that the API server is gone, and did not end."""
        seen = len(self.operator.stderr)
        await until(lambda: len(self.operator.stderr) > seen, what="it says so", within_s=60.0)
        assert self.operator.exit_code is None

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
        made = Scene(control_plane, namespace, prometheus, mounted, stack, tmp_path)
        for _ in range(2):
            await made.start_proxy()
        await made.start_operator()
        yield made


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


async def test_what_fails_on_the_way_makes_no_weight_jump(scene: Scene) -> None:
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
