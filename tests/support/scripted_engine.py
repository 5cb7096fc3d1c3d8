"""How does the proxy behave towards an engine that stalls, cuts, resets or lies?

A raw asyncio server in place of the engine. What it does with each request is a *script*, an async
function of one `Exchange`: send these bytes in these pieces, wait for an event of the test, reset,
close, half-close, stop reading, never answer. It logs every connection (opened, used, closed) and
every request (head and body as they came). A script whose connection ends is cancelled.

    async with ScriptedEngine(answering(chat_answer())) as engine:
        ...  # engine.url, engine.requests, engine.connections
"""

import asyncio
import json
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from tests.support.vllm_answers import (
    LAST_CHUNK,
    chat_answer,
    chat_events,
    chunk,
    json_response,
    models_answer,
    response,
    stream_head,
    wants_usage,
)

_HEAD_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """One request as the engine saw it."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    """Names in lower case, in order of arrival."""
    head: bytes
    body: bytes
    """Decoded if it came in chunks."""
    arrived_s: float
    """When its head was complete."""

    def header(self, name: str) -> str | None:
        """The first value of a header; None: it is not there."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    def json(self) -> dict[str, object]:
        """The body as a JSON object."""
        value: dict[str, object] = json.loads(self.body)
        return value


@dataclass(slots=True, kw_only=True)
class SeenConnection:
    """One connection as the engine saw it."""

    opened_s: float
    requests: list[SeenRequest] = field(default_factory=list)
    half_closed_s: float | None = None
    """When the proxy shut its write side. None: it did not."""
    closed_s: float | None = None
    """When it was gone. None: it is open."""
    received_bytes: int = 0
    sent_bytes: int = 0

    @property
    def is_open(self) -> bool:
        return self.closed_s is None


class Exchange:
    """One request and the means to answer it."""

    def __init__(self, request: SeenRequest, protocol: "_Protocol") -> None:
        self.request = request
        self.connection = protocol.connection
        self._protocol = protocol

    @property
    def has_unread_bytes(self) -> bool:
        """Part of a next request has come already."""
        return bool(self._protocol._buffer)

    async def send(self, data: bytes) -> None:
        """Write, and wait while the proxy does not read."""
        await self._protocol.send(data)

    async def send_pieces(self, pieces: Iterable[bytes], *, gap_s: float = 0.0005) -> None:
        """Write piece by piece, far enough apart that each is read alone."""
        for piece in pieces:
            await self.send(piece)
            await asyncio.sleep(gap_s)

    async def send_events(self, events: Iterable[bytes]) -> None:
        """Write events, one HTTP chunk and one write each."""
        for item in events:
            await self.send(chunk(item))

    async def end(self) -> None:
        """The last chunk of a chunked body."""
        await self.send(LAST_CHUNK)

    async def pause(self, seconds: float) -> None:
        """The pace of an engine that makes tokens: not a wait for anything in the test."""
        await asyncio.sleep(seconds)

    async def never(self) -> None:
        """Do nothing until the proxy closes the connection."""
        await self._protocol.closed.wait()

    def reset(self) -> None:
        """Close with a RST."""
        sock: socket.socket = self._protocol.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._protocol.transport.abort()

    def close(self) -> None:
        """Close in order (FIN)."""
        self._protocol.transport.close()

    def half_close(self) -> None:
        """Shut the write side alone."""
        self._protocol.transport.write_eof()

    def stop_reading(self) -> None:
        """Leave everything that comes from now on in the socket."""
        self._protocol.transport.pause_reading()

    def go_on_reading(self) -> None:
        self._protocol.transport.resume_reading()


Script = Callable[[Exchange], Awaitable[None]]


