"""How do the scheduler's decisions become deeds?

`Admitter` is the shell around the `Scheduler`: it reads the clock, calls it, and carries out what
it decides, in its order, at once. Plain functions that run to the end: between a decision and its
deed nothing else happens, so that what is counted as at the engine is what was sent there.

In `mode: Observe` every request goes at once, and the scheduler decides beside it about a shadow of
the request; its decisions are counted and have no effect.
"""

import asyncio
import logging
import random
import time
from collections import deque
from itertools import count
from typing import Protocol, assert_never

from giveway_policy.enumerations import Mode
from giveway_scheduler import (
    Abort,
    Decision,
    Dispatch,
    Evict,
    Expire,
    Quota,
    Reject,
    Request,
    RequestKey,
    Scheduler,
    Statistics,
    TenantName,
    Usage,
)

from giveway_admission.deadlines import Deadline
from giveway_admission.logs import log_event
from giveway_admission.recent_decisions import DecisionKind, RecentDecisions
from giveway_admission.runtime_policies import Admission, RuntimePolicy

_logger = logging.getLogger(__name__)
_DISPATCH = DecisionKind.DISPATCH
"""Looking it up costs a tenth of a microsecond each time."""


class Admitted(Protocol):
    """A request on its way, as the decisions find it."""

    def dispatch(self, decision: Dispatch) -> None: ...
    def pass_observed(self) -> None: ...
    def reject(self, decision: Reject) -> None: ...
    def evict(self, decision: Evict) -> None: ...
    def expire(self, decision: Expire) -> None: ...
    def take_back(self) -> None:
        """Leave the engine at once; it is back in the queue already."""

    def break_down(self) -> None:
        """End, whatever the state: carrying out its decision failed by a fault of ours."""


