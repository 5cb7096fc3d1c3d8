"""Is the engine's answer read the same however it is cut?

What is fed here goes through `EngineConnection` with a transport that does nothing, and from there
to the reader of answers and the hider of usage, as in service.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from giveway_admission.answer_reading import AnswerReader
from giveway_admission.endpoints import ENDPOINTS
from giveway_admission.engine_connections import EngineConnection, EngineFault, Home
from giveway_admission.response_heads import Framing, ResponseHead, encode_client_head
from giveway_admission.usage_hiding import UsageHider

from tests.fuzz.pieces import split_input

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


def check(data: bytes) -> None:
    """Raises `AssertionError`, or whatever should never be raised."""
    is_head = bool(data) and data[-1] & 1 == 1
    path = PATHS[data[-1] // 2 % len(PATHS)] if data else PATHS[0]
    stream, pieces = split_input(data[:-1])
    whole = take_answer([stream], path=path, is_head=is_head)
    cut = take_answer(pieces, path=path, is_head=is_head)
    if whole.end == "ended" or whole.end == "open":
        assert cut.seen() == whole.seen(), (whole, cut)
    else:  # nonsense somewhere: what came before it may have been passed on
        assert cut.body.startswith(whole.body)
        assert cut.end in (whole.end, "ended")
    check_reading(stream, pieces, path=path)


def check_reading(stream: bytes, pieces: list[bytes], *, path: str) -> None:
    """The stream taken as a body that is decoded already."""
    for streams in (True, False):
        assert read([stream], path=path, streams=streams) == read(
            pieces, path=path, streams=streams
        )
    assert shown([stream]) == shown(pieces)


def read(pieces: list[bytes], *, path: str, streams: bool) -> tuple[object, ...]:
    reader = AnswerReader(ENDPOINTS[path], streams=streams, status=200, encoded=False)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    return (
        reader.events,
        reader.failed,
        reader.finished,
        reader.first_token_seen,
        reader.usage,
        reader.usage_doubtful,
        reader.charge(prompt_tokens=5),
    )


def shown(pieces: list[bytes]) -> bytes:
    hider = UsageHider()
    return b"".join([*[hider.feed(piece) for piece in pieces], hider.end()])


@dataclass(slots=True)
class Taken:
    """One answer as its receiver saw it."""

    head: ResponseHead | None = None
    raw: bytes = b""
    body: bytes = b""
    end: str = "open"
    is_head_request: bool = False
    calls: list[str] = field(default_factory=list)

    def seen(self) -> tuple[object, ...]:
        head = self.head
        shown_head = (
            b"" if head is None else encode_client_head(head, [], framing=head.framing, close=False)
        )
        # Of line ends behind chunks, cut off from them, it can't be known that they are too many.
        return shown_head, self.raw.rstrip(b"\r\n"), self.body, self.end

    def begin_sending(self, connection: EngineConnection) -> tuple[bytes, bytes]:
        assert connection is not None
        return b"", b""

    def answer_head(self, head: ResponseHead) -> "Taken":
        assert self.head is None, "two heads"
        self.head = head
        return self

    def pass_on(self, data: bytes, body: bytes, now_s: float, *, complete: bool) -> None:
        assert self.end == "open"
        assert now_s > 0
        assert self.head is not None
        assert self.head.framing is not Framing.NONE
        if self.head.framing is not Framing.CHUNKED:
            assert data == body
        self.raw += data
        self.body += body
        self.calls.append("last" if complete else "more")

    def flush(self) -> None:
        assert self.head is not None

    def answer_end(self) -> None:
        assert self.end == "open"
        self.end = "ended"

    def engine_failed(self, fault: EngineFault) -> None:
        assert self.end == "open"
        self.end = fault.name

    def engine_congested(self, congested: bool) -> None:
        assert not congested


def take_answer(pieces: list[bytes], *, path: str, is_head: bool) -> Taken:
    assert path in ENDPOINTS
    taken = Taken(is_head_request=is_head)
    connection = EngineConnection(_Home(), cast("asyncio.AbstractEventLoop", _Loop()))
    transport = _Transport(connection)
    connection.connection_made(cast("asyncio.BaseTransport", transport))
    connection.send(taken)
    for piece in pieces:
        if transport.closing or taken.end != "open":
            break
        connection.data_received(piece)
    transport.tell()
    return taken


class _Home(Home):
    idle_timeout_s = 60.0

    def put(self, connection: EngineConnection) -> None:
        assert connection.is_usable

    def forget(self, connection: EngineConnection) -> None: ...


class _Loop:
    """Timers that never go off."""

    def call_later(self, delay_s: float, call: Callable[[], None]) -> "_Loop":
        assert delay_s > 0
        assert call is not None
        return self

    def cancel(self) -> None: ...


class _Transport:
    def __init__(self, connection: EngineConnection) -> None:
        self._connection = connection
        self.closing = False

    def write(self, data: bytes) -> None:
        assert not self.closing or not data

    def abort(self) -> None:
        self.closing = True

    close = abort

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return True

    def tell(self) -> None:
        """The loop tells of the end, if there was one."""
        if self.closing:
            self._connection.connection_lost(None)