class ScriptedEngine:
    """The server. `script` may be replaced at any time: it holds for requests that come later.

    `early` scripts get the exchange when the head is complete, before the body (`request.body` is
    then empty): for engines that refuse or stall while the body is still coming.
    """

    def __init__(self, script: Script, *, port: int = 0, early: Script | None = None) -> None:
        self.script = script
        self.early = early
        self.connections: list[SeenConnection] = []
        self.errors: list[BaseException] = []
        """What scripts raised: a fault of the test, raised again when the engine stops."""
        self._port = port
        self._server: asyncio.Server | None = None
        self._protocols: set[_Protocol] = set()
        self.busy = 0
        """Requests being answered now."""
        self.most_busy = 0
        """The highest `busy` so far."""

    @property
    def requests(self) -> list[SeenRequest]:
        """All requests so far, in order of arrival."""
        seen = [request for connection in self.connections for request in connection.requests]
        return sorted(seen, key=lambda request: request.arrived_s)

    @property
    def work(self) -> list[SeenRequest]:
        """All requests but probes and scrapes."""
        return [request for request in self.requests if request.method == "POST"]

    @property
    def open_connections(self) -> int:
        return sum(connection.is_open for connection in self.connections)

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen (again, on the same port, after `stop`)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Protocol(self), "127.0.0.1", self._port, backlog=4096
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections and reset those that are open: an engine that was killed."""
        if self._server is not None:
            self._server.close()
            self._server = None
        protocols = list(self._protocols)
        for protocol in protocols:
            protocol.transport.abort()
        for protocol in protocols:
            await protocol.ended()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.stop()
        if self.errors and error is None:
            raise self.errors[0]


class _Protocol(asyncio.Protocol):
    """One connection: parses requests one after the other, runs a script for each."""

    transport: asyncio.Transport

    def __init__(self, engine: ScriptedEngine) -> None:
        self.connection = SeenConnection(opened_s=time.monotonic())
        self.closed = asyncio.Event()
        self._engine = engine
        self._buffer = bytearray()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._task: asyncio.Task[None] | None = None
        self._head: SeenRequest | None = None
        self._chunks: bytearray | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._engine.connections.append(self.connection)
        self._engine._protocols.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.connection.closed_s = time.monotonic()
        self.closed.set()
        self._may_write.set()
        self._engine._protocols.discard(self)
        if self._task is not None:
            self._task.cancel()

    def eof_received(self) -> bool:
        self.connection.half_closed_s = time.monotonic()
        return False

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    async def ended(self) -> None:
        """The connection is gone and so is its script."""
        await self.closed.wait()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def send(self, data: bytes) -> None:
        await self._may_write.wait()
        if not self.transport.is_closing():
            self.transport.write(data)
            self.connection.sent_bytes += len(data)
            await self._may_write.wait()
        if self.transport.is_closing():
            await self.closed.wait()

    def data_received(self, data: bytes) -> None:
        self.connection.received_bytes += len(data)
        self._buffer += data
        if self._task is None:
            self._read_requests()

    def _read_requests(self) -> None:
        """Take the next whole request out of the buffer and start its script."""
        if self._head is None and not self._read_head():
            return
        assert self._head is not None
        body = self._take_body(self._head)
        if body is None:
            return
        head, self._head = self._head, None
        request = SeenRequest(
            method=head.method,
            target=head.target,
            headers=head.headers,
            head=head.head,
            body=body,
            arrived_s=head.arrived_s,
        )
        self.connection.requests.append(request)
        self._run(self._engine.script, request)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                self.transport.abort()
            return False
        head = bytes(self._buffer[: end + 4])
        del self._buffer[: end + 4]
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        self._head = SeenRequest(
            method=method,
            target=target,
            headers=tuple((name.strip().lower(), value.strip()) for name, _, value in pairs),
            head=head,
            body=b"",
            arrived_s=time.monotonic(),
        )
        self._chunks = bytearray() if self._head.header("transfer-encoding") == "chunked" else None
        if self._engine.early is not None:
            self.connection.requests.append(self._head)
            self._run(self._engine.early, self._head)
            return False
        return True

    def _take_body(self, head: SeenRequest) -> bytes | None:
        """The body, if all of it is here."""
        if self._chunks is not None:
            return self._take_chunks(self._chunks)
        length = int(head.header("content-length") or 0)
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _take_chunks(self, body: bytearray) -> bytes | None:
        while (line_end := self._buffer.find(b"\r\n")) >= 0:
            size = int(bytes(self._buffer[:line_end]).split(b";")[0], 16)
            if len(self._buffer) < line_end + 2 + size + 2:
                return None
            body += self._buffer[line_end + 2 : line_end + 2 + size]
            del self._buffer[: line_end + 2 + size + 2]
            if size == 0:
                return bytes(body)
        return None

    def _run(self, script: Script, request: SeenRequest) -> None:
        self._task = asyncio.get_running_loop().create_task(self._answer(script, request))

    async def _answer(self, script: Script, request: SeenRequest) -> None:
        counts = request.method == "POST"
        engine = self._engine
        engine.busy += counts
        engine.most_busy = max(engine.most_busy, engine.busy)
        try:
            await script(Exchange(request, self))
        except Exception as error:
            engine.errors.append(error)
            self.transport.abort()
        finally:
            engine.busy -= counts
            self._task = None
        if not self.transport.is_closing():
            self._read_requests()


def probes_first(script: Script) -> Script:
    """Answer health probes, model lists and metrics as an engine does; `script` gets the rest."""

    async def run(exchange: Exchange) -> None:
        match exchange.request.target:
            case "/health" | "/ping":
                await exchange.send(response(b""))
            case "/version":
                await exchange.send(json_response({"version": "0.32.0"}))
            case "/v1/models":
                await exchange.send(models_answer())
            case "/metrics":
                await exchange.send(response(b"", content_type="text/plain; version=1.0.0"))
            case _:
                await script(exchange)

    return run


def answering(data: bytes) -> Script:
    """The same whole answer to every request."""

    async def run(exchange: Exchange) -> None:
        await exchange.send(data)

    return probes_first(run)


def in_pieces(pieces: Sequence[bytes], *, gap_s: float = 0.0005) -> Script:
    """The same answer to every request, cut at these points."""

    async def run(exchange: Exchange) -> None:
        await exchange.send_pieces(pieces, gap_s=gap_s)

    return probes_first(run)


def silent(head: bytes = b"") -> Script:
    """Never answer; `head` may be sent at once."""

    async def run(exchange: Exchange) -> None:
        if head:
            await exchange.send(head)
        await exchange.never()

    return probes_first(run)


def chatting(
    texts: Sequence[str] = ("one", " two", " three"), *, gate: asyncio.Event | None = None
) -> Script:
    """Chat like an engine: plain or streamed as asked. `gate`: the first token waits for it."""

    async def run(exchange: Exchange) -> None:
        body = exchange.request.json()
        if not body.get("stream"):
            if gate is not None:
                await gate.wait()
            await exchange.send(_plain_chat(texts))
            return
        await exchange.send(stream_head())
        if gate is not None:
            await gate.wait()
        asked = wants_usage(exchange.request.body)
        await exchange.send_events(chat_events(texts, include_usage=asked))
        await exchange.end()

    return probes_first(run)


def _plain_chat(texts: Sequence[str]) -> bytes:
    return chat_answer(completion_tokens=len(texts), text="".join(texts))
