"""Which resources do a file or a folder hold?

Of a folder every `.yaml`, `.yml` and `.json` file in it is read, not those in folders below it, nor
hidden ones: so a mounted ConfigMap can be given as it is. Other people's manifests may lie in the
same files; they are ignored with a note. Whatever the bytes are, the answer is faults, never an
exception.
"""

import difflib
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from giveway_policy.faults import (
    Fault,
    FaultKind,
    Note,
    Origin,
    Path,
    ResourceKey,
    path_text,
    shown,
)
from giveway_policy.manifests import ManifestError, read_manifests
from giveway_policy.resources import API_VERSION

GROUP = "giveway.dev"
KINDS = ("SLOPolicy", "TenantPriority")
SUFFIXES = (".yaml", ".yml", ".json")
LARGEST_FILE_BYTES = 4 * 2**20
LARGEST_FOLDER_FILES = 2000
LARGEST_FOLDER_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class RawResource:
    """A resource of ours, with nothing in it checked but what it claims to be."""

    key: ResourceKey
    value: dict[str, object]
    origin: Origin
    folder: FilePath
    """What its relative file names are relative to."""


@dataclass(slots=True, kw_only=True)
class Reading:
    """What was found. `broken_files` held something that could not even be told apart."""

    resources: list[RawResource] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    broken_files: set[str] = field(default_factory=set)


def read_path(path: FilePath) -> Reading:
    """All resources of the file or folder."""
    reading = Reading()
    try:
        files = list(_files_of(path))
    except OSError as error:
        _unreadable(reading, path, _os_reason(error), "name a file or folder that can be read")
        return reading
    if len(files) > LARGEST_FOLDER_FILES:
        _unreadable(
            reading,
            path,
            f"the folder holds more than {LARGEST_FOLDER_FILES} manifests",
            "put several resources into one file",
        )
        return reading
    left = LARGEST_FOLDER_BYTES
    for file in files:
        left -= _read_file(file, reading, left)
    return reading


def _files_of(path: FilePath) -> Iterator[FilePath]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.iterdir()):
        if file.suffix in SUFFIXES and not file.name.startswith(".") and not file.is_dir():
            yield file


def _read_file(file: FilePath, reading: Reading, limit: int) -> int:
    """Add what the file holds; returns its size."""
    try:
        data = read_bytes(file, limit=min(limit, LARGEST_FILE_BYTES))
    except OSError as error:
        _unreadable(reading, file, _os_reason(error), "name a readable file or folder")
        return 0
    if data is None:
        _unreadable(
            reading,
            file,
            f"it is larger than {LARGEST_FILE_BYTES // 2**20} MiB, "
            f"or the folder than {LARGEST_FOLDER_BYTES // 2**20} MiB",
            "keep only policies in it, split over several files",
        )
        return 0
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        _unreadable(reading, file, "it is not UTF-8 text", "save it as UTF-8", line=line)
        return len(data)
    _read_text(text, file, reading)
    return len(data)


def read_bytes(file: FilePath, *, limit: int) -> bytes | None:
    """The content of a regular file. None: it is larger than the limit. Raises `OSError`."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError("it is not a regular file")
    with file.open("rb") as opened:
        data = opened.read(limit + 1)
    return data if len(data) <= limit else None


def _read_text(text: str, file: FilePath, reading: Reading) -> None:
    for manifest in read_manifests(text):
        if isinstance(manifest, ManifestError):
            reading.broken_files.add(str(file))
            reading.faults.append(
                Fault(
                    kind=FaultKind.SYNTAX,
                    file=str(file),
                    line=manifest.line,
                    path=path_text(manifest.path),
                    reason=manifest.reason,
                    fix=manifest.fix,
                )
            )
        else:
            _sort(manifest.value, Origin(file=str(file), lines=manifest.lines), file, reading, ())


def _sort(value: object, origin: Origin, file: FilePath, reading: Reading, path: Path) -> None:
    """Tell what one document is: ours, a list, or none of our business."""
    if not isinstance(value, dict):
        if value is not None:
            _note(reading, origin, path, "ignored: it is not a resource")
        return
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind == "List" and version == "v1" and isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            where = (*path, "items", index)
            _sort(item, _inner(origin, where), file, reading, ())
        return
    is_our_group = isinstance(version, str) and version.split("/")[0] == GROUP
    if kind in KINDS and version == API_VERSION:
        key = _key_of(str(kind), value)
        reading.resources.append(
            RawResource(key=key, value=value, origin=origin, folder=file.parent)
        )
    elif (
        kind in KINDS
        or is_our_group
        or (isinstance(kind, str) and difflib.get_close_matches(kind, KINDS, cutoff=0.8))
    ):
        _misnamed(value, origin, reading)
    else:
        what = f"kind {shown(str(kind))}" if kind is not None else "it has no kind"
        _note(reading, origin, path, f"ignored: {what}")


def _key_of(kind: str, value: dict[str, object]) -> ResourceKey:
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name, namespace = metadata.get("name"), metadata.get("namespace")
    return ResourceKey(
        kind=kind,
        namespace=namespace if isinstance(namespace, str) and kind == "SLOPolicy" else "",
        name=name if isinstance(name, str) else "",
    )


def _misnamed(value: dict[str, object], origin: Origin, reading: Reading) -> None:
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind in KINDS:
        path, reason = "apiVersion", f"{_quoted(version)} is not a version this giveway knows"
        fix = f"write {API_VERSION}"
    else:
        path, reason = "kind", f"{_quoted(kind)} is not a kind of {GROUP}"
        close = difflib.get_close_matches(str(kind), KINDS, n=1, cutoff=0.5)
        fix = f"write {close[0] if close else ' or '.join(KINDS)}"
    reading.faults.append(
        Fault(
            kind=FaultKind.SCHEMA,
            file=origin.file,
            line=origin.line((path,)),
            path=path,
            reason=reason,
            fix=fix,
            resource=_key_of(str(kind), value) if kind in KINDS else None,
        )
    )
    if kind not in KINDS:
        reading.broken_files.add(origin.file)


def _inner(origin: Origin, path: Path) -> Origin:
    """The origin of a part, with paths that begin at the part."""
    length = len(path)
    lines = {key[length:]: line for key, line in origin.lines.items() if key[:length] == path}
    return Origin(file=origin.file, lines=lines)


def _quoted(value: object) -> str:
    return f"'{shown(value)}'" if isinstance(value, str) else "what it says"


def _note(reading: Reading, origin: Origin, path: Path, text: str) -> None:
    reading.notes.append(Note(file=origin.file, line=origin.line(path), text=text))


def _unreadable(
    reading: Reading, path: FilePath, reason: str, fix: str, *, line: int | None = None
) -> None:
    reading.broken_files.add(str(path))
    reading.faults.append(
        Fault(kind=FaultKind.UNREADABLE, file=str(path), line=line, reason=reason, fix=fix)
    )


def _os_reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
