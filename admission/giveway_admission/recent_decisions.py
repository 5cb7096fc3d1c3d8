"""What was decided lately, and why?

For the admin page alone: what a person asks there is "why was this one refused", or "why did it
wait". Three rings, because at a few hundred requests a second the uneventful dispatches of one
second would push everything else out.
Nothing is formatted when a decision is added; names are cleaned when somebody looks.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from giveway_scheduler import DispatchReason

from giveway_admission.logs import clean_text
from giveway_admission.tenant_labels import shown_tenant


class DecisionKind(StrEnum):
    DISPATCH = "dispatch"
    REJECT = "reject"
    EVICT = "evict"
    EXPIRE = "expire"
    ABORT = "abort"
    CANCEL = "cancel"
    REFUSE = "refuse"
    """Answered before the scheduler saw it: not readable, not authorised, draining."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentDecision:
    """One decision as it is shown."""

    age_s: float
    kind: str
    class_name: str
    tenant: str
    reason: str
    waited_s: float
    request_name: str


_DISPATCH = DecisionKind.DISPATCH
_IMMEDIATE = DispatchReason.IMMEDIATE
_Entry = tuple[float, str, str, str, str, float, str]


class RecentDecisions:
    """The last `size` decisions.

    Half of the places are for what was not served, a quarter each for what was dispatched at once
    and for what was dispatched after it had waited.
    """

    __slots__ = ("_clock", "_immediate", "_others", "_waited")

    def __init__(self, size: int = 200, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._immediate: deque[_Entry] = deque(maxlen=max(1, size // 4))
        self._waited: deque[_Entry] = deque(maxlen=max(1, size // 4))
        self._others: deque[_Entry] = deque(maxlen=max(1, size - size // 4 * 2))

    def add(
        self,
        kind: DecisionKind,
        class_name: str,
        *,
        tenant: str,
        reason: str,
        waited_s: float = 0.0,
        request_name: str = "",
    ) -> None:
        ring = self._others
        if kind is _DISPATCH:
            ring = self._immediate if reason == _IMMEDIATE else self._waited
        ring.append((self._clock(), kind, class_name, tenant, reason, waited_s, request_name))

    def latest(self, *, shown: Callable[[str], str] = shown_tenant) -> tuple[RecentDecision, ...]:
        """All that are remembered, the newest first; `shown` decides how a tenant is called."""
        now_s = self._clock()
        entries = sorted(
            (*self._immediate, *self._waited, *self._others), key=lambda entry: -entry[0]
        )
        return tuple(
            RecentDecision(
                age_s=max(0.0, now_s - at_s),
                kind=str(kind),
                class_name=clean_text(class_name, limit=63),
                tenant=shown(tenant),
                reason=clean_text(reason, limit=200),
                waited_s=waited_s,
                request_name=clean_text(request_name, limit=64),
            )
            for at_s, kind, class_name, tenant, reason, waited_s, request_name in entries
        )
