"""Does a connection read each head as if it were the first?"""

import pytest
from giveway_admission.head_reading import HeadReader
from giveway_admission.request_heads import BadHeadError
from giveway_admission.settings import ProxySettings

SETTINGS = ProxySettings(upstream="http://127.0.0.1:1", maximum_head_bytes=5000)
LENGTHS = ["0", "7", "99", "123456", "007", "+7", "-1", "0x7", "7 7", "", "9" * 18, "9" * 30]
OTHERS = [
    b"Accept: */*",
    b"X-Giveway-Class: batch",
    b"Content-Length: 7",
    b"Transfer-Encoding: chunked",
    b" folded",
    b"Expect: 100-continue",
    b"Connection: close",
]


def make(length: str, other: bytes = b"Accept: */*", name: bytes = b"Content-Length") -> bytes:
    lines = [
        *(b"POST /v1/chat/completions HTTP/1.1", b"Host: a", b"Authorization: Bearer k"),
        *(name + b": " + length.encode(), other),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def outcome(reader: HeadReader, data: bytes) -> object:
    """Everything that can be seen of a reading."""
    try:
        head = reader.feed(data)
    except BadHeadError as error:
        return str(error), error.status
    rest, reader.rest = reader.rest, b""
    if head is None:
        return None
    return (
        *(head.method, head.path, head.target, head.fields.get(b"authorization")),
        *(b"".join(head.passed), head.content_length, head.chunked, head.is_1_0),
        *(head.keep_alive, head.expects_continue, rest),
    )


def is_refusal(result: object) -> bool:
    return isinstance(result, tuple) and len(result) == 2


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("other", OTHERS, ids=bytes.decode)
def test_a_head_after_another_says_what_it_says_alone(length: str, other: bytes) -> None:
    """However the last head looks like this one, a faulty or different one is found out."""
    forms = (make(length), make(length, other), make(length, name=b"content-length"))
    for first in (make("12"), make("12", other), make("12", name=b"content-length")):
        for second in forms:
            for data in (second, second + b"body", b"\r\n" + second):
                reader = HeadReader(SETTINGS)
                if is_refusal(outcome(reader, first)):
                    continue  # the connection has ended
                assert outcome(reader, data) == outcome(HeadReader(SETTINGS), data)


def test_a_head_that_differs_in_its_length_alone_keeps_no_length_of_the_last_one() -> None:
    reader = HeadReader(SETTINGS)
    for digits in ("12", "1234"):
        head = reader.feed(make(digits))
        assert head is not None
        assert head.content_length == int(digits)
        assert head.fields.get(b"content-length") in (None, digits.encode())


@pytest.mark.parametrize("size", [1, 2, 3, 50, 1000])
def test_a_head_in_pieces_says_the_same_as_in_one(size: int) -> None:
    """Cut anywhere, also where the last head was the same and this one is cut inside its length."""
    data = make("1234")
    whole = outcome(HeadReader(SETTINGS), data)
    reader = HeadReader(SETTINGS)
    outcome(reader, make("12"))
    for start in range(0, len(data), size):
        result = outcome(reader, data[start : start + size])
        if start + size < len(data):
            assert result is None
            assert reader.has_begun
    assert result == whole
    assert not reader.has_begun


def test_the_same_head_again_is_not_read_again() -> None:
    """What the last head said is used as it is; another length makes another head."""
    reader = HeadReader(SETTINGS)
    first = reader.feed(make("12") + b"x" * 12)
    again = reader.feed(make("12"))
    longer = reader.feed(make("1200"))
    assert first is not None
    assert again is first
    assert longer is not None
    assert (first.content_length, longer.content_length) == (12, 1200)
    assert longer.fields is first.fields


def test_long_heads_are_not_kept() -> None:
    """A connection that is idle holds no more than a few kilobytes."""
    reader = HeadReader(SETTINGS)
    data = make("12", b"X-Long: " + b"a" * 4096)
    first = reader.feed(data)
    assert first is not None
    assert reader.feed(data) is not first


def test_the_limit_of_a_head_holds_for_one_like_the_last() -> None:
    """431 also where only the length of the body has grown."""
    first = make("1")
    reader = HeadReader(ProxySettings(upstream="http://a:1", maximum_head_bytes=len(first)))
    assert reader.feed(first) is not None
    with pytest.raises(BadHeadError) as raised:
        reader.feed(make("10"))
    assert raised.value.status == 431
