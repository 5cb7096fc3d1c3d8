"""What is in force when some resources do not make sense?

Of a resource that is left out its last good version goes on being in force, whatever happens to the
others beside it. That version may itself not fit what is new there; then it is left out in its
turn, which is why compiling takes rounds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from giveway_policy.compiling import Candidate, Compilation, compile_policies
from giveway_policy.documents import PolicyDocument
from giveway_policy.faults import Fault, ResourceKey
from giveway_policy.resources import SLOPolicy
from giveway_policy.tenants import TenantPriority

MOST_ROUNDS = 4

Kind = TypeVar("Kind", SLOPolicy, TenantPriority)


@dataclass(frozen=True, slots=True, kw_only=True)
class Good:
    """The resources that are in force, with the faults they once had not."""

    policies: Mapping[ResourceKey, Candidate[SLOPolicy]] = field(default_factory=dict)
    tenants: Mapping[ResourceKey, Candidate[TenantPriority]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What compiling gave with the last good versions in place of what is faulty."""

    documents: tuple[PolicyDocument, ...]
    faults: tuple[Fault, ...]
    """Of the resources as they were given, and of last good versions that fit no more."""
    misfits: tuple[Fault, ...]
    good: Good


def compile_keeping(
    policies: Sequence[Candidate[SLOPolicy]],
    tenants: Sequence[Candidate[TenantPriority]],
    last: Good,
) -> Kept:
    """Compile, with the last good version of each that is faulty."""
    faults: list[Fault] = []
    compilation = Compilation(documents=(), faults=())
    for _ in range(MOST_ROUNDS):
        compilation = compile_policies(policies, tenants, in_force=last.tenants.values())
        faults += compilation.faults
        faulty = compilation.faulty
        if not faulty:
            break
        policies = _with_last_good(policies, last.policies, faulty)
        tenants = _with_last_good(tenants, last.tenants, faulty)
    faulty = compilation.faulty
    return Kept(
        documents=compilation.documents,
        faults=tuple(faults),
        misfits=compilation.misfits,
        good=Good(
            policies={each.key: each for each in policies if each.key not in faulty},
            tenants={each.key: each for each in tenants if each.key not in faulty},
        ),
    )


def marked(faults: Iterable[Fault], good: Good) -> tuple[Fault, ...]:
    """Each fault once, and whether a former version of what it is about is in force."""
    return tuple(
        dict.fromkeys(
            replace(each, last_good_in_force=True)
            if each.resource in good.policies or each.resource in good.tenants
            else each
            for each in faults
        )
    )


def _with_last_good(
    candidates: Sequence[Candidate[Kind]],
    good: Mapping[ResourceKey, Candidate[Kind]],
    faulty: frozenset[ResourceKey],
) -> list[Candidate[Kind]]:
    """The same with the last good version of each that is faulty.

    Without those that have none, or whose last good version is it that is faulty now.
    """
    chosen: dict[ResourceKey, Candidate[Kind]] = {}
    for each in candidates:
        replacement = good.get(each.key) if each.key in faulty else each
        if replacement is not None and (each.key not in faulty or replacement is not each):
            chosen.setdefault(each.key, replacement)
    return list(chosen.values())
