"""Which candidates for compiling does a snapshot hold, and which were good until now?

A resource that cannot be read is a fault of its own. What was good is taken from what is published:
the operator remembers nothing that a new one could not find again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from giveway_policy.compiling import Candidate
from giveway_policy.documents import PolicyDocument, PolicyName, Tenant
from giveway_policy.faults import Fault, FaultKind, Origin, Path, Problem, ResourceKey
from giveway_policy.keeping import Good
from giveway_policy.resources import API_VERSION, Metadata, SLOPolicy
from giveway_policy.tenants import HeaderMatch, Recognition, TenantPriority, TenantPrioritySpec
from giveway_policy.validating import validate

from giveway_operator.snapshots import KeySecret, Pod, Snapshot, Written

Kind = TypeVar("Kind", SLOPolicy, TenantPriority)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All of a snapshot."""

    policies: tuple[Candidate[SLOPolicy], ...]
    tenants: tuple[Candidate[TenantPriority], ...]
    faults: tuple[Fault, ...]
    good: Good


def policy_key(name: PolicyName) -> ResourceKey:
    return ResourceKey("SLOPolicy", name.namespace, name.name)


def key_of(written: Written, kind: str) -> ResourceKey:
    return ResourceKey(kind, written.namespace, written.name)


def find_candidates(
    snapshot: Snapshot, published: Mapping[PolicyName, PolicyDocument]
) -> Candidates:
    """Oldest first, so that of two that claim the same the older one has it."""
    faults: list[Fault] = []
    good = _good_of(snapshot, published)
    policies: list[Candidate[SLOPolicy]] = []
    for written in _oldest_first(snapshot.policies):
        policy = _validated(SLOPolicy, written, faults)
        if policy is not None and (other := rival(policy, policies, snapshot.pods)):
            faults.append(_overlap(policy, other))
            policy = None
        policy = policy or good.policies.get(key_of(written, "SLOPolicy"))
        if policy is not None:
            policies.append(policy)
    tenants: list[Candidate[TenantPriority]] = []
    for written in _oldest_first(snapshot.tenants):
        tenant = _validated(TenantPriority, written, faults)
        if tenant is not None:
            tenant = _with_keys(tenant, snapshot.key_secrets, faults)
        tenant = tenant or good.tenants.get(key_of(written, "TenantPriority"))
        if tenant is not None:
            tenants.append(tenant)
    return Candidates(
        policies=tuple(policies), tenants=tuple(tenants), faults=tuple(faults), good=good
    )


def _oldest_first(resources: tuple[Written, ...]) -> list[Written]:
    return sorted(resources, key=lambda each: (each.created, each.namespace, each.name))


def _validated(model: type[Kind], written: Written, faults: list[Fault]) -> Candidate[Kind] | None:
    """Only what an author writes: of the rest Kubernetes may have more than we know."""
    metadata = {"name": written.name} | (
        {"namespace": written.namespace} if written.namespace else {}
    )
    kind = model.__name__
    result = validate(
        model,
        {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": metadata,
            "spec": written.value.get("spec"),
        },
    )
    key = key_of(written, kind)
    origin = Origin(file=str(key))
    if isinstance(result, list):
        faults.extend(each.located(origin, key) for each in result)
        return None
    return Candidate(resource=result, key=key, origin=origin)


def rival(
    policy: Candidate[SLOPolicy], older: Sequence[Candidate[SLOPolicy]], pods: Sequence[Pod]
) -> Candidate[SLOPolicy] | None:
    """An older policy that governs a pod which this one selects too, or would: the same selector.

    Of others it shows only with a pod that has the labels of both.
    """
    wanted = policy.resource.spec.selector.match_labels
    for other in older:
        if other.key.namespace != policy.key.namespace or other.key == policy.key:
            continue
        theirs = other.resource.spec.selector.match_labels
        both = {*wanted.items(), *theirs.items()}
        if wanted == theirs or any(
            pod.namespace == policy.key.namespace and both <= pod.labels.items() for pod in pods
        ):
            return other
    return None


