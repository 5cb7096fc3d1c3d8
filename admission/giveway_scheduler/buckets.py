"""How much may pass now, and when is there enough again? (H3, A8)

A token bucket holds up to `burst` units and gains `per_s` units a second. Its level is a float that
is brought forward by the time that really passed since it was last looked at, so no fraction of a
unit is lost between two looks and looking often changes nothing (the published refill divides
integers and drops the rest: mend 4).

What always holds
- The level is never above the burst; what was taken in any window is at most
  `burst + per_s x window` (and a grain), plus the part of a single amount that exceeds the burst.
- An amount above the burst passes when the bucket is full and leaves a debt: a level below 0, which
  is paid off before anything else passes. So nothing waits for ever for being large.
- A wait that this module names is exact: after it the amount passes, before it does not.
- `per_s` 0 is a closed bucket: nothing passes, whatever its burst.
"""

import math

from giveway_scheduler.settings import Limits

GRAIN_S = 1e-6
"""A wait this short counts as none. A clock of some days has a resolution near 1e-10 s, so a timer
may ring that much early; the refill of a grain is then owed, not forgiven."""
REQUEST_BURST_S = 1.0
"""Default burst of permits: one second's. The published two seconds' drive TTFT up (H3)."""
TOKEN_BURST_S = 10.0
"""Default burst of tokens: ten seconds', so that a long prompt need not wait for a full minute."""


class TokenBucket:
    """One bucket. `level` is as of the last call; every method brings it forward first."""

    __slots__ = ("_updated_s", "burst", "level", "per_s")

    def __init__(self, *, per_s: float, burst: float, now_s: float) -> None:
        """A new bucket is full."""
        self.per_s = per_s
        self.burst = burst
        self.level = burst
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

    def wait_s(self, amount: float, *, now_s: float) -> float:
        """Seconds until `amount` may pass: 0.0 now, infinite never. Takes nothing."""
        if self.per_s <= 0.0:
            return math.inf
        if amount > self.burst:
            amount = self.burst
        wait_s = (amount - self.refill(now_s)) / self.per_s
        return wait_s if wait_s > GRAIN_S else 0.0

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

    def wait_s(self, tokens: float, *, now_s: float) -> float:
        """Seconds until a request with `tokens` may pass both: 0.0 now, infinite never."""
        permit_s = 0.0 if self.requests is None else self.requests.wait_s(1.0, now_s=now_s)
        tokens_s = 0.0 if self.tokens is None else self.tokens.wait_s(tokens, now_s=now_s)
        return max(permit_s, tokens_s)

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
