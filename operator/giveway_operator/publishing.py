"""How does what was rendered come to the API server?

Only differences are written, and each write is preceded by `guard`, which raises if another
operator may lead by now. A ConfigMap is written only if it is still the one that was looked at: so
of two operators that both believe to lead one gets a conflict, whatever their clocks say. What
fails in one namespace stops none of the others.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from giveway_policy.faults import ResourceKey

from giveway_operator.kube_client import (
    CONFIG_MAPS,
    EVENTS,
    SECRETS,
    SLO_POLICIES,
    TENANT_PRIORITIES,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeClient,
    KubeError,
    NotFoundError,
    Object,
    Resource,
)
from giveway_operator.looking import OWN_LABELS
from giveway_operator.packing import Contents
from giveway_operator.rendering import Rendering
from giveway_operator.snapshots import (
    CONFIG_MAP_NAME,
    DIGEST_SECRET_NAME,
    PublishedObject,
    Snapshot,
    read_published,
)
from giveway_operator.status_rendering import Notice, Reporting

MOST_WRITES_AT_ONCE: Final = 4
EVENT_NAMESPACE: Final = "default"
"""Where Kubernetes keeps events of what is in no namespace."""
REPORTING_CONTROLLER: Final = "giveway.dev/operator"

Guard = Callable[[], None]
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """What was written, and what could not be."""

    writes: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """By namespace, and why its documents are not published."""
    conflicted: set[str] = field(default_factory=set)
    """Namespaces in which something changed since it was looked at: look again soon."""


async def publish(
    kube: KubeClient, snapshot: Snapshot, rendering: Rendering, *, guard: Guard
) -> Outcome:
    """Documents and digests of all namespaces. Raises `UnavailableError`, and what `guard` does."""
    outcome = Outcome()
    gate = asyncio.Semaphore(MOST_WRITES_AT_ONCE)

    async def one(namespace: str) -> None:
        async with gate:
            try:
                await _publish_in(kube, namespace, snapshot, rendering, guard, outcome)
            except ConflictError:
                outcome.conflicted.add(namespace)
            except (ForbiddenError, InvalidError, NotFoundError) as error:
                outcome.failed[namespace] = str(error)

    await _all(one(each) for each in sorted({*rendering.config_maps, *rendering.digest_secrets}))
    return outcome


async def _all(writes: Iterable[Coroutine[None, None, None]]) -> None:
    """The first error is raised, after all have ended."""
    for found in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found


async def _publish_in(
    kube: KubeClient,
    namespace: str,
    snapshot: Snapshot,
    rendering: Rendering,
    guard: Guard,
    outcome: Outcome,
) -> None:
    """Digests go first, so that no proxy knows a tenant and not its keys; when all goes, the
    ConfigMap is last, since it is what a later look finds the namespace by."""
    for resource, name, wanted, there in (
        (
            SECRETS,
            DIGEST_SECRET_NAME,
            rendering.digest_secrets.get(namespace),
            snapshot.digest_secrets.get(namespace),
        ),
        (
            CONFIG_MAPS,
            CONFIG_MAP_NAME,
            rendering.config_maps.get(namespace),
            snapshot.config_maps.get(namespace),
        ),
    ):
        if wanted is None or wanted.are_in(there):
            continue
        guard()
        outcome.writes += 1
        if wanted.data or wanted.binary_data:
            await _write(kube, resource, name, namespace, wanted, there)
        elif there is not None:
            await kube.delete(
                resource, name, namespace=namespace, resource_version=there.resource_version
            )


async def _write(
    kube: KubeClient,
    resource: Resource,
    name: str,
    namespace: str,
    wanted: Contents,
    there: PublishedObject | None,
) -> None:
    metadata = {"name": name, "namespace": namespace, "labels": OWN_LABELS}
    if there is not None:
        metadata["resourceVersion"] = there.resource_version
    values: dict[str, object] = {"metadata": metadata, "data": wanted.data}
    if resource is CONFIG_MAPS:
        values["binaryData"] = wanted.binary_data
    written = await kube.apply(resource, values)
    if not wanted.are_in(read_published(written)):
        # Apply leaves what others put there; a proxy would read it.
        metadata["resourceVersion"] = written.get("metadata", {}).get("resourceVersion", "")
        await kube.replace(resource, values)


async def tell(kube: KubeClient, reporting: Reporting, *, guard: Guard, now: str) -> Outcome:
    """Statuses and events. An event that cannot be created is not worth a failure."""
    outcome = Outcome()
    gate = asyncio.Semaphore(MOST_WRITES_AT_ONCE)

    async def status(key: ResourceKey, wanted: Object) -> None:
        async with gate:
            guard()
            outcome.writes += 1
            resource = SLO_POLICIES if key.kind == SLO_POLICIES.kind else TENANT_PRIORITIES
            metadata = {"name": key.name}
            if key.namespace:
                metadata["namespace"] = key.namespace
            try:
                await kube.apply(resource, {"metadata": metadata, "status": wanted}, status=True)
            except NotFoundError:
                pass  # deleted meanwhile
            except (ForbiddenError, InvalidError, ConflictError) as error:
                outcome.failed[str(key)] = str(error)

    async def event(notice: Notice) -> None:
        async with gate:
            guard()
            outcome.writes += 1
            try:
                await kube.create(EVENTS, _event(notice, now=now))
            except KubeError as error:
                _log.warning("an event could not be created: %s", error)

    await _all(status(key, wanted) for key, wanted in reporting.statuses.items())
    await _all(event(notice) for notice in reporting.notices)
    return outcome


def _event(notice: Notice, *, now: str) -> Mapping[str, object]:
    about = notice.about
    regarding = {
        "apiVersion": SLO_POLICIES.api_version,
        "kind": about.kind,
        "name": about.name,
        "uid": notice.uid,
    }
    if about.namespace:
        regarding["namespace"] = about.namespace
    return {
        "metadata": {
            "generateName": f"{about.name[:200]}-",
            "namespace": about.namespace or EVENT_NAMESPACE,
        },
        "eventTime": now.replace("Z", ".000000Z"),
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": "giveway-operator",
        "action": "Publishing",
        "type": "Warning" if notice.warning else "Normal",
        "reason": notice.reason,
        "note": notice.message[:1024],
        "regarding": regarding,
    }
