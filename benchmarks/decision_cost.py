"""What does the scheduler cost for one request that goes at once?"""

import random
import time

from giveway_scheduler import (
    ClassName,
    ClassSettings,
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
CLASSES = (
    ClassSettings(
        name=ClassName("realtime"), kind=Kind.INTERACTIVE, weight=70, first_token_target_s=0.3
    ),
    ClassSettings(
        name=ClassName("standard"), kind=Kind.INTERACTIVE, weight=25, first_token_target_s=1.0
    ),
    ClassSettings(name=ClassName("batch"), kind=Kind.BATCH, weight=5, over_limit=OverLimit.QUEUE),
)


def cost_us(rank: int) -> float:
    """Thread CPU time of one request's whole way, in microseconds."""
    scheduler = Scheduler(Settings(classes=CLASSES), now_s=0.0, generator=random.Random(1))
    tenant, usage = TenantName("acme"), Usage(prompt_tokens=500, output_tokens=20)
    began_s = time.thread_time()
    for number in range(REQUESTS):
        key, now_s = RequestKey(number), number * 0.001
        request = Request(
            key=key, rank=rank, tenant=tenant, prompt_tokens=500, name=f"request-{number}"
        )
        scheduler.offer(request, now_s=now_s)
        scheduler.next_event_s()
        scheduler.first_token(key, now_s=now_s)
        scheduler.next_event_s()
        scheduler.finish(key, now_s=now_s, usage=usage)
        scheduler.next_event_s()
    return (time.thread_time() - began_s) / REQUESTS * 1e6


if __name__ == "__main__":
    for rank, each in enumerate(CLASSES):
        print(f"{each.name:10} {min(cost_us(rank) for _ in range(ROUNDS)):6.1f} us a request")
