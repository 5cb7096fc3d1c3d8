"""Which policy documents follow from these resources?

The one function that compiles, whoever calls it: a proxy for its files, the operator for a cluster.
It reads nothing. A resource that does not make sense is left out alone and named; the others take
effect. Of two that claim the same the one that has it in force keeps it, else the first one given.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from giveway_policy.checks import check_policy
from giveway_policy.documents import PolicyDocument, PolicyName, Tenant, make_document
from giveway_policy.faults import Fault, FaultKind, Origin, Path, Problem, ResourceKey
from giveway_policy.resources import SLOPolicy, SLOPolicySpec
from giveway_policy.tenant_checks import check_tenant, check_tenant_under
from giveway_policy.tenants import TenantPriority, TenantPrioritySpec

Kind = TypeVar("Kind", SLOPolicy, TenantPriority)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Generic[Kind]):
    """A resource of the right form, and where it stands."""

    resource: Kind
    key: ResourceKey
    origin: Origin
    key_digests: tuple[str, ...] = ()
    """Digests of the tenant's API keys; () for a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Documents by policy, and what was left out of them."""

    documents: tuple[PolicyDocument, ...]
    """One for each policy that makes sense, in the order given."""
    faults: tuple[Fault, ...]
    misfits: tuple[Fault, ...] = ()
    """Why a tenant that fits one policy is left out of another: not its author's mistake."""

    @property
    def faulty(self) -> frozenset[ResourceKey]:
        """Resources that are left out, of all documents or of some."""
        return frozenset(each.resource for each in self.faults if each.resource is not None)


def compile_policies(
    policies: Sequence[Candidate[SLOPolicy]],
    tenants: Sequence[Candidate[TenantPriority]],
    *,
    in_force: Iterable[Candidate[TenantPriority]] = (),
    epoch: int = 0,
    generation: int = 1,
    share: float = 1.0,
) -> Compilation:
    """One document for each policy that makes sense, with all tenants that do under it.

    A tenant is for all policies, and they may have different classes: one that fits none of them
    has a fault, told as it is for the policy that it fits best.

    `in_force` are tenants as they were until now: no edit elsewhere takes away what is theirs.
    """
    faults: list[Fault] = []
    owners = {claim: each.key for each in in_force for claim, _, _ in _claims(each)}
    tenants = sorted(tenants, key=lambda each: _trespasses(each, owners))
    sound = [each for each in _first_of_each(policies, faults) if _is_sound(each, faults)]
    specs = [each.resource.spec for each in sound]
    fitting: list[list[Candidate[TenantPriority]]] = [[] for _ in sound]
    misfits: list[Fault] = []
    for tenant in _without_conflicts(_sound_tenants(tenants, faults), faults):
        found = [_faults_under(tenant, spec) for spec in specs]
        for problems, tenants_of_policy in zip(found, fitting, strict=True):
            if not problems:
                tenants_of_policy.append(tenant)
        if found and all(found):
            nearest: list[Fault] = min(found, key=len)
            faults += nearest
        else:
            misfits += [fault for problems in found for fault in problems]
    documents = [
        make_document(
            PolicyName(namespace=policy.key.namespace, name=policy.key.name),
            policy.resource.spec,
            tenants=tuple(_tenant(each.resource.spec, each.key_digests) for each in fit),
            epoch=epoch,
            generation=generation,
            share=share,
        )
        for policy, fit in zip(sound, fitting, strict=True)
    ]
    return Compilation(
        documents=tuple(documents),
        faults=tuple(dict.fromkeys(faults)),
        misfits=tuple(dict.fromkeys(misfits)),
    )


def _first_of_each(
    candidates: Sequence[Candidate[Kind]], faults: list[Fault]
) -> Iterator[Candidate[Kind]]:
    first: dict[ResourceKey, Candidate[Kind]] = {}
    for candidate in candidates:
        other = first.setdefault(candidate.key, candidate)
        if other is candidate:
            yield candidate
        else:
            faults.append(
                _conflict(
                    candidate,
                    ("metadata", "name"),
                    f"{candidate.key} stands twice, first in {_place(other, ('metadata', 'name'))}",
                    fix="keep one of them, or give it another name",
                )
            )


