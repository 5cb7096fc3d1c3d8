"""Did the last change arrive?

Proxies export which document they run (`giveway_policy_info`); Prometheus tells how many run the
published one or a newer one. Weights are decided again only when all ready pods do, since a mounted
ConfigMap takes up to a minute, and a loop that acts on what has not happened yet goes too far. What
does not arrive in time is not waited for any longer, and is said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from giveway_operator.promql import Sample

TIMEOUT_S: Final = 180.0
"""A kubelet's sync period and its cache, a minute each, and a scrape a minute."""


class Arrival(StrEnum):
    ARRIVED = "Arrived"
    AWAITED = "AwaitingAcknowledgement"
    OVERDUE = "AcknowledgementOverdue"
    """It was awaited for the time-out: go on without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    arrival: Arrival
    acknowledged: int | None
    """Proxies that run the document or a newer one. None: it is not known."""
    message: str


def acknowledge(
    order: tuple[int, int],
    samples: Sequence[Sample] | None,
    *,
    ready: int,
    waited_s: float,
    timeout_s: float = TIMEOUT_S,
) -> Acknowledgement:
    """`order` is the published (epoch, generation); `samples` answer `acknowledged_query`, None if
    there is no answer; `ready` counts the pods that ought to run it, published `waited_s` ago."""
    epoch, generation = order
    running = None if samples is None else _running(order, samples)
    count = "an unknown number" if running is None else str(min(running, ready))
    message = f"{count} of {ready} ready pods run epoch {epoch} generation {generation}"
    if ready == 0 or (running is not None and running >= ready):
        arrival = Arrival.ARRIVED
    elif waited_s < timeout_s:
        arrival = Arrival.AWAITED
    else:
        arrival = Arrival.OVERDUE
        message = f"{message} after {waited_s:.0f} s: weights are decided without waiting for more"
    return Acknowledgement(arrival=arrival, acknowledged=running, message=message)


def _running(order: tuple[int, int], samples: Sequence[Sample]) -> int:
    count = 0
    for each in samples:
        try:
            found = (int(each.labels["epoch"]), int(each.labels["generation"]))
            number = int(each.value)
        except (KeyError, ValueError, OverflowError):
            continue  # no label of ours: somebody else's metric of that name
        if found >= order:
            count += number
    return count
