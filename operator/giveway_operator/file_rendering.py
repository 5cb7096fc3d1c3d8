"""What would be published for resources in files, and how does it differ from what is?

The operator's own rendering, of files instead of a cluster. API keys are in Secrets, which files do
not hold; since no digest of one is in a ConfigMap, what is rendered is the same all the same.
"""

import base64
import difflib
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from giveway_policy.credentials import digest_key
from giveway_policy.faults import Fault, Note
from giveway_policy.reading import read_path

from giveway_operator.asking_once import ask_once
from giveway_operator.kube_client import CONFIG_MAPS, ApiServer, NotFoundError
from giveway_operator.packing import Contents
from giveway_operator.rendering import render
from giveway_operator.snapshots import (
    CONFIG_MAP_NAME,
    KeySecret,
    PublishedObject,
    Snapshot,
    Written,
    read_documents,
    read_published,
    read_written,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRendering:
    """What came of the files."""

    text: str
    """ConfigMaps as YAML, or a unified diff: empty if nothing would be written."""
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def render_files(
    paths: Sequence[Path], *, namespace: str, compares: bool, compare_with: Path | None = None
) -> FileRendering:
    """Render the files; policies without a namespace are in `namespace`.

    `compares`: tell the difference from a cluster, that of the kubeconfig `compare_with` (None: as
    kubectl finds it). Raises `ConfigurationError` and `KubeError` for that alone.
    """
    snapshot, faults, notes = _snapshot_of(paths, namespace)
    published: dict[str, PublishedObject] = {}
    if compares:
        namespaces = sorted({each.namespace for each in snapshot.policies})
        published = _read_published(compare_with, namespaces)
        documents = [read_documents(name, each) for name, each in published.items()]
        snapshot = replace(
            snapshot,
            config_maps=published,
            published={name: each for part in documents for name, each in part.items()},
        )
    rendering = render(snapshot, epoch=0)
    told = [str(each) for each in dict.fromkeys((*faults, *rendering.faults))]
    told += [f"SLOPolicy {name}: {reason}" for name, reason in rendering.refused.items()]
    contents = rendering.config_maps
    return FileRendering(
        text=_difference(contents, published) if compares else _as_manifests(contents),
        faults=tuple(told),
        notes=tuple(f"note: {each}" for each in notes),
    )


def _snapshot_of(
    paths: Sequence[Path], namespace: str
) -> tuple[Snapshot, tuple[Fault, ...], list[Note]]:
    """What a cluster would hold if the files were applied to it, in their order."""

    written: dict[str, list[Written]] = {"SLOPolicy": [], "TenantPriority": []}
    secrets: dict[tuple[str, str], KeySecret] = {}
    faults: list[Fault] = []
    notes: list[Note] = []
    for path in dict.fromkeys(paths):
        reading = read_path(path)
        faults += reading.faults
        notes += reading.notes
        for raw in reading.resources:
            found = read_written(raw.value)
            if raw.key.kind == "SLOPolicy" and not found.namespace:
                metadata = {"name": found.name, "namespace": namespace}
                found = read_written({**raw.value, "metadata": metadata})
            written[raw.key.kind].append(found)
            for where in _secrets_of(found.spec):
                # stands for the Secret: two tenants that name the same one are told so
                secrets[where] = KeySecret(digests=(digest_key("/".join(where).encode()),))
    snapshot = Snapshot(
        policies=tuple(written["SLOPolicy"]),
        tenants=tuple(written["TenantPriority"]),
        key_secrets=secrets,
    )
    return snapshot, tuple(faults), notes


def _secrets_of(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    ways = spec.get("recognizedBy")
    for way in ways if isinstance(ways, list) else ():
        key = way.get("apiKey") if isinstance(way, dict) else None
        reference = key.get("secretRef") if isinstance(key, dict) else None
        if isinstance(reference, dict):
            found.append((str(reference.get("namespace")), str(reference.get("name"))))
    return found


def _read_published(kubeconfig: Path | None, namespaces: list[str]) -> dict[str, PublishedObject]:
    """What the operator has published there. Raises `ConfigurationError` and `KubeError`."""

    async def read(api: ApiServer) -> dict[str, PublishedObject]:
        found: dict[str, PublishedObject] = {}
        for namespace in namespaces:
            try:
                value = await api.read(CONFIG_MAPS, CONFIG_MAP_NAME, namespace=namespace)
            except NotFoundError:
                continue
            found[namespace] = read_published(value)
        return found

    return ask_once(kubeconfig, read)


def _as_manifests(config_maps: Mapping[str, Contents]) -> str:
    """The ConfigMaps as YAML."""
    documents = []
    for namespace, contents in sorted(config_maps.items()):
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP_NAME, "namespace": namespace},
            "data": dict(contents.data),
        }
        if contents.binary_data:
            document["binaryData"] = dict(contents.binary_data)
        documents.append(document)
    return str(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=2**31))


def _difference(
    config_maps: Mapping[str, Contents], published: Mapping[str, PublishedObject]
) -> str:
    """A unified diff of each document, read as lines. Empty: nothing would be written."""
    lines: list[str] = []
    for namespace, contents in sorted(config_maps.items()):
        there = published.get(namespace, PublishedObject(resource_version=""))
        before = _readable({**there.data}, {**there.binary_data})
        after = _readable({**contents.data}, {**contents.binary_data})
        for name in sorted(before.keys() | after.keys()):
            lines += difflib.unified_diff(
                before.get(name, []),
                after.get(name, []),
                f"published/{namespace}/{name}",
                f"rendered/{namespace}/{name}",
            )
    return "".join(lines)


def _readable(data: dict[str, str], binary_data: dict[str, str]) -> dict[str, list[str]]:
    """Each document by its policy's name, a field a line."""
    texts = {name.removesuffix(".json"): text.encode() for name, text in data.items()}
    for name, text in binary_data.items():
        try:
            unpacked = gzip.decompress(base64.b64decode(text))
        except (OSError, EOFError, ValueError):
            unpacked = text.encode()
        texts[name.removesuffix(".gz").removesuffix(".json")] = unpacked
    found = {}
    for name, text_bytes in texts.items():
        try:
            text = json.dumps(json.loads(text_bytes), indent=2, sort_keys=True)
        except ValueError:
            text = text_bytes.decode(errors="replace")
        found[name] = [f"{line}\n" for line in text.splitlines()]
    return found
