"""What does the head of a client's request say, and what of it may reach the engine?

`HeadCollector` is what the parser calls back, `read_request_head` judges what it gathered and sorts
it into what the engine gets as it is and what is for us.

What always holds
- Framing is judged strictly; every shape that two parsers could read differently is refused
  (request smuggling). llhttp refuses most of them itself; the rest is refused here.
- Hop-by-hop headers, those that `Connection` names, and everything that steers giveway or the
  engine's own scheduling stay here; `Host`, the length and the request id are written anew.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from giveway_admission.runtime_policies import Standing

_TARGET = re.compile(rb"/[\x21-\x7e]*")
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+;=:\[\]%-]*")
_KEPT_HERE: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate"),
        *(b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"http2-settings", b"expect", b"content-length", b"host", b"x-forwarded-for"),
        *(b"x-request-id", b"x-vllm-priority", b"authorization", b"x-api-key"),
        # A compressed answer could neither be charged nor be freed of usage nobody asked for.
        b"accept-encoding",
    }
)
_CONTROL_PREFIX: Final = b"x-giveway-"
_KEEPS_ALIVE: Final = frozenset({b"keep-alive", b"Keep-Alive"})
_UNUSUAL: Final = frozenset({b"transfer-encoding", b"upgrade", b"expect", b"content-encoding"})
_COMPRESSIONS: Final = frozenset(
    {b"gzip", b"x-gzip", b"deflate", b"br", b"zstd", b"compress", b"x-compress"}
)
CREDENTIALS: Final = (b"authorization", b"x-api-key")


class BadHeadError(Exception):
    """The request's head can't be accepted; the message is for the client."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class HeadNotes:
    """What followed from a head, kept with it: heads are often the last one's again."""

    __slots__ = ("address", "engine_lines", "standing")

    def __init__(self) -> None:
        self.standing: Standing | None = None
        """What a policy makes of it; it holds for the policy that it names."""
        self.address: EngineAddress | None = None
        """What `engine_lines` were made for."""
        self.engine_lines = b""


@dataclass(slots=True, kw_only=True, eq=False)
class RequestHead:
    """The head of one request."""

    method: str
    path: str
    """Up to the `?`, not decoded."""
    target: bytes
    """Path and query as they were sent."""
    fields: dict[bytes, bytes]
    """All headers by lower-case name but `content-length`, which differs where heads are the same
    otherwise; repeated ones are joined with a comma in order of arrival."""
    passed: list[bytes]
    """What the engine gets unchanged: name, `: `, value, line end, and so on."""
    content_length: int | None
    """None: none was given."""
    chunked: bool
    is_1_0: bool
    keep_alive: bool
    expects_continue: bool
    notes: HeadNotes = field(default_factory=HeadNotes)

    def with_length(self, length: int) -> "RequestHead":
        """The same head before a body of another length."""
        return RequestHead(
            method=self.method,
            path=self.path,
            target=self.target,
            fields=self.fields,
            passed=self.passed,
            content_length=length,
            chunked=self.chunked,
            is_1_0=self.is_1_0,
            keep_alive=self.keep_alive,
            expects_continue=self.expects_continue,
            notes=self.notes,
        )


class HeadCollector:
    """What the parser calls back while it reads a head.

    Every callback is a method of a list or dict, so that a head costs no Python call per header.
    That a name came twice is found out by counting lines (`read_request_head`).
    """

    __slots__ = ("headers", "on_header", "on_url", "targets")

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.targets: list[bytes] = []
        self.on_header = self.headers.__setitem__
        self.on_url = self.targets.append

    def clear(self) -> None:
        self.headers.clear()
        self.targets.clear()


