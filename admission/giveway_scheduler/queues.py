"""Who is next inside one class?

One `ClassQueue` per class, inside it one `Flow` per tenant (A7). Which entry is next depends on the
`Order` that the algorithm asks for:

- ARRIVAL: the oldest entry, whoever sent it.
- FAIR: the tenant with the least weighted service in tokens, and of its entries the oldest.
- FAIR_SHORTEST_FIRST: as FAIR, but of the tenant's entries the shortest prompt among those that can
  still meet their first-token target; those that cannot are demoted and go, oldest first, after the
  ones that can.

Service is the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models"
(OSDI '24, https://arxiv.org/abs/2401.00588): dispatching a request adds
`(prompt + output_token_weight x output) / weight` to its tenant's counter, and a tenant that comes
back with work is lifted to the least counter among those that wait, so that idle time earns no
credit. Changed from it: the output is charged at dispatch, estimated by the tenant's own recent
mean, and corrected at the end; so tenants with long and short answers are told apart before their
answers are known. And a tenant is lifted only to what the other one has had for certain, without
estimates of what still runs: they may turn out far too high. Two tenants that both wait all through
an interval differ in weighted service by at most what the engine runs of them at once.

Requests that are larger than their class's bucket can hold stand in a flow of their own beside that
of the tenant's others, so that none of these waits behind one that can't pay (B13).

Costs: everything here is O(1) or O(log tenants), however many entries wait. The heap of ready flows
and the heap of prompts drop stale items when they meet them and are rebuilt when more than half is
stale, so that they never outgrow what they order.
"""

from __future__ import annotations

import math
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from giveway_scheduler.arrivals import SLACK, Arrivals

if TYPE_CHECKING:
    from giveway_scheduler.entries import Entry
    from giveway_scheduler.requests import TenantName
    from giveway_scheduler.tenancy import Tenant

MEAN_OUTPUT_SHARE = 0.1
"""What the newest answer weighs in a tenant's mean output: about the last ten answers count."""


class Order(Enum):
    """How a class's next entry is found."""

    ARRIVAL = "arrival"
    FAIR = "fair"
    FAIR_SHORTEST_FIRST = "fair, shortest first"


class Flow:
    """The entries of one tenant in one class, all large or none, and what they have had there."""

    __slots__ = (
        "alarm_s",
        "answers",
        "base",
        "entries",
        "is_held",
        "is_large",
        "large",
        "late",
        "mean_output_tokens",
        "prompts",
        "service",
        "settled",
        "stamp",
        "tenant",
        "waiting",
    )

    def __init__(self, tenant: Tenant, *, base: Flow | None = None) -> None:
        self.tenant = tenant
        self.is_large = base is not None
        """Its requests are larger than their class's bucket can hold."""
        self.base = self if base is None else base
        """The flow of the tenant's other requests, which counts both."""
        self.large: Flow | None = None
        """The flow of the tenant's large requests. None: there were none, or it is one itself."""
        self.waiting = 0
        """How many of the tenant wait in both flows; only the base counts."""
        self.entries = Arrivals()
        """All that wait."""
        self.prompts: list[tuple[int, int, Entry]] = []
        """FAIR_SHORTEST_FIRST: heap of (prompt tokens, order, entry) of those not late."""
        self.late: list[tuple[int, Entry]] = []
        """FAIR_SHORTEST_FIRST: heap of (order, entry) of the demoted ones."""
        self.service = 0.0
        """Weighted tokens, divided by the tenant's weight: ended requests, and estimates of those
        that run."""
        self.settled = 0.0
        """The part of `service` that is certain: requests that ended."""
        self.answers = 0
        self.mean_output_tokens = 0.0
        """Recent mean per answer; means nothing while `answers` is 0."""
        self.stamp = 0
        """Names its valid item in the heap of ready flows. 0: it is not there."""
        self.is_held = False
        """The tenant's own limits keep it from going."""
        self.alarm_s = 0.0
        """When a held flow is to be looked at again; the item with another time is stale."""

    @property
    def newest(self) -> Entry | None:
        """The tenant's newest entry in both flows, asked of the base. None: it has none."""
        mine = self.entries.newest
        others = None if self.large is None else self.large.entries.newest
        if mine is None or others is None:
            return others if mine is None else mine
        return mine if mine.order > others.order else others

    def observe_output(self, output_tokens: float) -> None:
        """One more answer had `output_tokens`."""
        self.answers += 1
        share = max(MEAN_OUTPUT_SHARE, 1.0 / self.answers)
        self.mean_output_tokens += share * (output_tokens - self.mean_output_tokens)


