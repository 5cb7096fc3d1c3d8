"""What does giveway in a cluster consist of, without a node?

`open_stage` runs, for one namespace of an API server: two proxies before emulated engines and the
pods that stand for them, a Prometheus that scrapes the proxies, and `giveway operate`. The
ConfigMap reaches the proxies as a kubelet brings it: a folder that follows it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from giveway_operator.kube_client import CONFIG_MAPS, ApiServer, KubeError, load_configuration
from giveway_operator.snapshots import CONFIG_MAP_NAME
from giveway_policy.documents import PolicyDocument, parse_document

from tests.support.control_plane import ControlPlane
from tests.support.operators import OperatorProcess
from tests.support.processes import Emulator, Proxy
from tests.support.prometheus import Prometheus, binaries
from tests.support.scraping import scrape
from tests.support.waiting import until


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
class Stage:
    """What runs in the namespace, and what can be asked of it; the policy is `chat`."""

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
            logs=self.logs,
            name=name,
            resync_s=30,
            lease_duration_s=5,
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


@asynccontextmanager
async def open_stage(
    control_plane: ControlPlane, namespace: str, folder: Path
) -> AsyncIterator[Stage]:
    """Everything runs, with two proxies; leaving ends all processes."""
    found = binaries()
    assert found, "there is no Prometheus: set KUBEBUILDER_ASSETS, or install it"
    data = folder / "prometheus"
    data.mkdir()
    mounted = MountedConfigMap(control_plane, namespace, folder / "mounted")
    async with AsyncExitStack() as stack:
        stack.callback(mounted.close)
        stack.callback(asyncio.create_task(mounted.follow()).cancel)
        prometheus = stack.enter_context(Prometheus(found[max(found)], data, scrape_interval_s=1.0))
        stage = Stage(control_plane, namespace, prometheus, mounted, stack, folder)
        for _ in range(2):
            await stage.start_proxy()
        await stage.start_operator()
        yield stage
