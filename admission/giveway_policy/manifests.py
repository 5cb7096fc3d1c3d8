"""Which values does a YAML text hold, and on which line does each of them stand?

A text is split at its `---` lines first, so that a broken document spoils none of its neighbours.
Each is then read from the parser's events, not from its objects: that gives lines, and lets bounds
on depth and size hold before memory is spent (an alias counts as large as what it stands for).

Words mean what they mean to kubectl (YAML 1.1, without dates, binary and sexagesimal numbers). Keys
are text. A key that stands twice in one mapping, and a tag that makes an object, are refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import yaml

from giveway_policy.faults import Path, shown

LARGEST_DEPTH = 64
LARGEST_NODES = 500_000
"""Values of one document, aliases counted as what they stand for."""
LONGEST_SHOWN_PATH = 16

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where it is there: tens of times faster. Both give the same events."""

_SEPARATOR = re.compile(r"^---(?=[ \t\r\n]|$)", re.MULTILINE)
_WITHOUT_CONTENT = re.compile(r"\A(?:[ \t]*(?:#.*)?\r?\n|%.*\r?\n|\.\.\.[ \t]*\r?\n)*\Z")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,30})")
_FLOAT = re.compile(
    r"[-+]?(?=[0-9.]*[.eE])(?:\.[0-9]{1,30}|[0-9]{1,30}\.?[0-9]{0,30})(?:[eE][-+]?[0-9]{1,3})?"
)
_TAB_INDENT = re.compile(r" *\t")
_TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset({f"{_TAG}{name}" for name in ("str", "int", "bool", "float", "null")})
_COLLECTION_TAGS = frozenset({f"{_TAG}map", f"{_TAG}seq"})


class _Mark(Protocol):
    """What the parsers' marks have in common."""

    @property
    def line(self) -> int: ...


