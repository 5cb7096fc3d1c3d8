"""How is a snapshot taken?

A few lists, and each Secret that a tenant names. Secrets are read one by one, so that the operator
needs the right to read those alone; they are read anew when they are older than `secrets_max_age_s`
or when somebody refers to one for the first time.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from giveway_policy.documents import PolicyDocument, PolicyName
from giveway_policy.faults import shown
from giveway_policy.resources import SecretReference

from giveway_operator.kube_client import (
    CONFIG_MAPS,
    PODS,
    SECRETS,
    SLO_POLICIES,
    TENANT_PRIORITIES,
    KubeClient,
    KubeError,
    NotFoundError,
    Object,
    Resource,
)
from giveway_operator.snapshots import (
    CONFIG_MAP_NAME,
    DIGEST_SECRET_NAME,
    KeySecret,
    PublishedObject,
    Snapshot,
    Written,
    read_documents,
    read_key_secret,
    read_pod,
    read_published,
    read_written,
)

MOST_SECRETS_AT_ONCE: Final = 8
OWN_LABELS: Final = {"app.kubernetes.io/managed-by": "giveway-operator"}
OWN_LABELS_TEXT = ",".join(f"{key}={value}" for key, value in OWN_LABELS.items())
SecretName = tuple[str, str]
"""Namespace and name."""


@dataclass(slots=True)
class _Read:
    secret: KeySecret
    read_s: float


class Looking:
    """Takes snapshots. Remembers digests between two looks, and nothing else."""

    def __init__(
        self,
        kube: KubeClient,
        *,
        namespaces: tuple[str, ...],
        secrets_max_age_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._namespaces = namespaces
        """Empty: the whole cluster."""
        self._secrets_max_age_s = secrets_max_age_s
        self._clock = clock
        self._secrets: dict[SecretName, _Read] = {}
        self._documents: dict[str, tuple[PublishedObject, dict[PolicyName, PolicyDocument]]] = {}
        """By namespace, with what they were read from."""

    async def look(self) -> Snapshot:
        """Raises `KubeError` if anything but a tenant's Secret cannot be read."""
        policies = [read_written(each) for each in await self._list(SLO_POLICIES)]
        found = await self._kube.list(TENANT_PRIORITIES)
        tenants = [read_written(each) for each in found]
        places = sorted({each.namespace for each in policies})
        config_maps = await self._config_maps(places)
        digests = await self._named(SECRETS, DIGEST_SECRET_NAME, sorted({*places, *config_maps}))
        pods: list[Object] = []
        for place in places:
            pods += await self._kube.list(PODS, namespace=place)
        return Snapshot(
            policies=tuple(policies),
            tenants=tuple(tenants),
            key_secrets=await self._key_secrets(tenants),
            pods=tuple(read_pod(each) for each in pods),
            config_maps=config_maps,
            digest_secrets=digests,
            published=await asyncio.to_thread(self._published, config_maps),
        )

    def forget_secrets(self) -> None:
        """Read them anew at the next look."""
        self._secrets.clear()

    async def _list(self, resource: Resource, labels: str = "") -> list[Object]:
        if not self._namespaces:
            return list(await self._kube.list(resource, labels=labels))
        found: list[Object] = []
        for namespace in self._namespaces:
            found += await self._kube.list(resource, namespace=namespace, labels=labels)
        return found

    async def _config_maps(self, places: Iterable[str]) -> dict[str, PublishedObject]:
        """Where policies are, and where they once were."""
        found: dict[str, PublishedObject] = {}
        for each in await self._list(CONFIG_MAPS, OWN_LABELS_TEXT):
            metadata = each.get("metadata", {})
            if metadata.get("name") == CONFIG_MAP_NAME:
                found[metadata.get("namespace", "")] = read_published(each)
        # One that lacks our label, since somebody took it away, is looked for by its name.
        others = [each for each in places if each not in found]
        return found | await self._named(CONFIG_MAPS, CONFIG_MAP_NAME, others)

    def _published(
        self, config_maps: Mapping[str, PublishedObject]
    ) -> dict[PolicyName, PolicyDocument]:
        """Only what changed is read anew: documents of ten thousand tenants take their time."""
        before, self._documents = self._documents, {}
        for namespace, config_map in config_maps.items():
            known = before.get(namespace)
            if known is None or known[0].resource_version != config_map.resource_version:
                known = (config_map, read_documents(namespace, config_map))
            self._documents[namespace] = known
        return {
            name: document
            for _, documents in self._documents.values()
            for name, document in documents.items()
        }

    async def _named(
        self, resource: Resource, name: str, places: Iterable[str]
    ) -> dict[str, PublishedObject]:
        found: dict[str, PublishedObject] = {}
        for place in places:
            with contextlib.suppress(NotFoundError):
                read = await self._kube.read(resource, name, namespace=place)
                found[place] = read_published(read)
        return found

    async def _key_secrets(self, tenants: Iterable[Written]) -> dict[SecretName, KeySecret]:
        wanted = {name for tenant in tenants for name in _secrets_of(tenant)}
        now_s = self._clock()
        fresh_since_s = now_s - self._secrets_max_age_s
        due = sorted(
            name
            for name in wanted
            if name not in self._secrets or self._secrets[name].read_s <= fresh_since_s
        )
        gate = asyncio.Semaphore(MOST_SECRETS_AT_ONCE)

        async def read(name: SecretName) -> tuple[SecretName, KeySecret]:
            async with gate:
                return name, await self._read_secret(name)

        for name, secret in await asyncio.gather(*(read(each) for each in due)):
            self._secrets[name] = _Read(secret, now_s if secret.known else fresh_since_s)
        for name in set(self._secrets) - wanted:
            del self._secrets[name]
        return {name: each.secret for name, each in self._secrets.items()}

    async def _read_secret(self, name: SecretName) -> KeySecret:
        try:
            return read_key_secret(await self._kube.read(SECRETS, name[1], namespace=name[0]))
        except NotFoundError:
            return KeySecret()  # to delete it is to take the keys back
        except KubeError as error:
            return KeySecret(problem=f"the Secret cannot be read: {shown(str(error))}", known=False)


def _secrets_of(tenant: Written) -> set[SecretName]:
    """What the spec names, as far as it can be read."""
    found: set[SecretName] = set()
    entries = tenant.spec.get("recognizedBy")
    for entry in entries if isinstance(entries, list) else ():
        try:
            reference = SecretReference.model_validate(entry["apiKey"]["secretRef"])
        except (KeyError, TypeError, ValueError):
            continue
        found.add((reference.namespace, reference.name))
    return found
