"""What does giveway in a cluster consist of, without a node?

`Stage` runs, for one namespace of an API server: two proxies before emulated engines and the pods
that stand for them, a Prometheus that scrapes the proxies, and `giveway operate`. The ConfigMap
reaches the proxies as a kubelet brings it: a folder that follows it.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from giveway_operator.kube_client import CONFIG_MAPS, ApiServer, KubeError, load_configuration
from giveway_operator.snapshots import CONFIG_MAP_NAME

from tests.support.control_plane import ControlPlane
from tests.support.processes import Emulator, OperatorProcess, Proxy
from tests.support.prometheus import Prometheus, binaries

POD_LABELS = {"app": "vllm"}


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


class Stage:
    """Everything in one namespace, an async context manager: leaving it ends all processes."""

    def __init__(
        self, control_plane: ControlPlane, namespace: str, folder: Path, *, proxies: int = 2
    ) -> None:
        self.control_plane = control_plane
        self.namespace = namespace
        self.mounted = MountedConfigMap(control_plane, namespace, folder / "mounted")
        self.proxies: list[Proxy] = []
        self._folder = folder
        self._count = proxies
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        found = binaries()
        assert found, "there is no Prometheus: set KUBEBUILDER_ASSETS, or install it"
        data = self._folder / "prometheus"
        data.mkdir()
        stack, logs = self._stack, self._folder
        stack.callback(self.mounted.close)
        stack.callback(asyncio.create_task(self.mounted.follow()).cancel)
        newest = found[max(found)]
        self.prometheus = stack.enter_context(Prometheus(newest, data, scrape_interval_s=1.0))
        for rank in range(self._count):
            engine = Emulator("--max-num-seqs", "8", logs=logs, name=f"emulate-{rank}")
            await stack.enter_async_context(engine)
            document = ("--policy-document", str(self.mounted.folder))
            proxy = Proxy(engine.url, *document, logs=logs, name=f"serve-{rank}")
            self.proxies.append(await stack.enter_async_context(proxy))
            self.control_plane.pod(self.namespace, f"vllm-{rank}", POD_LABELS)
        self.prometheus.scrape(*(each.admin_url.removeprefix("http://") for each in self.proxies))
        self.operator = OperatorProcess(
            self.control_plane.kubeconfig,
            *("--namespace", self.namespace, "--lease-namespace", self.namespace),
            *("--prometheus-url", self.prometheus.url),
            logs=logs,
        )
        await stack.enter_async_context(self.operator)
