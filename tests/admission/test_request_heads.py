"""What does the head of a client's request say?"""

import httptools
import pytest
from giveway_admission.request_heads import (
    BadHeadError,
    EngineAddress,
    HeadCollector,
    RequestHead,
    encode_engine_head,
    read_request_head,
)
from hypothesis import given
from hypothesis import strategies as st

ADDRESS = EngineAddress(host=b"engine:8000")


def read(data: bytes, *, maximum_headers: int = 256) -> RequestHead:
    """What `ClientConnection` does with a whole head."""
    collector = HeadCollector()
    parser = httptools.HttpRequestParser(collector)
    parser.feed_data(data)
    return read_request_head(
        data,
        collector,
        method=parser.get_method(),
        version=parser.get_http_version(),
        maximum_headers=maximum_headers,
    )


def head(*lines: str, first: str = "POST /v1/x?a=b HTTP/1.1", host: bool = True) -> bytes:
    hosts = ("Host: a",) if host else ()
    return "\r\n".join((first, *hosts, *lines, "", "")).encode("latin-1")


def test_an_ordinary_head_is_read() -> None:
    """Method, path, query, length, and each header under its lower-case name."""
    got = read(head("Content-Length: 5", "X-One: 1", "Content-Type: application/json"))
    assert (got.method, got.path, got.target) == ("POST", "/v1/x", b"/v1/x?a=b")
    assert (got.content_length, got.chunked, got.keep_alive) == (5, False, True)
    assert got.fields[b"x-one"] == b"1"
    assert b"".join(got.passed) == b"X-One: 1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("spelling", ["X-One", "x-one"], ids=["equal", "other-case"])
def test_a_repeated_header_is_joined_and_passed_on_as_it_came(spelling: str) -> None:
    """No value is lost, in whatever case the name comes."""
    got = read(head("X-One: 1", "X-Two: 2", f"{spelling}: 3"))
    assert got.fields[b"x-one"] == b"1, 3"
    assert b"".join(got.passed) == b"X-One: 1\r\nX-Two: 2\r\n%b: 3\r\n" % spelling.encode()


def test_empty_lines_before_a_request_change_nothing() -> None:
    """RFC 9112, 2.2: a client may send a line end too much before a request."""
    assert read(b"\r\n" + head("X-One: 1")).passed == read(head("X-One: 1")).passed


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["X-A", "x-a", "X-B", "Accept", "Cookie", "Via"]),
            st.text(alphabet="abc ,;=", max_size=8),
        ),
        max_size=12,
    )
)
def test_no_header_is_lost_or_invented(pairs: list[tuple[str, str]]) -> None:
    """Whatever is repeated: what goes on is what came, in order, without space around values."""
    got = read(head(*(f"{name}: {value}" for name, value in pairs)))
    sent = [(name.encode(), value.strip().encode()) for name, value in pairs]
    passed = got.passed
    assert [(passed[at], passed[at + 2].strip()) for at in range(0, len(passed), 4)] == sent


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head(host=False), 400),
        (head("Host: b"), 400),
        (head(first="GET http://b/ HTTP/1.1"), 400),
        (head(first="GET * HTTP/1.1"), 400),
        (head(first="GET / HTTP/2.0"), 400),
        (head("Transfer-Encoding: gzip, chunked"), 400),
        (head("Transfer-Encoding: chunked", first="POST / HTTP/1.0"), 400),
        (head("Expect: 200-maybe"), 417),
        (head("X-A: 1", "X-B: 2", "X-C: 3", "X-D: 4"), 431),
    ],
    ids=[
        *("no-host", "two-hosts", "absolute", "star", "version", "gzip", "chunked-1.0"),
        *("expectation", "many"),
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(data: bytes, status: int) -> None:
    """A35, G08: what llhttp lets pass and we do not."""
    with pytest.raises(BadHeadError) as caught:
        read(data, maximum_headers=4)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("connection", "kept", "keep_alive"),
    [
        ("keep-alive", b"X-A: 1\r\nX-B: 2\r\n", True),
        ("close", b"X-A: 1\r\nX-B: 2\r\n", False),
        ("Close, x-a", b"X-B: 2\r\n", False),
        ("X-B , X-A", b"", True),
    ],
)
def test_a32_what_connection_names_stays_here(
    connection: str, kept: bytes, *, keep_alive: bool
) -> None:
    """A32: nominated headers are dropped; close is understood in any case and place."""
    got = read(head(f"Connection: {connection}", "X-A: 1", "X-B: 2"))
    assert b"".join(got.passed) == kept
    assert got.keep_alive is keep_alive


def encoded(
    got: RequestHead,
    address: EngineAddress = ADDRESS,
    *,
    priority: int | None = None,
    body_bytes: int | None = 0,
) -> bytes:
    return encode_engine_head(
        got,
        address,
        client_ip=b"192.0.2.1",
        request_id=b"id-1",
        priority=priority,
        body_bytes=body_bytes,
    )


def test_the_engines_head_is_ours_with_what_the_client_said() -> None:
    """Host, chain, id, priority and length are written by us, the rest is passed on."""
    got = read(
        head(
            "X-Vllm-Priority: 9",
            "X-Giveway-Class: batch",
            "Authorization: Bearer k",
            "X-Forwarded-For: 198.51.100.7",
            "Content-Length: 5",
            "Accept: */*",
        )
    )
    assert encoded(got, priority=-3, body_bytes=7) == (
        b"POST /v1/x?a=b HTTP/1.1\r\nHost: engine:8000\r\nAccept: */*\r\n"
        b"X-Forwarded-For: 198.51.100.7, 192.0.2.1\r\nX-Request-Id: id-1\r\n"
        b"X-Vllm-Priority: -3\r\nContent-Length: 7\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("first", "body_bytes", "wanted"),
    [
        ("GET / HTTP/1.1", 0, None),
        ("POST / HTTP/1.1", 0, b"Content-Length: 0"),
        ("DELETE / HTTP/1.1", 3, b"Content-Length: 3"),
        ("POST / HTTP/1.1", None, b"Transfer-Encoding: chunked"),
    ],
)
def test_a_length_is_told_where_there_is_a_body(
    first: str, body_bytes: int | None, wanted: bytes | None
) -> None:
    """A17: never both framings, and none for a request that usually has no body."""
    lines = encoded(read(head(first=first)), body_bytes=body_bytes).split(b"\r\n")
    framings = [
        line for line in lines if line.startswith((b"Content-Length", b"Transfer-Encoding"))
    ]
    assert framings == ([] if wanted is None else [wanted])
