"""Into which pieces may a body be cut on its way?"""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

places = st.lists(st.integers(min_value=0, max_value=10**6), max_size=25)
"""Where to cut; taken modulo the body's length."""


def cut(body: bytes, at: Sequence[int]) -> list[bytes]:
    """The body in pieces, some of them empty."""
    bounds = [0, *sorted(place % (len(body) + 1) for place in at), len(body)]
    return [body[start:end] for start, end in pairwise(bounds)]