def read_request_head(
    data: bytes,
    collected: HeadCollector,
    *,
    method: bytes,
    version: str,
    maximum_headers: int,
) -> RequestHead:
    """The head, judged. `data`: its bytes, which the parser has found to be a head.

    Raises `BadHeadError`.
    """
    fields: dict[bytes, bytes] = {}
    passed: list[bytes] = []
    count = 0
    for name, value in collected.headers.items():
        lower = name.lower()
        fields[lower] = value
        count += 1
        if lower not in _KEPT_HERE and not lower.startswith(_CONTROL_PREFIX):
            passed += (name, b": ", value, b"\r\n")
    if count != data.count(b"\r\n") - 2 or len(fields) != count:
        fields, passed, count = _read_repeated(data)
    if count > maximum_headers:
        raise BadHeadError("The request has too many headers.", status=431)
    if version not in ("1.1", "1.0"):
        raise BadHeadError("Only versions 1.0 and 1.1 of HTTP are spoken here.")
    is_1_0 = version == "1.0"
    targets = collected.targets
    target = targets[0] if len(targets) == 1 else b"".join(targets)
    if not _TARGET.fullmatch(target) and not (target == b"*" and method == b"OPTIONS"):
        raise BadHeadError("The request target has to be a path that begins with a slash.")
    _check_host(fields.get(b"host"), is_1_0=is_1_0)
    keep_alive = not is_1_0
    connection = fields.get(b"connection")
    if connection is not None and connection not in _KEEPS_ALIVE:
        tokens = [token.strip() for token in connection.lower().split(b",")]
        keep_alive = keep_alive and b"close" not in tokens
        passed = _without(passed, frozenset(tokens))
    if fields.keys() & _UNUSUAL:
        _check_unusual(fields, is_1_0=is_1_0)
    length = fields.pop(b"content-length", None)
    path = target.decode("ascii")
    mark = path.find("?")
    return RequestHead(
        method=method.decode("ascii"),
        path=path if mark < 0 else path[:mark],
        target=target,
        fields=fields,
        passed=passed,
        content_length=None if length is None else int(length),
        chunked=b"transfer-encoding" in fields,
        is_1_0=is_1_0,
        keep_alive=keep_alive,
        expects_continue=b"expect" in fields and not is_1_0,
    )


def _read_repeated(data: bytes) -> tuple[dict[bytes, bytes], list[bytes], int]:
    """The headers of a head in which a name comes twice, or which has empty lines before it."""
    fields: dict[bytes, bytes] = {}
    passed: list[bytes] = []
    lines = data.strip(b"\r\n").split(b"\r\n")[1:]
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.strip(b" \t")
        lower = name.lower()
        fields[lower] = fields[lower] + b", " + value if lower in fields else value
        if lower not in _KEPT_HERE and not lower.startswith(_CONTROL_PREFIX):
            passed += (name, b": ", value, b"\r\n")
    return fields, passed, len(lines)


def _check_host(host: bytes | None, *, is_1_0: bool) -> None:
    if host is None:
        if not is_1_0:
            raise BadHeadError("The Host header is missing.")
    elif not _HOST.fullmatch(host):
        raise BadHeadError("The Host header is not valid, or there is more than one.")


def _check_unusual(fields: dict[bytes, bytes], *, is_1_0: bool) -> None:
    """Headers that change how a message is framed, coded, or what follows it."""
    encoding = fields.get(b"transfer-encoding")
    if encoding is not None and (
        encoding.lower() != b"chunked" or is_1_0 or b"content-length" in fields
    ):
        raise BadHeadError("Only Transfer-Encoding: chunked is understood, and alone.")
    upgrade = fields.get(b"upgrade")
    if upgrade is not None and upgrade.lower() != b"h2c":
        # h2c is an offer that may be left unanswered (Java's client makes it every time).
        raise BadHeadError("Upgrading to another protocol is not possible here.")
    expect = fields.get(b"expect")
    if expect is not None and expect.lower() != b"100-continue":
        raise BadHeadError("Only Expect: 100-continue is understood.", status=417)
    coding = fields.get(b"content-encoding")
    if coding is not None and not _COMPRESSIONS.isdisjoint(
        token.strip() for token in coding.lower().split(b",")
    ):
        # Nothing of it could be judged here, and vLLM does not unpack it either.
        raise BadHeadError("Compressed request bodies are not taken: send it plain.", status=415)


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
    notes = head.notes
    if notes.address is not address:
        notes.engine_lines = _engine_lines(head, address, client_ip=client_ip)
        notes.address = address
    parts = [notes.engine_lines, request_id]
    if priority is not None:
        parts.append(b"\r\nX-Vllm-Priority: %d" % priority)
    if body_bytes is None:
        parts.append(b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    elif body_bytes or head.method not in ("GET", "HEAD", "OPTIONS", "DELETE"):
        parts.append(b"\r\nContent-Length: %d\r\n\r\n" % body_bytes)
    else:
        parts.append(b"\r\n\r\n")
    return b"".join(parts)


def _engine_lines(head: RequestHead, address: EngineAddress, *, client_ip: bytes) -> bytes:
    """The beginning of the head for the engine, up to the name of the request."""
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
    parts += (b"X-Forwarded-For: ", chain, b"\r\nX-Request-Id: ")
    return b"".join(parts)
