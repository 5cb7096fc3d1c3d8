"""How is the admin port listened on, so that nobody holds its connections for ever?

aiohttp waits an hour for a request that never comes to its end, and for ever for a client that
reads nothing of its answer. Each such connection takes one of the file descriptors that clients of
the data port need. So between the socket and aiohttp stands a protocol that passes everything on
and knows two times: from a byte of a request to its answering, and while an answer is not taken.

A byte that leads to no answering (blank lines, half a head, a body, which nothing here reads) is
told by two signs: no handler has begun, or one has ended and the last bytes were no head's end.
"""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, cast

from aiohttp import hdrs, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.typedefs import Handler, Middleware

from giveway_admission.deadlines import Deadline
from giveway_admission.unsent import ReadingPace, unsent_bytes

IDLE_S = 75.0
"""How long a connection may wait for its next request: longer than any interval of scraping."""
STOP_S = 2.0
"""How long running answers may take when the port is closed."""
_HEAD_END = b"\r\n\r\n"


class AdminPort:
    """The port of one application."""

    def __init__(
        self,
        application: web.Application,
        *,
        head_timeout_s: float,
        write_timeout_s: float,
        minimum_read_bytes_per_s: int,
    ) -> None:
        self._connections: dict[asyncio.Protocol, ImpatientConnection] = {}
        application.middlewares.append(_telling(self._connections))
        self._runner = web.AppRunner(
            application, access_log=None, keepalive_timeout=IDLE_S, shutdown_timeout=STOP_S
        )
        self._head_timeout_s = head_timeout_s
        self._write_timeout_s = write_timeout_s
        self._minimum_read_bytes_per_s = minimum_read_bytes_per_s
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (0: the system chooses). Raises `OSError`."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None, "set up above"
        server.request_factory = _expecting_nothing(server.request_factory)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: ImpatientConnection(
                server(),
                loop=loop,
                connections=self._connections,
                head_timeout_s=self._head_timeout_s,
                pace=ReadingPace(
                    write_timeout_s=self._write_timeout_s,
                    minimum_bytes_per_s=self._minimum_read_bytes_per_s,
                ),
            ),
            host,
            port,
        )
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Close the port; what is answered just now may end within `STOP_S`."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
        if self._listener is not None:
            await self._listener.wait_closed()


def _telling(connections: Mapping[asyncio.Protocol, "ImpatientConnection"]) -> Middleware:
    """Tells each connection when an answer is made on it."""

    @web.middleware
    async def tell(request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = connections.get(request.protocol)
        if connection is None:
            return await handler(request)
        connection.answering_begins()
        try:
            return await handler(request)
        finally:
            connection.answering_ended()

    return tell


def _expecting_nothing(make: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
    """Requests without `Expect`: nothing here reads a body, so nothing is worth a 100, and aiohttp
    answers a value that is not ASCII with a 500."""

    def make_request(message: RawRequestMessage, *others: Any, **named: Any) -> web.BaseRequest:
        if hdrs.EXPECT in message.headers:
            headers = message.headers.copy()
            headers.popall(hdrs.EXPECT)
            message = message._replace(headers=type(message.headers)(headers))
        return make(message, *others, **named)

    return make_request


class ImpatientConnection(asyncio.Protocol):
    """Passes everything on to `inner`, and cuts the connection of whoever makes it wait."""

    def __init__(
        self,
        inner: asyncio.Protocol,
        *,
        loop: asyncio.AbstractEventLoop,
        connections: MutableMapping[asyncio.Protocol, "ImpatientConnection"],
        head_timeout_s: float,
        pace: ReadingPace,
    ) -> None:
        """It is in `connections`, by `inner`, as long as it lives."""
        self._inner = inner
        self._connections = connections
        self._head_timeout_s = head_timeout_s
        self._pace = pace
        self._head_deadline = Deadline(loop, self._cut)
        self._write_deadline = Deadline(loop, self._look)
        self._transport: asyncio.Transport | None = None
        self._last = b""
        """Of all that came: as many bytes as a head's end has."""
        self._answers = False
        self._awaits_head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections[self._inner] = self
        self._await_head()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._last = (self._last + data)[-len(_HEAD_END) :]
        if not self._answers and not self._awaits_head:
            self._await_head()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._write_deadline.set_in(self._pace.begin())
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._write_deadline.clear()
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        del self._connections[self._inner]
        self._head_deadline.close()
        self._write_deadline.close()
        self._inner.connection_lost(error)

    def answering_begins(self) -> None:
        self._answers = True
        self._awaits_head = False
        self._head_deadline.clear()

    def answering_ended(self) -> None:
        self._answers = False
        if self._last != _HEAD_END:
            self._await_head()

    def _await_head(self) -> None:
        self._awaits_head = True
        self._head_deadline.set_in(self._head_timeout_s)

    def _look(self) -> None:
        """An answer waits: is any of it taken?"""
        if self._transport is None:
            return
        again_s = self._pace.judge(unsent_bytes(self._transport))
        if again_s is None:
            self._cut()
        else:
            self._write_deadline.set_in(again_s)

    def _cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()
