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
from giveway_admission.response_heads import BadAnswerError, Framing, ResponseHead

_HEAD_END = b"\r\n\r\n"
_MAXIMUM_HEAD_BYTES = 256 * 1024
"""Of an answer. The engine is trusted to mean well, not to be free of faults."""


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


class Receiver(Protocol):
    """Whoever put the request."""

    def begin_sending(self, connection: "EngineConnection") -> tuple[bytes, bytes]:
        """Head and (first part of the) body; they go over `connection` at once."""

    @property
    def is_head_request(self) -> bool: ...

    def answer_head(self, head: ResponseHead) -> None: ...

    def answer_body(self, data: bytes, body: bytes, now_s: float) -> None:
        """Part of a body: `data` as it came, framing included, and `body` decoded from it."""

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
    """One connection to the engine."""

    __slots__ = (
        *("_head_bytes", "_home", "_keep_alive", "_last_byte_s", "_parser", "_parts", "_receiver"),
        *("_silence", "_tail", "_transport", "_answered", "_complete", "_extra", "_head"),
        *("_head_complete", "_reused", "idle_since_s"),
    )

    def __init__(self, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        self._home = home
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._reused = False
        self._parts: list[bytes] = []
        self._silence = Deadline(loop, self._check_silence)
        self._last_byte_s = 0.0
        self.idle_since_s = 0.0
        self._expect_head()
        self._parser = httptools.HttpResponseParser(self)

    def _expect_head(self) -> None:
        self._head = ResponseHead(status=0, reason=b"")
        self._head_complete = False
        self._head_bytes = 0
        self._tail = b""
        self._answered = False
        self._complete = False
        self._extra = False
        self._keep_alive = False

    # The request's way.

    def send(self, receiver: Receiver) -> None:
        """Put the request of `receiver`; it hears of the answer."""
        transport = self._transport
        assert transport is not None
        assert self._receiver is None
        self._receiver = receiver
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
        try:
            if not self._head_complete:
                data = self._read_head(data)
                if not self._head_complete:
                    return
                receiver.answer_head(self._head)
                if self._receiver is not receiver:
                    return
                if self._head.framing is Framing.NONE:
                    self._end_without_body(extra=bool(data))
                    return
            if data:
                self._parser.feed_data(data)
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
        if data:
            receiver.answer_body(data, body, now_s)
        if self._complete and self._receiver is receiver:
            self._end()

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
        if self._head_complete and self._head.framing is Framing.CLOSE and exc is None:
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
        if self._head_complete:
            self._extra = True

    def on_status(self, reason: bytes) -> None:
        self._head.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head.add_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._complete = True
        self._keep_alive = self._parser.should_keep_alive()

    # Ends.

    def _read_head(self, data: bytes) -> bytes:
        """Read up to the end of the head; what follows it."""
        while True:
            self._answered = True
            tail = self._tail
            end = (tail + data).find(_HEAD_END)
            cut = len(data) if end < 0 else end + len(_HEAD_END) - len(tail)
            piece, rest = data[:cut], data[cut:]
            self._head_bytes += len(piece)
            if self._head_bytes > _MAXIMUM_HEAD_BYTES:
                raise BadAnswerError("response head too large")
            self._parser.feed_data(piece)
            if end < 0:
                self._tail = (tail + data)[-3:]
                return b""
            status = self._parser.get_status_code()
            if status >= 200:
                break
            if status < 100 or status == 101:
                raise BadAnswerError("unexpected status")
            self._expect_head()  # an informational answer: the real one follows
            data = rest
            if not data:
                return b""
        head = self._head
        head.status = status
        receiver = self._receiver
        head.settle(without_body=receiver is not None and receiver.is_head_request)
        self._head_complete = True
        return rest

    def _end_without_body(self, *, extra: bool) -> None:
        if not self._complete or extra:
            # The parser does not know that there is no body (HEAD), or there is one.
            self._keep_alive = False
        self._end()

    def _end(self) -> None:
        receiver = self._receiver
        assert receiver is not None
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
        heard_until_s = self._last_byte_s + self._home.idle_timeout_s
        if heard_until_s > time.monotonic():
            self._silence.set_at(heard_until_s)
        else:
            self._fail(EngineFault.SILENT)
