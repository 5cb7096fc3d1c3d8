"""How does the emulator speak HTTP/1.1?

A small server protocol that behaves on the wire as uvicorn does under vLLM: one HTTP chunk per
event, idle connections closed after five seconds, a client's half-close is a disconnect, pipelined
requests are answered one after another. No task or future exists per request or per event: a
handler is a plain function that answers at once or keeps the `Exchange` and goes on with it later.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import httptools

KEEP_ALIVE_S = 5.0
"""vLLM's VLLM_HTTP_TIMEOUT_KEEP_ALIVE: an idle connection is closed after this long."""

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request as it was read. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes


class Exchange:
    """One request and the answer to it.

    The handler calls either `answer`, or `begin_events`, `send` and `end`. `gone` is called once if
    the client leaves before the answer ended; afterwards every call here is harmless.
    """

    __slots__ = ("_chunked", "_keep_alive", "_open", "_protocol", "gone", "request")

    def __init__(
        self, request: HttpRequest, protocol: "ServerProtocol", *, keep_alive: bool, chunked: bool
    ) -> None:
        self.request = request
        self.gone: Callable[[], None] | None = None
        self._protocol = protocol
        self._keep_alive = keep_alive
        self._chunked = chunked
        self._open = True

    @property
    def congested(self) -> bool:
        """The client reads too slowly: the connection's buffer is full."""
        return self._protocol.congested

    def answer(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: str | None = "application/json",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Send a whole answer."""
        lines = [*headers, ("content-length", str(len(body)))]
        if body and content_type is not None:
            lines.append(("content-type", content_type))
        head = self._head(status, lines)
        self._write(head if self.request.method == "HEAD" else head + body)
        self._finish()

    def begin_events(self) -> None:
        """Send the head of a stream of server-sent events."""
        lines = [("content-type", "text/event-stream; charset=utf-8")]
        if not self._chunked:
            self._keep_alive = False
        head = self._head(200, lines)
        self._write(head[:-2] + b"transfer-encoding: chunked\r\n\r\n" if self._chunked else head)

    def send(self, events: list[bytes]) -> None:
        """Send events, one chunk each, in one write."""
        if self._chunked:
            self._write(b"".join([b"%x\r\n%b\r\n" % (len(event), event) for event in events]))
        else:
            self._write(b"".join(events))

    def end(self) -> None:
        """End a stream of events."""
        if self._chunked:
            self._write(b"0\r\n\r\n")
        self._finish()

    def cut(self) -> None:
        """Break the connection off, as an engine that died does."""
        self._open = False
        self._protocol.cut()

    def lose(self) -> None:
        """The connection is gone (called by the protocol)."""
        if self._open:
            self._open = False
            if self.gone is not None:
                self.gone()

    def _head(self, status: int, lines: list[tuple[str, str]]) -> bytes:
        head = [f"date: {self._protocol.date()}\r\nserver: uvicorn\r\n"]
        head += [f"{name}: {value}\r\n" for name, value in lines]
        head.append("vary: Origin\r\n")
        if not self._keep_alive:
            head.append("connection: close\r\n")
        return _STATUS_LINES[status] + "".join(head).encode() + b"\r\n"

    def _write(self, data: bytes) -> None:
        if self._open:
            self._protocol.write(data)

    def _finish(self) -> None:
        if self._open:
            self._open = False
            self._protocol.finished(keep_alive=self._keep_alive)


class ServerProtocol(asyncio.Protocol):
    """One connection. `connections` is the server's set of live ones."""

    def __init__(
        self, handle: Callable[[Exchange], None], connections: set["ServerProtocol"]
    ) -> None:
        self._handle = handle
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._current: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._dates = ("", -1.0)
        self.congested = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._start_idling()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._connections.discard(self)
        self._transport = None
        self._stop_idling()
        self._waiting.clear()
        current, self._current = self._current, None
        if current is not None:
            current.lose()

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cut()
        except httptools.HttpParserError:
            self._refuse()

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}
        self._body = []
        self._stop_idling()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._headers.get(b"expect", b"").lower() == b"100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path = self._url.split(b"?", 1)[0].decode("latin-1")
        exchange = Exchange(
            HttpRequest(
                method=self._parser.get_method().decode("ascii"),
                path=path,
                headers=self._headers,
                body=b"".join(self._body),
            ),
            self,
            keep_alive=self._parser.should_keep_alive(),
            chunked=self._parser.get_http_version() == "1.1",
        )
        self._body = []
        self._waiting.append(exchange)
        self._next()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def finished(self, *, keep_alive: bool) -> None:
        """The current answer is out."""
        self._current = None
        if not keep_alive:
            self.close()
        elif self._waiting:
            self._loop.call_soon(self._next)
        else:
            self._start_idling()

    def close(self) -> None:
        """Close after what was written is out."""
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def idle(self) -> bool:
        return self._current is None and not self._waiting

    def date(self) -> str:
        """The date header's value, made once a second."""
        now_s = self._loop.time()
        if now_s - self._dates[1] >= 1.0 or not self._dates[0]:
            self._dates = (formatdate(usegmt=True), now_s)
        return self._dates[0]

    def _next(self) -> None:
        if self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            self._handle(self._current)

    def _refuse(self) -> None:
        body = b"Invalid HTTP request received."
        self.write(
            _STATUS_LINES[400] + b"content-type: text/plain; charset=utf-8\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        self.close()

    def _start_idling(self) -> None:
        self._stop_idling()
        self._idle_timer = self._loop.call_later(KEEP_ALIVE_S, self.close)

    def _stop_idling(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
