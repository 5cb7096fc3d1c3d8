"""Which policy do the resources in a file or folder make?

Each reading compiles anew from what is there and the last good version of what is not good. All
policies of the folder are compiled, since a tenant may be meant for any of them; one is chosen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from giveway_policy.compiling import Candidate, Compilation, compile_policies
from giveway_policy.documents import PolicyDocument, renumber
from giveway_policy.faults import Fault, FaultKind, ResourceKey
from giveway_policy.loading import Loading, load_path
from giveway_policy.reading import SUFFIXES
from giveway_policy.resources import SLOPolicy
from giveway_policy.tenants import TenantPriority

from giveway_admission.policy_sources import (
    Fingerprint,
    Good,
    SourceReading,
    fingerprint_of,
    is_named,
)

MOST_ROUNDS = 4
"""A last good version may itself not fit what is new beside it; then it is left out in its turn."""

Kind = TypeVar("Kind", SLOPolicy, TenantPriority)


class LocalPolicies:
    """SLOPolicy and TenantPriority resources in a file or a folder."""

    needs_policy_at_start = True

    def __init__(self, path: Path, *, policy_name: str | None = None) -> None:
        self._path = path
        self._policy_name = policy_name
        """`name` or `namespace/name`. None: there has to be one policy alone."""

    def fingerprint(self, last: SourceReading) -> Fingerprint:
        return fingerprint_of(self._path, SUFFIXES, others=last.watched)

    def read(self, last: SourceReading) -> SourceReading:
        loading = load_path(self._path)
        faults = list(loading.faults)
        policies = self._with_kept(loading.policies, last.good.policies, loading)
        tenants = self._with_kept(loading.tenants, last.good.tenants, loading)
        for _ in range(MOST_ROUNDS):
            compilation = compile_policies(policies, tenants, in_force=last.good.tenants.values())
            faults += compilation.faults
            if not compilation.faulty:
                break
            policies = _with_last_good(policies, last.good.policies, compilation.faulty)
            tenants = _with_last_good(tenants, last.good.tenants, compilation.faulty)
        document, unclear = self._choose(compilation.documents, last.document)
        faults += unclear
        if document is None:
            if not faults:
                faults.append(self._fault("there is no SLOPolicy in it", "add one"))
            watched = last.watched | loading.key_files
            return replace(last, faults=_marked(faults, last.good), watched=watched)
        good = _good_of(policies, tenants, compilation)
        return SourceReading(
            document=_numbered(document, last.document),
            faults=_marked(faults, good),
            good=good,
            watched=loading.key_files,
        )

    def _with_kept(
        self,
        loaded: list[Candidate[Kind]],
        good: Mapping[ResourceKey, Candidate[Kind]],
        loading: Loading,
    ) -> list[Candidate[Kind]]:
        """What was loaded, and the last good of what could not be."""
        if str(self._path) in loading.broken_files:
            lost = set(good)
        else:
            lost = {
                key for key, each in good.items() if each.origin.file in loading.broken_files
            } | {each.resource for each in loading.faults if each.resource is not None}
        lost -= {each.key for each in loaded}
        return loaded + [each for key, each in good.items() if key in lost]

    def _choose(
        self, documents: Sequence[PolicyDocument], current: PolicyDocument | None
    ) -> tuple[PolicyDocument | None, list[Fault]]:
        """The document of the policy that was named, or of the only one.

        When a second one comes along, the one in force stays, and goes on following its resource.
        """
        wanted = [each for each in documents if is_named(each.policy, self._policy_name)]
        if len(wanted) == 1:
            return wanted[0], []
        if wanted:
            names = ", ".join(sorted(str(each.policy) for each in wanted))
            reason = f"there are several SLOPolicies: {names}"
            fault = self._fault(reason, "choose one by --policy-name")
            in_force = [each for each in wanted if current and each.policy == current.policy]
            return (in_force[0] if in_force else None), [fault]
        if documents:
            names = ", ".join(sorted(str(each.policy) for each in documents))
            reason = f"there is no good SLOPolicy {self._policy_name} in it"
            return None, [self._fault(reason, f"name one of: {names}")]
        return None, []

    def _fault(self, reason: str, fix: str) -> Fault:
        return Fault(kind=FaultKind.MEANING, file=str(self._path), reason=reason, fix=fix)


def _with_last_good(
    candidates: list[Candidate[Kind]],
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


def _good_of(
    policies: list[Candidate[SLOPolicy]],
    tenants: list[Candidate[TenantPriority]],
    compilation: Compilation,
) -> Good:
    faulty = compilation.faulty
    return Good(
        policies={each.key: each for each in policies if each.key not in faulty},
        tenants={each.key: each for each in tenants if each.key not in faulty},
    )


def _marked(faults: Iterable[Fault], good: Good) -> tuple[Fault, ...]:
    """Each fault once, and whether a former version of what it is about is in force."""
    return tuple(
        dict.fromkeys(
            replace(each, last_good_in_force=True)
            if each.resource in good.policies or each.resource in good.tenants
            else each
            for each in faults
        )
    )


def _numbered(document: PolicyDocument, current: PolicyDocument | None) -> PolicyDocument:
    """Locally the number only tells that something changed."""
    if current is None:
        return renumber(document, epoch=0, generation=1)
    if current.hash == document.hash:
        return current
    return renumber(document, epoch=0, generation=current.generation + 1)
