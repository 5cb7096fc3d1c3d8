"""How do bytes on the data port become requests, and who may send how many of them?

`ClientConnection` is one client's connection: requests on it are served one after the other, and
what is sent ahead waits. It finds where heads and bodies end, and hands each request to an
`Exchange`.

What always holds
- Nothing is taken from a stranger without bound: bytes of a head, number of headers, size of a
  body, time for each of them, bytes sent ahead.
- A body up to a limit is held here; of a longer one only the first part, and the rest stays in the
  socket until the engine takes it.
- That a client has gone is seen also while nothing is read from it (`leaving`), queued or not. A
  client that shuts its sending side counts as gone, as it does for vLLM.
- After a refusal that leaves a body unread the connection is closed in a way that lets the client
  see the answer (A19).
"""

import asyncio
import contextlib
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, cast

import httptools

from giveway_admission.answers import make_error
from giveway_admission.chunked_bodies import ChunkedBody
from giveway_admission.deadlines import Deadline
from giveway_admission.exchanges import Exchange
from giveway_admission.outcomes import Outcome
from giveway_admission.request_heads import (
    BadHeadError,
    HeadCollector,
    RequestHead,
    read_request_head,
)

if TYPE_CHECKING:
    from giveway_admission.proxying import Proxy

_HEAD_END = b"\r\n\r\n"
_SENT_AHEAD_BYTES = 64 * 1024
"""More than this of the next requests is left in the socket while one is served."""
_DRAINED_BYTES = 256 * 1024
"""An unread body up to this is read and thrown away, to keep the connection."""
_REFUSED_AT_ONCE = 64
"""So many refused clients may take the time to read why. Others are cut: each takes a file
descriptor from the engine's connections and the admin port."""
_WRITE_BUFFER_BYTES = 64 * 1024
"""More than this unsent to a client stops the reading from the engine."""
_SLOWEST_BODY_BYTES = 256 * 1024
"""In every body time-out a body has to bring this much, or end."""


class _Phase(Enum):
    """What the next bytes are."""

    HEAD = auto()
    BODY = auto()
    """Of the request that is being read."""
    PAUSED_BODY = auto()
    """The first part of a large body is here; the rest comes when the engine takes it."""
    STREAMED_BODY = auto()
    """Goes to the engine as it comes."""
    AHEAD = auto()
    """Of the next request, while one is being served."""
    UNWANTED = auto()
    """Rest of a refused request's body."""
    LAST = auto()
    """Nobody cares: the connection ends."""


(
    _HEAD,
    _BODY,
    _PAUSED_BODY,
    _STREAMED_BODY,
    _AHEAD,
    _UNWANTED,
    _LAST,
) = _Phase
"""Looking up a member of an enum costs a tenth of a microsecond each time."""


