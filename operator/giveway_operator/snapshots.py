"""What is there, as far as the operator is concerned?

One look at the cluster, as values: what people wrote, what pods run, and what was published. A
resource is kept as it was written; whether it makes sense is `rendering`'s question. API keys are
digested here and forgotten.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from giveway_policy.credentials import digest_key, is_key
from giveway_policy.documents import DocumentError, PolicyDocument, PolicyName, parse_document
from giveway_policy.key_digests import parse_digests

from giveway_operator.kube_client import Object

CONFIG_MAP_NAME: Final = "giveway-policy"
DIGEST_SECRET_NAME: Final = "giveway-key-digests"  # noqa: S105 - the name of one
DIGESTS_KEY: Final = "digests.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A resource of ours, as its author wrote it."""

    namespace: str
    """Empty: it is in none."""
    name: str
    uid: str
    generation: int
    version: str
    """Another one after every change, also of its status."""
    created: str
    """RFC 3339: the older one of two that claim the same has it."""
    value: Object
    """All of it, also its status."""

    @property
    def spec(self) -> Mapping[str, Any]:
        found = self.value.get("spec")
        return found if isinstance(found, dict) else {}

    @property
    def status(self) -> Mapping[str, Any]:
        found = self.value.get("status")
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of an engine."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySecret:
    """What a Secret with API keys holds, without the keys."""

    digests: tuple[str, ...] = ()
    problem: str = ""
    """Why it has none that can be used. Empty: nothing is wrong with it."""
    known: bool = True
    """False: it could not be read just now, which says nothing about its keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedObject:
    """An object of the operator's own, as it stands in a namespace."""

    resource_version: str
    data: Mapping[str, str] = field(default_factory=dict)
    binary_data: Mapping[str, str] = field(default_factory=dict)
    """Base64, as the API server gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One look at everything."""

    policies: tuple[Written, ...] = ()
    tenants: tuple[Written, ...] = ()
    key_secrets: Mapping[tuple[str, str], KeySecret] = field(default_factory=dict)
    """By namespace and name: all that a tenant refers to."""
    pods: tuple[Pod, ...] = ()
    config_maps: Mapping[str, PublishedObject] = field(default_factory=dict)
    """By namespace. A namespace without one is not in it."""
    digest_secrets: Mapping[str, PublishedObject] = field(default_factory=dict)
    published: Mapping[PolicyName, PolicyDocument] = field(default_factory=dict)
    """Documents of the ConfigMaps that can be read. What cannot be is as good as not there."""

    def versions(self) -> object:
        """Equal for two snapshots of which everything follows alike."""
        return (
            tuple((each.uid, each.version) for each in self.policies),
            tuple((each.uid, each.version) for each in self.tenants),
            dict(self.key_secrets),
            self.pods,
            {name: each.resource_version for name, each in self.config_maps.items()},
            {name: each.resource_version for name, each in self.digest_secrets.items()},
        )

    def digests(self, namespace: str) -> dict[str, tuple[str, ...]]:
        """Published digests by tenant."""
        secret = self.digest_secrets.get(namespace)
        if secret is None:
            return {}
        try:
            for text in secret.data.values():
                return parse_digests(base64.b64decode(text))
        except ValueError:
            pass
        return {}


def read_documents(namespace: str, config_map: PublishedObject) -> dict[PolicyName, PolicyDocument]:
    """Those of its own namespace that can be read."""
    found: dict[PolicyName, PolicyDocument] = {}
    for data in _documents_in(config_map):
        try:
            document = parse_document(data)
        except DocumentError:
            continue
        if document.policy.namespace == namespace:
            found[document.policy] = document
    return found


def _documents_in(config_map: PublishedObject) -> Iterator[bytes]:
    for text in config_map.data.values():
        yield text.encode("utf-8", "surrogatepass")
    for text in config_map.binary_data.values():
        try:
            yield base64.b64decode(text)
        except (ValueError, binascii.Error):
            continue


def read_written(value: Object) -> Written:
    metadata = value.get("metadata", {})
    return Written(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        version=metadata.get("resourceVersion", ""),
        created=metadata.get("creationTimestamp") or "",
        value=value,
    )


def read_pod(value: Object) -> Pod:
    metadata, status = value.get("metadata", {}), value.get("status", {})
    is_ready = any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )
    return Pod(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        labels=metadata.get("labels") or {},
        ready=is_ready and metadata.get("deletionTimestamp") is None,
    )


def read_published(value: Object) -> PublishedObject:
    return PublishedObject(
        resource_version=value.get("metadata", {}).get("resourceVersion", ""),
        data=value.get("data") or {},
        binary_data=value.get("binaryData") or {},
    )


def read_key_secret(value: Object) -> KeySecret:
    """Every value is one API key; a line break at its end, as editors leave it, is none of it."""
    digests: set[str] = set()
    for name, text in (value.get("data") or {}).items():
        try:
            key = base64.b64decode(text or "").strip()
        except (ValueError, binascii.Error):
            key = b""
        if not is_key(key):
            return KeySecret(
                problem=f"the value {name[:80]} of the Secret is no key: 8 to 512 printable "
                "characters without spaces"
            )
        digests.add(digest_key(key))
    if not digests:
        return KeySecret(problem="the Secret holds no key")
    return KeySecret(digests=tuple(sorted(digests)))
