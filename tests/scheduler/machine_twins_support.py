"""Does one jump in time equal many small ones?

Two schedulers get the same calls at the same times. The first is left alone in between, except
that `advance` is called when its `next_event_s` asks for it, as the contract says. The second is
advanced at many more moments. Both must decide the same at the same times.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import fields

from giveway_scheduler import Decision, Scheduler, Settings

from tests.scheduler.machine_calls_support import Advance, Call, perform

MOST_EVENTS = 20_000
MOST_AT_ONCE = 50
"""Events announced for one moment: more than requests are alive at once would be a spinning timer.
Where a prompt costs no time, each dispatch announces one."""
SMALL_STEPS = (0.31, 0.5, 0.77)
"""Where in each gap the second scheduler is advanced."""
SMALLEST_GAP_S = 1e-4
"""Below this a small step would be within the grain of the buckets."""


class Twins:
    """Two schedulers that have to stay alike."""

    def __init__(self, settings: Settings, *, now_s: float, seed: int) -> None:
        self.now_s = now_s
        self.jumping = Scheduler(settings, now_s=now_s, generator=random.Random(seed))
        self.stepping = Scheduler(settings, now_s=now_s, generator=random.Random(seed))
        self._stepped_s = now_s

    def call(self, call: Call) -> tuple[Decision, ...]:
        """Do it with both, now."""
        decisions = perform(call, self.jumping, now_s=self.now_s)
        assert_alike(decisions, perform(call, self.stepping, now_s=self.now_s))
        self._stepped_s = self.now_s
        return decisions

    def passing(self, until_s: float) -> Iterator[tuple[Decision, ...]]:
        """Let time pass as a shell does; yields what each announced event brought."""
        at_once = 0
        for _ in range(MOST_EVENTS):
            event_s = self.jumping.next_event_s()
            if event_s is None or event_s > until_s:
                self.now_s = until_s
                self._step()
                return
            if event_s > self.now_s:
                self.now_s = event_s
                at_once = 0
            at_once += 1
            assert at_once <= MOST_AT_ONCE, "the shell would spin"
            self._step()
            yield self.call(Advance())
        raise AssertionError("events without end")

    def oversleep(self, until_s: float) -> None:
        """Neither is told of the time before `until_s`."""
        self.now_s = self._stepped_s = until_s

    def _step(self) -> None:
        """Advance the second one on its way to now; nothing may come of it."""
        gap_s = self.now_s - self._stepped_s
        if gap_s < SMALLEST_GAP_S:
            return
        since_s = self._stepped_s
        for part in SMALL_STEPS:
            at_s = since_s + part * gap_s
            early = self.stepping.advance(now_s=at_s)
            assert early == (), f"at {at_s}, not announced: {early}"
        self._stepped_s = self.now_s


def assert_alike(mine: Sequence[Decision], others: Sequence[Decision]) -> None:
    """The same decisions in the same order; times may differ by rounding."""
    assert len(mine) == len(others), f"{mine} is not {others}"
    for one, other in zip(mine, others, strict=True):
        assert type(one) is type(other), f"{one} is not {other}"
        for each in fields(one):
            left, right = getattr(one, each.name), getattr(other, each.name)
            if isinstance(left, float):
                assert math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-6), f"{one}, {other}"
            else:
                assert left == right, f"{one} is not {other}"
