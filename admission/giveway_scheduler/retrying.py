"""When does a retry have a chance after a full queue?"""

from giveway_scheduler.classes import ServiceClass

SHORTEST_RETRY_S = 1.0
"""Clients ignore a hint of 0."""
LONGEST_RETRY_S = 60.0
"""OpenAI's clients ignore hints above a minute."""


def retry_after_s(service_class: ServiceClass, *, now_s: float) -> float:
    """Until all that wait in the class now will have gone, at its recent rate; 1 to 60 s."""
    per_s = service_class.dispatches.per_s(now_s)
    queued = len(service_class.queue)
    if queued >= per_s * LONGEST_RETRY_S:
        return LONGEST_RETRY_S
    return max(SHORTEST_RETRY_S, queued / per_s)
