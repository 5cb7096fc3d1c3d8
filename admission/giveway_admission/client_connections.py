"""How do bytes on the data port become requests, and who may send how many of them?

`ClientConnection` is one client's connection: requests on it are served one after the other, and
what is sent ahead waits. `head_reading` and `incoming_bodies` say where heads and bodies end; each
request is handed to an `Exchange`.

What always holds
- Nothing is taken from a stranger without bound: bytes of a head, number of headers, size of a
  body, time for each of them, bytes sent ahead.
- A body up to a limit is held here; of a longer one only the first part, and the rest stays in the
  socket until the engine takes it. What all clients together may have here is bounded (`arriving`).
- That a client has gone is seen also while nothing is read from it (`leaving`), queued or not. A
  client that shuts its sending side counts as gone, as it does for vLLM.
- After a refusal that leaves a body unread the connection is closed in a way that lets the client
  see the answer (A19).
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, cast

import httptools

from giveway_admission.answers import make_error
from giveway_admission.arriving import Room
from giveway_admission.deadlines import Deadline
from giveway_admission.exchanges import Exchange
from giveway_admission.head_reading import HeadReader
from giveway_admission.incoming_bodies import IncomingBody
from giveway_admission.logs import log_event
from giveway_admission.outcomes import Outcome
from giveway_admission.request_heads import BadHeadError, RequestHead
from giveway_admission.unsent import ReadingPace, unsent_bytes

if TYPE_CHECKING:
    from giveway_admission.proxying import Proxy

_logger = logging.getLogger(__name__)

_SENT_AHEAD_BYTES = 64 * 1024
"""More than this of the next requests is left in the socket while one is served."""
_REFUSED_AT_ONCE = 64
"""So many refused clients may take the time to read why. Others are told and closed at once: each
takes a file descriptor from the engine's connections and the admin port."""
_WRITE_BUFFER_BYTES = 64 * 1024
"""More than this unsent to a client stops the reading from the engine."""
_RETRY_S = 1.0
_NO_PLACE = "Too many connections are open here."
_NO_ROOM = "Too much is arriving here at once. Send the request again."


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
        *("_ahead", "_body", "_comments", "_comments_s", "_congested", "_deadline", "_exchange"),
        *("_flushing", "_forgot_ahead", "_head", "_heads", "_pace", "_paused", "_phase", "_proxy"),
        *("_room", "_transport", "_watched", "ip"),
    )

    def __init__(self, proxy: "Proxy") -> None:
        self._proxy = proxy
        self._transport: asyncio.Transport | None = None
        self._phase = _HEAD
        self._heads = HeadReader(proxy.settings)
        self._head: RequestHead | None = None
        self._body: IncomingBody | None = None
        """Of the request that is read or served. None: all of it, if any, came with the head."""
        self._exchange: Exchange | None = None
        self._deadline = Deadline(proxy.loop, self._too_late)
        self._comments: Deadline | None = None
        self._comments_s = 0.0
        self._congested = False
        self._paused = False
        self._flushing = False
        """Closed as soon as what is written has gone out."""
        self._watched: int | None = None
        settings = proxy.settings
        self._pace = ReadingPace(
            write_timeout_s=settings.write_timeout_s,
            minimum_bytes_per_s=settings.minimum_read_bytes_per_s,
        )
        self._ahead = b""
        self._forgot_ahead = False
        self._room = Room(proxy.arriving, self._room_made)
        self.ip = b"unknown"

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
            self._refuse(Outcome.QUEUE_FULL, _NO_PLACE, lingers=False)
        elif excess > 0:
            self._refuse(Outcome.QUEUE_FULL, _NO_PLACE)
        else:
            self._deadline.set_in(proxy.settings.keep_alive_s)

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase is _HEAD:
            self._read_head(data)
        elif phase is _AHEAD:
            self._keep_ahead(data)
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
        self._room.free()
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
            if self._phase in (_BODY, _STREAMED_BODY):
                self._deadline.set_in(self._proxy.settings.body_timeout_s)
            else:
                self._deadline.clear()
        elif self._phase is _HEAD:
            self._deadline.set_in(self._proxy.settings.keep_alive_s)

    # Heads.

    def _read_head(self, data: bytes) -> None:
        heads = self._heads
        had_begun = heads.has_begun
        try:
            head = heads.feed(data)
        except BadHeadError as error:
            self._refuse(Outcome.INVALID_REQUEST, str(error), status=error.status)
            return
        if head is not None:
            rest, heads.rest = heads.rest, b""
            self._begin(head, rest)
        elif not self._room.grow_to(heads.held_bytes):
            self._refuse(Outcome.QUEUE_FULL, _NO_ROOM)
        elif heads.has_begun and not had_begun:
            self._deadline.set_in(self._proxy.settings.header_timeout_s)

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        """A head is complete; `rest` came behind it."""
        self._deadline.clear()
        self._room.free()
        self._head = head
        self._exchange = exchange = Exchange(self._proxy, self, head)
        length = head.content_length or 0
        if not head.chunked and len(rest) >= length:
            # The usual case: the whole body, if there is one, came with the head.
            if len(rest) > length:
                self._keep_ahead(rest[length:])
                rest = rest[:length]
            if exchange.begin():
                self._phase = _AHEAD
                exchange.body_arrived(rest, whole=True)
            return
        self._phase = _BODY
        self._body = IncomingBody(head)
        if not exchange.begin():
            if rest and self._phase is _UNWANTED:
                self._throw_away(rest)
            return
        self._deadline.set_in(self._proxy.settings.body_timeout_s)
        if rest:
            self._read_body(rest)
        elif self._make_room(exchange, self._body):
            self._invite_body(self._body)

    def _invite_body(self, body: IncomingBody) -> None:
        assert self._head is not None
        if self._head.expects_continue and not body.received_bytes:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # Bodies.

    def _read_body(self, data: bytes) -> None:
        body = self._body
        assert body is not None
        try:
            data = body.take(data)
        except httptools.HttpParserError:
            if self._exchange is not None:
                self._exchange.body_malformed()
            return
        if body.ahead:
            ahead, body.ahead = body.ahead, b""
            self._keep_ahead(ahead)
        if data:
            self._take_body(body, data)
        if self._phase is _BODY:
            self._judge_body(body)
        elif body.is_complete and self._phase is _STREAMED_BODY:
            self._deadline.clear()
            self._phase = _AHEAD
            if self._exchange is not None:
                self._exchange.body_ended()

    def _take_body(self, body: IncomingBody, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if body.received_bytes > self._proxy.settings.maximum_body_bytes:
            if self._phase is not _LAST:
                exchange.body_too_large()
        elif self._phase is _STREAMED_BODY:
            exchange.more_body(data)
        else:
            body.keep(data)

    def _judge_body(self, body: IncomingBody) -> None:
        """Is enough of the body here to go on?"""
        exchange = self._exchange
        if exchange is None:
            return
        if body.is_complete:
            self._deadline.clear()
            self._phase = _AHEAD
        elif body.received_bytes >= self._proxy.settings.buffered_body_bytes:
            self._deadline.clear()
            self._phase = _PAUSED_BODY
            self._pause()
        else:
            self._make_room(exchange, body)
            return
        self._room.free()
        self._keep_ahead(b"")
        exchange.body_arrived(body.take_kept(), whole=body.is_complete)

    def _make_room(self, exchange: Exchange, body: IncomingBody) -> bool:
        """Room for what is to come. False: reading waits for it, or the request was refused."""
        room, settings = self._room, self._proxy.settings
        wanted_bytes = body.coming_bytes(at_most=settings.buffered_body_bytes)
        if not room.is_awaited:
            if room.grow_to(wanted_bytes):
                return True
            if room.wait_for(wanted_bytes, in_hand_bytes=body.received_bytes):
                self._pause()
                self._deadline.set_in(settings.arriving_wait_s)
            else:
                exchange.refuse(Outcome.QUEUE_FULL, _NO_ROOM, retry_after_s=_RETRY_S)
        return False

    def _room_made(self) -> None:
        """What was waited for is there: let the body come."""
        body = self._body
        assert body is not None
        body.note_progress()
        self._deadline.set_in(self._proxy.settings.body_timeout_s)
        self._invite_body(body)
        self._resume()

    def read_on(self) -> None:
        """The engine takes the rest of the large body now: let it come, after what is at hand."""
        self._proxy.loop.call_soon(self._stream_body)

    def _stream_body(self) -> None:
        exchange, body = self._exchange, self._body
        if exchange is None or body is None or self._phase is not _PAUSED_BODY:
            return
        self._phase = _STREAMED_BODY
        kept = body.take_kept()  # what the loop had read already when reading was paused
        if kept:
            exchange.more_body(kept)
        body.note_progress()
        self._deadline.set_in(self._proxy.settings.body_timeout_s)
        self._resume()
        if body.is_complete:
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
        head, body = self._head, self._body
        return (
            head is not None
            and head.keep_alive
            and not self._forgot_ahead
            and not self._proxy.draining
            and (
                body is None
                or (body.is_complete and not body.has_odd_rest)
                or (not body.is_complete and body.is_soon_over)
            )
        )

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
        if self._body is None or self._body.is_complete:
            if not close:
                self._next_request()
            elif self._forgot_ahead:
                self._linger()
            else:
                self._close()
        elif close:
            self._linger()
        else:
            self._room.free()
            self._body.take_kept()
            self._phase = _UNWANTED
            self._resume()
            self._deadline.set_in(self._proxy.settings.body_timeout_s)

    def break_off(self, *, hard: bool) -> None:
        """The answer can't be completed: let the client see that it is cut."""
        self._exchange = None
        self._stop_comments()
        self._room.free()
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
        self._phase = _HEAD
        self._head = None
        self._body = None
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
            self._room.free()
            self._read_head(ahead)

    def _keep_ahead(self, data: bytes) -> None:
        """Bytes of the next requests. Where there is no room for them they are dropped: the
        connection ends after this answer, and the client sends them again (RFC 9112, 9.3.2)."""
        self._ahead += data
        if not self._room.grow_to(len(self._ahead)):
            self._forgot_ahead = True
            self._ahead = b""
            self._pause()
        elif len(self._ahead) > _SENT_AHEAD_BYTES:
            self._pause()

    def _throw_away(self, data: bytes) -> None:
        body = self._body
        assert body is not None
        body.take(data)
        if body.is_complete:
            self._keep_ahead(body.ahead)
            if self._forgot_ahead:
                self._linger()
            else:
                self._next_request()

    def _refuse(
        self, outcome: Outcome, message: str, *, status: int | None = None, lingers: bool = True
    ) -> None:
        """Answer what can't be read as a request, and end."""
        self._proxy.metrics.refused_early(outcome)
        hint_s = _RETRY_S if outcome is Outcome.QUEUE_FULL else None
        error = make_error(outcome, message, status=status, retry_after_s=hint_s)
        self.write(error.encode(close=True))
        if self._proxy.settings.access_log:
            log_event(_logger, logging.INFO, "request", status=error.status, outcome=outcome.value)
        if lingers:
            self._linger()
        else:
            self._forget_unread()
            self._close()

    def _forget_unread(self) -> None:
        """Closing a socket with unread bytes makes the system reset it, and the client may then
        see no answer: read away what has come."""
        assert self._transport is not None
        with contextlib.suppress(OSError):
            os.read(self._transport.get_extra_info("socket").fileno(), _SENT_AHEAD_BYTES)

    # Ends.

    def _close(self) -> None:
        """End after what is written has gone out."""
        self._phase = _LAST
        if self._transport is not None:
            self._flushing = True
            self._transport.close()
            self._watch_writing()

    def _linger(self) -> None:
        """As `_close`, though the client still sends: wait for its end a little, so that what it
        has sent does not make the system throw away our answer."""
        self._phase = _LAST
        self._room.free()
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
        if self._congested or self._flushing:
            again_s = self._pace.judge(unsent_bytes(transport))
            if again_s is None:
                transport.abort()
            else:
                self._deadline.set_in(again_s)
        elif exchange is not None and self._room.is_awaited:
            exchange.refuse(Outcome.QUEUE_FULL, _NO_ROOM, retry_after_s=_RETRY_S)
        elif exchange is not None and self._phase in (_BODY, _STREAMED_BODY):
            body = self._body
            assert body is not None
            if body.came_fast_enough() or self._paused:
                body.note_progress()
                self._deadline.set_in(settings.body_timeout_s)
            else:
                exchange.body_too_slow()
        elif self._phase is _HEAD and self._heads.has_begun:
            self._refuse(Outcome.INVALID_REQUEST, "The request head came too slowly.", status=408)
        elif self._phase is _HEAD:
            self._close()
        else:
            transport.abort()

    def _watch_writing(self) -> None:
        self._deadline.set_in(self._pace.begin())

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
