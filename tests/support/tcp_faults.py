"""How does a test break the connections between two programs?

A TCP relay on loopback that passes everything on, until the test lets it reset what is open, refuse
what is new, or hold everything without closing anything.
"""

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit


class FaultyRelay:
    """A relay to the host and port of `url`, an async context manager."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._scheme = parts.scheme
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.refusing = False
        self.connections = 0
        """Ever."""
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{self._scheme}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset(self) -> None:
        """Cut all that is open, without a word."""
        for writer in self._writers:
            writer.transport.abort()

    def hold(self) -> None:
        """Pass nothing on any more; everything stays open."""
        self._flows.clear()

    def release(self) -> None:
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusing:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            self._writers |= {writer, there_writer}
            for source, sink in ((reader, there_writer), (there_reader, writer)):
                task = asyncio.create_task(self._pass_on(source, sink))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(sink)
            sink.close()
