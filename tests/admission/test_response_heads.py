"""What of the engine's response head reaches the client?"""

import pytest
from giveway_admission.response_heads import (
    BadAnswerError,
    Framing,
    ResponseHead,
    encode_client_head,
    read_response_head,
)


def read(*lines: bytes, status: int = 200, without_body: bool = False) -> ResponseHead:
    """A head whose lines the parser collected: of a name that came twice, the last value."""
    data = b"\r\n".join((b"HTTP/1.1 %d Fine" % status, *lines, b"", b""))
    pairs = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    return read_response_head(
        data,
        dict(pairs),
        status=status,
        reason=b"Fine",
        without_body=without_body,
    )


@pytest.mark.parametrize(
    ("head", "framing"),
    [
        (read(b"Content-Length: 5"), Framing.LENGTH),
        (read(b"Transfer-Encoding: chunked"), Framing.CHUNKED),
        (read(b"Server: x"), Framing.CLOSE),
        (read(b"Content-Length: 5", without_body=True), Framing.NONE),
        (read(b"Content-Length: 5", status=304), Framing.NONE),
        (read(status=204), Framing.NONE),
    ],
)
def test_how_the_end_of_a_body_is_known(head: ResponseHead, framing: Framing) -> None:
    """RFC 9112, 6.3, in the order of its rules."""
    assert head.framing is framing


def test_headers_that_come_twice_are_passed_on_twice() -> None:
    """Two cookies stay two cookies, in order."""
    head = read(b"Set-Cookie: a=1", b"Server: x", b"Set-Cookie: b=2", b"Content-Length: 0")
    assert b"".join(head.passed) == b"Set-Cookie: a=1\r\nServer: x\r\nSet-Cookie: b=2\r\n"


def test_hop_by_hop_headers_stay_here() -> None:
    """A32: those of the standard, those that Connection names, and forged ones of ours."""
    head = read(
        b"Connection: X-Inner",
        b"X-Inner: 1",
        b"Keep-Alive: timeout=5",
        b"X-Request-Id: theirs",
        b"X-Giveway-Queue-Ms: 1",
        b"X-Outer: 2",
    )
    assert b"".join(head.passed) == b"X-Outer: 2\r\n"


@pytest.mark.parametrize(("value", "encoded"), [(b"gzip", True), (b"identity", False)])
def test_a15_a_compressed_body_keeps_its_header(value: bytes, *, encoded: bool) -> None:
    """A15: what is not unpacked here keeps saying what it is."""
    head = read(b"Content-Encoding: " + value, b"Content-Length: 3")
    assert head.is_encoded is encoded
    assert b"".join(head.passed) == b"Content-Encoding: " + value + b"\r\n"


def test_an_unknown_transfer_encoding_is_refused() -> None:
    """What can't be framed can't be passed on."""
    with pytest.raises(BadAnswerError):
        read(b"Transfer-Encoding: gzip, chunked")


@pytest.mark.parametrize(
    ("framing", "wanted"),
    [
        (Framing.LENGTH, b"Content-Length: 5\r\n\r\n"),
        (Framing.NONE, b"Content-Length: 5\r\n\r\n"),
        (Framing.CHUNKED, b"Transfer-Encoding: chunked\r\n\r\n"),
        (Framing.CLOSE, b"\r\n"),
    ],
)
def test_a17_the_client_is_told_how_the_body_is_written(framing: Framing, wanted: bytes) -> None:
    """A17: one framing, that of what will be written, whatever the engine's was."""
    head = read(b"X-One: 1", b"Content-Length: 5")
    data = encode_client_head(head, [b"X-Ours: 2\r\n"], framing=framing, close=False)
    assert data.startswith(b"HTTP/1.1 200 Fine\r\nX-One: 1\r\nX-Ours: 2\r\n")
    assert data.endswith(wanted)
    assert (b"Content-Length" in data) == (b"Content-Length" in wanted)


def test_an_answer_without_content_has_no_length() -> None:
    """RFC 9110, 8.6: never in a 204; in a 304 and after HEAD it is the whole answer's."""
    for head, length in (
        (read(b"Content-Length: 0", status=204), b""),
        (read(b"Content-Length: 5", status=304), b"Content-Length: 5\r\n"),
        (read(b"Content-Length: 5", without_body=True), b"Content-Length: 5\r\n"),
    ):
        sent = encode_client_head(head, [], framing=head.framing, close=False)
        assert sent == b"HTTP/1.1 %d Fine\r\n%b\r\n" % (head.status, length)
