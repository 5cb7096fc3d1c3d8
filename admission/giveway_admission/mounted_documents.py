"""Which policy document in a mounted folder is to be in force?

One key of a ConfigMap is one document. The highest valid (epoch, generation) wins, also against
what is in force: kubelet may show an older ConfigMap after a newer one was seen elsewhere.
"""

from dataclasses import replace
from pathlib import Path

from giveway_policy.defaults import default_document, is_default
from giveway_policy.documents import (
    LARGEST_DOCUMENT_BYTES,
    DocumentError,
    PolicyDocument,
    parse_document,
    too_large,
)
from giveway_policy.faults import Fault, FaultKind
from giveway_policy.reading import read_bytes

from giveway_admission.policy_sources import Fingerprint, SourceReading, fingerprint_of, is_named

DOCUMENT_SUFFIXES = (".json", ".gz")


class MountedDocuments:
    """Policy documents in a folder: a mounted ConfigMap, one key a document."""

    needs_policy_at_start = False

    def __init__(self, folder: Path, *, policy_name: str | None = None) -> None:
        self._folder = folder
        self._policy_name = policy_name

    def fingerprint(self, last: SourceReading) -> Fingerprint:
        return fingerprint_of(self._folder, DOCUMENT_SUFFIXES, others=last.watched)

    def read(self, last: SourceReading) -> SourceReading:
        faults: list[Fault] = []
        found: list[tuple[Path, PolicyDocument]] = []
        for file in self._files(faults):
            document = _read_document(file, faults)
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
                    file=str(self._folder),
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

    def _files(self, faults: list[Fault]) -> list[Path]:
        try:
            return sorted(
                each
                for each in self._folder.iterdir()
                if each.suffix in DOCUMENT_SUFFIXES and not each.name.startswith(".")
            )
        except OSError as error:
            faults.append(_unreadable(self._folder, error))
            return []

    def _nothing_there(self) -> Fault:
        what = f"of {self._policy_name} " if self._policy_name else ""
        return Fault(
            kind=FaultKind.UNREADABLE,
            file=str(self._folder),
            reason=f"there is no policy document {what}in it yet",
            fix="wait for the operator, or look whether it runs and the ConfigMap is mounted; "
            "until then what was in force stays, at first the built-in policy",
        )


def _read_document(file: Path, faults: list[Fault]) -> PolicyDocument | None:
    try:
        data = read_bytes(file, limit=LARGEST_DOCUMENT_BYTES)
    except OSError as error:
        faults.append(_unreadable(file, error))
        return None
    try:
        if data is None:
            raise too_large()
        return parse_document(data)
    except DocumentError as error:
        fix = "nothing but the operator should write it; look at its logs"
        faults.append(Fault(kind=error.kind, file=str(file), reason=str(error), fix=fix))
        return None


def _unreadable(path: Path, error: OSError) -> Fault:
    return Fault(
        kind=FaultKind.UNREADABLE,
        file=str(path),
        reason=(error.strerror or str(error)).lower(),
        fix="look whether the ConfigMap exists and is mounted as a folder, not with subPath",
    )


def _is_overtaken(document: PolicyDocument, current: PolicyDocument) -> bool:
    if document.policy != current.policy:
        return False
    if document.order == current.order:
        return document.hash != current.hash
    return document.order < current.order


def _overtaken(file: Path, document: PolicyDocument, current: PolicyDocument) -> Fault:
    epoch, generation = document.order
    return Fault(
        kind=FaultKind.OLDER,
        file=str(file),
        reason=f"epoch {epoch} generation {generation} is not newer than what is in force, "
        f"epoch {current.epoch} generation {current.generation}",
        fix="raise the epoch: the operator does when it starts anew",
    )
