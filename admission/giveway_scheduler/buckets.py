"""How much may pass now, and when is there enough again? (H3, A8)

A token bucket holds up to `burst` units and gains `per_s` units a second. Its level is a float that
is brought forward by the time that really passed since it was last looked at, so no fraction of a
unit is lost between two looks and looking often changes nothing (the published refill divides
integers and drops the rest: mend 4).

What always holds
- The level is never above the burst; what was taken in any window is at most
  `burst + per_s x window` (and a grain), plus the part of a single amount that exceeds the burst.
- An amount above the burst passes when the bucket is full and leaves a debt: a level below 0, which
  is paid off before anything else passes.
- While such an amount waits, half of what comes in is saved for it and the rest may be taken by
  others, so that neither keeps the other from going (B13): it waits for at most twice as long as
  the bucket takes to fill, debts apart, and they have half of the rate until then.
- A wait that this module names is exact: after it the amount passes, before it does not. Where
  something is saved for another one, it ends at the latest when that one can go.
- `per_s` 0 is a closed bucket: nothing passes, whatever its burst.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from giveway_scheduler.settings import Limits

if TYPE_CHECKING:
    from giveway_scheduler.queues import Flow

GRAIN_S = 1e-6
"""A wait this short counts as none. A clock of some days has a resolution near 1e-10 s, so a timer
may ring that much early; the refill of a grain is then owed, not forgiven."""
REQUEST_BURST_S = 1.0
"""Default burst of permits: one second's. The published two seconds' drive TTFT up (H3)."""
TOKEN_BURST_S = 10.0
"""Default burst of tokens: ten seconds', so that a long prompt need not wait for a full minute."""
SAVED_SHARE = 0.5
"""What is saved of the rate for a request larger than the bucket. A guess between the two faults:
all of it would hold up the others, none of it the large one for ever."""


class TokenBucket:
    """One bucket. `level` is as of the last call; every method brings it forward first."""

    __slots__ = ("_saving_since_s", "_updated_s", "burst", "level", "per_s", "saver")

    def __init__(self, *, per_s: float, burst: float, now_s: float) -> None:
        """A new bucket is full."""
        self.per_s = per_s
        self.burst = burst
        self.level = burst
        self.saver: Flow | None = None
        """The flow that is saved for: its next request is larger than the bucket. None: none is."""
        self._saving_since_s = now_s
        self._updated_s = now_s

    def refill(self, now_s: float) -> float:
        """Bring the level forward to `now_s`, and return it."""
        passed_s = now_s - self._updated_s
        if passed_s > 0.0:
            level = self.level + passed_s * self.per_s
            if level > self.burst:
                level = self.burst
            self.level = level
            self._updated_s = now_s
        return self.level

    def wait_s(self, amount: float, *, now_s: float, flow: Flow | None = None) -> float:
        """Seconds until `amount` of `flow` may pass: 0.0 now, infinite never. Takes nothing.

        `flow` None: it is not the one that is saved for.
        """
        if self.per_s <= 0.0:
            return math.inf
        if amount > self.burst:
            amount = self.burst
        lacking = amount - self.refill(now_s)
        if self.saver is not None and self.saver is not flow:
            return self._wait_beside_s(lacking, now_s)
        wait_s = lacking / self.per_s
        return wait_s if wait_s > GRAIN_S else 0.0

    def _wait_beside_s(self, lacking: float, now_s: float) -> float:
        """The same for who may not take what is saved. Infinite: not before the saver has gone."""
        saved = min(SAVED_SHARE * self.per_s * (now_s - self._saving_since_s), self.burst)
        wait_s = (lacking + saved) / ((1.0 - SAVED_SHARE) * self.per_s)
        if wait_s <= GRAIN_S:
            return 0.0
        full_s = (self.burst - self.level) / self.per_s
        return min(wait_s, full_s) if full_s > GRAIN_S else math.inf

    def save(self, flow: Flow, *, now_s: float) -> bool:
        """From now on save for the flow. False: another one is saved for."""
        if self.saver is None:
            self.saver = flow
            self._saving_since_s = now_s
        return self.saver is flow

    def stop_saving(self, flow: Flow) -> bool:
        """What was saved is there for all again. False: it was not saved for this flow."""
        if self.saver is not flow:
            return False
        self.saver = None
        return True

    def take(self, amount: float, *, now_s: float) -> None:
        """Take `amount`, as debt if there is not enough. Who may not go asks `wait_s` first."""
        self.refill(now_s)
        self.level -= amount

    def put_back(self, amount: float, *, now_s: float) -> None:
        """Give back what was taken and not used; never above the burst."""
        self.level = min(self.refill(now_s) + amount, self.burst)

    def configure(self, *, per_s: float, burst: float, now_s: float) -> None:
        """Change rate and burst. The level stays as it is, clipped to a smaller burst."""
        self.refill(now_s)
        self.per_s = per_s
        self.burst = burst
        self.level = min(self.level, burst)


