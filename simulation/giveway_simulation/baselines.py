"""What would happen without giveway? The arrangements that it is compared with.

`Direct` hands everything to the engine at once. With an engine that serves first come first served
that is what one has without a proxy; with one that schedules by priority it is vLLM's own answer to
classes. `StrictOrder` is the plainest proxy: a bound on seats, and a queue per class.
"""

import heapq
from collections.abc import Iterable

from giveway_simulation.simulating import Order, Send
from giveway_simulation.workloads import Arrival


class Direct:
    """No queue. The class's rank is the engine's priority; a first-come engine ignores it."""

    def offer(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]:  # noqa: ARG002
        return (Send(key=key, priority=arrival.rank),)

    def first_token(self, key: int, *, now_s: float) -> Iterable[Order]:  # noqa: ARG002
        return ()

    def finish(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]:  # noqa: ARG002
        return ()

    def advance(self, *, now_s: float) -> Iterable[Order]:  # noqa: ARG002
        return ()

    def next_event_s(self) -> float | None:
        return None


class StrictOrder:
    """Classes strictly in order, first come first served inside one, with a bound on seats."""

    def __init__(self, *, seats: int) -> None:
        self._seats = seats
        self._running = 0
        self._waiting: list[tuple[int, int]] = []

    def offer(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]:  # noqa: ARG002
        heapq.heappush(self._waiting, (arrival.rank, key))
        return self._fill()

    def first_token(self, key: int, *, now_s: float) -> Iterable[Order]:  # noqa: ARG002
        return ()

    def finish(self, key: int, arrival: Arrival, *, now_s: float) -> Iterable[Order]:  # noqa: ARG002
        self._running -= 1
        return self._fill()

    def advance(self, *, now_s: float) -> Iterable[Order]:  # noqa: ARG002
        return ()

    def next_event_s(self) -> float | None:
        return None

    def _fill(self) -> Iterable[Order]:
        orders: list[Order] = []
        while self._waiting and self._running < self._seats:
            self._running += 1
            orders.append(Send(key=heapq.heappop(self._waiting)[1]))
        return orders
