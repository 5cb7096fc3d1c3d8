"""Which words may stand in a field that offers a choice?

Values are CapitalCase. Where the scheduler knows the same choice it uses the same words, and a test
keeps the two equal.
"""

from enum import StrEnum


class Mode(StrEnum):
    ENFORCE = "Enforce"
    OBSERVE = "Observe"
    """Decide and count, but let every request go at once."""


class Kind(StrEnum):
    INTERACTIVE = "Interactive"
    BATCH = "Batch"


class OverLimit(StrEnum):
    REJECT = "Reject"
    QUEUE = "Queue"


class Indicator(StrEnum):
    TIME_TO_FIRST_TOKEN = "TimeToFirstToken"  # noqa: S105
    INTER_TOKEN_LATENCY = "InterTokenLatency"  # noqa: S105
    REQUEST_DURATION = "RequestDuration"
    QUEUE_WAIT = "QueueWait"
    ERROR_RATE = "ErrorRate"
    """The only one without a threshold in time."""


class Algorithm(StrEnum):
    WEIGHTED_RANDOM = "WeightedRandom"
    DEFICIT_ROUND_ROBIN = "DeficitRoundRobin"
    DYNAMIC_AGING = "DynamicAging"
    INTERACTIVE_FIRST = "InteractiveFirst"
    SLO_AWARE = "SLOAware"


class ShareUnit(StrEnum):
    TOKENS = "Tokens"
    REQUESTS = "Requests"


class LatencySignal(StrEnum):
    FIRST_TOKEN = "FirstToken"  # noqa: S105
    END_TO_END = "EndToEnd"


class RateSignal(StrEnum):
    FINISHED = "Finished"
    ARRIVED = "Arrived"


class Preemption(StrEnum):
    NONE = "None"
    ENGINE = "Engine"
    ABORT_BEFORE_FIRST_TOKEN = "AbortBeforeFirstToken"  # noqa: S105


class OnTelemetryLoss(StrEnum):
    HOLD = "Hold"
    DECAY_TO_BASE = "DecayToBase"


class TrustedHeader(StrEnum):
    TENANT = "X-Giveway-Tenant"
    CLASS = "X-Giveway-Class"
    SOURCE = "X-Giveway-Source"


class UnknownCredential(StrEnum):
    FALLBACK = "Fallback"
    REJECT = "Reject"


class EngineType(StrEnum):
    VLLM = "vLLM"


class EnginePriority(StrEnum):
    FORWARD = "Forward"
    NONE = "None"


class EngineUsage(StrEnum):
    ALWAYS = "Always"
    AS_ASKED = "AsAsked"
