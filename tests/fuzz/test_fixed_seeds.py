"""Do our parsers hold for the seeds, and for some thousand mutations of them from a fixed seed?

The long run is `make fuzz`.
"""

import random
from collections.abc import Callable

import pytest

from tests.fuzz import answer_side, request_side, seeds
from tests.fuzz.pieces import make_input, split_input

SIDES: dict[str, tuple[Callable[[bytes], None], tuple[bytes, ...]]] = {
    "request": (request_side.check, seeds.REQUESTS),
    "answer": (answer_side.check, seeds.ANSWERS),
}
FOUND: dict[str, tuple[bytes, ...]] = {"request": (), "answer": ()}
"""What fuzzing has found."""


def test_an_input_says_where_its_stream_is_cut() -> None:
    """Nothing of the stream is lost, whatever the places."""
    assert split_input(make_input(b"abcdef", [2, 4])) == (b"abcdef", [b"ab", b"cd", b"ef"])
    assert split_input(b"\xffabc") == (b"abc", [b"a", b"b", b"c"])
    assert split_input(b"") == (b"", [])
    for data in (b"\x03", b"\x07abc", bytes(range(60))):
        stream, pieces = split_input(data)
        assert b"".join(pieces) == stream


@pytest.mark.parametrize("side", SIDES)
def test_seeds_and_finds_are_read_the_same_in_any_pieces(side: str) -> None:
    """What the fuzzer begins with, and what it has found."""
    check, streams = SIDES[side]
    for data in (*seeds.inputs(streams), *FOUND[side]):
        check(data)


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
def test_mutations_are_read_the_same_in_any_pieces(side: str) -> None:
    """3,000 mutations, always the same ones; never an exception that is not ours."""
    check, streams = SIDES[side]
    chance = random.Random(11)
    known = seeds.inputs(streams)
    for _ in range(3_000):
        data = seeds.mutated(chance.choice(known), known, chance)
        try:
            check(data)
        except Exception as error:
            error.add_note(f"input: {data!r}")
            raise
