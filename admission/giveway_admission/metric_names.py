"""Which metrics are there, what are they called, and what do they mean?

Names, labels and meanings are part of the product's outside: after the first release only
additions. docs/metrics.md lists them, and a test holds it against this file.
"""

from typing import Final

from giveway_policy.faults import FaultKind

from giveway_admission.exposition import Family, MetricKind

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM


def _family(name: str, kind: MetricKind, meaning: str, *labels: str) -> Family:
    return Family(name=name, kind=kind, help=meaning, labels=labels)


ARRIVED = _family("giveway_requests_arrived_total", _C, "Requests that came in.", "class")
REQUESTS = _family("giveway_requests_total", _C, "Requests by their end.", "class", "outcome")
TENANT_REQUESTS = _family(
    "giveway_tenant_requests_total",
    _C,
    "Requests by their end, per tenant; tenants without a label of their own are other.",
    *("tenant", "class", "outcome"),
)
TENANT_TOKENS = _family(
    "giveway_tenant_tokens_total",
    _C,
    "LLM tokens as charged; cached is a part of prompt.",
    *("tenant", "kind"),
)
TOKENS = _family(
    "giveway_tokens_total",
    _C,
    "LLM tokens as charged; cached is a part of prompt.",
    *("class", "kind"),
)
QUEUE_WAIT = _family(
    "giveway_queue_wait_seconds", _H, "Arrival to dispatch; 0 for what never waited.", "class"
)
FIRST_TOKEN = _family(
    "giveway_time_to_first_token_seconds", _H, "Arrival to the first token out.", "class"
)
TOKEN_GAP = _family(
    "giveway_inter_token_latency_seconds", _H, "Gap between two tokens of a stream.", "class"
)
DURATION = _family(
    "giveway_request_duration_seconds", _H, "Arrival to the end of completed requests.", "class"
)
UNKNOWN_CLASS = _family(
    "giveway_unknown_class_requests_total", _C, "Requests that asked for a class that is not there."
)
IMPLAUSIBLE_USAGE = _family(
    "giveway_implausible_usage_total",
    _C,
    "Answers whose token counts could not be true.",
)
QUEUED = _family("giveway_queue_requests", _G, "Requests that wait.", "class")
OLDEST = _family(
    "giveway_queue_oldest_seconds", _G, "How long the longest waiting request has waited.", "class"
)
RUNNING = _family("giveway_running_requests", _G, "Requests at the engine.", "class")
WEIGHT = _family("giveway_class_weight", _G, "Weight of the class as it is in force.", "class")
BOOSTS = _family(
    "giveway_starvation_boosts_total",
    _C,
    "Times the starvation monitor boosted the class.",
    "class",
)
SEATS = _family("giveway_seats", _G, "Requests that may be at the engine at once, now.")
BATCH_SEATS = _family("giveway_batch_seats", _G, "Seats that batch classes may hold now.")
UNPREFILLED = _family(
    "giveway_unprefilled_tokens", _G, "Prompt tokens at the engine of which no answer was seen yet."
)
ENGINE_UP = _family("giveway_engine_up", _G, "1 while the engine answers its health check.")
DRAINING = _family("giveway_draining", _G, "1 while the proxy ends and takes nothing new.")
POLICY_INFO = _family(
    "giveway_policy_info", _G, "The policy in force.", "policy", "epoch", "generation", "hash"
)
POLICY_AGE = _family("giveway_policy_age_seconds", _G, "Since the policy in force took effect.")
POLICY_REJECTED = _family(
    "giveway_policy_rejected_total", _C, "Policies that were not taken into force.", "reason"
)
ENGINE_REQUESTS = _family(
    "giveway_engine_requests_total", _C, "Requests that the engine says it finished, from whomever."
)
ENGINE_PREEMPTIONS = _family(
    "giveway_engine_preemptions_total", _C, "Requests that the engine says it preempted."
)
ENGINE_CACHE = _family(
    "giveway_engine_kv_cache_usage_ratio", _G, "How full the engine's KV cache is, 0 to 1."
)
ENGINE_SCRAPES = _family(
    "giveway_engine_scrapes_total", _C, "Readings of the engine's own metrics.", "result"
)
BUILD_INFO = _family("giveway_build_info", _G, "The version that runs.", "version")

FAMILIES: tuple[Family, ...] = (
    *(
        ARRIVED,
        REQUESTS,
        TOKENS,
        TENANT_REQUESTS,
        TENANT_TOKENS,
        QUEUE_WAIT,
        FIRST_TOKEN,
        TOKEN_GAP,
    ),
    *(DURATION, UNKNOWN_CLASS, IMPLAUSIBLE_USAGE, QUEUED, OLDEST, RUNNING, WEIGHT, BOOSTS, SEATS),
    *(BATCH_SEATS, UNPREFILLED, ENGINE_UP, DRAINING, POLICY_INFO, POLICY_AGE, POLICY_REJECTED),
    *(ENGINE_REQUESTS, ENGINE_PREEMPTIONS, ENGINE_CACHE, ENGINE_SCRAPES, BUILD_INFO),
)

NO_CLASS: Final = "none"
"""The class label of what was answered before a class was known."""
TOKEN_KINDS = ("prompt", "cached", "completion")
POLICY_REJECTIONS = (*(kind.value for kind in FaultKind), "other")
"""Values of the label `reason`; what is none of a policy's faults is counted as `other`."""
