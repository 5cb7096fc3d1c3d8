"""What is a request called?"""

from giveway_admission.request_ids import RequestIds


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