class ClientConnection(asyncio.Protocol):
    """One client."""

    __slots__ = (
        *("_ahead", "_body", "_body_bytes", "_body_checked", "_body_done", "_chunks", "_collector"),
        *("_comments", "_comments_s", "_congested", "_deadline", "_exchange", "_head"),
        *("_head_data", "_parser", "_paused", "_phase", "_proxy", "_remaining", "_transport"),
        *("_unsent", "_watched", "ip"),
    )

    def __init__(self, proxy: "Proxy") -> None:
        self._proxy = proxy
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._collector = HeadCollector()
        self._deadline = Deadline(proxy.loop, self._too_late)
        self._comments: Deadline | None = None
        self._comments_s = 0.0
        self._congested = False
        self._paused = False
        self._watched: int | None = None
        self._unsent = 0
        self._ahead = b""
        self._body: list[bytes] = []
        self.ip = b"unknown"
        self._expect_head()

    def _expect_head(self) -> None:
        self._phase = _HEAD
        self._parser: httptools.HttpRequestParser | None = None
        self._head_data = b""
        self._head: RequestHead | None = None
        self._chunks: ChunkedBody | None = None
        if self._body:  # of a request that was refused meanwhile
            self._body = []
        self._body_bytes = 0
        self._body_checked = 0
        self._body_done = False
        self._remaining = 0

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        proxy = self._proxy
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.ip = str(peer[0]).encode("ascii", "replace")
        proxy.connections.add(self)
        excess = len(proxy.connections) - proxy.connection_limit
        if excess > _REFUSED_AT_ONCE:
            proxy.metrics.refused_early(Outcome.QUEUE_FULL)
            self._phase = _LAST
            self._transport.abort()
        elif excess > 0:
            self._refuse(Outcome.QUEUE_FULL, "Too many connections are open here.")
        else:
            self._deadline.set_in(proxy.settings.keep_alive_s)

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase is _HEAD:
            self._read_head(data)
        elif phase is _AHEAD:
            self._ahead += data
            if len(self._ahead) > _SENT_AHEAD_BYTES:
                self._pause()
        elif phase is _UNWANTED:
            self._throw_away(data)
        elif phase is not _LAST:
            self._read_body(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        self._transport = None
        self._phase = _LAST
        self._deadline.close()
        self._stop_comments()
        self._unwatch()
        self._proxy.connection_closed(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_left()

    def pause_writing(self) -> None:
        self._congested = True
        if self._exchange is not None:
            self._exchange.client_congested(True)
        self._watch_writing()

    def resume_writing(self) -> None:
        self._congested = False
        if self._exchange is not None:
            self._exchange.client_congested(False)
            self._deadline.clear()
        elif self._phase is _HEAD:
            self._deadline.set_in(self._proxy.settings.keep_alive_s)

    # Heads.

    def _read_head(self, data: bytes) -> None:
        before = self._head_data
        if not before:
            data = data.lstrip(b"\r\n")  # empty lines before a request begin nothing
            if not data:
                return
        seen = before + data if before else data
        end = seen.find(_HEAD_END, max(0, len(before) - 3))
        cut = len(seen) if end < 0 else end + len(_HEAD_END)
        if cut > self._proxy.settings.maximum_head_bytes:
            self._refuse(Outcome.INVALID_REQUEST, "The request head is too large.", status=431)
            return
        collector = self._collector
        parser = self._parser
        if parser is None:
            collector.clear()
            self._parser = parser = httptools.HttpRequestParser(collector)
        head_data = seen if cut == len(seen) else seen[:cut]
        try:
            parser.feed_data(head_data[len(before) :] if before else head_data)
            if end < 0:
                self._head_data = seen
                if not before:
                    self._deadline.set_in(self._proxy.settings.header_timeout_s)
                return
        except httptools.HttpParserUpgrade:
            pass  # judged with the headers
        except httptools.HttpParserError:
            self._refuse(Outcome.INVALID_REQUEST, "The request is not valid HTTP.")
            return
        try:
            head = read_request_head(
                head_data,
                collector,
                method=parser.get_method(),
                version=parser.get_http_version(),
                maximum_headers=self._proxy.settings.maximum_headers,
            )
        except BadHeadError as error:
            self._refuse(Outcome.INVALID_REQUEST, str(error), status=error.status)
            return
        self._begin(head, seen[cut:])

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        """A head is complete; `rest` came behind it."""
        self._deadline.clear()
        self._head = head
        self._exchange = exchange = Exchange(self._proxy, self, head)
        length = head.content_length or 0
        if not head.chunked and len(rest) >= length:
            # The usual case: the whole body, if there is one, came with the head.
            self._body_done = True
            if len(rest) > length:
                self._ahead = rest[length:]
                rest = rest[:length]
            if exchange.begin():
                self._phase = _AHEAD
                exchange.body_arrived(rest, whole=True)
            return
        self._phase = _BODY
        self._remaining = length
        if head.chunked:
            self._chunks = ChunkedBody()
        if not exchange.begin():
            if rest and self._phase is _UNWANTED:
                self._throw_away(rest)
            return
        if head.expects_continue and not rest:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._deadline.set_in(self._proxy.settings.body_timeout_s)
        if rest:
            self._read_body(rest)

    # Bodies.

    def _read_body(self, data: bytes) -> None:
        if self._chunks is not None:
            self._read_chunks(self._chunks, data)
        else:
            if len(data) > self._remaining:
                self._ahead = data[self._remaining :]
                data = data[: self._remaining]
            self._remaining -= len(data)
            self._body_done = self._remaining == 0
            self._take_body(data)
        if self._phase is _BODY:
            self._judge_body()
        elif self._body_done and self._phase is _STREAMED_BODY:
            self._deadline.clear()
            self._phase = _AHEAD
            if self._exchange is not None:
                self._exchange.body_ended()

    def _read_chunks(self, chunks: ChunkedBody, data: bytes) -> None:
        assert self._head is not None
        try:
            body = chunks.feed(data)
        except httptools.HttpParserError:
            if self._exchange is not None:
                self._exchange.body_malformed()
            return
        self._body_done = chunks.is_complete
        if chunks.has_more_behind:
            # What came behind the body in the same packet is not taken apart: the connection is
            # closed after this answer, and the client sends it again (RFC 9112, 9.3.2).
            self._head.keep_alive = False
        if body:
            self._take_body(body)

    def _take_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        exchange = self._exchange
        if exchange is None:
            return
        if self._body_bytes > self._proxy.settings.maximum_body_bytes:
            if self._phase is not _LAST:
                exchange.body_too_large()
        elif self._phase is _STREAMED_BODY:
            exchange.more_body(data)
        else:
            self._body.append(data)

    def _judge_body(self) -> None:
        """Is enough of the body here to go on?"""
        exchange = self._exchange
        if exchange is None:
            return
        if self._body_done:
            self._deadline.clear()
            self._phase = _AHEAD
        elif (
            self._body_bytes >= self._proxy.settings.buffered_body_bytes
            and not exchange.wants_whole_body
        ):
            self._deadline.clear()
            self._phase = _PAUSED_BODY
            self._pause()
        else:
            return
        parts, self._body = self._body, []
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        exchange.body_arrived(body, whole=self._body_done)

    def read_on(self) -> None:
        """The engine takes the rest of the large body now: let it come, after what is at hand."""
        self._proxy.loop.call_soon(self._stream_body)

    def _stream_body(self) -> None:
        exchange = self._exchange
        if exchange is None or self._phase is not _PAUSED_BODY:
            return
        self._phase = _STREAMED_BODY
        parts, self._body = self._body, []
        for part in parts:  # what the loop had read already when reading was paused
            exchange.more_body(part)
        self._body_checked = self._body_bytes
        self._deadline.set_in(self._proxy.settings.body_timeout_s)
        self._resume()
        if self._body_done:
            self._deadline.clear()
            self._phase = _AHEAD
            exchange.body_ended()

    def hold_body(self, held: bool) -> None:
        """The engine takes the body more slowly than it comes, or keeps up again."""
        if self._phase is _STREAMED_BODY:
            if held:
                self._pause()
            else:
                self._resume()

    # For the exchange.

    @property
    def keeps_alive(self) -> bool:
        """Another request may follow on this connection."""
        head = self._head
        return (
            head is not None
            and head.keep_alive
            and not self._proxy.draining
            and (self._body_done or self._may_throw_away(head))
        )

    def _may_throw_away(self, head: RequestHead) -> bool:
        return not head.chunked and not head.expects_continue and self._remaining <= _DRAINED_BYTES

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def direct_write(self) -> Callable[[bytes], None]:
        """For many writes while the connection lives: the transport's own."""
        assert self._transport is not None
        return self._transport.write

    def comment_every(self, interval_s: float) -> None:
        """Let the exchange comment its waiting until its answer comes."""
        self._comments_s = interval_s
        self._comments = Deadline(self._proxy.loop, self._comment)
        self._comments.set_in(interval_s)

    def _comment(self) -> None:
        exchange = self._exchange
        if exchange is None or not exchange.awaits_answer or self._comments is None:
            return
        if not self._congested:
            exchange.keep_waiting()
        self._comments.set_in(self._comments_s)

    def _stop_comments(self) -> None:
        if self._comments is not None:
            self._comments.close()
            self._comments = None

    def end_exchange(self, *, close: bool) -> None:
        """The answer is written: next request, or end."""
        close = close or not self.keeps_alive
        self._exchange = None
        self._stop_comments()
        if self._transport is None:
            return
        if self._body_done:
            if close:
                self._close()
            else:
                self._next_request()
        elif close:
            self._linger()
        else:
            self._phase = _UNWANTED
            self._resume()
            self._deadline.set_in(self._proxy.settings.body_timeout_s)

    def break_off(self, *, hard: bool) -> None:
        """The answer can't be completed: let the client see that it is cut."""
        self._exchange = None
        self._stop_comments()
        self._phase = _LAST
        if self._transport is not None:
            if hard:
                self._transport.abort()
            else:
                self._close()

    def close_idle(self) -> None:
        """The proxy ends: nothing more is served here, what is written still goes out."""
        if self._exchange is None and self._phase is not _LAST:
            self._close()

    def cut(self) -> None:
        """End at once, whatever is going on."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def exchange(self) -> Exchange | None:
        """What is being served. None: nothing."""
        return self._exchange

    @property
    def held_ahead_bytes(self) -> int:
        """Of requests after the one that is being served."""
        return len(self._ahead)

    # Between requests.

    def _next_request(self) -> None:
        ahead, self._ahead = self._ahead, b""
        self._expect_head()
        self._resume()
        if self._congested:
            self._watch_writing()
        else:
            self._deadline.set_in(self._proxy.settings.keep_alive_s)
        if ahead:
            self._phase = _AHEAD  # until the loop comes to it, so that nobody starves
            self._ahead = ahead
            self._proxy.loop.call_soon(self._take_ahead)

    def _take_ahead(self) -> None:
        if self._phase is _AHEAD and self._exchange is None:
            ahead, self._ahead = self._ahead, b""
            self._phase = _HEAD
            self._read_head(ahead)

    def _throw_away(self, data: bytes) -> None:
        if len(data) > self._remaining:
            self._ahead = data[self._remaining :]
            data = data[: self._remaining]
        self._remaining -= len(data)
        if self._remaining == 0:
            self._next_request()

    def _refuse(self, outcome: Outcome, message: str, *, status: int | None = None) -> None:
        """Answer what can't be read as a request, and end."""
        self._proxy.metrics.refused_early(outcome)
        hint_s = 1.0 if outcome is Outcome.QUEUE_FULL else None
        error = make_error(outcome, message, status=status, retry_after_s=hint_s)
        self.write(error.encode(close=True))
        self._linger()

    # Ends.

    def _close(self) -> None:
        """End after what is written has gone out."""
        self._phase = _LAST
        if self._transport is not None:
            self._transport.close()
            self._unsent = self._transport.get_write_buffer_size()
            self._deadline.set_in(self._proxy.settings.write_timeout_s)

    def _linger(self) -> None:
        """As `_close`, though the client still sends: wait for its end a little, so that what it
        has sent does not make the system throw away our answer."""
        self._phase = _LAST
        if self._transport is None:
            return
        self._resume()
        with contextlib.suppress(OSError, RuntimeError):
            self._transport.write_eof()
        self._deadline.set_in(self._proxy.settings.linger_s)

    def _too_late(self) -> None:
        """Something took too long."""
        transport, exchange = self._transport, self._exchange
        if transport is None:
            return
        settings = self._proxy.settings
        if self._congested:
            unsent = transport.get_write_buffer_size()
            if unsent < self._unsent:
                self._watch_writing()
            else:
                transport.abort()
        elif exchange is not None and self._phase in (_BODY, _STREAMED_BODY):
            if self._body_bytes - self._body_checked >= _SLOWEST_BODY_BYTES or self._paused:
                self._body_checked = self._body_bytes
                self._deadline.set_in(settings.body_timeout_s)
            else:
                exchange.body_too_slow()
        elif self._phase is _HEAD and self._head_data:
            self._refuse(Outcome.INVALID_REQUEST, "The request head came too slowly.", status=408)
        elif self._phase is _HEAD and not transport.get_write_buffer_size():
            transport.close()
        else:
            transport.abort()

    def _watch_writing(self) -> None:
        if self._transport is not None:
            self._unsent = self._transport.get_write_buffer_size()
            self._deadline.set_in(self._proxy.settings.write_timeout_s)

    # Reading and not reading.

    def _pause(self) -> None:
        transport = self._transport
        if transport is None or self._paused or transport.is_closing():
            return
        self._paused = True
        transport.pause_reading()
        self._watched = self._proxy.leaving.watch(transport, self.cut)

    def _resume(self) -> None:
        transport = self._transport
        if transport is None or not self._paused:
            return
        self._paused = False
        self._unwatch()
        if not transport.is_closing():
            transport.resume_reading()

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._proxy.leaving.unwatch(self._watched)
            self._watched = None
