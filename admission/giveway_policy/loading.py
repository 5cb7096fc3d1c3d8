"""Which candidates do a file or a folder hold, with their API keys?

Reads the files, checks the form of each resource and digests its keys. What the resources mean
together is compiled afterwards.
"""

from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TypeVar

from giveway_policy.compiling import Candidate
from giveway_policy.credentials import read_keys
from giveway_policy.faults import Fault, Note, Problem
from giveway_policy.reading import RawResource, read_path
from giveway_policy.resources import SLOPolicy
from giveway_policy.tenants import TenantPriority
from giveway_policy.validating import validate

Kind = TypeVar("Kind", SLOPolicy, TenantPriority)


@dataclass(slots=True, kw_only=True)
class Loading:
    """What was found, in the order of files and lines."""

    policies: list[Candidate[SLOPolicy]] = field(default_factory=list)
    tenants: list[Candidate[TenantPriority]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    broken_files: frozenset[str] = frozenset()
    """Files of which it is not known what else they would have held."""
    key_files: frozenset[FilePath] = frozenset()
    """What was read besides the path itself."""


def load_path(path: FilePath) -> Loading:
    """Everything of the file or folder. Raises nothing for what is in it, or is not there."""
    reading = read_path(path)
    loading = Loading(
        faults=reading.faults, notes=reading.notes, broken_files=frozenset(reading.broken_files)
    )
    for raw in reading.resources:
        if raw.key.kind == "SLOPolicy":
            policy = _validated(SLOPolicy, raw, loading)
            if policy is not None:
                loading.policies.append(policy)
        else:
            tenant = _validated(TenantPriority, raw, loading)
            if tenant is not None:
                _add_tenant(tenant, raw, loading)
    return loading


def _validated(model: type[Kind], raw: RawResource, loading: Loading) -> Candidate[Kind] | None:
    result = validate(model, raw.value)
    if isinstance(result, list):
        _add_faults(result, raw, loading)
        return None
    return Candidate(resource=result, key=raw.key, origin=raw.origin)


def _add_tenant(candidate: Candidate[TenantPriority], raw: RawResource, loading: Loading) -> None:
    keys = read_keys(candidate.resource.spec, raw.folder)
    loading.key_files |= frozenset(keys.files)
    loading.notes.extend(
        Note(file=raw.origin.file, line=raw.origin.line(path), text=text)
        for path, text in keys.notes
    )
    if keys.problems:
        _add_faults(list(keys.problems), raw, loading)
        return
    loading.tenants.append(
        Candidate(
            resource=candidate.resource,
            key=candidate.key,
            origin=candidate.origin,
            key_digests=keys.digests,
        )
    )


def _add_faults(problems: list[Problem], raw: RawResource, loading: Loading) -> None:
    resource = raw.key if raw.key.name else None
    loading.faults.extend(each.located(raw.origin, resource) for each in problems)
    if resource is None:
        loading.broken_files |= {raw.origin.file}
