"""How is one field of a JSON body changed while every other byte stays as it was?

The members of the top-level object are found by a scan that steps over strings and nested values
without building anything. Whoever reads the body takes the last of several equal keys (Python's
json, and so vLLM, does), hence the last one is what counts here too.

Every pattern is possessive: no input makes the scan go back, so it is linear in the body's length.
What it costs grows with the pieces of the JSON, so their number is bounded too: what is long and
crowded is not scanned, and gets our member as its last one, which needs no scan.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from giveway_admission.text_skimming import MOST_PIECES, is_crowded

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_WHOLE_STRING = re.compile(_STRING, re.DOTALL)
_KEY = re.compile(rb"[ \t\n\r]*+(" + _STRING + rb")[ \t\n\r]*+:[ \t\n\r]*+", re.DOTALL)
_SPACE = re.compile(rb"[ \t\n\r]*+")
_SCALAR = re.compile(rb"[^,}\]\[{\" \t\n\r]++")
_STRUCTURE = re.compile(rb'[^"{}\[\]]*+(?:' + _STRING + rb"?+|([{\[])|([}\]])|\Z)", re.DOTALL)
"""A string (an unfinished one reaches to the end), an opening (group 1), a closing (group 2), or
the end, each with what stands before it: it matches everywhere, or a search would try each place.
"""

_OPENINGS = frozenset(b"{[")
_QUOTE = ord('"')
_COMMA = ord(",")
_BRACE = ord("}")

LONGEST_SCANNED_BYTES = 256 * 1024
"""What is longer is never scanned as a whole."""

_MOST_STEPS = 4 * MOST_PIECES + 16 * 1024
"""Strings and brackets inside of values that a scan steps over, half a microsecond each: more than
a body that is not crowded can have."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class MalformedBodyError(ValueError):
    """The body is not one JSON object."""


class Member(NamedTuple):
    """Where one member of an object stands in the bytes."""

    key: str
    start: int
    """Of the key's opening quote."""
    value_start: int
    value_end: int


def find_members(body: bytes, *, start: int = 0, most_steps: int = _MOST_STEPS) -> Iterator[Member]:
    """The members of the object that begins at or after `start`, in order.

    `most_steps`: so many strings and brackets inside of values are stepped over.
    Raises `MalformedBodyError` where the text ends or errs; what was found before is good.
    """
    position = _after_space(body, start)
    if body[position : position + 1] != b"{":
        raise MalformedBodyError("not an object")
    position += 1
    steps = most_steps
    if body[_after_space(body, position) : _after_space(body, position) + 1] == b"}":
        return
    while True:
        match = _KEY.match(body, position)
        if match is None:
            raise MalformedBodyError("a key is missing")
        end, steps = _skip_value(body, match.end(), steps)
        yield Member(_read_key(match[1]), match.start(1), match.end(), end)
        position = _after_space(body, end)
        if position >= len(body) or body[position] not in (_COMMA, _BRACE):
            raise MalformedBodyError("an object is not closed")
        if body[position] == _BRACE:
            return
        position += 1


def object_start(body: bytes) -> int:
    """The index of the `{` that opens the body."""
    start = len(_BYTE_ORDER_MARK) if body.startswith(_BYTE_ORDER_MARK) else 0
    start = _after_space(body, start)
    if body[start : start + 1] != b"{":
        raise MalformedBodyError("not an object")
    return start


def insert_member(body: bytes, member: bytes, *, start: int) -> bytes:
    """Put `member` first into the object that opens at `start`."""
    after = start + 1
    following = _after_space(body, after)
    comma = b"" if body[following : following + 1] == b"}" else b","
    return b"".join((body[:after], member, comma, body[after:]))


def remove_members(body: bytes, name: str, *, start: int) -> bytes:
    """Take every member called `name` out of the object that opens at `start`."""
    members = tuple(find_members(body, start=start))
    kept = [index for index, member in enumerate(members) if member.key != name]
    if len(kept) == len(members):
        return body
    parts: list[bytes] = [body[: members[0].start]]
    previous: int | None = None
    for index in kept:
        if previous == index - 1 and previous is not None:
            parts.append(body[members[previous].value_end : members[index].start])
        elif previous is not None:
            parts.append(b",")
        parts.append(body[members[index].start : members[index].value_end])
        previous = index
    parts.append(body[members[-1].value_end :])
    return b"".join(parts)


