"""What does a JSON answer tell, of which only the two ends are kept?

Usage stands near the end of a document, and what it is near its begin. A document that is no longer
than both ends together is read as a whole; of a longer one only the usage and a bad finish reason
are looked for in what was kept.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

import msgspec

KEPT_BYTES: Final = 64 * 1024
"""How much of a document is kept at either end."""

_FAILURES = frozenset({"abort", "error"})
"""Finish reasons by which the engine says that it did not finish."""

_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_FAILED_FINISH = re.compile(rb'"finish_reason"\s*:\s*"(?:abort|error)"')


class _Choice(msgspec.Struct, gc=False):
    finish_reason: object = None


class _Document(msgspec.Struct, gc=False):
    """What of an ordinary document is looked at; the long rest is passed over."""

    usage: object = None
    choices: list[_Choice] | None = None
    error: object = None
    status: object = None
    type: object = None
    stop_reason: object = None


_decode_ordinary = msgspec.json.Decoder(_Document).decode


class AnswerDocument:
    """A JSON body. `feed` its pieces; `usage_report` and `failed` say something after `end`."""

    __slots__ = ("_head", "_length", "_tail", "failed", "usage_report")

    def __init__(self) -> None:
        self._head: bytes | bytearray = b""
        self._tail: bytearray | None = None
        """None: nothing has come behind the head."""
        self._length = 0
        self.usage_report: object = None
        """The engine's `usage` as it wrote it. None: there was none, or it was not found."""
        self.failed = False
        """It says that it was not finished."""

    def feed(self, data: bytes) -> None:
        if not self._length and len(data) <= KEPT_BYTES:
            self._head = data  # all of it, mostly
            self._length = len(data)
            return
        self._length += len(data)
        if not isinstance(self._head, bytearray):
            self._head = bytearray(self._head)
        room = KEPT_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            if self._tail is None:
                self._tail = bytearray()
            self._tail += data[-KEPT_BYTES:]
            if len(self._tail) > 2 * KEPT_BYTES:
                del self._tail[:-KEPT_BYTES]

    def end(self) -> None:
        """The body is complete."""
        head = bytes(self._head)
        tail = b"" if self._tail is None else bytes(self._tail[-KEPT_BYTES:])
        if len(head) + len(tail) < self._length:
            self.failed = bool(_FAILED_FINISH.search(tail) or _FAILED_FINISH.search(head))
            self.usage_report = _last_usage(tail) or _last_usage(head)
            return
        document = _read(head + tail if tail else head)
        if document is not None:
            self.usage_report = document.usage
            self.failed = _says_failure(document)


def _read(text: bytes) -> _Document | None:
    try:
        return _decode_ordinary(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    fields = decode_json(text)
    if not isinstance(fields, dict):
        return None
    choices = fields.get("choices")
    return _Document(
        usage=fields.get("usage"),
        choices=[
            _Choice(choice.get("finish_reason"))
            for choice in (choices if isinstance(choices, list) else ())
            if isinstance(choice, dict)
        ],
        error=fields.get("error"),
        status=fields.get("status"),
        type=fields.get("type"),
        stop_reason=fields.get("stop_reason"),
    )


def _says_failure(document: _Document) -> bool:
    if (
        document.error is not None
        or document.status in ("failed", "cancelled")
        or (document.type == "message" and document.stop_reason is None)
    ):
        return True
    for choice in document.choices or ():  # noqa: SIM110 - there is one: a generator costs more
        if is_failure(choice.finish_reason):
            return True
    return False


def is_failure(finish_reason: object) -> bool:
    return isinstance(finish_reason, str) and finish_reason in _FAILURES


def decode_json(text: bytes) -> object:
    """The JSON value, None if there is none to be read."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        value: object = json.loads(text)  # knows NaN and lone surrogates
    except (ValueError, RecursionError):
        return None
    return value


def _last_usage(text: bytes) -> Mapping[object, object] | None:
    """The last `usage` object in a piece of JSON that counts tokens."""
    decoder = json.JSONDecoder()
    for match in reversed(list(_USAGE.finditer(text))):
        piece = text[match.end() : match.end() + 4096].decode("utf-8", "replace")
        try:
            value = decoder.raw_decode(piece)[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and any(str(name).endswith("_tokens") for name in value):
            return value
    return None
