"""Can anybody hold the admin port's connections for ever?"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from giveway_admission.admin_port import AdminPort, ImpatientConnection
from giveway_admission.unsent import ReadingPace

PATIENCE_S = 5.0
"""How long a test waits for what has to happen."""
LARGE_BYTES = 8 * 2**20
HEAD_PIECES = (b"GET /small HTTP/1.1\r\nHost: x\r", b"\n\r", b"\n")


async def _small(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _large(_request: web.Request) -> web.Response:
    return web.Response(body=b"x" * LARGE_BYTES)


@asynccontextmanager
async def _connected(
    *,
    head_timeout_s: float = 60.0,
    write_timeout_s: float = 60.0,
    gate: asyncio.Event | None = None,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async def slow(_request: web.Request) -> web.Response:
        assert gate is not None
        await gate.wait()
        return web.Response(text="ok")

    application = web.Application()
    application.router.add_get("/slow", slow)
    application.router.add_get("/small", _small)
    application.router.add_get("/large", _large)
    port = AdminPort(
        application,
        head_timeout_s=head_timeout_s,
        write_timeout_s=write_timeout_s,
        minimum_read_bytes_per_s=0,
    )
    number = await port.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", number, limit=2**16)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.transport.abort()
        await port.stop()


async def test_a_head_that_never_ends_is_cut() -> None:
    """Nothing, or a part of a head, gets nothing but an end."""
    for begin in (b"", b"GET /small HTTP/1.1\r\nHost: x\r\n"):
        async with _connected(head_timeout_s=0.05) as (reader, writer):
            writer.write(begin)
            assert await reader.read() == b""


NEVER_ANSWERED = {
    "blank lines": b"\r\n\r\n",
    "many blank lines": b"\r\n" * 1000,
    "a second head": b"".join(HEAD_PIECES) + b"GET /sma",
    "a body": b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
    "chunks": b"POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
}


@pytest.mark.parametrize("name", NEVER_ANSWERED)
async def test_what_never_becomes_a_request_is_cut(name: str) -> None:
    """Before and behind whole requests; aiohttp would wait for it without end."""
    async with _connected(head_timeout_s=0.05) as (reader, writer):
        writer.write(NEVER_ANSWERED[name])
        with contextlib.suppress(ConnectionError):
            await reader.read()


async def test_the_time_for_a_head_ends_with_the_head() -> None:
    """Also where the head's end is cut; then the idle time counts, which is aiohttp's matter. An
    answer may take as long as it does."""
    gate = asyncio.Event()
    async with _connected(head_timeout_s=0.05, gate=gate) as (reader, writer):
        for path in (b"/small", b"/slow"):
            for piece in (b"GET " + path + b" HTTP/1.1\r\nHost: x\r", b"\n\r", b"\n"):
                writer.write(piece)
                await writer.drain()
            if path == b"/slow":
                asyncio.get_running_loop().call_later(0.2, gate.set)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
            assert await reader.readexactly(2) == b"ok"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):  # four times the time for a head
                await reader.read()


async def test_who_takes_nothing_of_an_answer_is_cut() -> None:
    """C06: a page that nobody reads ends with its connection; one that is read slowly does not,
    though it never empties our buffer."""
    resumed, slow, stuck = _Transport(), _Transport(takes_bytes=1), _Transport()
    for transport in (resumed, slow, stuck):
        connection = _connection(write_timeout_s=0.02)
        connection.connection_made(transport)
        connection.pause_writing()
        if transport is resumed:
            connection.resume_writing()
    async with asyncio.timeout(PATIENCE_S):
        await stuck.aborted.wait()
    assert not resumed.aborted.is_set()
    assert not slow.aborted.is_set()


async def test_who_reads_gets_all_of_a_large_answer() -> None:
    """A page is not cut for being long."""
    async with _connected() as (reader, writer):
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert len(await reader.readexactly(LARGE_BYTES)) == LARGE_BYTES


async def test_requests_are_answered_one_after_another() -> None:
    """However they are cut on their way."""
    async with _connected() as (reader, writer):
        for _ in range(2):
            for piece in HEAD_PIECES:
                writer.write(piece)
                await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert await reader.readexactly(2) == b"ok"


class _Transport(asyncio.Transport):
    """Remembers that it was cut; `takes_bytes` are gone at each look."""

    def __init__(self, *, takes_bytes: int = 0) -> None:
        super().__init__()
        self.aborted = asyncio.Event()
        self._held_bytes = LARGE_BYTES
        self._takes_bytes = takes_bytes

    def get_write_buffer_size(self) -> int:
        self._held_bytes -= self._takes_bytes
        return self._held_bytes

    def abort(self) -> None:
        self.aborted.set()


def _connection(
    *, head_timeout_s: float = 60.0, write_timeout_s: float = 60.0
) -> ImpatientConnection:
    return ImpatientConnection(
        _Inner(),
        loop=asyncio.get_running_loop(),
        connections={},
        head_timeout_s=head_timeout_s,
        pace=ReadingPace(write_timeout_s=write_timeout_s, minimum_bytes_per_s=0),
    )


class _Inner(asyncio.Protocol):
    """Who is protected; does nothing itself."""
