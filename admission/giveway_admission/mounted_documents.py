"""Which policy document in a mounted folder is to be in force?

One key of a ConfigMap is one document. The highest valid (epoch, generation) wins, also against
what is in force: kubelet may show an older ConfigMap after a newer one was seen elsewhere, and what
is watched through the API (`api_watching`) is minutes ahead of it.

Digests of API keys are in a Secret, mounted as a folder of its own; they belong to whichever
document is in force.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from giveway_policy.defaults import default_document, is_default
from giveway_policy.documents import DocumentError, PolicyDocument, parse_document
from giveway_policy.faults import Fault, FaultKind
from giveway_policy.key_digests import digests_of, with_digests

from giveway_admission.mounted_files import DOCUMENT_SUFFIXES, read_digests, read_files
from giveway_admission.policy_sources import Fingerprint, SourceReading, fingerprint_of, is_named


class WatchedEntries(Protocol):
    """What is known of a ConfigMap by another way than its mounted folder."""

    @property
    def version(self) -> str:
        """Another one whenever `entries` gives something else."""

    def entries(self) -> Mapping[str, bytes]:
        """Documents by a name that a person can look for."""


class MountedDocuments:
    """Policy documents in a folder: a mounted ConfigMap, one key a document."""

    needs_policy_at_start = False

    def __init__(
        self,
        folder: Path | None,
        *,
        policy_name: str | None = None,
        key_digests: Path | None = None,
        watched: WatchedEntries | None = None,
    ) -> None:
        """`folder` None: only what is watched. `key_digests` None: they are in the documents."""
        self._folder = folder
        self._policy_name = policy_name
        self._key_digests = key_digests
        self._watched = watched

    def fingerprint(self, last: SourceReading) -> Fingerprint:
        marks: Fingerprint = ()
        for folder in (self._folder, self._key_digests):
            if folder is not None:
                marks += fingerprint_of(folder, DOCUMENT_SUFFIXES, others=last.watched)
        return marks if self._watched is None else (*marks, ("watched", self._watched.version))

    def read(self, last: SourceReading) -> SourceReading:
        reading = self._read(last)
        if self._key_digests is None or reading.document is None:
            return reading
        before = {} if last.document is None else digests_of(last.document)
        faults = list(reading.faults)
        digests = read_digests(self._key_digests, before, faults)
        document = with_digests(reading.document, digests)
        return replace(reading, document=document, faults=tuple(faults))

    def _read(self, last: SourceReading) -> SourceReading:
        faults: list[Fault] = []
        found: list[tuple[str, PolicyDocument]] = []
        for file, data in self._entries(faults):
            document = _read_document(file, data, faults)
            if document is not None and is_named(document.policy, self._policy_name):
                found.append((file, document))
        current = last.document
        if current is not None and is_default(current):
            current = None
        names = sorted({str(document.policy) for _, document in found})
        if len(names) > 1:
            faults.append(
                Fault(
                    kind=FaultKind.MEANING,
                    file=self._place,
                    reason=f"there are documents of several policies: {', '.join(names)}",
                    fix="choose by --policy-name",
                )
            )
            found = [each for each in found if current and each[1].policy == current.policy]
        if not found:
            if not faults:
                faults.append(self._nothing_there())
            return replace(last, document=last.document or default_document(), faults=tuple(faults))
        file, newest = max(found, key=lambda each: each[1].order)
        if current is not None and _is_overtaken(newest, current):
            faults.append(_overtaken(file, newest, current))
            newest = current
        return SourceReading(document=newest, faults=tuple(faults))

    @property
    def _place(self) -> str:
        return "what is watched" if self._folder is None else str(self._folder)

    def _entries(self, faults: list[Fault]) -> Iterator[tuple[str, bytes]]:
        """What is watched goes first, so that it counts where both are the same."""
        if self._watched is not None:
            yield from sorted(self._watched.entries().items())
        if self._folder is not None:
            yield from read_files(self._folder, faults, _MOUNT_FIX)

    def _nothing_there(self) -> Fault:
        what = f"of {self._policy_name} " if self._policy_name else ""
        return Fault(
            kind=FaultKind.UNREADABLE,
            file=self._place,
            reason=f"there is no policy document {what}in it yet",
            fix="wait for the operator, or look whether it runs and the ConfigMap is mounted; "
            "until then what was in force stays, at first the built-in policy",
        )


_MOUNT_FIX = "look whether the ConfigMap exists and is mounted as a folder, not with subPath"


def _read_document(file: str, data: bytes, faults: list[Fault]) -> PolicyDocument | None:
    try:
        return parse_document(data)
    except DocumentError as error:
        fix = "nothing but the operator should write it; look at its logs"
        faults.append(Fault(kind=error.kind, file=file, reason=str(error), fix=fix))
        return None


def _is_overtaken(document: PolicyDocument, current: PolicyDocument) -> bool:
    if document.policy != current.policy:
        return False
    if document.order == current.order:
        return document.hash != current.hash
    return document.order < current.order


def _overtaken(file: str, document: PolicyDocument, current: PolicyDocument) -> Fault:
    epoch, generation = document.order
    return Fault(
        kind=FaultKind.OLDER,
        file=file,
        reason=f"epoch {epoch} generation {generation} is not newer than what is in force, "
        f"epoch {current.epoch} generation {current.generation}",
        fix="raise the epoch: the operator does when it starts anew",
    )
