"""Where does a token bucket stand, without rounding?

The closed form in whole numbers. Every float is one in units that are fine enough: a clock's time
above a minute in units of 2^-46 s, a rate above 1/64 in units of 2^-58 a second; so a level is one
in units of 2^-104. After days of takes and refills there is no error in it, and what a bucket of
floats differs by is its own.
"""

from dataclasses import dataclass

from giveway_scheduler import BucketStatistics, Limits

TIME_BITS = 46
RATE_BITS = 58
LEVEL_BITS = TIME_BITS + RATE_BITS


def units(value: float, bits: int) -> int:
    """The value in units of 2^-bits: exact, or an `AssertionError`."""
    numerator, denominator = value.as_integer_ratio()
    assert (1 << bits) % denominator == 0, f"{value} is finer than the books' unit"
    return numerator * ((1 << bits) // denominator)


@dataclass(slots=True)
class ExactBucket:
    """One bucket, all in units."""

    per_s: int
    burst: int
    level: int
    at: int

    @classmethod
    def full(cls, *, per_s: float, burst: float, now_s: float) -> "ExactBucket":
        size = units(burst, LEVEL_BITS)
        return cls(units(per_s, RATE_BITS), size, size, units(now_s, TIME_BITS))

    def refill(self, now_s: float) -> int:
        now = units(now_s, TIME_BITS)
        self.level = min(self.burst, self.level + (now - self.at) * self.per_s)
        self.at = now
        return self.level

    def take(self, amount: int, *, now_s: float) -> None:
        """`amount` below 0 puts back, at most up to the burst."""
        self.level = min(self.burst, self.refill(now_s) - (amount << LEVEL_BITS))

    def configure(self, *, per_s: float, burst: float, now_s: float) -> None:
        self.refill(now_s)
        self.per_s, self.burst = units(per_s, RATE_BITS), units(burst, LEVEL_BITS)
        self.level = min(self.level, self.burst)

    def drift_of(self, other: BucketStatistics, *, now_s: float) -> float:
        """How far the other's level is from where it should be, in permits or tokens."""
        assert units(other.per_s, RATE_BITS) == self.per_s
        assert units(other.burst, LEVEL_BITS) == self.burst
        away = units(other.level, LEVEL_BITS) - self.refill(now_s)
        return abs(away) / 2.0**LEVEL_BITS


@dataclass(slots=True)
class ExactBudget:
    """A class's or a tenant's two buckets. None: no limit."""

    requests: ExactBucket | None = None
    tokens: ExactBucket | None = None

    def configure(self, limits: Limits, *, now_s: float) -> None:
        """A bucket that stays keeps its level, a new one is full."""
        self.requests = _following(
            self.requests, limits.requests_per_s, limits.request_burst, now_s=now_s
        )
        self.tokens = _following(self.tokens, limits.tokens_per_s, limits.token_burst, now_s=now_s)

    def take(self, *, tokens: int, permits: int, now_s: float) -> None:
        if self.requests is not None and permits:
            self.requests.take(permits, now_s=now_s)
        if self.tokens is not None:
            self.tokens.take(tokens, now_s=now_s)

    def drift_of(
        self, requests: BucketStatistics | None, tokens: BucketStatistics | None, *, now_s: float
    ) -> float:
        """The larger of the two buckets' drifts."""
        drift = 0.0
        for exact, other in ((self.requests, requests), (self.tokens, tokens)):
            assert (exact is None) == (other is None)
            if exact is not None and other is not None:
                drift = max(drift, exact.drift_of(other, now_s=now_s))
        return drift


def _following(
    bucket: ExactBucket | None, per_s: float | None, burst: float | None, *, now_s: float
) -> ExactBucket | None:
    if per_s is None:
        return None
    assert burst is not None, "the books want every burst written out"
    if bucket is None:
        return ExactBucket.full(per_s=per_s, burst=burst, now_s=now_s)
    bucket.configure(per_s=per_s, burst=burst, now_s=now_s)
    return bucket
