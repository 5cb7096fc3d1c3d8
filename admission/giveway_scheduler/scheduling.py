"""Which request goes to the engine, and when?

`Scheduler` owns all state of admission. Time comes in as `now_s` (monotonic seconds, never going
backwards), decisions go out as values. No call blocks, waits, or fails for what a client did.

Contract with the shell
- `offer` a request once. The answer contains a `Reject` of it, a `Dispatch` of it, or neither: then
  it waits. Other requests' decisions may come along (an `Evict`, an `Abort`).
- After a `Dispatch` the shell sends the request and reports `first_token` when the first token of
  the answer was seen (once; later calls are harmless), and then exactly one of: `finish` (the
  answer ended, well or not), `cancel` (the client left), `requeue` (the engine could not be
  reached, or gave up before its answer began: the request goes back to its place in the queue,
  its age and reservations kept). An `Abort` is followed by none of them: it has requeued already.
- `cancel` is right for a waiting request too.
- `advance` is called no later than `next_event_s` says, and may be called at any time.
- A key that is unknown (ended already) is ignored everywhere and returns no decisions.
"""

import random

from giveway_scheduler.decisions import Decision
from giveway_scheduler.requests import Request, RequestKey, Usage
from giveway_scheduler.settings import Settings
from giveway_scheduler.statistics import Statistics


class Scheduler:
    """Admission, queueing, picking and gating for one engine.

    Raises `ValueError` from `__init__` and `configure` for settings that cannot work (no class,
    a weight below 0, batch minimum above maximum, no seat left): a programming error, since the
    policy was checked before. Raises `ValueError` when `now_s` goes backwards or a key is offered
    twice.
    """

    def __init__(self, settings: Settings, *, now_s: float, generator: random.Random) -> None:
        raise NotImplementedError

    def configure(self, settings: Settings, *, now_s: float) -> tuple[Decision, ...]:
        """Change the settings at once; no queued request is lost and no bucket is refilled.

        Buckets keep their level, clipped to a smaller burst, and scaled by nothing. Classes are
        matched by name: queued and running requests of a class that stays move to its new rank;
        those of a class that is gone go to the lowest class. Time to live of queued entries follows
        the new setting.
        """
        raise NotImplementedError

    def offer(self, request: Request, *, now_s: float) -> tuple[Decision, ...]:
        raise NotImplementedError

    def first_token(self, key: RequestKey, *, now_s: float) -> tuple[Decision, ...]:
        """The engine has prefilled the request: its prompt no longer counts for the gate."""
        raise NotImplementedError

    def finish(
        self, key: RequestKey, *, now_s: float, usage: Usage | None
    ) -> tuple[Decision, ...]:
        """A dispatched request ended. `usage` None: the engine did no work, all is refunded."""
        raise NotImplementedError

    def cancel(
        self, key: RequestKey, *, now_s: float, usage: Usage | None = None
    ) -> tuple[Decision, ...]:
        """The client left. A waiting request is refunded; a dispatched one is charged `usage`."""
        raise NotImplementedError

    def requeue(self, key: RequestKey, *, now_s: float) -> tuple[Decision, ...]:
        """A dispatched request of which the engine has shown nothing goes back to the queue."""
        raise NotImplementedError

    def set_engine_available(self, available: bool, *, now_s: float) -> tuple[Decision, ...]:
        """While the engine is not available nothing is dispatched; times to live go on."""
        raise NotImplementedError

    def report_preemptions(self, count: int, *, now_s: float) -> tuple[Decision, ...]:
        """The engine preempted `count` requests since the last report (0: it did not)."""
        raise NotImplementedError

    def advance(self, *, now_s: float) -> tuple[Decision, ...]:
        """Let time pass: expiries, refilled buckets, boosts, growing seats."""
        raise NotImplementedError

    def next_event_s(self) -> float | None:
        """When `advance` has something to do at the latest. None: only after another call."""
        raise NotImplementedError

    def statistics(self, *, now_s: float) -> Statistics:
        raise NotImplementedError