class Budget:
    """The two buckets of one class or one tenant: permits for requests, and tokens."""

    __slots__ = ("is_limited", "requests", "tokens")

    def __init__(self, limits: Limits, *, now_s: float) -> None:
        self.requests: TokenBucket | None = None
        """None: no limit."""
        self.tokens: TokenBucket | None = None
        """None: no limit."""
        self.is_limited = False
        """False: there is no bucket, everything passes."""
        self.configure(limits, now_s=now_s)

    def configure(self, limits: Limits, *, now_s: float) -> None:
        """Follow new limits: a bucket that stays keeps its level, a new one is full."""
        self.requests = _reconfigured(
            self.requests, limits.requests_per_s, limits.request_burst, REQUEST_BURST_S, now_s
        )
        self.tokens = _reconfigured(
            self.tokens, limits.tokens_per_s, limits.token_burst, TOKEN_BURST_S, now_s
        )
        self.is_limited = self.requests is not None or self.tokens is not None

    def wait_s(self, tokens: float, *, now_s: float, flow: Flow | None = None) -> float:
        """Seconds until a request with `tokens` may pass both: 0.0 now, infinite never.

        `flow` None: it is not the one that is saved for.
        """
        permit_s = 0.0 if self.requests is None else self.requests.wait_s(1.0, now_s=now_s)
        if self.tokens is None:
            return permit_s
        return max(permit_s, self.tokens.wait_s(tokens, now_s=now_s, flow=flow))

    def is_exceeded_by(self, tokens: float) -> bool:
        """Whether the bucket can never hold so many tokens."""
        return self.tokens is not None and tokens > self.tokens.burst

    @property
    def saver(self) -> Flow | None:
        """The flow that is saved for. None: none is."""
        return None if self.tokens is None else self.tokens.saver

    def save(self, flow: Flow, *, now_s: float) -> bool:
        """From now on save for the flow. False: another one is saved for."""
        return self.tokens is None or self.tokens.save(flow, now_s=now_s)

    def stop_saving(self, flow: Flow) -> bool:
        """What was saved is there for all again. False: it was not saved for this flow."""
        return self.tokens is not None and self.tokens.stop_saving(flow)

    def take(self, *, tokens: float, now_s: float) -> None:
        """Take one permit and `tokens`, as debt where there is not enough."""
        if self.requests is not None:
            self.requests.take(1.0, now_s=now_s)
        if self.tokens is not None:
            self.tokens.take(tokens, now_s=now_s)

    def put_back(self, *, tokens: float, now_s: float, permits: float = 0.0) -> None:
        """Give back; `tokens` below 0 is a further charge."""
        if self.requests is not None and permits > 0.0:
            self.requests.put_back(permits, now_s=now_s)
        if self.tokens is not None:
            self.tokens.put_back(tokens, now_s=now_s)


def _reconfigured(
    bucket: TokenBucket | None,
    per_s: float | None,
    burst: float | None,
    burst_s: float,
    now_s: float,
) -> TokenBucket | None:
    if per_s is None:
        return None
    size = max(1.0, per_s * burst_s) if burst is None else burst
    if bucket is None:
        return TokenBucket(per_s=per_s, burst=size, now_s=now_s)
    bucket.configure(per_s=per_s, burst=size, now_s=now_s)
    return bucket
