"""What the scheduler itself knows of one request while it is alive.

An `Entry` lives from `offer` to its one final outcome. It is either waiting (in the queue of
`service_class`, in the flow of `tenant`) or dispatched. `home_class` and
`request.tenant` are its own; `service_class` and `tenant` differ from them only while the entry is
lifted (A9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from giveway_scheduler.buckets import Budget
    from giveway_scheduler.classes import ServiceClass
    from giveway_scheduler.queues import Flow
    from giveway_scheduler.requests import Request
    from giveway_scheduler.tenancy import Tenant


class Entry:
    """One live request. A record without behaviour: the parts of the scheduler own its fields."""

    __slots__ = (
        "aborts",
        "class_budget",
        "cost_tokens",
        "counted_tokens",
        "deadline_s",
        "dispatched_s",
        "flow",
        "home_class",
        "is_dispatched",
        "is_late",
        "is_waiting",
        "key",
        "lift_class",
        "lifted_by",
        "offered_s",
        "order",
        "release_s",
        "request",
        "service_class",
        "service_tokens",
        "tenant",
        "tenant_budget",
        "tokens_ahead",
        "unprefilled_tokens",
    )

    def __init__(
        self,
        request: Request,
        order: int,
        service_class: ServiceClass,
        tenant: Tenant,
        now_s: float,
    ) -> None:
        self.request = request
        self.key = request.key
        self.order = order
        """Place in the order of arrival; kept when it is requeued or lifted."""
        self.home_class = service_class
        self.service_class = service_class
        self.tenant = tenant
        self.flow: Flow | None = None
        """The flow it waits in, or was dispatched from. None: it was not in a queue yet."""
        self.offered_s = now_s
        self.deadline_s = 0.0
        """When it expires if it still waits then."""
        self.is_waiting = False
        self.is_dispatched = False
        self.dispatched_s = 0.0
        self.is_late = False
        """SLOAware: it can no longer meet its first-token target and was demoted."""
        self.lift_class = service_class
        """The class to which it lifts what it waits for."""
        self.lifted_by: Entry | None = None
        """The request in whose place it is served (A9). None: it is served in its own."""
        self.aborts = 0
        """How often it was aborted for a higher class (A10)."""
        self.cost_tokens = 0
        """What is reserved for it: prompt and estimated output."""
        self.class_budget: Budget | None = None
        """The class's budget that holds its reservation. None: it has not paid."""
        self.tenant_budget: Budget | None = None
        self.service_tokens = 0.0
        """What its flow's service was charged at dispatch, weighted."""
        self.counted_tokens = 0.0
        """What the picker was told at dispatch, not weighted."""
        self.tokens_ahead = 0
        """Prompt tokens that the engine had to prefill before its own when it was dispatched."""
        self.unprefilled_tokens = 0
        """Its prompt tokens that count for the gate now."""
        self.release_s = 0.0
        """When the gate stops counting it, if no first token can be seen of it."""
