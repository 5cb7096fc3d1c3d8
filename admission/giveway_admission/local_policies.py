"""Which policy do the resources in a file or folder make?

Each reading compiles anew from what is there and the last good version of what is not good. All
policies of the folder are compiled, since a tenant may be meant for any of them; one is chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from giveway_policy.compiling import Candidate
from giveway_policy.documents import PolicyDocument, renumber
from giveway_policy.faults import Fault, FaultKind, ResourceKey
from giveway_policy.keeping import compile_keeping, marked
from giveway_policy.loading import Loading, load_path
from giveway_policy.reading import SUFFIXES
from giveway_policy.resources import SLOPolicy
from giveway_policy.tenants import TenantPriority

from giveway_admission.policy_sources import (
    Fingerprint,
    SourceReading,
    fingerprint_of,
    is_named,
)

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
        kept = compile_keeping(policies, tenants, last.good)
        faults += kept.faults
        document, unclear = self._choose(kept.documents, last.document)
        faults += unclear
        if document is None:
            if not faults:
                faults.append(self._fault("there is no SLOPolicy in it", "add one"))
            watched = last.watched | loading.key_files
            return replace(last, faults=marked(faults, last.good), watched=watched)
        return SourceReading(
            document=_numbered(document, last.document),
            faults=marked(faults, kept.good),
            good=kept.good,
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


def _numbered(document: PolicyDocument, current: PolicyDocument | None) -> PolicyDocument:
    """Locally the number only tells that something changed."""
    if current is None:
        return renumber(document, epoch=0, generation=1)
    if current.hash == document.hash:
        return current
    return renumber(document, epoch=0, generation=current.generation + 1)
