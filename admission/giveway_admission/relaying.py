"""How do the bytes of the engine's answer become bytes for the client, and what is seen in them?

As they came, framing and all, wherever that is possible. A body is framed anew in three cases only:
the usage event that we asked for is taken out, the client speaks HTTP/1.0, or the head of the
answer had to go out before the engine's (comments to a waiting stream).

What passes is read along the way for the first token, the number of events and the usage; that
never changes or holds back a byte.
"""

from enum import Enum, auto
from typing import Protocol

from giveway_admission.answer_reading import AnswerReader, UsageHider
from giveway_admission.response_heads import Framing

_LONGEST_ERROR_BYTES = 64 * 1024
"""An engine's error that has to be told inside a stream is cut at this."""


class Writer(Protocol):
    """Where the client's bytes go."""

    def write(self, data: bytes) -> None: ...


class Mode(Enum):
    """How a body is written."""

    RAW = auto()
    FRAMED = auto()
    """Decoded, in chunks of our own."""
    PLAIN = auto()
    """Decoded; it ends with the connection."""
    ERROR = auto()
    """An error inside a stream whose head is out: collected, and told as one event."""


class Relay:
    """Passes one answer on."""

    __slots__ = ("_collected", "_hider", "_reader", "_write", "began", "mode")

    def __init__(
        self, writer: Writer, *, mode: Mode, reader: AnswerReader | None, hides_usage: bool
    ) -> None:
        self._write = writer.write
        self._reader = reader
        self._hider = UsageHider() if hides_usage else None
        self._collected = b""
        self.mode = mode
        self.began = False
        """A byte of the body has gone to the client."""

    def pass_on(self, data: bytes, body: bytes) -> None:
        """`data` came, and is `body` without its framing."""
        if self.mode is Mode.RAW:
            self._write(data)
            self.began = True
            if self._reader is not None:
                self._reader.feed(body)
            return
        if not body:
            return
        if self._reader is not None:
            self._reader.feed(body)
        if self._hider is not None:
            body = self._hider.feed(body)
        if body:
            self._write_decoded(body)

    def end(self) -> None:
        """The answer is complete."""
        if self._reader is not None:
            self._reader.end()
        if self._hider is not None:
            rest = self._hider.end()
            if rest:
                self._write_decoded(rest)
        if self.mode is Mode.ERROR:
            self._write(_chunk(b"data: " + b" ".join(self._collected.split()) + b"\n\n"))
        if self.mode in (Mode.FRAMED, Mode.ERROR):
            self._write(b"0\r\n\r\n")

    def _write_decoded(self, body: bytes) -> None:
        if self.mode is Mode.ERROR:
            self._collected += body[: _LONGEST_ERROR_BYTES - len(self._collected)]
            return
        self.began = True
        self._write(_chunk(body) if self.mode is Mode.FRAMED else body)


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def choose_mode(framing: Framing, *, is_1_0: bool, hides_usage: bool, committed: bool) -> Mode:
    """`committed`: a head that promised chunks is out already."""
    if is_1_0:
        return Mode.PLAIN if framing is Framing.CHUNKED else Mode.RAW
    if hides_usage or (committed and framing is not Framing.CHUNKED):
        return Mode.FRAMED
    return Mode.RAW
