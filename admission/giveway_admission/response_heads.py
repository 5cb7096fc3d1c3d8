"""What of the engine's response head reaches the client, and what is added?

The engine's headers go on in their order and spelling. Hop-by-hop headers, and its own copy of the
request id, stay here. How the body is framed is said by us, since we know how it will be written.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

_KEPT_HERE: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"content-length", b"x-request-id"),
    }
)
_SPECIAL: Final = _KEPT_HERE | {b"content-type", b"content-encoding"}
_CONTROL_PREFIX: Final = b"x-giveway-"


class BadAnswerError(Exception):
    """The engine's answer is not HTTP that we can pass on."""


class Framing(Enum):
    """How the end of a body is known."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"
    """It ends with the connection."""
    NONE = "none"
    """There is no body, whatever the headers say: HEAD, 204, 304."""


@dataclass(slots=True, kw_only=True, eq=False)
class ResponseHead:
    """The head of one answer of the engine."""

    status: int
    reason: bytes
    passed: list[bytes] = field(default_factory=list)
    """What the client gets unchanged: name, `: `, value, line end, and so on."""
    connection: bytes = b""
    content_length: bytes | None = None
    content_type: bytes = b""
    is_encoded: bool = False
    """The body is compressed: nothing can be read in it."""
    framing: Framing = Framing.NONE

    @property
    def is_event_stream(self) -> bool:
        return self.content_type.lower().startswith(b"text/event-stream")

    def with_length(self, content_length: bytes) -> "ResponseHead":
        """The same head before a body of another length."""
        return replace(self, content_length=content_length)

    def take(self, lower: bytes, value: bytes) -> None:
        """A header that says something about the connection or the body."""
        if lower == b"content-length":
            self.content_length = value
        elif lower == b"content-type":
            self.content_type = value
        elif lower == b"content-encoding":
            self.is_encoded = value.strip().lower() not in (b"", b"identity")
        elif lower == b"connection":
            self.connection += b"," + value
        elif lower == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise BadAnswerError("unknown transfer encoding")
            self.framing = Framing.CHUNKED

    def settle(self, *, without_body: bool) -> None:
        """All headers are there: decide how the end of the body is known."""
        if self.connection:
            self._drop_nominated()
        if without_body or self.status in (204, 304):
            self.framing = Framing.NONE
        elif self.framing is not Framing.CHUNKED:
            self.framing = Framing.CLOSE if self.content_length is None else Framing.LENGTH

    def _drop_nominated(self) -> None:
        names = {token.strip() for token in self.connection.lower().split(b",")}
        if names - {b"", b"close", b"keep-alive"}:
            kept: list[bytes] = []
            for at in range(0, len(self.passed), 4):
                if self.passed[at].lower() not in names:
                    kept += self.passed[at : at + 4]
            self.passed = kept


def read_response_head(
    data: bytes,
    headers: dict[bytes, bytes],
    *,
    status: int,
    reason: bytes,
    without_body: bool,
) -> ResponseHead:
    """The head out of its bytes and of what the parser collected of them.

    Raises `BadAnswerError`.
    """
    head = ResponseHead(status=status, reason=reason)
    passed = head.passed
    pairs: Iterable[tuple[bytes, bytes]] = headers.items()
    if len(headers) != data.count(b"\r\n") - 2:  # a name came twice
        pairs = _pairs(data)
    for name, value in pairs:
        lower = name.lower()
        if lower in _SPECIAL:
            head.take(lower, value)
            if lower in _KEPT_HERE:
                continue
        elif lower.startswith(_CONTROL_PREFIX):
            continue
        passed += (name, b": ", value, b"\r\n")
    head.settle(without_body=without_body)
    return head


def _pairs(data: bytes) -> list[tuple[bytes, bytes]]:
    """All headers in order, repeated ones too."""
    lines = [line.partition(b":") for line in data.split(b"\r\n")[1:-2]]
    return [(name, value.strip(b" \t")) for name, _, value in lines]


_CHUNKED: Final = Framing.CHUNKED
_CLOSE: Final = Framing.CLOSE


def encode_client_head(
    head: ResponseHead, ours: list[bytes], *, framing: Framing, close: bool
) -> bytes:
    """The response head for the client. `ours`: whole header lines of our own."""
    parts = [b"HTTP/1.1 %d " % head.status, head.reason, b"\r\n", *head.passed, *ours]
    if framing is _CHUNKED:
        parts.append(b"Transfer-Encoding: chunked\r\n")
    elif (
        framing is not _CLOSE
        and head.content_length is not None
        and head.status != 204  # RFC 9110, 8.6: it has none; of a 304 it is the whole answer's
    ):
        parts += (b"Content-Length: ", head.content_length, b"\r\n")
    parts.append(b"Connection: close\r\n\r\n" if close else b"\r\n")
    return b"".join(parts)
