"""How does the proxy behave towards clients that cut, stall, reset or send nonsense?

An HTTP client that hides nothing: bytes are sent as the test gives them, in the pieces it gives,
and what comes back can be read as head, chunks, events or plain bytes. One object is one
connection; whole requests can be sent one after the other on it.
"""

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

PATIENCE_S = 30.0
"""Bound of every single read, unless a client is given another."""

_BUFFER = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status line and headers of an answer."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    """Names in lower case, in order of arrival."""
    raw: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header; None: it is not there."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    @property
    def is_chunked(self) -> bool:
        return self.header("transfer-encoding") == "chunked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer; `body` is decoded if it came in chunks."""

    head: Head
    body: bytes

    @property
    def status(self) -> int:
        return self.head.status

    def header(self, name: str) -> str | None:
        return self.head.header(name)

    def json(self) -> dict[str, object]:
        value: dict[str, object] = json.loads(self.body)
        return value

    @property
    def error(self) -> dict[str, object]:
        """The error object of OpenAI's and Anthropic's error bodies."""
        value = self.json()["error"]
        assert isinstance(value, dict)
        return value


class ClosedError(ConnectionError):
    """The proxy closed the connection in the middle of what was being read."""


class RawClient:
    """One connection to the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.patience_s = PATIENCE_S

    @classmethod
    async def open(cls, url: str, *, receive_buffer: int | None = None) -> Self:
        """Connect. `receive_buffer`: bytes the kernel may take while the test does not read."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            async with asyncio.timeout(PATIENCE_S):
                loop = asyncio.get_running_loop()
                await loop.sock_connect(sock, (parts.hostname, parts.port))
        except BaseException:
            sock.close()
            raise
        reader, writer = await asyncio.open_connection(sock=sock, limit=_BUFFER)
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def send(self, data: bytes) -> None:
        """Write all of it; waits while the proxy does not read."""
        self.writer.write(data)
        await self.writer.drain()

    async def send_pieces(self, pieces: Iterable[bytes], *, gap_s: float = 0.0005) -> None:
        """Write piece by piece, far enough apart that each is read alone."""
        for piece in pieces:
            await self.send(piece)
            await asyncio.sleep(gap_s)

    async def read_head(self) -> Head:
        """The next answer's head. Interim (1xx) answers are skipped."""
        while True:
            async with asyncio.timeout(self.patience_s):
                try:
                    raw = await self.reader.readuntil(b"\r\n\r\n")
                except asyncio.IncompleteReadError as error:
                    raise ClosedError(f"closed before a head, after {error.partial!r}") from None
            head = parse_head(raw)
            if head.status >= 200:
                return head

    async def read_chunk(self) -> bytes:
        """One HTTP chunk's data; b"" is the last one."""
        async with asyncio.timeout(self.patience_s):
            try:
                line = await self.reader.readuntil(b"\r\n")
                size = int(line.split(b";")[0], 16)
                data = await self.reader.readexactly(size + 2)
            except asyncio.IncompleteReadError as error:
                raise ClosedError(
                    f"closed inside a chunked body, after {error.partial!r}"
                ) from None
        return data[:-2]

    async def chunks(self) -> AsyncIterator[tuple[float, bytes]]:
        """The chunks of a chunked body with the time at which each was there."""
        while data := await self.read_chunk():
            yield time.monotonic(), data

    async def read_body(self, head: Head) -> bytes:
        """The whole body of an answer."""
        if head.is_chunked:
            return b"".join([data async for _, data in self.chunks()])
        length = head.header("content-length")
        if length is None:
            return await self.read_until_close()
        async with asyncio.timeout(self.patience_s):
            try:
                return await self.reader.readexactly(int(length))
            except asyncio.IncompleteReadError as error:
                raise ClosedError(f"closed after {len(error.partial)} of {length} bytes") from None

    async def read_until_close(self) -> bytes:
        """All bytes until the proxy closes; a reset counts as a close."""
        data = bytearray()
        async with asyncio.timeout(self.patience_s):
            try:
                while piece := await self.reader.read(_BUFFER):
                    data += piece
            except ConnectionError:
                pass
        return bytes(data)

    async def read_slowly(self, *, piece_bytes: int, pause_s: float) -> bytes:
        """All bytes until the proxy closes, at the pace of a slow reader."""
        data = bytearray()
        while piece := await self.reader.read(piece_bytes):
            data += piece
            await asyncio.sleep(pause_s)
        return bytes(data)

    async def answer(self) -> Answer:
        """The next whole answer."""
        head = await self.read_head()
        return Answer(head=head, body=await self.read_body(head))

    async def post(
        self, path: str, body: object, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a JSON body (or bytes as they are) and read the whole answer."""
        await self.send(request("POST", path, body=body, headers=headers))
        return await self.answer()

    async def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> Answer:
        await self.send(request("GET", path, headers=headers))
        return await self.answer()

    async def pause(self, seconds: float) -> None:
        """The pace of a client that takes its time: not a wait for anything in the test."""
        await asyncio.sleep(seconds)

    def half_close(self) -> None:
        """Shut the write side alone."""
        self.writer.write_eof()

    def reset(self) -> None:
        """Close with a RST."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        """Close in order; harmless on a connection that is gone."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def parse_head(raw: bytes) -> Head:
    """A response's status line and headers."""
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    version, status, reason = [*first.split(" ", 2), ""][:3]
    assert version.startswith("HTTP/1."), raw
    pairs = (line.partition(":") for line in lines)
    return Head(
        status=int(status),
        reason=reason,
        headers=tuple((name.strip().lower(), value.strip()) for name, _, value in pairs),
        raw=raw,
    )


def request(
    method: str,
    path: str,
    *,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    chunked: bool = False,
) -> bytes:
    """A well-formed request; `body` is JSON unless it is bytes. None: no body."""
    given = {name.lower() for name in headers or {}}
    lines = [f"{method} {path} HTTP/1.1"]
    if "host" not in given:
        lines.append("Host: proxy")
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        if "content-type" not in given:
            lines.append("Content-Type: application/json")
        lines.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(data)}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if chunked:
        data = b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


def chat_body(
    *, stream: bool = False, max_tokens: int | None = 16, text: str = "hello", **fields: object
) -> dict[str, object]:
    """A small chat request."""
    body: dict[str, object] = {
        "model": "scripted",
        "messages": [{"role": "user", "content": text}],
        **fields,
    }
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    if stream:
        body["stream"] = True
    return body


async def ask(
    url: str,
    path: str,
    body: object = None,
    *,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
    patience_s: float = PATIENCE_S,
) -> Answer:
    """One request on a connection of its own."""
    async with await RawClient.open(url) as client:
        client.patience_s = patience_s
        verb = method or ("GET" if body is None else "POST")
        await client.send(request(verb, path, body=body, headers=headers))
        return await client.answer()