def _is_sound(candidate: Candidate[SLOPolicy], faults: list[Fault]) -> bool:
    problems = check_policy(candidate.resource.spec)
    faults.extend(each.located(candidate.origin, candidate.key) for each in problems)
    return not problems


def _sound_tenants(
    candidates: Sequence[Candidate[TenantPriority]], faults: list[Fault]
) -> Iterator[Candidate[TenantPriority]]:
    for candidate in _first_of_each(candidates, faults):
        problems = check_tenant(candidate.resource.spec)
        faults.extend(each.located(candidate.origin, candidate.key) for each in problems)
        if not problems:
            yield candidate


def _faults_under(candidate: Candidate[TenantPriority], spec: SLOPolicySpec) -> list[Fault]:
    problems = check_tenant_under(candidate.resource.spec, spec)
    return [each.located(candidate.origin, candidate.key) for each in problems]


def _without_conflicts(
    candidates: Iterator[Candidate[TenantPriority]], faults: list[Fault]
) -> Iterator[Candidate[TenantPriority]]:
    """Nobody is two tenants: a name, a key and a header's value belong to one of them."""
    owners: dict[tuple[str, str], tuple[Candidate[TenantPriority], Path]] = {}
    for candidate in candidates:
        claims = list(_claims(candidate))
        clashes = [each for each in claims if each[0] in owners]
        for claim, path, what in clashes:
            owner, owner_path = owners[claim]
            faults.append(
                _conflict(
                    candidate,
                    path,
                    f"{what} belongs to {owner.key} already, in {_place(owner, owner_path)}",
                    fix="give it to one of them",
                )
            )
        if not clashes:
            for claim, path, _ in claims:
                owners.setdefault(claim, (candidate, path))
            yield candidate


def _trespasses(
    candidate: Candidate[TenantPriority], owners: dict[tuple[str, str], ResourceKey]
) -> bool:
    """Whether it claims what another one has until now; such are looked at last."""
    return any(
        owners.get(claim, candidate.key) != candidate.key for claim, _, _ in _claims(candidate)
    )


def _claims(
    candidate: Candidate[TenantPriority],
) -> Iterator[tuple[tuple[str, str], Path, str]]:
    """What may belong to one tenant only: an identity, its path, its name for people."""
    spec = candidate.resource.spec
    yield ("tenant", spec.tenant), ("spec", "tenant"), f"the tenant {spec.tenant}"
    path: Path = ("spec", "recognizedBy")
    for digest in candidate.key_digests:
        yield ("key", digest), path, "one of its API keys"
    for index, each in enumerate(spec.recognized_by):
        if each.header is not None:
            name = each.header.name.lower()
            identity = (f"header {name}", each.header.value)
            yield identity, (*path, index, "header"), f"this value of {each.header.name}"


def _tenant(spec: TenantPrioritySpec, key_digests: tuple[str, ...]) -> Tenant:
    headers = {
        (each.header.name.lower(), each.header.value)
        for each in spec.recognized_by
        if each.header is not None
    }
    return Tenant(
        name=spec.tenant,
        maximum_class=spec.maximum_class,
        default_class=spec.default_class or spec.maximum_class,
        sources=spec.sources,
        weight=spec.weight,
        limits=spec.limits,
        key_digests=tuple(sorted(set(key_digests))),
        headers=tuple(sorted(headers)),
    )


def _conflict(candidate: Candidate[Kind], path: Path, reason: str, *, fix: str) -> Fault:
    problem = Problem(path=path, reason=reason, fix=fix, kind=FaultKind.CONFLICT)
    return problem.located(candidate.origin, candidate.key)


def _place(candidate: Candidate[Kind], path: Path) -> str:
    line = candidate.origin.line(path)
    return candidate.origin.file if line is None else f"{candidate.origin.file}:{line}"