def with_usage_asked(body: bytes) -> bytes:
    """The body with `stream_options.include_usage` true; else byte-identical.

    `stream_options` that is neither an object nor null stays: the engine refuses it. In a body that
    is crowded it is not looked for: what stands last counts, and that is ours.
    Raises `MalformedBodyError` for a body that is not one JSON object.
    """
    start = object_start(body)
    options: Member | None = None
    if _may_hold(body, b"stream_options"):
        if is_crowded(body):
            return _append_member(body, b'"stream_options":{"include_usage":true}')
        for member in find_members(body, start=start):
            if member.key == "stream_options":
                options = member
    if options is None:
        return insert_member(body, b'"stream_options":{"include_usage":true}', start=start)
    value = body[options.value_start : options.value_end]
    if value == b"null":
        return _replace(body, options, b'{"include_usage":true}')
    if not value.startswith(b"{"):
        return body
    asked: Member | None = None
    for member in find_members(body, start=options.value_start):
        if member.key == "include_usage":
            asked = member
    if asked is None:
        return insert_member(body, b'"include_usage":true', start=options.value_start)
    return _replace(body, asked, b"true")


def with_priority(body: bytes, priority: int | None) -> bytes:
    """The body with this `priority` as its only one; None: with none. Else byte-identical.

    A body that is too long or crowded to be scanned gets ours as its last, which is the one that
    counts (0, the engine's default, for None); if it does not end like an object, it is none, and
    stays. Raises `MalformedBodyError` for a shorter body that is not one JSON object.
    """
    if len(body) > LONGEST_SCANNED_BYTES:
        return _append_member(body, b'"priority":%d' % (priority or 0))
    start = object_start(body)
    if _may_hold(body, b"priority"):
        if is_crowded(body):
            return _append_member(body, b'"priority":%d' % (priority or 0))
        body = remove_members(body, "priority", start=start)
    if priority is None:
        return body
    return insert_member(body, b'"priority":%d' % priority, start=start)


def _append_member(body: bytes, member: bytes) -> bytes:
    end = len(body.rstrip(b" \t\n\r")) - 1
    if body[end : end + 1] != b"}" or _after_space(body, object_start(body) + 1) == end:
        return body
    return b"".join((body[:end], b",", member, body[end:]))


def _may_hold(body: bytes, key: bytes) -> bool:
    """False only if no key of the body can read as `key`: an ASCII letter may be escaped."""
    return key in body or (b"\\" in body and b"\\u00" in body)


def _replace(body: bytes, member: Member, value: bytes) -> bytes:
    return b"".join((body[: member.value_start], value, body[member.value_end :]))


def _after_space(body: bytes, position: int) -> int:
    match = _SPACE.match(body, position)
    return match.end() if match is not None else position


def _read_key(quoted: bytes) -> str:
    if b"\\" not in quoted:
        return quoted[1:-1].decode("utf-8", "replace")
    try:
        key = json.loads(quoted)
    except ValueError:
        raise MalformedBodyError("a key is not a string") from None
    return str(key)


def _skip_value(body: bytes, position: int, steps: int) -> tuple[int, int]:
    """(index after the value that begins at `position`, how many of the steps are left)."""
    if position >= len(body):
        raise MalformedBodyError("a value is missing")
    first = body[position]
    if first == _QUOTE:
        match = _WHOLE_STRING.match(body, position)
        if match is None:
            raise MalformedBodyError("a string is not closed")
        return match.end(), steps
    if first not in _OPENINGS:
        match = _SCALAR.match(body, position)
        if match is None:
            raise MalformedBodyError("a value is missing")
        return match.end(), steps
    depth = 0
    for match in islice(_STRUCTURE.finditer(body, position), steps):
        steps -= 1
        kind = match.lastindex
        if kind == 1:
            depth += 1
        elif kind == 2:
            depth -= 1
            if depth == 0:
                return match.end(), steps
    raise MalformedBodyError("a value is not closed, or has too many pieces")
