"""Resources as a person writes them, for tests that change one thing in them."""

from pathlib import Path

from giveway_policy.compiling import Candidate, Compilation, compile_policies
from giveway_policy.faults import Problem
from giveway_policy.loading import Loading, load_path
from giveway_policy.resources import SLOPolicy
from giveway_policy.tenants import TenantPriority
from giveway_policy.validating import validate

POLICY = """\
apiVersion: giveway.dev/v1alpha1
kind: SLOPolicy
metadata: {name: chat, namespace: llm}
spec:
  classes:
  - name: realtime
    kind: Interactive
    weight: 70
    limits: {requestsPerSecond: 200}
  - name: batch
    kind: Batch
    weight: 5
"""

TENANT = """\
apiVersion: giveway.dev/v1alpha1
kind: TenantPriority
metadata: {name: acme}
spec:
  tenant: acme
  maximumClass: realtime
  weight: 4
"""

BOTH = f"{POLICY}---\n{TENANT}"


def load_text(folder: Path, text: str, name: str = "policy.yaml") -> Loading:
    """Write the text to a file and load it."""
    file = folder / name
    file.write_text(text)
    return load_path(file)


def compile_text(folder: Path, text: str) -> tuple[Loading, Compilation]:
    """Load and compile the text, as a proxy does."""
    loading = load_text(folder, text)
    return loading, compile_policies(loading.policies, loading.tenants)


def policy_with(**spec: object) -> dict[str, object]:
    """A policy's plain values; `spec` adds fields, with their names as in YAML, or replaces."""
    classes = [
        {"name": "realtime", "kind": "Interactive", "weight": 70},
        {"name": "standard", "kind": "Interactive", "weight": 25},
        {"name": "batch", "kind": "Batch", "weight": 5},
    ]
    return {
        "apiVersion": "giveway.dev/v1alpha1",
        "kind": "SLOPolicy",
        "metadata": {"name": "chat"},
        "spec": {"classes": classes, **spec},
    }


def tenant_with(**spec: object) -> dict[str, object]:
    """A tenant's plain values."""
    return {
        "apiVersion": "giveway.dev/v1alpha1",
        "kind": "TenantPriority",
        "metadata": {"name": "acme"},
        "spec": {"tenant": "acme", "maximumClass": "realtime", **spec},
    }


def valid_policy(value: dict[str, object]) -> SLOPolicy:
    result = validate(SLOPolicy, value)
    assert not isinstance(result, list), result
    return result


def valid_tenant(value: dict[str, object]) -> TenantPriority:
    result = validate(TenantPriority, value)
    assert not isinstance(result, list), result
    return result


def problems_of(value: dict[str, object]) -> list[Problem]:
    """What is wrong with the form of a policy's or tenant's plain values."""
    if value["kind"] == "SLOPolicy":
        policy = validate(SLOPolicy, value)
        return policy if isinstance(policy, list) else []
    tenant = validate(TenantPriority, value)
    return tenant if isinstance(tenant, list) else []


def names(candidates: list[Candidate[TenantPriority]]) -> list[str]:
    return [each.key.name for each in candidates]
