"""Is what clients send read the same however it is cut, and does the engine see what we think?

What is fed here goes through the code of the data port: where a head ends and what it says, where a
body ends, what is read of it and changed in it, and the head that is written for the engine. The
result is given to a strict reader of its own.
"""

import contextlib

import httptools
from giveway_admission.endpoints import BodyKind, Refused, find_endpoint
from giveway_admission.head_reading import HeadReader
from giveway_admission.incoming_bodies import IncomingBody
from giveway_admission.request_heads import (
    BadHeadError,
    EngineAddress,
    RequestHead,
    encode_engine_head,
)
from giveway_admission.request_reading import (
    InvalidRequestError,
    read_request,
    with_priority,
    with_usage_asked,
)
from giveway_admission.settings import ProxySettings

from tests.fuzz.pieces import split_input
from tests.support.strict_http import read_requests

SETTINGS = ProxySettings(upstream="http://127.0.0.1:1", maximum_head_bytes=2048)
ADDRESS = EngineAddress(host=b"127.0.0.1:1")

Seen = tuple[str, bytes, bytes, tuple[tuple[bytes, bytes], ...], bytes]
"""Method, target, headers passed on, all headers, body."""


def check(data: bytes) -> None:
    """Raises `AssertionError`, or whatever should never be raised."""
    stream, pieces = split_input(data)
    whole, whole_end = take_requests([stream])
    cut, cut_end = take_requests(pieces)
    if whole_end == "odd rest":
        assert cut[: len(whole)] == whole, (whole, cut)
    else:
        assert (cut, cut_end) == (whole, whole_end)


def take_requests(pieces: list[bytes]) -> tuple[list[Seen], str]:
    """All requests that are complete, and how it ended."""
    heads, seen = HeadReader(SETTINGS), list[Seen]()
    head: RequestHead | None = None
    body: IncomingBody | None = None
    taken = bytearray()
    for piece in pieces:
        rest = piece
        while rest:
            if head is None or body is None:
                try:
                    head = heads.feed(rest)
                except BadHeadError:
                    return seen, "bad head"
                if head is None:
                    break
                rest, heads.rest = heads.rest, b""
                body, taken = IncomingBody(head), bytearray()
                if not head.chunked and not head.content_length:
                    note(seen, head, b"")
                    head = body = None
                    continue
            try:
                taken += body.take(rest)
            except httptools.HttpParserError:
                return seen, "bad body"
            rest = b""
            if body.is_complete:
                note(seen, head, bytes(taken))
                if body.has_odd_rest:
                    return seen, "odd rest"
                rest, head, body = body.ahead, None, None
    return seen, "open" if heads.has_begun or head is not None else "between"


def note(seen: list[Seen], head: RequestHead, body: bytes) -> None:
    check_engine_view(head, body)
    check_body(head, body)
    seen.append(
        (
            head.method,
            head.target,
            b"".join(head.passed),
            tuple(sorted(pair for pair in head.fields.items() if pair[0] != b"content-length")),
            body,
        )
    )


def check_engine_view(head: RequestHead, body: bytes) -> None:
    """The engine sees one request, with our framing and no header that is for us."""
    sent = encode_engine_head(
        head, ADDRESS, client_ip=b"::1", request_id=b"id", priority=7, body_bytes=len(body)
    )
    requests, left = read_requests(sent + body)
    assert left == b"", sent
    assert len(requests) == 1, sent
    (request,) = requests
    assert request.method == head.method.encode("ascii")
    assert request.target == head.target
    assert request.body == body
    assert request.values(b"host") == [b"127.0.0.1:1"]
    assert request.values(b"x-vllm-priority") == [b"7"]
    assert request.values(b"x-request-id") == [b"id"]
    for name, _ in request.fields:
        assert not name.startswith(b"x-giveway-"), sent
        assert name not in (b"connection", b"te", b"upgrade", b"expect", b"authorization"), sent


def check_body(head: RequestHead, body: bytes) -> None:
    """Facts or the one error, for the whole and for a first part; changes keep to theirs."""
    endpoint = find_endpoint(head.method, head.path)
    if isinstance(endpoint, Refused) or endpoint.body is not BodyKind.JSON:
        return
    with contextlib.suppress(InvalidRequestError):
        read_request(endpoint, body, complete=False, content_length=len(body) + 10)
    try:
        facts = read_request(endpoint, body, complete=True, content_length=len(body))
    except InvalidRequestError:
        return
    assert facts.prompt_tokens >= 1
    assert facts.answers >= 1
    for changed in (with_priority(body, None), with_priority(body, 3)):
        again = read_request(endpoint, changed, complete=True, content_length=len(changed))
        assert again.prompt_tokens == facts.prompt_tokens
        assert again.priority_in_body == (changed is not body and b'"priority":3' in changed)
    if facts.can_ask_usage:
        changed = with_usage_asked(body)
        assert read_request(
            endpoint, changed, complete=True, content_length=len(changed)
        ).usage_asked
