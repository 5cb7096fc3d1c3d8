"""A namespace of the control plane for one test, an operator for it, and what can be asked."""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
from giveway_policy.documents import DocumentError, PolicyDocument, parse_document

from tests.support.control_plane import ControlPlane
from tests.support.operators import OperatorProcess
from tests.support.waiting import until

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


async def until_ready(operator: OperatorProcess) -> None:
    async def is_ready() -> bool:
        return (await ready(operator))[0] == 200

    await until(is_ready, what=f"{operator.name} is ready", within_s=60)
