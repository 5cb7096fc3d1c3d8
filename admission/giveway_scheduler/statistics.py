"""The scheduler's state as others may see it: metrics, the admin page and tests use this alone."""

from dataclasses import dataclass

from giveway_scheduler.requests import ClassName, TenantName


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStatistics:
    """A token bucket. `level` may be negative: debt, paid off before anything passes."""

    level: float
    burst: float
    per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What one request's sender may still use: of its class's and its tenant's bucket the one that
    has relatively less left."""

    requests: BucketStatistics | None
    """None: no limit."""
    tokens: BucketStatistics | None
    """None: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassStatistics:
    """One class now. `queued_tokens` counts estimates of prompt and output."""

    name: ClassName
    weight: float
    queued: int
    queued_bytes: int
    queued_tokens: int
    oldest_waited_s: float
    """0.0: nothing waits."""
    running: int
    seats: int
    """How many seats its requests may hold at most now."""
    output_estimate_tokens: int
    served_tokens: float
    """Tokens charged since the start."""
    boosts: int
    boosted: bool
    requests: BucketStatistics | None
    """None: no limit."""
    tokens: BucketStatistics | None
    """None: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStatistics:
    """One tenant that has work now or had some lately, in all classes together."""

    name: TenantName
    weight: float
    queued: int
    running: int
    served_tokens: float
    requests: BucketStatistics | None
    tokens: BucketStatistics | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatistics:
    """Where every token went since the start: `reserved + overrun = charged + refunded + held`."""

    reserved_tokens: float = 0.0
    """Taken when requests paid."""
    overrun_tokens: float = 0.0
    """Used beyond their reservation, and charged after."""
    charged_tokens: float = 0.0
    """Really used."""
    refunded_tokens: float = 0.0
    """Given back."""
    held_tokens: float = 0.0
    """Reserved by requests that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The whole. `seats` is what is in force now, after any reduction."""

    algorithm: str
    seats: int
    batch_seats: int
    running: int
    queued: int
    queued_bytes: int
    unprefilled_tokens: int
    gate_open: bool
    pressure_ratio: float
    """InteractiveFirst's smoothed pressure, 0 to 1; 0 under other algorithms."""
    engine_available: bool
    classes: tuple[ClassStatistics, ...]
    tenants: tuple[TenantStatistics, ...]
    """The busiest first, at most 100."""
    ledger: LedgerStatistics = LedgerStatistics()
