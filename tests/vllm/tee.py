"""What exactly went over the wire between the proxy and the engine?

A plain TCP relay that writes down both directions of each connection, so that what a client got
can be compared byte for byte with what the engine sent in the same run. Two runs of an engine are
not alike: it merges tokens into one event when it is behind.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit


@dataclass(slots=True)
class Wire:
    """Both directions of one connection."""

    to_engine: bytearray = field(default_factory=bytearray)
    from_engine: bytearray = field(default_factory=bytearray)


class Tee:
    """Relays connections to `engine_url`; an async context manager."""

    def __init__(self, engine_url: str) -> None:
        parts = urlsplit(engine_url)
        self._host, self._port = parts.hostname, parts.port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.wires: list[Wire] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.close()

    def last_post(self) -> tuple[bytes, bytes]:
        """The last request with a body, and the bytes of its answer (head and framed body)."""
        for wire in reversed(self.wires):
            start = wire.to_engine.rfind(b"POST /")
            if start >= 0:
                answer = wire.from_engine.rfind(b"HTTP/1.1 ")
                return bytes(wire.to_engine[start:]), bytes(wire.from_engine[answer:])
        raise AssertionError("no request with a body went to the engine")

    def clear(self) -> None:
        """Forget what went before on all connections, open ones too."""
        for wire in self.wires:
            wire.to_engine.clear()
            wire.from_engine.clear()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire()
        self.wires.append(wire)
        engine_reader, engine_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, engine_writer}
        pumps = [
            asyncio.create_task(_pump(reader, engine_writer, wire.to_engine)),
            asyncio.create_task(_pump(engine_reader, writer, wire.from_engine)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (writer, engine_writer):
                each.close()
                self._writers.discard(each)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray
) -> None:
    try:
        while data := await reader.read(1 << 16):
            record += data
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return
