"""What exactly is a client told that is not served, and when may it come again?

Sentences for people; programs read `code`, `Retry-After` and `param`.
"""

from giveway_scheduler import Evict, Expire, Reject, RejectReason

from giveway_admission.engine_connections import EngineFault
from giveway_admission.outcomes import Outcome

DRAINING_MESSAGE = "This proxy is shutting down. Send the request again: another one will take it."
DRAINING_RETRY_S = 1.0
UNAVAILABLE_RETRY_S = 5.0
"""A guess: engines that crash are back after tens of seconds, and other pods answer at once."""

_REJECTIONS = {
    RejectReason.CLASS_REQUESTS: "The limit on requests of class {class_name} is reached.",
    RejectReason.CLASS_TOKENS: "The limit on tokens of class {class_name} is reached.",
    RejectReason.TENANT_REQUESTS: "The limit on requests of tenant {tenant} is reached.",
    RejectReason.TENANT_TOKENS: "The limit on tokens of tenant {tenant} is reached.",
    RejectReason.CLASS_QUEUE_FULL: "Too many requests of class {class_name} are waiting already.",
    RejectReason.QUEUE_FULL: "Too many requests are waiting already.",
}


def explain_rejection(decision: Reject, *, class_name: str) -> tuple[Outcome, str]:
    """Outcome and sentence of a newcomer that was not taken."""
    outcome = Outcome.RATE_LIMITED if decision.reason.is_rate else Outcome.QUEUE_FULL
    sentence = _REJECTIONS[decision.reason].format(
        class_name=class_name, tenant=decision.request.tenant
    )
    return outcome, sentence


def explain_eviction(decision: Evict) -> str:
    return (
        f"The request gave up its place after {decision.waited_s:.1f} s of waiting, "
        "because the queue was full and a more urgent request came."
    )


def explain_expiry(decision: Expire, *, engine_up: bool) -> tuple[Outcome, str]:
    """Waiting too long is one thing while the engine works, and another while it is away."""
    waited = f"The request waited {decision.waited_s:.1f} s"
    if engine_up:
        return Outcome.QUEUE_TIMEOUT, f"{waited} and its turn did not come."
    return Outcome.ENGINE_UNAVAILABLE, f"{waited} and the engine could not be reached meanwhile."


def explain_fault(fault: EngineFault) -> tuple[Outcome, str]:
    """Outcome and sentence of a request that the engine did not answer."""
    match fault:
        case EngineFault.UNREACHABLE:
            return Outcome.ENGINE_UNAVAILABLE, "The engine could not be reached."
        case EngineFault.SILENT:
            return Outcome.ENGINE_TIMEOUT, "The engine did not answer in time."
        case _:
            return Outcome.ENGINE_FAILED, "The engine ended the connection before it answered."
