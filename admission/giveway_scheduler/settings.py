"""All numbers the scheduler works with.

One `Settings` describes one proxy: limits are this proxy's share already, not the fleet's. Every
`Settings` is complete; changing one means calling `Scheduler.configure` with the next. Defaults are
those of the published designs (ids as in docs/mechanisms.md) unless the comment says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from giveway_scheduler.requests import ClassName, TenantName


class Algorithm(StrEnum):
    """Which class, and whose request inside it, goes next."""

    WEIGHTED_RANDOM = "WeightedRandom"
    DEFICIT_ROUND_ROBIN = "DeficitRoundRobin"
    DYNAMIC_AGING = "DynamicAging"
    INTERACTIVE_FIRST = "InteractiveFirst"
    SLO_AWARE = "SLOAware"


class Kind(StrEnum):
    """Does somebody watch the answer appear?"""

    INTERACTIVE = "Interactive"
    BATCH = "Batch"


class OverLimit(StrEnum):
    """What happens to a request for which its class's or tenant's bucket has not enough left."""

    REJECT = "Reject"
    QUEUE = "Queue"
    """It joins the queue, and pays when its turn comes (H4)."""


class Preemption(StrEnum):
    """What may be done to a running request of a lower class (A10)."""

    NONE = "None"
    ENGINE = "Engine"
    """The engine is told the order by its own priority field and may preempt; nothing is aborted
    here."""
    ABORT_BEFORE_FIRST_TOKEN = "AbortBeforeFirstToken"  # noqa: S105


class ShareUnit(StrEnum):
    """What weights divide."""

    TOKENS = "Tokens"
    REQUESTS = "Requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Token-bucket limits of a class or a tenant. None: no limit. 0: nothing passes."""

    requests_per_s: float | None = None
    request_burst: float | None = None
    """None: one second's requests, at least 1."""
    tokens_per_s: float | None = None
    token_burst: float | None = None
    """None: ten seconds' tokens, at least 1."""
    in_flight: int | None = None
    """Requests at the engine at once; more of them wait in the queue. Only for tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings:
    """One service class. Its rank is its place in `Settings.classes`."""

    name: ClassName
    kind: Kind
    weight: float
    limits: Limits = Limits()
    over_limit: OverLimit = OverLimit.REJECT
    queue_capacity: int = 5000
    time_to_live_s: float = 15.0
    first_token_target_s: float | None = None
    """TTFT objective. None: the class has none, so no request of it is ever late."""
    aging_base: float = 1.0
    """A1: DynamicAging's score of a request that has not waited."""
    aging_per_ms: float = 0.005
    """A2: by how much the score grows per millisecond waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings:
    """A tenant that the policy names. Tenants it does not name have the defaults of this type."""

    weight: float = 1.0
    """Share inside a class, relative to the other tenants that have work there."""
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """How much may be at the engine at once. Defaults: engine-model simulation, 64 seats a pod."""

    seats: int = 64
    reserved_seats: int = 8
    """All classes but the first hold at most `seats - reserved_seats` together. 0 is legal."""
    batch_minimum: int = 1
    batch_maximum: int = 48
    """Seats of all classes of kind Batch together."""
    prompt_gate_tokens: int | None = 4096
    """Classes below the first go only while fewer prompt tokens than this wait for their prefill at
    the engine; one request may always go. None: no gate."""
    prompt_seconds_per_token: float = 23.5e-6
    """Prefill time of a prompt token: the engine model's H100; `giveway calibrate` measures it."""
    lower_seats_on_preemption: bool = True
    """Take seats back while the engine reports preemptions (KV cache too full), grow slowly
    after."""


class LatencySignal(StrEnum):
    """Which latency presses on batch (Y4)."""

    FIRST_TOKEN = "FirstToken"  # noqa: S105
    """Time to first token; end to end of a request that shows none (mend 8)."""
    END_TO_END = "EndToEnd"
    """As published."""


class RateSignal(StrEnum):
    """Which requests press on batch by their number (Y5)."""

    FINISHED = "Finished"
    ARRIVED = "Arrived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Yielding:
    """Y3-Y6, for InteractiveFirst: batch seats follow interactive pressure."""

    requests_per_s_threshold: float = 20.0
    latency_threshold_s: float = 0.5
    window_s: float = 10.0
    smoothing: float = 0.3
    latency: LatencySignal = LatencySignal.FIRST_TOKEN
    rate: RateSignal = RateSignal.FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class AntiStarvation:
    """H10. A class whose oldest waiting request has waited `threshold_s` is boosted."""

    threshold_s: float = 60.0
    boost_s: float = 30.0
    check_s: float = 10.0
    promotions_per_s: float = 1.0
    """While boosted, at most this many of its requests overtake the algorithm's own order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything. Two equal `Settings` behave equally given equal calls and an equal generator."""

    classes: tuple[ClassSettings, ...]
    """First = highest = rank 0. At least one."""
    tenants: Mapping[TenantName, TenantSettings] = field(default_factory=dict)
    algorithm: Algorithm = Algorithm.SLO_AWARE
    share_unit: ShareUnit = ShareUnit.TOKENS
    concurrency: Concurrency = Concurrency()
    yielding: Yielding = Yielding()
    anti_starvation: AntiStarvation | None = AntiStarvation()
    """None: no boost."""
    preemption: Preemption = Preemption.ENGINE
    queue_capacity: int = 8000
    """Entries of all classes together."""
    queue_bytes: int = 512 * 2**20
    """`size_bytes` of all entries together."""
    batch_token_floor_ratio: float = 0.05
    """SLOAware: the share of recent tokens that the Batch classes get whatever else waits."""
    batch_token_floor_half_life_s: float = 30.0
    first_output_estimate_tokens: int = 256
    """Output reserved for a request without a bound until the class has a history."""
    largest_output_estimate_tokens: int = 32768
    """A client's own bound above this is reserved as this much."""
    cached_token_ratio: float = 1.0
    """What a cached prompt token is charged, 0 to 1."""
    output_token_weight: float = 2.0
    """What an output token weighs against a prompt token in a tenant's service (list price)."""
    idle_tenants: int = 10_000
    """Tenants without work that are remembered; the longest idle one is forgotten first."""
