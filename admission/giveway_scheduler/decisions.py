"""What the scheduler wants done.

Every call of the `Scheduler` returns a tuple of decisions, in the order in which the shell has to
carry them out. The shell does nothing of its own accord: a request is sent because of a `Dispatch`
and for no other reason.

A request ends in exactly one of these ways: `Reject` (before queueing), `Evict`, `Expire` (out of
the queue), or by the shell's own call of `finish` or `cancel`.
"""

from dataclasses import dataclass
from enum import StrEnum

from giveway_scheduler.requests import Request


class DispatchReason(StrEnum):
    """Why a request goes to the engine now."""

    IMMEDIATE = "immediate"
    """It never waited."""
    QUEUED = "queued"
    """Its turn came."""
    BOOSTED = "boosted"
    """The starvation monitor promoted its class for one request."""
    LIFTED = "lifted"
    """It goes in the class of a request that waits for it."""


class RejectReason(StrEnum):
    """Why a newcomer is not taken."""

    CLASS_REQUESTS = "class_requests"
    CLASS_TOKENS = "class_tokens"
    TENANT_REQUESTS = "tenant_requests"
    TENANT_TOKENS = "tenant_tokens"
    CLASS_QUEUE_FULL = "class_queue_full"
    QUEUE_FULL = "queue_full"

    @property
    def is_rate(self) -> bool:
        """True for a limit over time (`rate_limited`), False for a full queue (`queue_full`)."""
        return self not in (RejectReason.CLASS_QUEUE_FULL, RejectReason.QUEUE_FULL)


@dataclass(slots=True, kw_only=True)
class Dispatch:
    """Send the request to the engine. It has a seat until `finish`, `cancel` or `requeue`."""

    request: Request
    reason: DispatchReason
    rank: int
    """The class in which it is served: higher than the request's own if it was lifted."""
    waited_s: float
    priority: int
    """To be forwarded as vLLM's priority: lower goes first. It is `rank`, or 0 for a request that
    was let through a closed prompt gate: the engine must not hold it behind the same prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """Refuse the newcomer. Nothing is reserved for it."""

    request: Request
    reason: RejectReason
    retry_after_s: float
    """When a retry has a chance: this long from now at the earliest. Exact for a limit, and then as
    long as it takes; 60 where nothing ever passes; an estimate of 1 to 60 for a full queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """A queued request makes room for one of a higher class, or of a tenant with fewer entries."""

    request: Request
    waited_s: float
    retry_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """A queued request outlived its time to live."""

    request: Request
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Stop the dispatched request at the engine; it is back in the queue already (A10).

    The shell closes its connection to the engine and reports nothing further of this attempt.
    """

    request: Request
    for_rank: int
    """The class that was waiting."""
    prompt_tokens_lost: int


Decision = Dispatch | Reject | Evict | Expire | Abort
