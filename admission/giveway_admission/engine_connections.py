"""How is one request put to the engine, and how does its answer come back?

`EngineConnection` is one TCP connection to the engine that serves one request after the other. It
finds where heads and bodies end and hands everything to the `Receiver` of the moment; what becomes
of it is decided there.

What always holds
- Between the system's read and the receiver's write there is no task, no future and no queue.
- The write side is never shut while an answer is awaited: vLLM takes a half-close for a client
  that has gone.
- A connection on which anything unexpected was seen is not used again.
"""

import asyncio
import time
from enum import Enum, auto
from typing import Protocol, cast

import httptools

from giveway_admission.deadlines import Deadline
from giveway_admission.repeated_answers import RepeatedAnswer
from giveway_admission.response_heads import (
    BadAnswerError,
    Framing,
    ResponseHead,
    read_response_head,
)

_HEAD_END = b"\r\n\r\n"
_NO_BODY = Framing.NONE
_MAXIMUM_HEAD_BYTES = 256 * 1024
"""Of an answer. The engine is trusted to mean well, not to be free of faults."""
_MOST_INFORMATIONAL = 16
"""Heads like 103 before one answer. Each is a sign of life, so without bound they would keep a seat
for ever."""


class EngineFault(Enum):
    """Why there will be no (more) answer."""

    UNREACHABLE = auto()
    """No connection came about: the engine has seen nothing of the request."""
    STALE = auto()
    """A connection from the pool had been closed meanwhile; nothing of an answer was seen."""
    LOST = auto()
    """The connection ended, or brought nonsense."""
    SILENT = auto()
    """No byte for the idle time-out."""


class Sink(Protocol):
    """Where the body of an answer goes."""

    def pass_on(self, data: bytes, body: bytes, now_s: float, *, complete: bool) -> None:
        """Part of the body: `data` as it came, framing included, and `body` decoded from it."""

    def flush(self) -> None:
        """Nothing of the body came with the head."""


class Receiver(Protocol):
    """Whoever put the request."""

    def begin_sending(self, connection: "EngineConnection") -> tuple[bytes, bytes]:
        """Head and (first part of the) body; they go over `connection` at once."""

    @property
    def is_head_request(self) -> bool: ...

    def answer_head(self, head: ResponseHead) -> Sink: ...

    def answer_end(self) -> None:
        """The answer was complete. The connection is free already."""

    def engine_failed(self, fault: EngineFault) -> None:
        """No more will come. The connection is gone already."""

    def engine_congested(self, congested: bool) -> None:
        """The engine takes the request's body more slowly than it comes."""


class Home(Protocol):
    """Where a connection goes between two requests."""

    idle_timeout_s: float

    def put(self, connection: "EngineConnection") -> None: ...
    def forget(self, connection: "EngineConnection") -> None: ...