class ManifestError(ValueError):
    """A document cannot be read. For its author."""

    def __init__(self, reason: str, fix: str, *, line: int | None, path: Path = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        self.line = line
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One YAML document: plain values, and the line of each path, from 1."""

    value: object
    lines: dict[Path, int]


def read_manifests(text: str) -> Iterator[Manifest | ManifestError]:
    """Each document of the text, or why it cannot be read. Raises nothing for what is in it."""
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    line = 0
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if index:
            line += text.count("\n", starts[index - 1], start)
        part = text[start:end]
        if _WITHOUT_CONTENT.match(part if part.endswith("\n") else part + "\n"):
            continue
        try:
            yield _Reader(first_line=line + 1).read(part)
        except ManifestError as error:
            yield error


@dataclass(slots=True, kw_only=True)
class _Anchored:
    value: object
    size: int


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads one document. `nodes` is what was read so far, aliases counted in full."""

    first_line: int
    nodes: int = 0
    lines: dict[Path, int] = field(default_factory=dict)
    anchors: dict[str, _Anchored] = field(default_factory=dict)

    def read(self, text: str) -> Manifest:
        try:
            events = iter(yaml.parse(text, Loader=_LOADER))
            value = self._document(events)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise ManifestError(
                f"it is not YAML: {shown(str(error.problem or error.context))}",
                _syntax_fix(text, mark),
                line=self._line(mark),
            ) from None
        except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, ManifestError):
                raise
            raise ManifestError(
                f"it is not YAML: {shown(str(error).splitlines()[0] if str(error) else '')}",
                "write plain UTF-8 text without control characters",
                line=self.first_line,
            ) from None
        return Manifest(value=value, lines=self.lines)

    def _document(self, events: Iterator[yaml.Event]) -> object:
        value: object = None
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                value = self._node(event, events, (), 0)
        return value

    def _node(
        self, event: yaml.NodeEvent, events: Iterator[yaml.Event], path: Path, depth: int
    ) -> object:
        self.lines.setdefault(path, self._line(event.start_mark))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        before = self.nodes
        self._count(1, event, path)
        if depth > LARGEST_DEPTH:
            raise self._error(
                f"it is nested deeper than {LARGEST_DEPTH}", "flatten it", event, path
            )
        match event:
            case yaml.ScalarEvent():
                value: object = self._scalar(event, path)
            case yaml.MappingStartEvent():
                value = self._mapping(event, events, path, depth)
            case yaml.SequenceStartEvent():
                value = self._sequence(event, events, path, depth)
            case _:
                raise self._error("it is not YAML", "mend the syntax", event, path)
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchored(value=value, size=self.nodes - before)
        return value

    def _alias(self, event: yaml.AliasEvent, path: Path) -> object:
        anchored = self.anchors.get(event.anchor or "")
        if anchored is None:
            raise self._error(
                f"nothing before it is called &{shown(event.anchor or '')}",
                "write the value out",
                event,
                path,
            )
        self._count(anchored.size, event, path)
        return anchored.value

    def _sequence(
        self,
        start: yaml.SequenceStartEvent,
        events: Iterator[yaml.Event],
        path: Path,
        depth: int,
    ) -> list[object]:
        self._check_tag(start, path, _COLLECTION_TAGS)
        items: list[object] = []
        for event in events:
            if not isinstance(event, yaml.NodeEvent):
                break
            items.append(self._node(event, events, (*path, len(items)), depth + 1))
        return items

    def _mapping(
        self,
        start: yaml.MappingStartEvent,
        events: Iterator[yaml.Event],
        path: Path,
        depth: int,
    ) -> dict[str, object]:
        self._check_tag(start, path, _COLLECTION_TAGS)
        found: dict[str, object] = {}
        merged: list[object] = []
        for event in events:
            if not isinstance(event, yaml.NodeEvent):
                break
            key, merges = self._key(event, path)
            where = (*path, key)
            if key in found:
                raise self._error(
                    f"{shown(key)} stands twice here, first on line {self.lines[where]}",
                    "keep one of them",
                    event,
                    where,
                )
            self.lines[where] = self._line(event.start_mark)
            following = next(events)
            if not isinstance(following, yaml.NodeEvent):
                raise self._error("it is not YAML", "mend the syntax", event, where)
            value = self._node(following, events, where, depth + 1)
            if merges:
                merged.extend(value if isinstance(value, list) else [value])
            else:
                found[key] = value
        for value in merged:
            if not isinstance(value, dict):
                raise self._error("<< takes a mapping", "write the fields out", start, path)
            found = {**value, **found}
        return found

    def _key(self, event: yaml.NodeEvent, path: Path) -> tuple[str, bool]:
        """The key, and whether it is `<<`, which merges."""
        self._count(1, event, path)
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None:
            raise self._error("a key has to be plain text", "use text as the key", event, path)
        key = self._checked_text(event, path)
        return key, key == "<<" and event.implicit[0]

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> object:
        self._check_tag(event, path, _SCALAR_TAGS)
        text = self._checked_text(event, path)
        tag = event.tag
        if tag in ("!", f"{_TAG}str") or (tag is None and not event.implicit[0]):
            return text
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        return text

    def _checked_text(self, event: yaml.ScalarEvent, path: Path) -> str:
        text: str = event.value
        if any("\ud800" <= each <= "\udfff" for each in text):
            raise self._error(
                "half of a UTF-16 pair is no character", "write the character itself", event, path
            )
        return text

    def _check_tag(
        self,
        event: yaml.ScalarEvent | yaml.CollectionStartEvent,
        path: Path,
        known: frozenset[str],
    ) -> None:
        if event.tag is not None and event.tag != "!" and event.tag not in known:
            raise self._error(
                f"the tag {shown(event.tag)} is not supported", "remove the tag", event, path
            )

    def _count(self, nodes: int, event: yaml.Event, path: Path) -> None:
        self.nodes += nodes
        if self.nodes > LARGEST_NODES:
            raise self._error(
                f"it holds more than {LARGEST_NODES} values, aliases written out",
                "split it, and use fewer aliases",
                event,
                path,
            )

    def _line(self, mark: _Mark | None) -> int:
        return self.first_line if mark is None else mark.line + self.first_line

    def _error(self, reason: str, fix: str, event: yaml.Event, path: Path) -> ManifestError:
        return ManifestError(
            reason, fix, line=self._line(event.start_mark), path=path[:LONGEST_SHOWN_PATH]
        )


def _syntax_fix(text: str, mark: _Mark | None) -> str:
    """The parsers do not say that it is a tab, and nobody sees it."""
    lines = text.split("\n")
    if mark is not None and mark.line < len(lines) and _TAB_INDENT.match(lines[mark.line]):
        return "indent with spaces: this line begins with a tab"
    return "mend the syntax; mind indentation, colons and quotes"
