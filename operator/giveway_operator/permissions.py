"""Which rights does the operator need, and does it have them?

Asked of the API server itself (SelfSubjectAccessReview), so that what counts is what holds, however
the rules came about. The list is the whole of what the operator ever asks for; `docs/operator.md`
has the RBAC rules that grant it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from giveway_operator.kube_client import (
    ACCESS_REVIEWS,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    PODS,
    SECRETS,
    SLO_POLICIES,
    TENANT_PRIORITIES,
    KubeClient,
    Resource,
)
from giveway_operator.leases import LeaseSettings
from giveway_operator.snapshots import CONFIG_MAP_NAME, DIGEST_SECRET_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    verb: str
    resource: Resource
    why: str
    subresource: str = ""
    namespace: str = ""
    """Empty: everywhere."""
    name: str = ""
    """Empty: all of them."""

    def __str__(self) -> str:
        kind = f"{self.resource.plural}/{self.subresource}".rstrip("/")
        group = f".{self.resource.group}" if self.resource.group else ""
        name = f" {self.name}" if self.name else ""
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        if not self.resource.namespaced:
            where = "in the cluster"
        return f"{self.verb} {kind}{group}{name} {where}: {self.why}"


def needed_rights(namespaces: tuple[str, ...], lease: LeaseSettings) -> Iterator[Right]:
    """`namespaces` empty: the whole cluster."""
    for namespace in namespaces or ("",):
        for verb in ("list", "watch"):
            yield Right(
                verb=verb, resource=SLO_POLICIES, namespace=namespace, why="to know the policies"
            )
            yield Right(
                verb=verb, resource=PODS, namespace=namespace, why="to know the engines' pods"
            )
        yield Right(
            verb="patch",
            resource=SLO_POLICIES,
            subresource="status",
            namespace=namespace,
            why="to report on policies",
        )
        yield Right(
            verb="list", resource=CONFIG_MAPS, namespace=namespace, why="to find its own documents"
        )
        for resource, name, why in (
            (CONFIG_MAPS, CONFIG_MAP_NAME, "to publish documents"),
            (SECRETS, DIGEST_SECRET_NAME, "to publish digests of API keys"),
        ):
            for verb in ("get", "patch", "update", "delete"):
                yield Right(verb=verb, resource=resource, name=name, namespace=namespace, why=why)
            # What does not exist yet has no name that RBAC could look at.
            yield Right(verb="create", resource=resource, namespace=namespace, why=why)
        yield Right(verb="create", resource=EVENTS, namespace=namespace, why="to tell what changed")
    for verb in ("list", "watch"):
        yield Right(verb=verb, resource=TENANT_PRIORITIES, why="to know the tenants")
    if not namespaces:
        yield Right(
            verb="patch",
            resource=TENANT_PRIORITIES,
            subresource="status",
            why="to report on tenants",
        )
    yield Right(
        verb="create", resource=LEASES, namespace=lease.namespace, why="to lead, if there are two"
    )
    for verb in ("get", "update"):
        yield Right(
            verb=verb,
            resource=LEASES,
            namespace=lease.namespace,
            name=lease.name,
            why="to lead, if there are two",
        )


async def missing_rights(kube: KubeClient, rights: Sequence[Right]) -> list[Right]:
    """Raises `KubeError` if it cannot be asked."""
    return [each for each in rights if not await _has(kube, each)]


async def _has(kube: KubeClient, right: Right) -> bool:
    attributes = {
        "group": right.resource.group,
        "version": right.resource.version,
        "resource": right.resource.plural,
        "verb": right.verb,
    }
    narrower = {
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    attributes |= {key: value for key, value in narrower.items() if value}
    review = await kube.create(ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}})
    return bool(review.get("status", {}).get("allowed"))
