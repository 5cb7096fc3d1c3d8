"""What did the engine see, to the letter?

An engine that keeps every byte of each connection and reads it with `strict_http`, which takes
nothing that two readers could understand differently. It answers each request with what it saw in
it, so that client and engine can be compared: `{"target": ..., "body": ...}`.
"""

import asyncio
import json
from typing import Self

from tests.support.strict_http import StrictError, StrictRequest, read_requests
from tests.support.vllm_answers import json_response

_UNMETERED = (b"/health", b"/metrics", b"/version")


class StrictEngine:
    """An async context manager. `requests` is what came but for the proxy's own probes."""

    def __init__(self) -> None:
        self.requests: list[StrictRequest] = []
        self.faults: list[str] = []
        """What could have been understood differently."""
        self.url = ""
        self.most_open = 0
        """Requests on one connection that were not answered yet: there may be one."""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def note(self, request: StrictRequest) -> None:
        if request.target not in _UNMETERED:
            self.requests.append(request)


class _Connection(asyncio.Protocol):
    def __init__(self, engine: StrictEngine) -> None:
        self._engine = engine
        self._transport: asyncio.Transport | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        try:
            requests, self._data = read_requests(self._data)
        except StrictError as error:
            self._engine.faults.append(str(error))
            self._transport.abort()
            return
        self._engine.most_open = max(self._engine.most_open, len(requests))
        for request in requests:
            self._engine.note(request)
            self._transport.write(_answer(request))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._data and exc is None:
            self._engine.faults.append(f"cut: {self._data[:200]!r}")


def _answer(request: StrictRequest) -> bytes:
    if request.target in _UNMETERED:
        return json_response({})
    seen = {"target": request.target.decode("latin-1"), "body": request.body.decode("latin-1")}
    answer = json_response(seen)
    if request.method == b"HEAD":
        return answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    return answer


def seen_by_client(data: bytes) -> list[tuple[int, str, str]]:
    """(status, target, body) of each answer that a client read; the last two empty if not ours."""
    found: list[tuple[int, str, str]] = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        status = int(first.split(b" ")[1])
        if status < 200:
            continue
        length = next(
            int(line.partition(b":")[2])
            for line in lines
            if line.lower().startswith(b"content-length:")
        )
        value = json.loads(data[:length]) if length else {}
        found.append((status, str(value.get("target", "")), str(value.get("body", ""))))
        data = data[length:]
    return found