class ClassQueue:
    """The waiting entries of one class.

    The owner calls `insert` and `remove`; `head` names the next entry and takes nothing out. A flow
    that its tenant's limits keep from going is put aside by `hold`, and comes back by `release` or
    when something of it leaves.
    """

    __slots__ = (
        "_by_size",
        "_idle_service",
        "_largest",
        "_last",
        "_ready",
        "_stamp",
        "bytes",
        "entries",
        "flows",
        "lined_up",
        "order",
        "target_s",
        "tokens",
    )

    def __init__(self, order: Order, *, target_s: float | None) -> None:
        self.order = order
        self.target_s = target_s
        """First-token target. None: nothing is ever late."""
        self.entries = Arrivals()
        """All that wait."""
        self.flows: dict[TenantName, Flow] = {}
        self.lined_up: dict[Flow, None] = {}
        """Large flows that are held until another one's saving has ended, in order."""
        self.bytes = 0
        self.tokens = 0
        self._ready: list[tuple[int, float, int, int, Flow]] = []
        """Heap of (stage, service, order of the oldest entry, stamp, flow). Stage 1 holds flows
        with nothing but late entries; service is 0 for all where the order is ARRIVAL."""
        self._stamp = 0
        self._last: Flow | None = None
        """The flow that was last to stop waiting: where the counters stand when nobody waits."""
        self._idle_service = 0.0
        """The same, if that flow was forgotten."""
        self._by_size: dict[int, dict[Flow, None]] = {}
        """Base flows of tenants with more than one entry by how many they have, so that the largest
        is found at once."""
        self._largest = 0

    def __len__(self) -> int:
        return self.entries.count

    @property
    def oldest(self) -> Entry | None:
        """The entry that came first of those that wait. None: nothing waits."""
        return self.entries.oldest

    @property
    def newest(self) -> Entry | None:
        """The entry that came last of those that wait. None: nothing waits."""
        return self.entries.newest

    @property
    def largest_flow(self) -> Flow | None:
        """The base flow of a tenant with the most entries. None: none has more than one."""
        return next(iter(self._by_size[self._largest])) if self._largest else None

    def all_flows(self) -> list[Flow]:
        """Every flow, of large requests too."""
        large = [each.large for each in self.flows.values() if each.large is not None]
        return [*self.flows.values(), *large]

    def flow_of(self, tenant: Tenant, *, is_large: bool = False) -> Flow:
        """The tenant's flow here, made if there is none."""
        flow = self.flows.get(tenant.name)
        if flow is None:
            flow = self.flows[tenant.name] = Flow(tenant)
        if not is_large:
            return flow
        if flow.large is None:
            flow.large = Flow(tenant, base=flow)
        return flow.large

    def insert(self, entry: Entry, *, is_large: bool) -> None:
        """Let the entry wait at the place that its arrival gives it, among the large or the others
        of its tenant."""
        flow = entry.flow = self.flow_of(entry.tenant, is_large=is_large)
        before = flow.entries.count
        if not before:
            self._lift(flow)
        self.entries.add(entry)
        is_newest = flow.entries.add(entry)
        self.bytes += entry.request.size_bytes
        self.tokens += entry.cost_tokens
        self._resize(flow.base, 1)
        had_prompts = True
        if self.order is Order.FAIR_SHORTEST_FIRST:
            had_prompts = len(flow.prompts) > 0
            self._enter_stage(flow, entry)
        else:
            entry.is_late = False
        if not before:
            self._make_ready(flow, entry)
            return
        is_oldest = not is_newest and flow.entries.oldest is entry
        if flow.is_held:
            is_next = flow.prompts[0][2] is entry if flow.prompts else is_oldest
            if is_next:
                self.release(flow)  # what held it need not hold the new head
        elif not had_prompts or is_oldest:
            self._make_ready(flow, flow.entries.oldest)

    def remove(self, entry: Entry) -> None:
        """Take a waiting entry out, wherever it stands."""
        flow = entry.flow
        assert flow is not None
        self.entries.remove(entry)
        flow.entries.remove(entry)
        self.bytes -= entry.request.size_bytes
        self.tokens -= entry.cost_tokens
        self._resize(flow.base, -1)
        left = flow.entries.count
        if not left:
            flow.stamp = 0
            flow.is_held = False
            flow.prompts.clear()
            flow.late.clear()
            self.lined_up.pop(flow, None)
            self._last = flow
            return
        most = 2 * left + SLACK
        if len(flow.prompts) > most or len(flow.late) > most:
            self._enter_stages(flow)
        if flow.is_held or self.order is Order.ARRIVAL:
            self.release(flow)

    def head(self, now_s: float, backlog_s: float, prompt_s_per_token: float) -> Entry | None:
        """The next entry, of the flows that are not held. None: there is none.

        `backlog_s` is how long the engine will be busy with prompts that it has already.
        """
        ready = self._ready
        while ready:
            _, _, _, stamp, flow = ready[0]
            if flow.stamp != stamp:
                heappop(ready)
            elif self.order is not Order.FAIR_SHORTEST_FIRST:
                return flow.entries.oldest
            else:
                entry = self._shortest(flow, now_s, backlog_s, prompt_s_per_token)
                if entry is not None:
                    return entry
                if ready[0][0] == 1:
                    return self._longest_late(flow)
                self._make_ready(flow, flow.entries.oldest)
        return None

    def head_of(
        self, flow: Flow, now_s: float, backlog_s: float, prompt_s_per_token: float
    ) -> Entry | None:
        """The next entry of one flow, whatever its place. None: it has none."""
        if not flow.entries.count or self.order is not Order.FAIR_SHORTEST_FIRST:
            return flow.entries.oldest
        entry = self._shortest(flow, now_s, backlog_s, prompt_s_per_token)
        return self._longest_late(flow) if entry is None else entry

    def late_s(self, entry: Entry, *, backlog_s: float, prompt_s_per_token: float) -> float:
        """From when on the entry, the next of its flow, is demoted. Infinite: it will not be."""
        if self.order is not Order.FAIR_SHORTEST_FIRST or self.target_s is None or entry.is_late:
            return math.inf
        prompt_s = entry.request.prompt_tokens * prompt_s_per_token
        return entry.offered_s + self.target_s - backlog_s - prompt_s

    def charge(self, flow: Flow, service_tokens: float, settled_tokens: float = 0.0) -> None:
        """Add to the tenant's service (below 0: take back), and put the flow at its new place.

        `settled_tokens` of an ended request are certain, the rest is an estimate.
        """
        weight = flow.tenant.weight
        flow.service += service_tokens / weight
        flow.settled += settled_tokens / weight
        if flow.stamp and self.order is not Order.ARRIVAL:
            self._make_ready(flow, flow.entries.oldest)

    def hold(self, flow: Flow) -> None:
        """Leave the flow out until `release`: its tenant's limits keep it from going."""
        flow.stamp = 0
        flow.is_held = True

    def release(self, flow: Flow) -> None:
        """Let the flow take part again, at the place of its service."""
        if flow.is_held:
            flow.is_held = False
            self._lift(flow)
        if flow.entries.count:
            self._make_ready(flow, flow.entries.oldest)

    def line_up(self, flow: Flow) -> None:
        """Hold a large flow until its turn to be saved for has come."""
        self.hold(flow)
        self.lined_up[flow] = None

    def release_next(self) -> None:
        """Nobody is saved for any more: the longest lined up may try."""
        while self.lined_up:
            flow = next(iter(self.lined_up))
            del self.lined_up[flow]
            if flow.is_held:
                self.release(flow)
                return

    def forget(self, tenant: TenantName) -> None:
        """Drop what is remembered of a tenant without entries here."""
        flow = self.flows.pop(tenant, None)
        if flow is not None and self._last is not None and self._last.base is flow:
            self._idle_service = self._last.settled
            self._last = None

    def reorder(self, order: Order, *, target_s: float | None) -> None:
        """Follow another order: everything that waits is put in its new place."""
        if order is self.order and target_s == self.target_s:
            return
        self.order = order
        self.target_s = target_s
        self._ready.clear()
        for flow in self.all_flows():
            flow.stamp = 0
            flow.is_held = False
            for entry in flow.entries:
                entry.is_late = False
            self._enter_stages(flow)
            if flow.entries.count:
                self._make_ready(flow, flow.entries.oldest)

    def _enter_stages(self, flow: Flow) -> None:
        """Put each entry of the flow in its stage, anew and once."""
        flow.prompts.clear()
        flow.late.clear()
        if self.order is Order.FAIR_SHORTEST_FIRST:
            for entry in flow.entries:
                self._enter_stage(flow, entry)

    def _enter_stage(self, flow: Flow, entry: Entry) -> None:
        if entry.is_late:
            heappush(flow.late, (entry.order, entry))
        else:
            heappush(flow.prompts, (entry.request.prompt_tokens, entry.order, entry))

    def _shortest(
        self, flow: Flow, now_s: float, backlog_s: float, prompt_s_per_token: float
    ) -> Entry | None:
        """The flow's shortest prompt that can be on time; late ones before it are demoted."""
        prompts, target_s = flow.prompts, self.target_s
        while prompts:
            tokens, _, entry = prompts[0]
            if not _waits_on_time(entry, flow):
                heappop(prompts)
            elif (
                target_s is not None
                and now_s >= entry.offered_s + target_s - backlog_s - tokens * prompt_s_per_token
            ):  # the very moment that `late_s` names
                heappop(prompts)
                entry.is_late = True
                heappush(flow.late, (entry.order, entry))
            else:
                return entry
        return None

    def _longest_late(self, flow: Flow) -> Entry:
        """The oldest of a flow's late entries, of which there is at least one."""
        late = flow.late
        while not _waits_late(late[0][1], flow):
            heappop(late)
        return late[0][1]

    def _lift(self, flow: Flow) -> None:
        """Bring a flow that becomes active up to those that are: idle time earns no credit."""
        ready = self._ready
        while ready and ready[0][4].stamp != ready[0][3]:
            heappop(ready)
        active = ready[0][4] if ready else self._last
        lacking = (self._idle_service if active is None else active.settled) - flow.service
        if lacking > 0.0:
            flow.service += lacking
            flow.settled += lacking

    def _make_ready(self, flow: Flow, oldest: Entry | None) -> None:
        """Put the flow at its place; `oldest` of its entries, of which there are some."""
        assert oldest is not None
        service = 0.0 if self.order is Order.ARRIVAL else flow.service
        stage = 1 if self.order is Order.FAIR_SHORTEST_FIRST and not flow.prompts else 0
        self._stamp += 1
        flow.stamp = self._stamp
        ready = self._ready
        if len(ready) > 2 * self.entries.count + SLACK:
            ready[:] = [item for item in ready if item[4].stamp == item[3]]
            heapify(ready)
        heappush(ready, (stage, service, oldest.order, self._stamp, flow))

    def _resize(self, flow: Flow, change: int) -> None:
        """Count for a base flow, and move it between the groups of equal size; a single entry is in
        none."""
        before = flow.waiting
        after = flow.waiting = before + change
        by_size = self._by_size
        if before > 1:
            group = by_size[before]
            del group[flow]
            if not group:
                del by_size[before]
                if before == self._largest:
                    self._largest = after if after > 1 else 0
        if after > 1:
            group_after = by_size.get(after)
            if group_after is None:
                by_size[after] = {flow: None}
            else:
                group_after[flow] = None
            if after > self._largest:
                self._largest = after


def _waits_late(entry: Entry, flow: Flow) -> bool:
    return entry.flow is flow and entry.is_waiting and entry.is_late


def _waits_on_time(entry: Entry, flow: Flow) -> bool:
    return entry.flow is flow and entry.is_waiting and not entry.is_late
