"""A small cluster for tests of passes: what is in it, and passes over it."""

import base64
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from giveway_operator.kube_client import (
    CONFIG_MAPS,
    PODS,
    SECRETS,
    SLO_POLICIES,
    TENANT_PRIORITIES,
)
from giveway_operator.looking import Looking
from giveway_operator.passes import Passes, PassResult
from giveway_operator.rendering import Deciding, as_published
from giveway_operator.reporting import LoopEvent
from giveway_operator.reports import PolicyReport
from giveway_policy.documents import PolicyDocument, PolicyName, parse_document

from tests.operator.kube_fakes import FakeKube

CLASSES = (
    {"name": "realtime", "kind": "Interactive", "weight": 70},
    {"name": "standard", "kind": "Interactive", "weight": 25},
    {"name": "batch", "kind": "Batch", "weight": 5},
)


class World:
    """A cluster, and an operator's passes over it."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.now = "2026-01-31T12:00:00Z"
        self.clock_s = 1000.0
        self.epoch = 7
        self.guard: Callable[[], None] = lambda: None
        self.weights: Deciding = as_published
        self.start_operator()

    def start_operator(self, *, namespaces: tuple[str, ...] = ()) -> None:
        """A new one, which remembers nothing."""
        looking = Looking(
            self.kube, namespaces=namespaces, secrets_max_age_s=15.0, clock=lambda: self.clock_s
        )
        self.passes = Passes(
            self.kube, looking, now=lambda: self.now, reports_tenants=not namespaces
        )

    async def run(
        self,
        *,
        reports: Mapping[PolicyName, PolicyReport] | None = None,
        events: Mapping[PolicyName, tuple[LoopEvent, ...]] | None = None,
    ) -> PassResult:
        return await self.passes.run(
            epoch=self.epoch,
            guard=self.guard,
            weights=self.weights,
            reports=reports or {},
            events=events or {},
        )

    # What people do.

    def policy(
        self,
        name: str = "chat",
        namespace: str = "llm",
        *,
        classes: Sequence[Mapping[str, Any]] = CLASSES,
        **spec: Any,
    ) -> None:
        self.kube.put(
            SLO_POLICIES,
            {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"classes": list(classes), **spec},
            },
        )

    def tenant(self, name: str, **spec: Any) -> None:
        wanted = {"tenant": name, "maximumClass": "realtime", **spec}
        self.kube.put(TENANT_PRIORITIES, {"metadata": {"name": name}, "spec": wanted})

    def secret(self, name: str, namespace: str = "llm", **values: str) -> None:
        data = {key: base64.b64encode(each.encode()).decode() for key, each in values.items()}
        self.kube.put(SECRETS, {"metadata": {"name": name, "namespace": namespace}, "data": data})

    def pod(self, name: str, namespace: str = "llm", *, ready: bool = True, **labels: str) -> None:
        conditions = [{"type": "Ready", "status": str(ready)}]
        self.kube.put(
            PODS,
            {
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "status": {"conditions": conditions},
            },
        )
        self.kube.get(PODS, name, namespace)["status"] = {"conditions": conditions}

    # What can be seen.

    def document(self, name: str = "chat", namespace: str = "llm") -> PolicyDocument:
        config_map = self.kube.get(CONFIG_MAPS, "giveway-policy", namespace)
        if f"{name}.json" in config_map["data"]:
            return parse_document(config_map["data"][f"{name}.json"].encode())
        return parse_document(base64.b64decode(config_map["binaryData"][f"{name}.json.gz"]))

    def digests(self, namespace: str = "llm") -> dict[str, list[str]]:
        data = self.kube.get(SECRETS, "giveway-key-digests", namespace)["data"]
        (value,) = data.values()
        raw = base64.b64decode(value)
        found: dict[str, list[str]] = json.loads(
            gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        )
        return found

    def condition(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        """Of a policy if it is in a namespace, else of a tenant. None: it has no such."""
        resource = SLO_POLICIES if namespace else TENANT_PRIORITIES
        status = self.kube.get(resource, name, namespace).get("status", {})
        found = [each for each in status.get("conditions", ()) if each["type"] == kind]
        return found[0] if found else None

    def ready(self, name: str, namespace: str = "") -> tuple[str, str]:
        """Status and reason of `Ready`."""
        found = self.condition("Ready", name, namespace)
        assert found is not None, "there is a Ready"
        return found["status"], found["reason"]
