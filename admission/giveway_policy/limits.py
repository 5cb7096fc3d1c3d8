"""How much may a class or a tenant send?

Absent or null: no limit. 0: nothing passes. Limits hold for all proxies of a policy together; each
takes its share. A burst that is not given is filled in here, so that readers find every number.
"""

from typing import Any

from pydantic import Field

from giveway_policy.fields import Model

BURST_OF_TOKENS_S = 10
"""Seconds of `tokensPerMinute` that the default `tokenBurst` holds."""


def _request_burst(data: dict[str, Any]) -> int | None:
    """H3: one second's requests. The published double burst drives time to first token up."""
    per_minute = data.get("requests_per_minute")
    per_second = -(-per_minute // 60) if per_minute else data.get("requests_per_second")
    return per_second or None


def _token_burst(data: dict[str, Any]) -> int | None:
    per_minute = data.get("tokens_per_minute")
    return -(-per_minute * BURST_OF_TOKENS_S // 60) if per_minute else None


class Limits(Model):
    requests_per_second: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description=(
            "Requests per second that pass in the long run. Absent: no limit. 0: nothing passes."
        ),
    )
    requests_per_minute: int | None = Field(
        default=None,
        ge=0,
        le=60_000_000,
        description=(
            "The same per minute, for rates below one a second: 20 passes one request every three "
            "seconds. Only where requestsPerSecond is absent. Absent: no limit. 0: nothing passes."
        ),
    )
    request_burst: int | None = Field(
        default_factory=_request_burst,
        ge=1,
        le=10_000_000,
        description=(
            "Requests that may pass at once after a quiet time. Default: one second's requests, at "
            "least 1."
        ),
    )
    tokens_per_minute: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000_000_000,
        description=(
            "LLM tokens per minute, prompt and output together. The prompt and the expected output "
            "are reserved before a request goes, and corrected when the engine has reported its "
            "usage. Absent: no limit. 0: nothing passes."
        ),
    )
    token_burst: int | None = Field(
        default_factory=_token_burst,
        ge=1,
        le=1_000_000_000_000,
        description=(
            "LLM tokens that may pass at once after a quiet time. A request larger than this goes "
            "as debt when the bucket is full; where it waits for that, half of what comes in is "
            "saved for it and others may take the rest. Default: ten seconds' tokens."
        ),
    )


class TenantLimits(Limits):
    in_flight: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description=(
            "Requests of this tenant at the engine at once; more of them wait in the queue. "
            "Absent: no limit. 0: nothing passes."
        ),
    )
