"""What do the files of a mounted ConfigMap or Secret hold?

Raises nothing: what cannot be read is a fault, and everything beside it counts.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from giveway_policy.documents import LARGEST_DOCUMENT_BYTES, too_large
from giveway_policy.faults import Fault, FaultKind
from giveway_policy.key_digests import parse_digests
from giveway_policy.reading import read_bytes

DOCUMENT_SUFFIXES = (".json", ".gz")

_SECRET_FIX = "look whether the Secret is mounted as a folder, not with subPath"  # noqa: S105


def read_files(folder: Path, faults: list[Fault], fix: str) -> Iterator[tuple[str, bytes]]:
    """Each file that can be read, by its name, in order."""
    try:
        files = sorted(
            each
            for each in folder.iterdir()
            if each.suffix in DOCUMENT_SUFFIXES and not each.name.startswith(".")
        )
    except OSError as error:
        faults.append(_unreadable(folder, error, fix))
        return
    for file in files:
        try:
            data = read_bytes(file, limit=LARGEST_DOCUMENT_BYTES)
        except OSError as error:
            faults.append(_unreadable(file, error, fix))
            continue
        if data is None:
            error_text = str(too_large())
            faults.append(
                Fault(kind=FaultKind.UNREADABLE, file=str(file), reason=error_text, fix=fix)
            )
            continue
        yield str(file), data


def read_digests(
    folder: Path, before: Mapping[str, tuple[str, ...]], faults: list[Fault]
) -> Mapping[str, tuple[str, ...]]:
    """Digests of API keys by tenant. What cannot be read takes no key away: then it is `before`.

    A folder that is there and holds none says that there are none.
    """
    known = len(faults)
    found: dict[str, tuple[str, ...]] = {}
    for file, data in read_files(folder, faults, _SECRET_FIX):
        try:
            found |= parse_digests(data)
        except ValueError as error:
            fix = "nothing but the operator should write it; look at its logs"
            faults.append(Fault(kind=FaultKind.CREDENTIALS, file=file, reason=str(error), fix=fix))
    return found if len(faults) == known else before


def _unreadable(path: Path, error: OSError, fix: str) -> Fault:
    reason = (error.strerror or str(error)).lower()
    return Fault(kind=FaultKind.UNREADABLE, file=str(path), reason=reason, fix=fix)
