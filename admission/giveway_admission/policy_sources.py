"""What is a place that a policy comes from?

A source only looks: it does no waiting, keeps no state, and raises nothing for what it finds.
`local_policies` compiles resources from a file or folder, `mounted_documents` reads what was
compiled elsewhere; `policy_watching` decides when to look.

What always holds: a resource or document with a fault changes nothing. Its last good version stays
in force, whatever happens to the others beside it; going back to the former content clears the
fault. A resource that is gone from a place that can be read is gone; a place that cannot be read,
or holds no policy at all, loses nothing.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from giveway_policy.documents import PolicyDocument, PolicyName
from giveway_policy.faults import Fault
from giveway_policy.keeping import Good

MOUNT_LINK = "..data"
"""What kubelet swaps to change all files of a mounted folder at once."""

Fingerprint = tuple[tuple[str | int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReading:
    """What one look gave."""

    document: PolicyDocument | None
    """What is to be in force. None: nothing good was ever there."""
    faults: tuple[Fault, ...] = ()
    good: Good = field(default_factory=Good)
    watched: frozenset[Path] = frozenset()
    """Files outside the source's own path that the document depends on."""


NOTHING = SourceReading(document=None)


class PolicySource(Protocol):
    """A place to look at. Both calls may block on a slow disk, and raise nothing."""

    needs_policy_at_start: bool
    """Whether a fault at the first look is an error, rather than a reason for the default."""

    def fingerprint(self, last: SourceReading) -> Fingerprint:
        """Equal as long as nothing changed; costs a `stat` a file."""

    def read(self, last: SourceReading) -> SourceReading:
        """Look, given what is in force."""


def fingerprint_of(path: Path, suffixes: Iterable[str], *, others: Iterable[Path]) -> Fingerprint:
    """What changes when the file, or any of the folder's files, changes or is swapped.

    inotify would be silent here: it follows neither kubelet's swapped link nor a network disk.
    """
    endings = tuple(suffixes)
    marks = [_mark(path), _mark(path / MOUNT_LINK)]
    try:
        names = sorted(os.listdir(path))
    except OSError:
        names = []
    marks += [_mark(path / name) for name in names if name.endswith(endings) and name[0] != "."]
    marks += [_mark(other) for other in sorted(others)]
    return tuple(marks)


def _mark(path: Path) -> tuple[str | int, ...]:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return (str(path), "missing")
    return (
        str(path),
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def is_named(policy: PolicyName, wanted: str | None) -> bool:
    return wanted is None or wanted in (policy.name, str(policy))
