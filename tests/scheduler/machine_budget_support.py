"""What may pass a limit, by the book?

Plain token buckets for the state machine's model: every take and put-back is kept, so that the
promise about windows can be checked over all of them.
"""

import math
from dataclasses import dataclass, field

from giveway_scheduler import BucketStatistics, Limits

from tests.scheduler.oracles import Take, most_over_bound

DEFAULT_TOKEN_BURST_S = 10.0
TOLERANCE_S = 2e-6
"""Waits around the scheduler's grain of a microsecond may be seen as none or as some."""


@dataclass(slots=True)
class Bucket:
    """One bucket, brought forward at every look."""

    per_s: float
    burst: float
    level: float
    at_s: float
    takes: list[Take] = field(default_factory=list)

    def refill(self, now_s: float) -> float:
        self.level = min(self.burst, self.level + self.per_s * (now_s - self.at_s))
        self.at_s = now_s
        return self.level

    def wait_s(self, amount: float, now_s: float) -> float:
        """Seconds until there is enough; below 0: there is more than enough."""
        if self.per_s <= 0.0:
            return math.inf
        return (min(amount, self.burst) - self.refill(now_s)) / self.per_s

    def take(self, amount: float, now_s: float, *, checked: bool) -> None:
        self.refill(now_s)
        self.level -= amount
        self.takes.append(Take(at_s=now_s, amount=amount, checked=checked))

    def put_back(self, amount: float, now_s: float) -> None:
        self.level = min(self.burst, self.refill(now_s) + amount)
        self.takes.append(Take(at_s=now_s, amount=-amount, checked=False))

    def check_windows(self) -> None:
        """What was let pass in any window is at most burst + rate x window, and a debt's rest."""
        slack = 1e-6 * (1.0 + self.burst + self.per_s) + TOLERANCE_S * self.per_s
        assert most_over_bound(self.takes, burst=self.burst, per_s=self.per_s) <= slack


@dataclass(slots=True)
class Budget:
    """Permits and tokens of a class or a tenant. None: no limit."""

    requests: Bucket | None = None
    tokens: Bucket | None = None

    def configure(self, limits: Limits, now_s: float) -> None:
        self.requests = _following(
            self.requests, limits.requests_per_s, limits.request_burst, 1.0, now_s
        )
        self.tokens = _following(
            self.tokens, limits.tokens_per_s, limits.token_burst, DEFAULT_TOKEN_BURST_S, now_s
        )

    def wait_s(self, tokens: float, now_s: float) -> float:
        waits_s = [0.0]
        if self.requests is not None:
            waits_s.append(self.requests.wait_s(1.0, now_s))
        if self.tokens is not None:
            waits_s.append(self.tokens.wait_s(tokens, now_s))
        return max(waits_s)

    def take(self, tokens: float, now_s: float, *, checked: bool) -> None:
        if self.requests is not None:
            self.requests.take(1.0, now_s, checked=checked)
        if self.tokens is not None:
            self.tokens.take(tokens, now_s, checked=checked)

    def put_back(self, tokens: float, now_s: float, *, permits: float) -> None:
        if self.requests is not None and permits:
            self.requests.put_back(permits, now_s)
        if self.tokens is not None:
            self.tokens.put_back(tokens, now_s)

    def compare(
        self,
        requests: BucketStatistics | None,
        tokens: BucketStatistics | None,
        now_s: float,
        *,
        exact: bool,
    ) -> None:
        """The scheduler's buckets stand where these do. Not exact: take its levels over."""
        for mine, theirs in ((self.requests, requests), (self.tokens, tokens)):
            assert (mine is None) == (theirs is None)
            if mine is None or theirs is None:
                continue
            level = mine.refill(now_s)
            assert (theirs.burst, theirs.per_s) == (mine.burst, mine.per_s)
            assert theirs.level <= theirs.burst, "a level above its burst"
            if exact:
                slack = 1e-6 * (1.0 + abs(level))
                assert abs(theirs.level - level) <= slack, f"level {theirs.level}, not {level}"
            else:
                mine.takes.append(Take(at_s=now_s, amount=level - theirs.level, checked=False))
                mine.level = theirs.level

    def check_windows(self) -> None:
        for bucket in (self.requests, self.tokens):
            if bucket is not None:
                bucket.check_windows()


def _following(
    bucket: Bucket | None, per_s: float | None, burst: float | None, burst_s: float, now_s: float
) -> Bucket | None:
    if per_s is None:
        return None
    size = max(1.0, per_s * burst_s) if burst is None else burst
    if bucket is None:
        return Bucket(per_s=per_s, burst=size, level=size, at_s=now_s)
    bucket.refill(now_s)
    if (per_s, size) != (bucket.per_s, bucket.burst):
        bucket.check_windows()
        bucket.takes.clear()
    bucket.per_s, bucket.burst = per_s, size
    bucket.level = min(bucket.level, size)
    return bucket
