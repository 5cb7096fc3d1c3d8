"""How many tokens will the answer have, if the client gave no bound?

The class's recent 90th percentile: high enough that nine in ten reservations are refunded in part
and not overdrawn, low enough that a few long answers do not shut a class out. The history is a ring
of the last answers kept sorted beside it, so that asking costs nothing and adding costs a memory
move of a few kilobytes at most.
"""

from bisect import bisect_left, insort
from collections import deque

HISTORY = 512
"""Answers remembered. At the published 200 requests/s that is about 3 s, at 1/s about 9 min."""
ENOUGH = 10
"""Below this many answers a 90th percentile is the maximum or noise: the first estimate holds."""
QUANTILE = 0.9


class OutputEstimate:
    """The recent outputs of one class, in tokens per answer."""

    __slots__ = ("_ordered", "_recent", "first_tokens", "tokens")

    def __init__(self, *, first_tokens: int) -> None:
        self.first_tokens = first_tokens
        self._recent: deque[int] = deque()
        self._ordered: list[int] = []
        self.tokens = first_tokens
        """What to reserve now for one answer."""

    def add(self, output_tokens: int) -> None:
        """One finished answer had `output_tokens`."""
        ordered = self._ordered
        if len(ordered) == HISTORY:
            del ordered[bisect_left(ordered, self._recent.popleft())]
        self._recent.append(output_tokens)
        insort(ordered, output_tokens)
        if len(ordered) >= ENOUGH:
            self.tokens = ordered[int(QUANTILE * len(ordered))]

    def configure(self, *, first_tokens: int) -> None:
        """Follow a new first estimate; a history that is long enough stays in force."""
        self.first_tokens = first_tokens
        if len(self._ordered) < ENOUGH:
            self.tokens = first_tokens
