"""What do clients see who send these requests at these times? An open-loop load over HTTP.

Open loop: every request goes out when it is due, however slow the answers are, and its latency
counts from the due time; a client that waited for the last answer would hide exactly the queue
that is to be measured. A closed loop keeps a number of requests in flight, to probe capacity.

What always holds: every planned request ends in exactly one `Ending`; at the end of the window what
is still open is closed; no task and no socket stays.
"""

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from giveway_simulation.load_client import LoadClient
from giveway_simulation.load_records import Ending, Measured, PlannedRequest

MAXIMUM_OPEN = 2000
"""Requests in flight at once; more are recorded as not sent instead of exhausting sockets."""
_FAILURES_IN_A_ROW = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCost:
    """What the client itself cost: if it is near one core, it measured itself."""

    wall_s: float
    cpu_s: float
    latest_send_s: float
    """How late the latest request left, from its due time: the client's own delay."""

    @property
    def cores(self) -> float:
        """Share of one CPU core."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0


async def run_open_loop(
    client: LoadClient,
    plan: Sequence[PlannedRequest],
    *,
    window_s: float,
    record: list[Measured],
    on_start: Callable[[float], None] = lambda _zero_s: None,
) -> LoadCost:
    """Send the plan, stop `window_s` after the start, close what is open.

    `record` gets one `Measured` a planned request, at once and in the order of `plan`; it may be
    read while the load runs. `on_start` hears what `time.monotonic` said at 0.
    """
    _allow_many_sockets()
    loop = asyncio.get_running_loop()
    measureds = [Measured(planned=planned) for planned in plan]
    requests = [client.prepare(planned) for planned in plan]
    began_cpu_s = time.process_time()
    zero_s = time.monotonic()
    record.extend(measureds)
    on_start(zero_s)
    tasks: set[asyncio.Task[None]] = set()

    def launch(measured: Measured, request: bytes) -> None:
        if len(tasks) >= MAXIMUM_OPEN:
            measured.ending, measured.end_s = Ending.NOT_SENT, time.monotonic() - zero_s
            return
        task = loop.create_task(client.ask(measured, zero_s=zero_s, request=request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    timers = [
        loop.call_later(measured.planned.due_s, launch, measured, request)
        for measured, request in zip(measureds, requests, strict=True)
        if measured.planned.due_s < window_s
    ]
    try:
        await asyncio.sleep(window_s)
    finally:
        for timer in timers:
            timer.cancel()
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        _close_the_books(record, end_s=time.monotonic() - zero_s)
    delays = [m.sent_s - m.planned.due_s for m in record if m.sent_s is not None]
    return LoadCost(
        wall_s=time.monotonic() - zero_s,
        cpu_s=time.process_time() - began_cpu_s,
        latest_send_s=max(delays, default=0.0),
    )


async def run_closed_loop(
    client: LoadClient,
    requests: Iterator[PlannedRequest],
    *,
    in_flight: int,
    window_s: float,
    record: list[Measured],
) -> None:
    """Keep `in_flight` requests running for `window_s`; `due_s` of each is when it was sent.

    Ends early when `requests` is used up and answered, and when the engine refuses or fails eight
    requests in a row, which would turn a closed loop into a storm.
    """
    _allow_many_sockets()
    loop = asyncio.get_running_loop()
    zero_s = time.monotonic()
    failures = 0

    async def work() -> None:
        nonlocal failures
        for planned in requests:
            request = client.prepare(planned)
            measured = Measured(planned=replace(planned, due_s=time.monotonic() - zero_s))
            record.append(measured)
            await client.ask(measured, zero_s=zero_s, request=request)
            failures = 0 if measured.ending is Ending.COMPLETED else failures + 1
            if failures >= _FAILURES_IN_A_ROW:
                return

    tasks = [loop.create_task(work()) for _ in range(in_flight)]
    try:
        await asyncio.wait(tasks, timeout=window_s)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _close_the_books(record, end_s=time.monotonic() - zero_s)


def _close_the_books(record: Sequence[Measured], *, end_s: float) -> None:
    for measured in record:
        if measured.ending is None:
            measured.ending, measured.end_s = Ending.UNFINISHED, end_s


def _allow_many_sockets() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAXIMUM_OPEN + 256
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
