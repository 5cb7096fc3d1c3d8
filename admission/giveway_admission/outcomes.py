"""How a request can end, what its client is told, and how it is counted.

One table: every final outcome with its HTTP status and machine-readable `code` (the same word is
the metrics label). Nothing else in the proxy invents a status.
"""

from enum import StrEnum


class Outcome(StrEnum):
    """Final outcome of a request; the value is the `outcome` label and the error's `code`."""

    COMPLETED = "completed"
    CLIENT_LEFT = "client_left"
    ENGINE_REFUSED = "engine_refused"
    """The engine's own 4xx, passed on as it is."""
    RATE_LIMITED = "rate_limited"
    QUEUE_FULL = "queue_full"
    EVICTED = "evicted"
    QUEUE_TIMEOUT = "queue_timeout"
    ENGINE_TIMEOUT = "engine_timeout"
    DRAINING = "draining"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    ENGINE_FAILED = "engine_failed"
    INVALID_REQUEST = "invalid_request"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    REQUEST_TOO_LARGE = "request_too_large"


STATUS: dict[Outcome, int] = {
    Outcome.RATE_LIMITED: 429,
    Outcome.QUEUE_FULL: 429,
    Outcome.EVICTED: 429,
    Outcome.QUEUE_TIMEOUT: 504,
    Outcome.ENGINE_TIMEOUT: 504,
    Outcome.DRAINING: 503,
    Outcome.ENGINE_UNAVAILABLE: 503,
    Outcome.ENGINE_FAILED: 502,
    Outcome.INVALID_REQUEST: 400,
    Outcome.UNAUTHORIZED: 401,
    Outcome.NOT_FOUND: 404,
    Outcome.REQUEST_TOO_LARGE: 413,
}
"""HTTP status of each answer that is ours. Outcomes that are missing are answered by the engine,
or by nobody."""
