"""Who may hold how much before it is judged?"""

from collections.abc import Callable

from giveway_admission.arriving import FREE_BYTES, ArrivingBytes, Room
from hypothesis import given
from hypothesis import strategies as st

KIB = 1024


def rooms(count: int, *, limit_bytes: int) -> tuple[ArrivingBytes, list[Room], list[int]]:
    """All together, each, and the numbers of those whose room was made, in order."""
    everybody = ArrivingBytes(limit_bytes)
    made: list[int] = []

    def note(number: int) -> Callable[[], None]:
        return lambda: made.append(number)

    return everybody, [Room(everybody, note(number)) for number in range(count)], made


def test_small_requests_need_no_room() -> None:
    """However full it is."""
    everybody, (first, second), _ = rooms(2, limit_bytes=20 * KIB)
    assert first.grow_to(20 * KIB)
    assert second.grow_to(FREE_BYTES)
    assert not second.grow_to(FREE_BYTES + 1)
    assert everybody.held_bytes == 20 * KIB


def test_who_waits_comes_in_by_order_of_arrival() -> None:
    """A short one does not pass a long one that was there before."""
    _, (first, long, short), made = rooms(3, limit_bytes=100 * KIB)
    assert first.grow_to(90 * KIB)
    assert not long.grow_to(90 * KIB)
    assert long.wait_for(90 * KIB, in_hand_bytes=1)
    assert not short.grow_to(20 * KIB)
    assert short.wait_for(20 * KIB, in_hand_bytes=1)
    assert made == []
    first.free()
    assert made == [1]
    assert short.is_awaited
    long.free()
    assert made == [1, 2]


def test_who_leaves_the_line_lets_the_next_one_pass() -> None:
    """The first needs more than there is, and goes."""
    everybody, (first, long, short), made = rooms(3, limit_bytes=100 * KIB)
    assert first.grow_to(70 * KIB)
    assert long.wait_for(90 * KIB, in_hand_bytes=1)
    assert short.wait_for(20 * KIB, in_hand_bytes=1)
    long.free()
    assert made == [2]
    assert everybody.waiting == 0


def test_those_that_wait_hold_a_quarter_at_most() -> None:
    """What is in their hands already is bounded too."""
    _, (first, second, third), _ = rooms(3, limit_bytes=100 * KIB)
    assert first.grow_to(100 * KIB)
    assert second.wait_for(50 * KIB, in_hand_bytes=20 * KIB)
    assert not third.wait_for(50 * KIB, in_hand_bytes=10 * KIB)
    assert not third.is_awaited
    second.free()
    assert third.wait_for(50 * KIB, in_hand_bytes=10 * KIB)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["grow", "free"]), st.integers(0, 80)),
        max_size=60,
    )
)
def test_the_sum_stays_within_the_limit_and_nobody_waits_beside_room(
    steps: list[tuple[int, str, int]],
) -> None:
    """Whatever is done in whatever order; and in the end nothing is held."""
    everybody, all_rooms, _ = rooms(5, limit_bytes=100 * KIB)
    for number, step, size in steps:
        room = all_rooms[number]
        if step == "free":
            room.free()
        elif not room.is_awaited and not room.grow_to(size * KIB):
            room.wait_for(size * KIB, in_hand_bytes=KIB)
        assert 0 <= everybody.held_bytes <= 100 * KIB
        waiting = [each for each in all_rooms if each.is_awaited]
        assert everybody.waiting == len(waiting)
        if waiting:
            least = min(each.needed_bytes for each in waiting)
            assert everybody.held_bytes + max(each.needed_bytes for each in waiting) > 100 * KIB, (
                least
            )
    for room in all_rooms:
        room.free()
    assert (everybody.held_bytes, everybody.waiting) == (0, 0)
