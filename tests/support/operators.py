"""How does a test run `giveway operate`, against which API server, and with which rights?"""

import re
from pathlib import Path
from typing import Any, Self

import yaml

from tests.support.control_plane import ROOT, ControlPlane
from tests.support.processes import GivewayProcess

_READY = re.compile(r"^admin (http://\S+)$", re.MULTILINE)


class OperatorProcess(GivewayProcess):
    """`giveway operate`, ready when its admin port is open."""

    def __init__(
        self,
        kubeconfig: Path,
        *options: str,
        logs: Path,
        name: str = "operate",
        resync_s: float = 2,
        lease_duration_s: float = 3,
    ) -> None:
        super().__init__(
            *("operate", "--kubeconfig", str(kubeconfig)),
            *("--admin-host", "127.0.0.1", "--admin-port", "0"),
            *("--resync-seconds", f"{resync_s:g}", "--lease-duration", f"{lease_duration_s:g}"),
            *options,
            logs=logs,
            name=name,
        )
        self.admin_url = ""

    async def __aenter__(self) -> Self:
        try:
            match = await self.start(_READY)
        except BaseException:
            await self.__aexit__()
            raise
        self.admin_url = match[1]
        return self


def documented_rules() -> list[dict[str, Any]]:
    """The RBAC rules that docs/operator.md says are needed."""
    text = (ROOT / "docs" / "operator.md").read_text()
    (block,) = re.findall(r"```yaml\n(apiVersion: rbac.*?kind: ClusterRole.*?)```", text, re.DOTALL)
    return list(yaml.safe_load_all(block))


def grant_documented_rights(plane: ControlPlane, user: str, *, lease_namespace: str) -> None:
    """What the documentation says, bound to the user."""
    roles = documented_rules()
    subjects = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    for role in roles:
        metadata = dict(role["metadata"])
        if role["kind"] == "Role":
            metadata["namespace"] = lease_namespace
        role["metadata"] = metadata
        plane.apply(
            role,
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": f"{role['kind']}Binding",
                "metadata": metadata,
                "subjects": subjects,
                "roleRef": {
                    "kind": role["kind"],
                    "name": metadata["name"],
                    "apiGroup": "rbac.authorization.k8s.io",
                },
            },
        )
