"""What is a request called?"""

from giveway_admission.request_ids import RequestIds, harmless_id
from hypothesis import given
from hypothesis import strategies as st


def test_a_name_that_is_in_use_at_the_engine_gets_a_suffix_there() -> None:
    """A39: two live requests of one id are two for the engine; a free name is used as it is."""
    ids = RequestIds()
    first, second = ids.claim(b"job"), ids.claim(b"job")
    assert first == b"job"
    assert second.startswith(b"job-")
    assert second != first
    ids.release(first)
    assert ids.claim(b"job") == b"job"
    ids.release(b"job")
    ids.release(second)
    assert len(ids) == 0


def test_a_second_try_has_a_new_name() -> None:
    """A39: the engine may still know the first one."""
    ids = RequestIds()
    ids.release(ids.claim(b"job"))
    assert ids.claim(b"job", again=True) != b"job"


def test_names_that_are_made_differ() -> None:
    """Within a process by a number, between processes by a random part."""
    ids = RequestIds()
    names = {ids.name(None) for _ in range(100)} | {RequestIds().name(None)}
    assert len(names) == 101


@given(st.binary(max_size=200))
def test_an_id_that_is_kept_is_harmless(value: bytes) -> None:
    """At most 128 characters that mean nothing to headers, logs, JSON or labels (G10)."""
    found = harmless_id(value)
    if found is not None:
        assert 0 < len(found) <= 128
        assert found.isascii()
        assert not set(found) & set("\"'\\\r\n\t %<>{},;\x00")
        assert found == value.strip(b" \t").decode("ascii")


def test_an_ordinary_id_stays_as_it_is() -> None:
    """UUIDs, traces and paths; one that is too long is none."""
    for value in (b"0f8fad5b-d9cb-469f-a165-70867728950e", b"req_011CQ:a/b+c=", b"x" * 128):
        assert harmless_id(value) == value.decode()
        assert RequestIds().name(value) == value
    assert harmless_id(b"x" * 129) is None
    assert harmless_id(None) is None
