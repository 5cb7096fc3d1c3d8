"""What does the scheduler cost for one request, from its offer to its end?

Two cases: a request that finds a seat at once, and one that stands behind a hundred others. To
compare two versions, run this file with each of them in turn (`PYTHONPATH=tree/admission`) and
compare the least times.
"""

import random
import time
from collections import deque
from collections.abc import Sequence

from giveway_scheduler import (
    ClassName,
    ClassSettings,
    Decision,
    Dispatch,
    Kind,
    OverLimit,
    Request,
    RequestKey,
    Scheduler,
    Settings,
    TenantName,
    Usage,
)

REQUESTS = 20_000
ROUNDS = 5
QUEUED = 100
CLASSES = (
    ClassSettings(
        name=ClassName("realtime"), kind=Kind.INTERACTIVE, weight=70, first_token_target_s=0.3
    ),
    ClassSettings(
        name=ClassName("standard"), kind=Kind.INTERACTIVE, weight=25, first_token_target_s=1.0
    ),
    ClassSettings(name=ClassName("batch"), kind=Kind.BATCH, weight=5, over_limit=OverLimit.QUEUE),
)
USAGE = Usage(prompt_tokens=500, output_tokens=20)


def request(number: int, rank: int) -> Request:
    """One of many alike."""
    return Request(
        key=RequestKey(number),
        rank=rank,
        tenant=TenantName("acme"),
        prompt_tokens=500,
        name=f"request-{number}",
    )


def cost_us(rank: int, *, queued: int) -> float:
    """Thread CPU time of one request's whole way, in microseconds, with so many before it."""
    scheduler = Scheduler(Settings(classes=CLASSES), now_s=0.0, generator=random.Random(1))
    running: deque[RequestKey] = deque()

    def note(decisions: Sequence[Decision]) -> None:
        for each in decisions:
            assert isinstance(each, Dispatch)
            running.append(each.request.key)

    offered = 0
    while queued and offered < len(running) + queued:
        note(scheduler.offer(request(offered, rank), now_s=0.0))
        offered += 1
    requests = [request(number, rank) for number in range(offered, offered + REQUESTS)]
    began_s = time.thread_time()
    for number, each in enumerate(requests):
        now_s = number * 0.001
        note(scheduler.offer(each, now_s=now_s))
        scheduler.next_event_s()
        key = running.popleft()
        note(scheduler.first_token(key, now_s=now_s))
        scheduler.next_event_s()
        note(scheduler.finish(key, now_s=now_s, usage=USAGE))
        scheduler.next_event_s()
    return (time.thread_time() - began_s) / REQUESTS * 1e6


if __name__ == "__main__":
    for rank, each in enumerate(CLASSES):
        for queued in (0, QUEUED):
            least_us = min(cost_us(rank, queued=queued) for _ in range(ROUNDS))
            print(f"{each.name:10} {queued:4} queued {least_us:6.1f} us a request")
