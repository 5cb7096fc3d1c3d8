"""What does the head of a client's request say, and what of it may reach the engine?

`HeadReader` is what the parser calls back: it sorts each header once, while it is read, into what
the engine gets as it is and what is for us. `RequestHead` is the result.

What always holds
- Framing is judged strictly; every shape that two parsers could read differently is refused
  (request smuggling). llhttp refuses most of them itself; the rest is refused here.
- Hop-by-hop headers, those that `Connection` names, and everything that steers giveway or the
  engine's own scheduling stay here; `Host`, the length and the request id are written anew.
"""

import re
from dataclasses import dataclass
from typing import Final

_TARGET = re.compile(rb"/[\x21-\x7e]*")
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+;=:\[\]%-]*")
_KEPT_HERE: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate"),
        *(b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"http2-settings", b"expect", b"content-length", b"host", b"x-forwarded-for"),
        *(b"x-request-id", b"x-vllm-priority", b"authorization", b"x-api-key"),
    }
)
_CONTROL_PREFIX: Final = b"x-giveway-"
_USUAL_CONNECTIONS: Final = frozenset({b"keep-alive", b"close", b"Keep-Alive", b"Close"})
CREDENTIALS: Final = (b"authorization", b"x-api-key")


class BadHeadError(Exception):
    """The request's head can't be accepted; the message is for the client."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True, kw_only=True, eq=False)
class RequestHead:
    """The head of one request."""

    method: str
    path: str
    """Up to the `?`, not decoded."""
    target: bytes
    """Path and query as they were sent."""
    fields: dict[bytes, bytes]
    """All headers by lower-case name; repeated ones are joined with a comma in order of arrival."""
    passed: list[bytes]
    """What the engine gets unchanged: name, `: `, value, line end, and so on."""
    content_length: int | None
    """None: none was given."""
    chunked: bool
    is_1_0: bool
    keep_alive: bool
    expects_continue: bool

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.content_length)


class HeadReader:
    """Gathers one head after the other from a parser's callbacks."""

    __slots__ = ("_count", "_fields", "_maximum_headers", "_passed", "_target")

    def __init__(self, maximum_headers: int) -> None:
        self._maximum_headers = maximum_headers
        self._target = b""
        self._fields: dict[bytes, bytes] = {}
        self._passed: list[bytes] = []
        self._count = 0

    def add_target(self, piece: bytes) -> None:
        self._target += piece

    def add_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        fields = self._fields
        if lower in fields:
            fields[lower] = fields[lower] + b", " + value
        else:
            fields[lower] = value
        self._count += 1
        if self._count > self._maximum_headers:
            raise BadHeadError("The request has too many headers.", status=431)
        if lower not in _KEPT_HERE and not lower.startswith(_CONTROL_PREFIX):
            self._passed += (name, b": ", value, b"\r\n")

    def finish(self, method: bytes, version: str) -> RequestHead:
        """The head, judged. Ready for the next one afterwards.

        Raises `BadHeadError`.
        """
        target, fields, passed = self._target, self._fields, self._passed
        self._target, self._fields, self._passed, self._count = b"", {}, [], 0
        if version not in ("1.1", "1.0"):
            raise BadHeadError("Only versions 1.0 and 1.1 of HTTP are spoken here.")
        is_1_0 = version == "1.0"
        if not _TARGET.fullmatch(target) and not (target == b"*" and method == b"OPTIONS"):
            raise BadHeadError("The request target has to be a path that begins with a slash.")
        host = fields.get(b"host")
        if host is None:
            if not is_1_0:
                raise BadHeadError("The Host header is missing.")
        elif not _HOST.fullmatch(host):
            raise BadHeadError("The Host header is not valid, or there is more than one.")
        chunked = _is_chunked(fields, is_1_0=is_1_0)
        upgrade = fields.get(b"upgrade")
        if upgrade is not None and upgrade.lower() != b"h2c":
            # h2c is an offer that may be left unanswered (Java's client makes it every time).
            raise BadHeadError("Upgrading to another protocol is not possible here.")
        keep_alive = not is_1_0
        connection = fields.get(b"connection")
        if connection is not None:
            tokens = [token.strip() for token in connection.lower().split(b",")]
            keep_alive = keep_alive and b"close" not in tokens
            if connection not in _USUAL_CONNECTIONS:
                passed = _without(passed, frozenset(tokens))
        length = fields.get(b"content-length")
        expect = fields.get(b"expect")
        if expect is not None and expect.lower() != b"100-continue":
            raise BadHeadError("Only Expect: 100-continue is understood.", status=417)
        path = target.decode("ascii")
        mark = path.find("?")
        return RequestHead(
            method=method.decode("ascii"),
            path=path if mark < 0 else path[:mark],
            target=target,
            fields=fields,
            passed=passed,
            content_length=None if length is None else int(length),
            chunked=chunked,
            is_1_0=is_1_0,
            keep_alive=keep_alive,
            expects_continue=expect is not None and not is_1_0,
        )


def _is_chunked(fields: dict[bytes, bytes], *, is_1_0: bool) -> bool:
    encoding = fields.get(b"transfer-encoding")
    if encoding is None:
        return False
    if encoding.lower() != b"chunked" or is_1_0 or b"content-length" in fields:
        raise BadHeadError("Only Transfer-Encoding: chunked is understood, and alone.")
    return True


def _without(passed: list[bytes], names: frozenset[bytes]) -> list[bytes]:
    """`passed` without the headers that the client's `Connection` names."""
    kept: list[bytes] = []
    for at in range(0, len(passed), 4):
        if passed[at].lower() not in names:
            kept += passed[at : at + 4]
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddress:
    """What every request to the engine begins with."""

    host: bytes
    """For the `Host` header."""
    prefix: bytes = b""
    """Path before all of the engine's paths; no slash at its end."""
    authorization: bytes = b""
    """A whole header line with our own credential; empty: none is sent."""
    forwards_credentials: bool = False


def encode_engine_head(
    head: RequestHead,
    address: EngineAddress,
    *,
    client_ip: bytes,
    request_id: bytes,
    priority: int | None,
    body_bytes: int | None,
) -> bytes:
    """The request head for the engine.

    `priority` None: none is sent. `body_bytes` None: the body follows in chunks; for a request
    without a body, 0 writes no length unless its method usually has one.
    """
    fields = head.fields
    parts = [
        head.method.encode("ascii"),
        b" ",
        address.prefix,
        head.target,
        b" HTTP/1.1\r\nHost: ",
        address.host,
        b"\r\n",
        *head.passed,
    ]
    if address.authorization:
        parts.append(address.authorization)
    elif address.forwards_credentials:
        for name in CREDENTIALS:
            if name in fields:
                parts += (name, b": ", fields[name], b"\r\n")
    before = fields.get(b"x-forwarded-for")
    chain = client_ip if not before else before + b", " + client_ip
    parts += (b"X-Forwarded-For: ", chain, b"\r\nX-Request-Id: ", request_id)
    if priority is not None:
        parts.append(b"\r\nX-Vllm-Priority: %d" % priority)
    if body_bytes is None:
        parts.append(b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    elif body_bytes or head.method not in ("GET", "HEAD", "OPTIONS", "DELETE"):
        parts.append(b"\r\nContent-Length: %d\r\n\r\n" % body_bytes)
    else:
        parts.append(b"\r\n\r\n")
    return b"".join(parts)
