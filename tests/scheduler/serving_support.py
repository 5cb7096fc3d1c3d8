"""A server with seats and known service times, under a scheduler, in invented time."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from giveway_scheduler import Decision, Dispatch, Expire, Request

from tests.scheduler.driving import Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One request that was served to its end."""

    request: Request
    dispatched_s: float
    finished_s: float
    output_tokens: int
    waited_s: float


@dataclass(slots=True)
class Server:
    """Serves what the scheduler dispatches; the scheduler says how many at once."""

    driver: Driver
    service_s: Callable[[Request], float]
    output_tokens: Callable[[Request], int] = lambda request: request.maximum_output_tokens or 0
    on_served: Callable[[Served], Iterable[Request]] = lambda served: ()
    """What arrives because a request has ended: a backlog that never shrinks."""
    served: list[Served] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    _ends: list[tuple[float, int, float, Dispatch]] = field(default_factory=list)
    """Heap of (end, key, start, dispatch)."""

    def run(
        self, arrivals: Iterable[tuple[float, Request]] = (), *, until_s: float = 1e12
    ) -> list[Served]:
        """Serve these arrivals, given in order of time, until all is done or `until_s`."""
        coming = deque(arrivals)
        while coming or self._ends:
            end_s = self._ends[0][0] if self._ends else float("inf")
            arrival_s = coming[0][0] if coming else float("inf")
            at_s = min(end_s, arrival_s)
            if at_s > until_s:
                break
            self._follow(self.driver.until(at_s))
            if end_s <= arrival_s:
                self._end()
            else:
                self._follow(self.driver.offer(coming.popleft()[1]))
        return self.served

    def start_with(self, *requests: Request) -> None:
        """All these have arrived before the first of them may go."""
        self._follow(self.driver.set_engine_available(False))
        self._follow(self.driver.offer(*requests))
        self._follow(self.driver.set_engine_available(True))

    def _end(self) -> None:
        at_s, key, start_s, dispatch = heappop(self._ends)
        output = self.output_tokens(dispatch.request)
        self.served.append(
            Served(
                request=dispatch.request,
                dispatched_s=start_s,
                finished_s=at_s,
                output_tokens=output,
                waited_s=dispatch.waited_s,
            )
        )
        self._follow(self.driver.finish(key, output=output))
        self._follow(self.driver.offer(*self.on_served(self.served[-1])))

    def _follow(self, decisions: Iterable[Decision]) -> None:
        for each in decisions:
            if isinstance(each, Dispatch):
                request = each.request
                start_s = self.driver.now_s
                end_s = start_s + self.service_s(request)
                heappush(self._ends, (end_s, request.key, start_s, each))
                self._follow(self.driver.first_token(request.key))
            elif isinstance(each, Expire):
                self.expired.append(each.request.key)
