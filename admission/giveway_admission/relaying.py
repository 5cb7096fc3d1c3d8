"""How do the bytes of the engine's answer become bytes for the client, and what is seen in them?

As they came, framing and all, wherever that is possible. A body is framed anew in three cases only:
the usage event that we asked for is taken out, the client speaks HTTP/1.0, or the head of the
answer had to go out before the engine's (comments to a waiting stream).

What passes is read along the way for the first token, the gaps between tokens and the usage; that
never changes or holds back a byte.
"""

from collections.abc import Callable
from enum import Enum, auto

from giveway_admission.answer_reading import AnswerReader
from giveway_admission.response_heads import Framing
from giveway_admission.usage_hiding import UsageHider

_LONGEST_ERROR_BYTES = 64 * 1024
"""An engine's error that has to be told inside a stream is cut at this."""


class Mode(Enum):
    """How a body is written."""

    RAW = auto()
    FRAMED = auto()
    """Decoded, in chunks of our own."""
    PLAIN = auto()
    """Decoded; it ends with the connection."""
    ERROR = auto()
    """An error inside a stream whose head is out: collected, and told as one event."""


_RAW, _FRAMED, _PLAIN, _ERROR = Mode
"""Looking up a member of an enum costs a tenth of a microsecond each time."""


class Relay:
    """Passes one answer on. What belongs together is written together: a write is a system call."""

    __slots__ = (
        *("_collected", "_ended", "_events", "_first_token", "_framed", "_head", "_hider"),
        *("_last_token_s", "_mode", "_observe_gap", "_raw", "_reader", "_write", "began"),
    )

    def __init__(
        self,
        write: Callable[[bytes], None],
        *,
        mode: Mode,
        head: bytes = b"",
        reader: AnswerReader | None = None,
        hides_usage: bool = False,
        first_token: Callable[[float], None] | None = None,
        observe_gap: Callable[[float], None] | None = None,
    ) -> None:
        """`head` goes out before the body, or by `flush`. `reader` None: nothing of the answer is
        read; then the last two are not called."""
        self._write = write
        self._mode = mode
        self._raw = mode is _RAW
        self._framed = mode is _FRAMED
        self._head = head
        self._reader = reader
        self._hider = UsageHider() if hides_usage else None
        self._first_token = first_token
        self._observe_gap = observe_gap
        self._collected = b""
        self._ended = self._raw
        self._events = 0
        self._last_token_s = 0.0
        self.began = False
        """A byte of the body has gone to the client."""

    def flush(self) -> None:
        """Nothing of the body came with the head: let it go alone."""
        if self._head:
            head, self._head = self._head, b""
            self._write(head)

    def pass_on(self, data: bytes, body: bytes, now_s: float, *, complete: bool) -> None:
        """`data` came, and is `body` without its framing; `complete`: it was the last of it."""
        if self._raw:
            if self._head:
                data = self._head + data
                self._head = b""
            self._write(data)
            self.began = True
        else:
            hider = self._hider
            shown = body if hider is None else hider.feed(body)
            if complete:
                self._write_last(shown)
            elif shown and self._framed and not self._head:
                self._write(b"%x\r\n%b\r\n" % (len(shown), shown))
                self.began = True
            else:
                self._write_some(shown)
        reader = self._reader
        if reader is not None and body:
            reader.feed(body)
            events = reader.events
            if events != self._events:
                if self._events:
                    if self._observe_gap is not None:
                        self._observe_gap(now_s - self._last_token_s)
                elif self._first_token is not None:
                    self._first_token(now_s)
                self._events = events
                self._last_token_s = now_s

    def end(self) -> None:
        """The answer is complete."""
        if self._reader is not None:
            self._reader.end()
        if not self._ended:
            self._write_last(b"")
        self.flush()

    def _write_some(self, body: bytes) -> None:
        if self._mode is _ERROR:
            self._collected += body[: _LONGEST_ERROR_BYTES - len(self._collected)]
            return
        out = self._head
        self._head = b""
        if body:
            self.began = True
            out += b"%x\r\n%b\r\n" % (len(body), body) if self._framed else body
        if out:
            self._write(out)

    def _write_last(self, body: bytes) -> None:
        self._ended = True
        if self._hider is not None:
            body += self._hider.end()
        out = self._head
        self._head = b""
        if self._mode is _ERROR:
            self._write_some(body)
            body = b"data: " + b" ".join(self._collected.split()) + b"\n\n"
        else:
            self.began = self.began or bool(body)
        if self._mode is _PLAIN:
            out += body
        elif body:
            out += b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        else:
            out += b"0\r\n\r\n"
        if out:
            self._write(out)


def choose_mode(framing: Framing, *, is_1_0: bool, hides_usage: bool, committed: bool) -> Mode:
    """`committed`: a head that promised chunks is out already."""
    if is_1_0:
        return Mode.PLAIN if framing is Framing.CHUNKED else Mode.RAW
    if hides_usage or (committed and framing is not Framing.CHUNKED):
        return Mode.FRAMED
    return Mode.RAW