def _overlap(policy: Candidate[SLOPolicy], other: Candidate[SLOPolicy]) -> Fault:
    problem = Problem(
        path=("spec", "selector"),
        reason=f"{other.key}, which is older, governs some of these pods",
        fix="select by labels that the pods of the other one do not have, or delete one of them",
        kind=FaultKind.CONFLICT,
    )
    return problem.located(policy.origin, policy.key)


def _with_keys(
    tenant: Candidate[TenantPriority],
    secrets: Mapping[tuple[str, str], KeySecret],
    faults: list[Fault],
) -> Candidate[TenantPriority] | None:
    digests: set[str] = set()
    problems: list[Problem] = []
    for index, each in enumerate(tenant.resource.spec.recognized_by):
        if each.api_key is None:
            continue
        path: Path = ("spec", "recognizedBy", index, "apiKey")
        if each.api_key.key_file is not None:
            problems.append(
                _unusable(
                    (*path, "keyFile"),
                    "a key file is on nobody's disk in a cluster",
                    "put the keys into a Secret and write secretRef",
                )
            )
        if each.api_key.secret_ref is not None:
            reference = each.api_key.secret_ref
            secret = secrets.get((reference.namespace, reference.name), _UNSEEN)
            digests.update(secret.digests)
            if secret.problem:
                where = f"{reference.namespace}/{reference.name}"
                problems.append(_unusable((*path, "secretRef"), secret.problem, f"look at {where}"))
    faults.extend(each.located(tenant.origin, tenant.key) for each in problems)
    if problems:
        return None
    return Candidate(
        resource=tenant.resource,
        key=tenant.key,
        origin=tenant.origin,
        key_digests=tuple(sorted(digests)),
    )


_UNSEEN = KeySecret(problem="the Secret was not read", known=False)


def _unusable(path: Path, reason: str, fix: str) -> Problem:
    return Problem(path=path, reason=reason, fix=fix, kind=FaultKind.CREDENTIALS)


def _good_of(snapshot: Snapshot, published: Mapping[PolicyName, PolicyDocument]) -> Good:
    """What is published of resources that are still there."""
    there = {key_of(each, "SLOPolicy") for each in snapshot.policies}
    policies = {
        policy_key(name): _published_policy(document)
        for name, document in published.items()
        if policy_key(name) in there
    }
    keys: dict[str, ResourceKey] = {}
    for written in _oldest_first(snapshot.tenants):
        name = written.spec.get("tenant")
        if isinstance(name, str):
            keys.setdefault(name, key_of(written, "TenantPriority"))
    tenants: dict[ResourceKey, Candidate[TenantPriority]] = {}
    for policy, document in published.items():
        digests = snapshot.digests(policy.namespace)
        for tenant in document.tenants:
            key = keys.get(tenant.name)
            if key is not None and key not in tenants:
                tenants[key] = _published_tenant(tenant, key, digests.get(tenant.name, ()))
    return Good(policies=policies, tenants=tenants)


def _published_policy(document: PolicyDocument) -> Candidate[SLOPolicy]:
    name = document.policy
    resource = SLOPolicy(
        api_version="giveway.dev/v1alpha1",
        kind="SLOPolicy",
        metadata=Metadata(name=name.name, namespace=name.namespace or None),
        spec=document.spec,
    )
    key = policy_key(name)
    return Candidate(resource=resource, key=key, origin=Origin(file=f"{key} as published"))


def _published_tenant(
    tenant: Tenant, key: ResourceKey, digests: tuple[str, ...]
) -> Candidate[TenantPriority]:
    """How a tenant is known by keys is in its digests; which Secrets they came from is lost."""
    spec = TenantPrioritySpec(
        tenant=tenant.name,
        maximum_class=tenant.maximum_class,
        default_class=tenant.default_class,
        sources=tenant.sources,
        weight=tenant.weight,
        limits=tenant.limits,
        recognized_by=tuple(
            Recognition(header=HeaderMatch(name=name, value=value))
            for name, value in tenant.headers
        ),
    )
    resource = TenantPriority(
        api_version="giveway.dev/v1alpha1",
        kind="TenantPriority",
        metadata=Metadata(name=key.name),
        spec=spec,
    )
    return Candidate(
        resource=resource,
        key=key,
        origin=Origin(file=f"{key} as published"),
        key_digests=digests,
    )
