"""What does the most literal reader of RFC 9112 see in bytes that are meant to be requests?

A reference for what the proxy sends to the engine: it takes nothing that two readers could
understand differently, and says why not. Written for being obviously right, not for speed.
"""

import re
from dataclasses import dataclass

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") (/[\x21-\x7e]*|\*) HTTP/1\.1")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\x21-\x7e\x80-\xff \t]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
_ONCE = (b"host", b"content-length", b"transfer-encoding", b"x-request-id", b"x-vllm-priority")


class StrictError(ValueError):
    """Somebody might read it otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictRequest:
    method: bytes
    target: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    """Names in lower case."""
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key == name]


def read_requests(data: bytes) -> tuple[list[StrictRequest], bytes]:
    """The requests in what one connection brought, and what is left of one that is not complete.

    Raises `StrictError`.
    """
    requests: list[StrictRequest] = []
    while data:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return requests, data
        method, target, fields = _read_head(data[:end])
        read = _read_body(fields, data[end + 4 :])
        if read is None:
            return requests, data
        body, data = read
        requests.append(StrictRequest(method=method, target=target, fields=fields, body=body))
    return requests, b""


def _read_head(head: bytes) -> tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...]]:
    first, *lines = head.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise StrictError(f"request line {first[:80]!r}")
    fields: list[tuple[bytes, bytes]] = []
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise StrictError(f"field line {line[:80]!r}")
        fields.append((found[1].lower(), found[2]))
    names = [name for name, _ in fields]
    for name in _ONCE:
        if names.count(name) > 1:
            raise StrictError(f"{name!r} comes twice")
    if b"host" not in names:
        raise StrictError("no host")
    return match[1], match[2], tuple(fields)


def _read_body(fields: tuple[tuple[bytes, bytes], ...], data: bytes) -> tuple[bytes, bytes] | None:
    """(body, what follows). None: it is not complete."""
    known = dict(fields)
    encoding, length = known.get(b"transfer-encoding"), known.get(b"content-length")
    if encoding is not None:
        if length is not None or encoding != b"chunked":
            raise StrictError(f"framing {encoding!r} and {length!r}")
        return _read_chunks(data)
    if length is None:
        return b"", data
    if not length.isdigit() or (len(length) > 1 and length.startswith(b"0")):
        raise StrictError(f"length {length!r}")
    size = int(length)
    return None if len(data) < size else (data[:size], data[size:])


def _read_chunks(data: bytes) -> tuple[bytes, bytes] | None:
    body = b""
    while True:
        line, found, rest = data.partition(b"\r\n")
        if not found:
            return None
        if not _CHUNK_SIZE.fullmatch(line):
            raise StrictError(f"chunk size {line[:40]!r}")
        size = int(line, 16)
        if len(rest) < size + 2:
            return None
        if rest[size : size + 2] != b"\r\n":
            raise StrictError("a chunk is longer than it says")
        body += rest[:size]
        data = rest[size + 2 :]
        if size == 0:
            return body, data
