"""Does a member get to the end of whatever passes by?"""

import json
from collections.abc import Sequence

import pytest
from giveway_admission.body_tails import MemberAppender
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cutting import cut, places
from tests.support.json_texts import objects

MEMBER = b'"priority":7'


def through(pieces: Sequence[bytes]) -> bytes:
    appender = MemberAppender(MEMBER)
    return b"".join([*[appender.feed(piece) for piece in pieces], appender.end()])


@given(objects(), places)
def test_any_object_in_any_pieces_ends_with_the_member(body: bytes, at: Sequence[int]) -> None:
    """To the engine it is the same object with our priority, and its length is known before."""
    changed = through(cut(body, at))
    expected = json.loads(body.decode("utf-8-sig", "surrogatepass"))
    read = json.loads(changed.decode("utf-8-sig", "surrogatepass"))
    assert read == {**expected, "priority": 7}
    assert len(changed) == len(body) + MemberAppender(MEMBER).extra_bytes


@given(st.lists(st.sampled_from([b"{", b"}", b" ", b"\n", b'"', b"1", b",", b""]), max_size=12))
def test_cuts_change_nothing(pieces: list[bytes]) -> None:
    """All at once equals piece by piece but for white space, which may stand before a brace."""
    body = b"".join(pieces)
    changed = through(pieces)
    assert changed.translate(None, b" \n") == through([body]).translate(None, b" \n")
    assert len(changed) == len(body) + len(MEMBER) + 1


@pytest.mark.parametrize("body", [b"", b"   ", b"[1]", b'{"a":"x', b'{"a":1}]', b'"}', b"{}x"])
def test_what_is_no_object_becomes_none(body: bytes) -> None:
    """Its length is as was said, and it is as invalid as it was."""
    changed = through([body])
    assert len(changed) == len(body) + len(MEMBER) + 1
    try:
        value = json.loads(changed)
    except ValueError:
        value = None
    assert not isinstance(value, dict)