class Admitter:
    """The only owner of the scheduler."""

    def __init__(
        self,
        policy: RuntimePolicy,
        *,
        loop: asyncio.AbstractEventLoop,
        recent_decisions: RecentDecisions,
        generator: random.Random | None = None,
    ) -> None:
        self._scheduler = Scheduler(
            policy.settings,
            now_s=time.monotonic(),
            generator=random.Random() if generator is None else generator,  # noqa: S311
        )
        self._policy = policy
        self._observes = policy.document.spec.mode is Mode.OBSERVE
        self._recent = recent_decisions
        self._exchanges: dict[RequestKey, Admitted] = {}
        self._shadows: dict[RequestKey, bool] = {}
        """Requests that went without asking; True: the scheduler has dispatched their shadow."""
        self._keys = count(1)
        self._to_do: deque[Decision] = deque()
        self._doing = False
        self._timer = Deadline(loop, self._advance)
        self.set_engine_available(False)  # until somebody has seen it

    @property
    def live(self) -> int:
        """Requests that wait or are at the engine."""
        return len(self._exchanges)

    def next_key(self) -> RequestKey:
        return RequestKey(next(self._keys))

    # What happens to requests.

    def offer(self, exchange: Admitted, admission: Admission) -> None:
        """A new request. Its fate may be decided, and carried out, before this returns."""
        request = admission.request
        self._exchanges[request.key] = exchange
        if self._observes:
            self._shadows[request.key] = False
            exchange.pass_observed()
            if request.key not in self._exchanges:  # it has ended already
                self._shadows.pop(request.key, None)
                return
        self._carry_out(self._scheduler.offer(request, now_s=time.monotonic()))

    def first_token(self, key: RequestKey) -> None:
        self._carry_out(self._scheduler.first_token(key, now_s=time.monotonic()))

    def finish(self, key: RequestKey, *, usage: Usage | None) -> None:
        """Its answer ended, well or not."""
        self._exchanges.pop(key, None)
        if self._shadows and self._shadows.pop(key, True) is False:
            self._carry_out(self._scheduler.cancel(key, now_s=time.monotonic()))
        else:
            self._carry_out(self._scheduler.finish(key, now_s=time.monotonic(), usage=usage))

    def cancel(self, key: RequestKey, *, usage: Usage | None) -> None:
        """Its client has gone, or we send it away."""
        self._exchanges.pop(key, None)
        if self._shadows and self._shadows.pop(key, True) is False:
            usage = None
        self._carry_out(self._scheduler.cancel(key, now_s=time.monotonic(), usage=usage))

    def requeue(self, key: RequestKey) -> None:
        """The engine gave nothing for it: it waits again, in its old place."""
        if key in self._shadows:
            return
        self._carry_out(self._scheduler.requeue(key, now_s=time.monotonic()))

    # What happens to the rest of the world.

    def set_engine_available(self, available: bool) -> None:
        self._carry_out(self._scheduler.set_engine_available(available, now_s=time.monotonic()))

    def report_preemptions(self, count: int) -> None:
        self._carry_out(self._scheduler.report_preemptions(count, now_s=time.monotonic()))

    def configure(self, policy: RuntimePolicy) -> None:
        """Raises `ValueError` for settings that can't work; then nothing has changed."""
        decisions = self._scheduler.configure(policy.settings, now_s=time.monotonic())
        self._policy = policy
        self._observes = policy.document.spec.mode is Mode.OBSERVE
        self._carry_out(decisions)

    def statistics(self) -> Statistics:
        return self._scheduler.statistics(now_s=time.monotonic())

    def quota(self, rank: int, tenant: TenantName) -> Quota | None:
        """What a tenant may still use in a class. None: there is no limit."""
        return self._scheduler.quota(rank, tenant, now_s=time.monotonic())

    def close(self) -> None:
        self._timer.close()

    def _advance(self) -> None:
        self._carry_out(self._scheduler.advance(now_s=time.monotonic()))

    # Deeds.

    def _carry_out(self, decisions: tuple[Decision, ...]) -> None:
        if decisions:
            self._to_do += decisions
            if self._doing:  # a deed has led to this call: its decisions come after ours
                return
            self._doing = True
            try:
                while self._to_do:
                    self._do_safely(self._to_do.popleft())
            finally:
                self._doing = False
        if self._doing:
            return
        next_s = self._scheduler.next_event_s()
        if next_s is None:
            self._timer.clear()
        else:
            self._timer.set_at(next_s)

    def _do_safely(self, decision: Decision) -> None:
        """A fault in one request's deed costs that request alone, and no seat."""
        exchange = self._exchanges.get(decision.request.key)
        if exchange is None:
            return
        try:
            self._do(decision, exchange)
        except Exception as error:
            log_event(_logger, logging.ERROR, "decision not carried out", error=error)
            exchange.break_down()

    def _do(self, decision: Decision, exchange: Admitted) -> None:
        request = decision.request
        key = request.key
        observed = bool(self._shadows) and key in self._shadows
        match decision:
            case Dispatch():
                self._note(_DISPATCH, request, decision.reason, decision.waited_s)
                if observed:
                    self._shadows[key] = True
                else:
                    exchange.dispatch(decision)
            case Reject():
                self._note(DecisionKind.REJECT, request, decision.reason, 0.0)
                if not observed:
                    del self._exchanges[key]
                    exchange.reject(decision)
            case Evict():
                self._note(DecisionKind.EVICT, request, "displaced", decision.waited_s)
                if not observed:
                    del self._exchanges[key]
                    exchange.evict(decision)
            case Expire():
                self._note(DecisionKind.EXPIRE, request, "time to live", decision.waited_s)
                if not observed:
                    del self._exchanges[key]
                    exchange.expire(decision)
            case Abort():
                self._note(DecisionKind.ABORT, request, f"for rank {decision.for_rank}", 0.0)
                if observed:
                    self._shadows[key] = False
                else:
                    exchange.take_back()
            case _:
                assert_never(decision)

    def _note(self, kind: DecisionKind, request: Request, reason: str, waited_s: float) -> None:
        names = self._policy.class_names
        self._recent.add(
            kind,
            names[min(request.rank, len(names) - 1)],
            tenant=request.tenant,
            reason=reason,
            waited_s=waited_s,
            request_name=request.name,
        )
