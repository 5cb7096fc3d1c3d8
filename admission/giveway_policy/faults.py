"""What is wrong with a resource, and what would mend it?

A fault names file, line, path, reason and fix, so that its author needs nothing else. It never
holds the value of a credential.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Path = tuple[str | int, ...]
"""Where in a resource: ("spec", "classes", 1, "weight")."""


class FaultKind(StrEnum):
    """Bounded, since it becomes a metrics label."""

    UNREADABLE = "unreadable"
    """The file or folder cannot be read at all."""
    SYNTAX = "syntax"
    """It is not YAML, or YAML that means different things to different readers."""
    SCHEMA = "schema"
    """A field is unknown, missing, or of the wrong form."""
    MEANING = "meaning"
    """Each field is right, together they are not."""
    CONFLICT = "conflict"
    """Two resources claim the same."""
    CREDENTIALS = "credentials"
    """The keys that a tenant names cannot be had."""
    FORMAT = "format"
    """A policy document of another version than this giveway reads."""
    HASH = "hash"
    """A policy document that was altered or cut on its way."""
    OLDER = "older"
    """A policy document that another one, already in force, has overtaken."""
    NOT_APPLIED = "not_applied"
    """It was right, and could not be put in force: a fault of giveway."""


class ResourceKey(NamedTuple):
    """What makes a resource the same one after an edit."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a resource was read."""

    file: str
    """As the user named it, or what stands for it where there is no file."""
    lines: Mapping[Path, int] = field(default_factory=dict)
    """Line of each path, from 1. Empty: it has none."""

    def line(self, path: Path) -> int | None:
        """Line of the path, or of the nearest part around it. None: unknown."""
        for length in range(len(path), -1, -1):
            found = self.lines.get(path[:length])
            if found is not None:
                return found
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why something was left out. As text: `file:line: path: reason (fix)`."""

    kind: FaultKind
    file: str
    reason: str
    fix: str
    line: int | None = None
    """None: it is not about a line."""
    path: str = ""
    """Empty: it is about the whole."""
    resource: ResourceKey | None = None
    """None: it is not known which resource it would have been."""
    last_good_in_force: bool = False
    """A former version of it, which had no fault, goes on being in force."""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        path = f"{self.path}: " if self.path else ""
        kept = "; its last good version stays in force" if self.last_good_in_force else ""
        return f"{where}: {path}{self.reason} ({self.fix}){kept}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something its author may want to know, and nothing is left out for it."""

    file: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.text}"


class PolicyError(ValueError):
    """There is no policy that could be put in force. For its author."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A fault before it is known where the resource stands."""

    path: Path
    reason: str
    fix: str
    kind: FaultKind = FaultKind.MEANING

    def located(self, origin: Origin, resource: ResourceKey | None) -> Fault:
        return Fault(
            kind=self.kind,
            file=origin.file,
            line=origin.line(self.path),
            path=path_text(self.path),
            reason=self.reason,
            fix=self.fix,
            resource=resource,
        )


def path_text(path: Path) -> str:
    """("spec", "classes", 1, "weight") as `spec.classes[1].weight`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{shown(part)}" if text else shown(part)
    return text


def shown(text: str) -> str:
    """Text from outside, in one short line without control characters."""
    cleaned = "".join(each if each.isprintable() else "?" for each in text[:80])
    return f"{cleaned}..." if len(text) > 80 else cleaned
