"""Is a running batch request worth stopping for one that waits? (A10)

Killing it wastes the prompt work the engine has done for it; not killing it makes the higher class
wait. So a victim is taken only where that is certain to be the better of the two:
- it is of kind Batch, below the class that waits, has shown no token yet, can be sent again, has
  time to live left, so that being stopped does not end it, and no higher class waits for it (A9);
- the prompt work lost takes less time than the wait that is saved.

    lost = min(prompt, what the engine can have prefilled since the dispatch) x seconds per token
    saved = expected time to the next free seat, by the recent rate of seats coming free;
            or the time in which prompts ahead are prefilled, where the gate is what holds

The longer no seat comes free, the lower that rate and the more is saved, so stopping somebody can
become worth it by time alone. `wake_s` says from when on that may be.

A request of which no first token can be seen is never a victim: it may be nearly done. Nobody is a
victim more than `MOST_ABORTS` times, so that batch gets through any amount of such traffic.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.decaying import DecayedSum
from giveway_scheduler.entries import Entry
from giveway_scheduler.gating import PromptGate
from giveway_scheduler.requests import RequestKey
from giveway_scheduler.seats import Seats

MOST_ABORTS = 2
"""How often one request may be aborted."""
MOST_LOOKED_AT = 8
"""Victims compared: the newest have lost least, older ones are worse with certainty."""
RATE_HALF_LIFE_S = 10.0
"""Over how long the rate of seats coming free looks back."""
WAKE_GRAIN_S = 1e-6
"""How long after the moment at which as much is saved as is lost to look again: then it is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A request worth stopping."""

    entry: Entry
    prompt_tokens_lost: int


class Preemption:
    """The dispatched requests that may be stopped, and what stopping them would save."""

    __slots__ = ("_freed", "_unanswered", "wake_s")

    def __init__(self, *, now_s: float) -> None:
        self.wake_s = math.inf
        """When somebody who was left alone may be worth stopping, if nothing else happens until
        then. The owner makes it infinite when a new look begins."""
        self._freed = DecayedSum(half_life_s=RATE_HALF_LIFE_S, now_s=now_s)
        self._unanswered: OrderedDict[RequestKey, Entry] = OrderedDict()
        """Batch requests at the engine without a token, in order of dispatch."""

    def dispatched(self, entry: Entry) -> None:
        """A request went to the engine."""
        request = entry.request
        if (
            entry.service_class.is_batch
            and request.repeatable
            and request.shows_first_token
            and entry.aborts < MOST_ABORTS
        ):
            self._unanswered[entry.key] = entry

    def answered(self, entry: Entry) -> None:
        """A request showed its first token: it is no victim any more."""
        self._unanswered.pop(entry.key, None)

    def left(self, entry: Entry, *, now_s: float) -> None:
        """A request left its seat by itself."""
        self._unanswered.pop(entry.key, None)
        self._freed.add(1.0, now_s)

    def victim_for(
        self, waiting: ServiceClass, seats: Seats, gate: PromptGate, *, now_s: float
    ) -> Victim | None:
        """Whom to stop so that the class can go. None: nobody is worth it."""
        best: Victim | None = None
        needs_seat = not seats.may_take(waiting)
        needs_gate = not (waiting.is_first or gate.is_open)
        freed_per_s = self._freed.per_s(now_s)
        saved_s = gate.opens_in_s if needs_gate else 0.0
        if needs_seat:
            saved_s = max(saved_s, 1.0 / freed_per_s if freed_per_s > 0.0 else math.inf)
        for entry in islice(reversed(self._unanswered.values()), MOST_LOOKED_AT):
            if (
                entry.service_class.rank <= waiting.rank
                or entry.deadline_s <= now_s
                or entry.lifted_by is not None
                or (needs_seat and not seats.may_take_after(waiting, entry.service_class))
                or (needs_gate and not gate.is_open_after(entry))
            ):
                continue
            lost_tokens = prefilled_tokens(entry, gate.prompt_s_per_token, now_s=now_s)
            lost_s = lost_tokens * gate.prompt_s_per_token
            if lost_s >= saved_s:
                if needs_seat:
                    self._look_again(lost_s, freed_per_s, now_s)
            elif best is None or lost_tokens < best.prompt_tokens_lost:
                best = Victim(entry=entry, prompt_tokens_lost=lost_tokens)
        return best

    def _look_again(self, lost_s: float, freed_per_s: float, now_s: float) -> None:
        """The rate halves every half-life: `1 / rate` is what is lost now after so many of them.

        More may be lost by then, so that this moment is the soonest, and another look may follow.
        """
        half_lives = math.log2(max(1.0, lost_s * freed_per_s))
        at_s = now_s + half_lives * RATE_HALF_LIFE_S + WAKE_GRAIN_S
        self.wake_s = min(self.wake_s, at_s)


def prefilled_tokens(entry: Entry, s_per_token: float, *, now_s: float) -> int:
    """Prompt tokens that the engine can have done by now, at most all of them."""
    if s_per_token <= 0.0:
        return entry.request.prompt_tokens
    done = (now_s - entry.dispatched_s) / s_per_token - entry.tokens_ahead
    return min(entry.request.prompt_tokens, max(0, int(done)))
