"""May another prompt go to the engine now?

What hurts an interactive request most is prompt work that the engine has already and has not done.
So the gate counts the prompt tokens of dispatched requests that have shown no first token, and lets
classes below the first go only while there are fewer than its threshold. One request may always go:
the gate is open when nothing is counted. The first class is counted and never held.

A request of which no first token can be seen (not streamed) is counted for as long as the engine
needs for the prompts before it and its own, by the settings' estimate.
"""

import math
from heapq import heappop, heappush

from giveway_scheduler.entries import Entry
from giveway_scheduler.settings import Concurrency


class PromptGate:
    """Un-prefilled prompt tokens, and whether the gate is open."""

    __slots__ = (
        "_releases",
        "_threshold",
        "backlog_s",
        "closed_since_s",
        "due_s",
        "is_open",
        "prompt_s_per_token",
        "tokens",
    )

    def __init__(self, concurrency: Concurrency) -> None:
        self.tokens = 0
        self.backlog_s = 0.0
        """How long the engine will be busy with the prompts that it has."""
        self.is_open = True
        """May a class below the first go?"""
        self.due_s = math.inf
        """When `release` has something to do. Infinite: never, as things are."""
        self.closed_since_s = 0.0
        """When the gate was last seen to close; means nothing while it is open."""
        self._releases: list[tuple[float, int, Entry]] = []
        """Heap of (time, order, entry) of those whose first token can't be seen."""
        self._threshold: int | None
        self.configure(concurrency)

    def configure(self, concurrency: Concurrency) -> None:
        """Follow new settings; what is counted stays counted."""
        self._threshold = concurrency.prompt_gate_tokens
        self.prompt_s_per_token = concurrency.prompt_seconds_per_token
        self._count(0)

    @property
    def opens_in_s(self) -> float:
        """How long the engine needs for the prompts that keep the gate closed."""
        if self._threshold is None or self.is_open:
            return 0.0
        return (self.tokens - self._threshold + 1) * self.prompt_s_per_token

    def is_open_after(self, entry: Entry) -> bool:
        """Would the gate be open without this entry's prompt?"""
        tokens = self.tokens - entry.unprefilled_tokens
        return self._threshold is None or tokens == 0 or tokens < self._threshold

    def enter(self, entry: Entry, now_s: float) -> None:
        """The entry's prompt goes to the engine."""
        request = entry.request
        was_open = self.is_open
        entry.tokens_ahead = self.tokens
        entry.unprefilled_tokens = request.prompt_tokens
        entry.service_class.unprefilled += 1
        self._count(request.prompt_tokens)
        if not request.shows_first_token:
            entry.release_s = now_s + self.backlog_s
            heappush(self._releases, (entry.release_s, entry.order, entry))
            self.due_s = self._releases[0][0]
        if was_open and not self.is_open:
            self.closed_since_s = now_s

    def leave(self, entry: Entry) -> None:
        """The entry's prompt is done, or will not be done. May be called again."""
        if entry.unprefilled_tokens:
            self._count(-entry.unprefilled_tokens)
            entry.unprefilled_tokens = 0
            entry.service_class.unprefilled -= 1

    def release(self, now_s: float) -> None:
        """Stop counting those whose estimated time is over."""
        releases = self._releases
        while releases and releases[0][0] <= now_s:
            at_s, _, entry = heappop(releases)
            if entry.release_s == at_s:
                self.leave(entry)
        self.due_s = releases[0][0] if releases else math.inf

    def _count(self, tokens: int) -> None:
        """So many prompt tokens more (below 0: fewer)."""
        self.tokens += tokens
        self.backlog_s = self.tokens * self.prompt_s_per_token
        threshold = self._threshold
        self.is_open = threshold is None or self.tokens == 0 or self.tokens < threshold
