"""How does a client that did not ask for usage get its stream as if we had not asked either?

The engine sends usage in an event of its own, with an empty list of choices. That event is taken
out; every other byte passes. An event is held back while it is incomplete, and no longer.
"""

import re
from typing import Final

from giveway_admission.answer_documents import decode_json

LONGEST_HELD_BYTES: Final = 64 * 1024
"""An event that is longer can't be one of usage alone, and is not held back."""

_EVENT_END = re.compile(rb"\r?\n\r?\n")
_LOOK_BACK = 3
"""How many bytes of an event's end may stand before a cut."""

_CHOICES = b'"choices":[{'


class UsageHider:
    """Filters one stream. `feed` each piece, write what it returns, then `end`."""

    __slots__ = ("_held", "_ordinary", "_passing")

    def __init__(self) -> None:
        self._held = bytearray()
        """The begin of an event; while `_passing` the last bytes of what was passed on."""
        self._passing = False
        """In an event that is too long to be held."""
        self._ordinary = b"\n"
        """How an event with choices begins in this stream; no event begins with a line's end."""

    def feed(self, data: bytes) -> bytes:
        """The next piece of the stream, in any cut; returns what may be passed on now."""
        if (
            data.startswith(self._ordinary)
            and data.endswith(b"\n\n")
            and data.count(b"\n") == 2
            and not self._held
        ):
            return data  # one whole event that has choices
        return self._filter(data)

    def end(self) -> bytes:
        """The stream is over; returns what was held back, unless it is to be hidden."""
        held, self._held = bytes(self._held), bytearray()
        if self._passing or _is_usage_alone(held):
            return b""
        return held

    def _filter(self, data: bytes) -> bytes:
        if not self._held and data.endswith(b"\n\n") and b"[]" not in data:
            self._learn(data)
            return data  # whole events, none without choices
        passed: list[bytes] = []
        if self._passing:
            data = self._pass_long_event(data, passed)
        search_from = max(0, len(self._held) - _LOOK_BACK)
        if not self._passing:
            self._held += data
            start = 0
            for match in _EVENT_END.finditer(self._held, search_from):
                event = bytes(self._held[start : match.end()])
                start = match.end()
                if not _is_usage_alone(event):
                    passed.append(event)
            if start:
                del self._held[:start]
            if len(self._held) > LONGEST_HELD_BYTES:
                passed.append(bytes(self._held))
                del self._held[:-_LOOK_BACK]
                self._passing = True
        return b"".join(passed)

    def _pass_long_event(self, data: bytes, passed: list[bytes]) -> bytes:
        """Pass on up to the long event's end; returns what follows it."""
        seen = bytes(self._held) + data
        match = _EVENT_END.search(seen)
        if match is None:
            passed.append(data)
            self._held = bytearray(seen[-_LOOK_BACK:])
            return b""
        end = match.end() - len(self._held)
        passed.append(data[:end])
        self._held.clear()
        self._passing = False
        return data[end:]

    def _learn(self, events: bytes) -> None:
        """Remember how events with choices begin: the part before the choices never changes."""
        if self._ordinary == b"\n" and events.startswith(b"data: {"):
            at = events.find(_CHOICES, 0, events.index(b"\n"))
            if at >= 0:
                self._ordinary = events[: at + len(_CHOICES)]


def _is_usage_alone(event: bytes) -> bool:
    if b"[]" not in event or len(event) > LONGEST_HELD_BYTES:
        return False
    lines = [line[5:] for line in event.splitlines() if line.startswith(b"data:")]
    value = decode_json(b"\n".join(lines))
    return (
        isinstance(value, dict)
        and value.get("choices") == []
        and "usage" in value
        and "error" not in value
    )
