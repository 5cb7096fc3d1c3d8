"""Which API keys does a tenant have, without ever keeping one?

A key is read, digested with SHA-256 and forgotten. Keys are long random strings, so that a plain
digest cannot be turned back.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path as FilePath

from giveway_policy.faults import FaultKind, Path, Problem, shown
from giveway_policy.reading import read_bytes
from giveway_policy.tenants import TenantPrioritySpec

LARGEST_KEY_FILE_BYTES = 2**20
_KEY = re.compile(rb"[!-~]{8,512}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReading:
    """What the key files of one tenant gave."""

    digests: tuple[str, ...] = ()
    """SHA-256, lower-case hex, sorted, each once."""
    files: tuple[FilePath, ...] = ()
    """What was looked at, there or not: when one changes, the digests do."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[tuple[Path, str], ...] = ()


def digest_key(key: bytes) -> str:
    """What stands for the key in a policy document."""
    return hashlib.sha256(key).hexdigest()


def is_key(key: bytes) -> bool:
    """Whether it can be an API key: 8 to 512 printable characters without spaces."""
    return _KEY.fullmatch(key) is not None


def read_keys(tenant: TenantPrioritySpec, folder: FilePath) -> KeyReading:
    """Digests of all keys in the tenant's key files, which are relative to the folder."""
    digests: set[str] = set()
    files: list[FilePath] = []
    problems: list[Problem] = []
    notes: list[tuple[Path, str]] = []
    for index, each in enumerate(tenant.recognized_by):
        if each.api_key is None:
            continue
        path: Path = ("spec", "recognizedBy", index, "apiKey")
        if each.api_key.secret_ref is not None:
            reference = each.api_key.secret_ref
            text = f"the Secret {reference.namespace}/{reference.name} cannot be read outside "
            notes.append((path, f"{text}Kubernetes: its keys are unknown here"))
        if each.api_key.key_file is not None:
            where = (*path, "keyFile")
            try:
                file = folder / each.api_key.key_file
                files.append(file)
                found = _read_key_file(file, where)
            except (OSError, ValueError) as error:
                found = _cannot_read(where, error)
            if isinstance(found, Problem):
                problems.append(found)
            elif found:
                digests |= found
            else:
                notes.append((where, "the key file holds no key"))
    return KeyReading(
        digests=tuple(sorted(digests)),
        files=tuple(files),
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _read_key_file(file: FilePath, path: Path) -> set[str] | Problem:
    data = read_bytes(file, limit=LARGEST_KEY_FILE_BYTES)
    if data is None:
        return _problem(path, "the key file is larger than 1 MiB", "keep only keys in it")
    digests: set[str] = set()
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        key = line.strip()
        if not key or key.startswith(b"#"):
            continue
        if not is_key(key):
            return _problem(
                path,
                f"line {number} of the key file is no key",
                "write one key a line: 8 to 512 printable characters without spaces",
            )
        digests.add(digest_key(key))
    return digests


def _cannot_read(path: Path, error: OSError | ValueError) -> Problem:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return _problem(
        path,
        f"the key file cannot be read: {shown(reason.lower())}",
        "name a readable file, relative to the file of this resource",
    )


def _problem(path: Path, reason: str, fix: str) -> Problem:
    return Problem(path=path, reason=reason, fix=fix, kind=FaultKind.CREDENTIALS)
