"""Which tenants are there, and what is remembered of them?

A tenant is known while it has work, and for a while after. Tenants that the policy names are never
forgotten: their buckets have to survive an idle hour. The others have no limits, so that what is
lost with them is a counter which would be lifted at their return anyway; the longest idle one goes
first once there are more than `idle_tenants`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from giveway_scheduler.buckets import Budget
from giveway_scheduler.settings import Settings, TenantSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from giveway_scheduler.queues import ClassQueue, Flow
    from giveway_scheduler.requests import TenantName

UNNAMED = TenantSettings()


class Tenant:
    """One tenant, in all classes together."""

    __slots__ = (
        "budget",
        "held",
        "in_flight",
        "is_named",
        "name",
        "queued",
        "running",
        "served_tokens",
        "weight",
    )

    def __init__(self, name: TenantName, settings: TenantSettings, *, now_s: float) -> None:
        self.name = name
        self.weight = settings.weight
        self.budget = Budget(settings.limits, now_s=now_s)
        self.in_flight = settings.limits.in_flight
        """Requests it may have at the engine at once. None: no limit."""
        self.is_named = False
        self.queued = 0
        self.running = 0
        self.served_tokens = 0.0
        self.held: dict[Flow, ClassQueue] = {}
        """Flows that wait for this tenant's limits."""

    def configure(self, settings: TenantSettings, *, now_s: float) -> None:
        """Follow new settings: bucket levels stay, counters stay."""
        self.weight = settings.weight
        self.budget.configure(settings.limits, now_s=now_s)
        self.in_flight = settings.limits.in_flight

    def release_held(self) -> None:
        """Something of its limits was given back: its flows may try again."""
        if self.held:
            for flow, queue in self.held.items():
                if flow.is_held:
                    queue.release(flow)
            self.held.clear()


class Tenants:
    """All tenants that are known now."""

    def __init__(self, settings: Settings, *, forget: Callable[[Tenant], None]) -> None:
        """`forget` is called with each tenant that is dropped."""
        self._settings = settings
        self._forget = forget
        self._tenants: dict[TenantName, Tenant] = {}
        self._idle: OrderedDict[TenantName, Tenant] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tenants)

    def all(self) -> Iterable[Tenant]:
        """Every known tenant."""
        return self._tenants.values()

    def find(self, name: TenantName) -> Tenant | None:
        """The tenant. None: nothing is known of it."""
        return self._tenants.get(name)

    def get(self, name: TenantName, now_s: float) -> Tenant:
        """The tenant, made if it is not known."""
        tenant = self._tenants.get(name)
        if tenant is None:
            named = self._settings.tenants.get(name)
            tenant = Tenant(name, named or UNNAMED, now_s=now_s)
            tenant.is_named = named is not None
            self._tenants[name] = tenant
        elif not (tenant.queued or tenant.running):
            self._idle.pop(name, None)
        return tenant

    def rest(self, tenant: Tenant) -> None:
        """The tenant has one request less; remember it among the idle if that was the last."""
        if tenant.queued or tenant.running or tenant.is_named:
            return
        name = tenant.name
        if self._tenants.get(name) is not tenant:
            return  # forgotten meanwhile
        if name in self._idle:
            self._idle.move_to_end(name)
        else:
            self._idle[name] = tenant
        if len(self._idle) > self._settings.idle_tenants:
            self._trim()

    def configure(self, settings: Settings, *, now_s: float) -> None:
        """Follow new settings."""
        self._settings = settings
        for tenant in self._tenants.values():
            named = settings.tenants.get(tenant.name)
            tenant.configure(named or UNNAMED, now_s=now_s)
            tenant.is_named = named is not None
            tenant.release_held()
            if tenant.is_named:
                self._idle.pop(tenant.name, None)
        for tenant in tuple(self._tenants.values()):
            if tenant.name not in self._idle:
                self.rest(tenant)
        self._trim()

    def _trim(self) -> None:
        while len(self._idle) > self._settings.idle_tenants:
            name, tenant = self._idle.popitem(last=False)
            del self._tenants[name]
            self._forget(tenant)