class EngineConnection(asyncio.Protocol):
    """One connection to the engine.

    The parser's callbacks for headers and body are methods of a dict and a list: an ordinary chunk
    costs no Python call but ours.
    """

    __slots__ = (
        *("_answered", "_complete", "_extra", "_head_data", "_headers", "_home", "_keep_alive"),
        *("_framing", "_informational", "_last_byte_s", "_parser", "_parts", "_reasons"),
        *("_receiver", "_remaining", "_repeated", "_reused", "_silence", "_sink", "_transport"),
        *("idle_since_s", "on_body", "on_header", "on_status"),
    )

    def __init__(self, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        self._home = home
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._sink: Sink | None = None
        """None: the head of the answer is not complete yet."""
        self._reused = False
        self._informational = 0
        self._repeated = RepeatedAnswer()
        self._silence = Deadline(loop, self._check_silence)
        self._last_byte_s = 0.0
        self.idle_since_s = 0.0
        self._headers: dict[bytes, bytes] = {}
        self._reasons: list[bytes] = []
        self._parts: list[bytes] = []
        self.on_header = self._headers.__setitem__
        self.on_status = self._reasons.append
        self.on_body = self._parts.append
        self._expect_head()
        self._parser = httptools.HttpResponseParser(self)

    def _expect_head(self) -> None:
        self._sink = None
        self._head_data = b""
        self._framing = _NO_BODY
        self._answered = False
        self._complete = False
        self._extra = False
        self._keep_alive = False
        self._remaining = -1
        """Bytes of the body that are still to come. -1: the parser finds its end."""
        self._headers.clear()
        self._reasons.clear()

    # The request's way.

    def send(self, receiver: Receiver) -> None:
        """Put the request of `receiver`; it hears of the answer."""
        transport = self._transport
        assert transport is not None
        assert self._receiver is None
        self._receiver = receiver
        self._informational = 0
        head, body = receiver.begin_sending(self)
        self._last_byte_s = time.monotonic()
        self._silence.set_at(self._last_byte_s + self._home.idle_timeout_s)
        transport.write(head + body if len(body) < 65536 else head)
        if len(body) >= 65536:
            transport.write(body)

    def write_body(self, data: bytes) -> None:
        """More of the request's body, framed by the caller."""
        if self._transport is not None:
            self._last_byte_s = time.monotonic()
            self._transport.write(data)

    def abort(self) -> None:
        """Nobody wants the answer any more: the engine is to see it at once."""
        self._receiver = None
        self._silence.close()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End an idle connection."""
        self._silence.close()
        if self._transport is not None:
            self._transport.close()

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def pause(self) -> None:
        """Read no more of the answer until `resume`: the client does not keep up."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._last_byte_s = time.monotonic()
            self._transport.resume_reading()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:  # an answer to nothing
            self.abort()
            return
        self._last_byte_s = now_s = time.monotonic()
        sink = self._sink
        try:
            if sink is None:
                data = self._read_head(data, receiver)
                sink = self._sink
                if sink is None or self._receiver is not receiver:
                    return
                if self._framing is _NO_BODY:
                    self._end_without_body(receiver, extra=bool(data))
                    return
                if not data:
                    sink.flush()
                    if self._complete:  # a body of no bytes
                        self._end(receiver)
                    return
            if self._remaining < 0:
                self._parser.feed_data(data)
            else:
                self._count(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, BadAnswerError):
            self._fail(EngineFault.LOST)
            return
        if self._extra:
            self._fail(EngineFault.LOST)
            return
        parts = self._parts
        if parts:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
        else:
            body = b""
        if self._complete:
            data = _without_blank_rest(data, body, self._framing)
        sink.pass_on(data, body, now_s, complete=self._complete)
        if self._complete and self._receiver is receiver:
            self._end(receiver)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._silence.close()
        self._home.forget(self)
        receiver = self._receiver
        if receiver is None:
            return
        self._receiver = None
        if self._sink is not None and self._framing is Framing.CLOSE and exc is None:
            receiver.answer_end()
        elif self._reused and not self._answered:
            receiver.engine_failed(EngineFault.STALE)
        else:
            receiver.engine_failed(EngineFault.LOST)

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.engine_congested(True)

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.engine_congested(False)

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self._sink is not None:
            self._extra = True

    def on_message_complete(self) -> None:
        self._complete = True
        self._keep_alive = self._parser.should_keep_alive()

    # Ends.

    def _read_head(self, data: bytes, receiver: Receiver) -> bytes:
        """Read up to the end of the head, and tell of it; what follows it."""
        while True:
            before = self._head_data
            if not before and not self._answered:
                repeated = self._repeated
                known = repeated.recognise(data)
                if known is not None and not receiver.is_head_request:
                    # That one left the connection open, so this one does.
                    self._answered = self._keep_alive = True
                    self._remaining = repeated.body_bytes
                    self._complete = not self._remaining
                    self._framing = known.framing
                    self._sink = receiver.answer_head(known)
                    rest, repeated.rest = repeated.rest, b""
                    return rest
            self._answered = True
            seen = before + data if before else data
            end = seen.find(_HEAD_END, max(0, len(before) - 3))
            if len(seen) > _MAXIMUM_HEAD_BYTES and (end < 0 or end > _MAXIMUM_HEAD_BYTES):
                raise BadAnswerError("response head too large")
            if end < 0:
                self._parser.feed_data(data)
                self._head_data = seen
                return b""
            cut = end + len(_HEAD_END)
            rest = data[cut - len(before) :]
            self._parser.feed_data(data[: cut - len(before)])
            status = self._parser.get_status_code()
            if status >= 200:
                break
            if status < 100 or status == 101:
                raise BadAnswerError("unexpected status")
            self._informational += 1
            if self._informational > _MOST_INFORMATIONAL:
                raise BadAnswerError("informational answers without end")
            self._expect_head()  # the real answer follows
            self._answered = True
            data = rest
            if not data:
                return b""
        head = read_response_head(
            seen[:cut],
            self._headers,
            status=status,
            reason=b"".join(self._reasons),
            without_body=receiver.is_head_request,
        )
        self._framing = head.framing
        self._repeated.remember(seen[:cut], head)
        self._sink = receiver.answer_head(head)
        return rest

    def _count(self, data: bytes) -> None:
        """`data` of a body whose length is known."""
        self._remaining -= len(data)
        self._complete = not self._remaining
        self._extra = self._remaining < 0
        self._parts.append(data)

    def _end_without_body(self, receiver: Receiver, *, extra: bool) -> None:
        if not self._complete or extra:
            # The parser does not know that there is no body (HEAD), or there is one.
            self._keep_alive = False
        self._end(receiver)

    def _end(self, receiver: Receiver) -> None:
        self._receiver = None
        self._silence.clear()
        if self._keep_alive and self.is_usable:
            self._expect_head()
            self._reused = True
            self._home.put(self)
        else:
            self.close()
        receiver.answer_end()

    def _fail(self, fault: EngineFault) -> None:
        receiver = self._receiver
        self.abort()
        if receiver is not None:
            receiver.engine_failed(fault)

    def _check_silence(self) -> None:
        if self._receiver is None:
            return
        if self._transport is not None and not self._transport.is_reading():
            self._last_byte_s = time.monotonic()  # the client is awaited, not the engine
        heard_until_s = self._last_byte_s + self._home.idle_timeout_s
        if heard_until_s > time.monotonic():
            self._silence.set_at(heard_until_s)
        else:
            self._fail(EngineFault.SILENT)


def _without_blank_rest(data: bytes, body: bytes, framing: Framing) -> bytes:
    """The last piece of an answer without line ends behind it, which the parser skips: to a client
    they would come before its next answer."""
    if framing is Framing.LENGTH:
        return body
    end = len(data.rstrip(b"\r\n"))
    return data[: end + 4] if end else data  # what is before them ends with two line ends
