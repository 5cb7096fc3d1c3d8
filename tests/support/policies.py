"""Which policy does a test want?

Builders for the YAML that a person would write. Only what a test cares about is given; everything
else keeps the product's own default.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import yaml

API_VERSION = "giveway.dev/v1alpha1"

Spec = dict[str, object]


def service_class(
    name: str,
    *,
    kind: Literal["Interactive", "Batch"] = "Interactive",
    weight: int = 10,
    limits: Mapping[str, int] | None = None,
    over_limit: Literal["Reject", "Queue"] | None = None,
    capacity: int | None = None,
    time_to_live_s: int | None = None,
    first_token_ms: int | None = None,
) -> Spec:
    """One entry of `spec.classes`; None leaves a field out."""
    spec: Spec = {"name": name, "kind": kind, "weight": weight}
    if limits is not None:
        spec["limits"] = dict(limits)
    if over_limit is not None:
        spec["overLimit"] = over_limit
    queue: dict[str, int] = {}
    if capacity is not None:
        queue["capacity"] = capacity
    if time_to_live_s is not None:
        queue["timeToLiveSeconds"] = time_to_live_s
    if queue:
        spec["queue"] = queue
    if first_token_ms is not None:
        objective = {
            "indicator": "TimeToFirstToken",
            "thresholdMilliseconds": first_token_ms,
            "targetPercent": "99",
        }
        spec["objectives"] = [objective]
    return spec


THREE_CLASSES: tuple[Spec, ...] = (
    service_class("realtime", weight=70, time_to_live_s=60, first_token_ms=300),
    service_class("standard", weight=25, time_to_live_s=60, first_token_ms=1000),
    service_class("batch", kind="Batch", weight=5, over_limit="Queue", time_to_live_s=3600),
)
"""The usual three without rate limits, so that only seats and order matter."""


def policy(
    *,
    classes: Sequence[Spec] = THREE_CLASSES,
    seats: int = 4,
    reserved_seats: int = 0,
    batch_maximum: int | None = None,
    prompt_gate_tokens: int | None = None,
    algorithm: str = "SLOAware",
    trusted_headers: Sequence[str] = ("X-Giveway-Tenant", "X-Giveway-Class", "X-Giveway-Source"),
    identity: Mapping[str, object] | None = None,
    queue: Mapping[str, object] | None = None,
    engine: Mapping[str, object] | None = None,
    anti_starvation: Mapping[str, int] | None = None,
    preemption: str | None = None,
    accounting: Mapping[str, object] | None = None,
    name: str = "test",
) -> Spec:
    """An SLOPolicy document. Headers of identity are trusted, unless the test says otherwise."""
    highest = str(classes[0]["name"])
    concurrency: Spec = {
        "seats": seats,
        "reservedSeats": reserved_seats,
        "batch": {"minimum": 1, "maximum": batch_maximum or max(1, seats - reserved_seats)},
    }
    if prompt_gate_tokens is not None:
        concurrency["promptGateTokens"] = prompt_gate_tokens
    spec: Spec = {
        "selector": {"matchLabels": {"app": "vllm"}},
        "classes": list(classes),
        "scheduling": {"algorithm": algorithm},
        "concurrency": concurrency,
        "identity": {
            "trustedHeaders": list(trusted_headers),
            "fallbackTenant": "anonymous",
            "fallbackClass": highest,
            **(identity or {}),
        },
    }
    if queue is not None:
        spec["queue"] = dict(queue)
    if engine is not None:
        spec["engine"] = dict(engine)
    if anti_starvation is not None:
        spec["antiStarvation"] = dict(anti_starvation)
    if preemption is not None:
        spec["preemption"] = preemption
    if accounting is not None:
        spec["accounting"] = dict(accounting)
    return _document("SLOPolicy", name, spec, namespace="llm")


def tenant(
    name: str,
    *,
    maximum_class: str,
    keys: Sequence[str] = (),
    folder: Path | None = None,
    header: tuple[str, str] | None = None,
    weight: int = 1,
    limits: Mapping[str, int] | None = None,
    sources: Sequence[Mapping[str, str]] = (),
) -> Spec:
    """A TenantPriority document. `keys` are written to a file in `folder`, one a line."""
    recognized: list[Spec] = []
    if keys:
        assert folder is not None, "keys need a folder for their file"
        (folder / f"{name}.keys").write_text("\n".join(keys) + "\n")
        recognized.append({"apiKey": {"keyFile": f"{name}.keys"}})
    if header is not None:
        recognized.append({"header": {"name": header[0], "value": header[1]}})
    spec: Spec = {"tenant": name, "maximumClass": maximum_class, "weight": weight}
    if recognized:
        spec["recognizedBy"] = recognized
    if limits is not None:
        spec["limits"] = dict(limits)
    if sources:
        spec["sources"] = [dict(source) for source in sources]
    return _document("TenantPriority", name, spec)


def write_policy(folder: Path, *documents: Spec, name: str = "policy.yaml") -> Path:
    """Write documents into one file, replacing it in one step as an editor does."""
    path = folder / name
    beside = folder / f".{name}.new"
    beside.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    beside.replace(path)
    return path


def _document(kind: str, name: str, spec: Spec, *, namespace: str | None = None) -> Spec:
    metadata: Spec = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
