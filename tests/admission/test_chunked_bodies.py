"""What is inside a request body that comes in chunks?"""

from itertools import pairwise

import httptools
import pytest
from giveway_admission.chunked_bodies import ChunkedBody
from hypothesis import given
from hypothesis import strategies as st

BODY = b"5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n"


@given(st.lists(st.integers(min_value=0, max_value=len(BODY)), max_size=8))
def test_where_it_is_cut_makes_no_difference(cuts: list[int]) -> None:
    """In any pieces: the same bytes, and complete exactly at the end."""
    at = [0, *sorted(cuts), len(BODY)]
    body = ChunkedBody()
    pieces = [BODY[start:end] for start, end in pairwise(at)]
    assert b"".join(body.feed(piece) for piece in pieces) == b"hello world"
    assert body.is_complete
    assert not body.has_more_behind


@pytest.mark.parametrize("behind", [b"GET / HTTP/1.1\r\n", b"nonsense", b"\x00"])
def test_what_comes_behind_it_is_noticed(behind: bytes) -> None:
    """It is not part of the body, and not taken for one."""
    body = ChunkedBody()
    assert body.feed(BODY + behind) == b"hello world"
    assert body.is_complete
    assert body.has_more_behind


@pytest.mark.parametrize(
    "data",
    [
        *(b"5\nhello\r\n", b"-1\r\n", b"0x5\r\nhello\r\n", b"zz\r\n", b"5\r\nhello!\r\n"),
        *(b"5;a\nb\r\nhello\r\n", b"fffffffffffffffff\r\n", b" 5\r\nhello\r\n"),
    ],
)
def test_a35_framing_that_can_be_read_in_two_ways_is_broken(data: bytes) -> None:
    """A35: bare line feeds, signs, prefixes, wrong sizes, overflow."""
    with pytest.raises(httptools.HttpParserError):
        ChunkedBody().feed(data)
