"""What does a decision cost?

A `Bench` is a scheduler with so many requests queued from so many tenants, and things to do to it
that leave it as full as it was. Looking for the next event is part of every cost, as the shell does
it after each call. Costs are CPU time of this thread, without the garbage collector;
what is compared is the median of ratios of rounds that follow each other at once, so that a
neighbour that slows the machine down slows both.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from giveway_scheduler import (
    Algorithm,
    ClassName,
    ClassSettings,
    Concurrency,
    Decision,
    Dispatch,
    Kind,
    Limits,
    OverLimit,
    Request,
    RequestKey,
    Scheduler,
    Settings,
    TenantName,
    TenantSettings,
    Usage,
)

STEPS = 200
"""Things done in one round."""
ROUNDS = 9
STEP_S = 0.0001
LONG_S = 1e6

_CLASS = ClassSettings(
    name=ClassName("realtime"),
    kind=Kind.INTERACTIVE,
    weight=70.0,
    queue_capacity=10**6,
    time_to_live_s=LONG_S,
)
CLASSES = (
    _CLASS,
    replace(_CLASS, name=ClassName("standard"), weight=25.0, first_token_target_s=1000.0),
    replace(
        _CLASS,
        name=ClassName("batch"),
        weight=5.0,
        kind=Kind.BATCH,
        over_limit=OverLimit.QUEUE,
    ),
    replace(
        _CLASS,
        name=ClassName("limited"),
        kind=Kind.BATCH,
        limits=Limits(requests_per_s=1e-9, request_burst=1.0),
        over_limit=OverLimit.REJECT,
    ),
)
LIMITED = 3
SEATS = 16
HELD = TenantSettings(limits=Limits(requests_per_s=0.0))


@dataclass(slots=True)
class Bench:
    """A scheduler with `queued` requests of `tenants` tenants in three classes.

    Besides them, `held` tenants have one request each that their own limit keeps.
    """

    algorithm: Algorithm
    queued: int
    tenants: int
    held: int = 0
    classes: tuple[ClassSettings, ...] = CLASSES
    scheduler: Scheduler = field(init=False)
    now_s: float = 0.0
    keys: int = 0
    waiting: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Where in `waiting` each key stands, so that any can be taken out at once."""
    running: dict[int, None] = field(default_factory=dict)
    generator: random.Random = field(default_factory=lambda: random.Random(5))

    def __post_init__(self) -> None:
        settings = Settings(
            classes=self.classes,
            algorithm=self.algorithm,
            concurrency=Concurrency(
                seats=SEATS, reserved_seats=2, batch_maximum=8, prompt_gate_tokens=10**9
            ),
            tenants={_held(number): HELD for number in range(self.held)},
            queue_capacity=self.queued + self.held,
            queue_bytes=2**60,
            idle_tenants=2 * self.tenants,
        )
        self.scheduler = Scheduler(settings, now_s=0.0, generator=random.Random(1))
        self.offer(LIMITED)  # takes the only permit
        for number in range(self.held):
            self.offer(2, tenant=_held(number))
        assert self.scheduler.statistics(now_s=0.0).queued == self.held
        self.waiting.clear()
        self.places.clear()
        while len(self.waiting) < self.queued:
            self.offer(self.keys % 3)

    def offer(
        self, rank: int, *, patience_s: float | None = None, tenant: TenantName | None = None
    ) -> None:
        """One more request."""
        self.keys += 1
        key = self.keys
        request = Request(
            key=RequestKey(key),
            rank=rank,
            tenant=tenant or TenantName(f"tenant-{key % self.tenants}"),
            prompt_tokens=self.generator.randrange(10, 2000),
            maximum_output_tokens=100,
            patience_s=patience_s,
        )
        self.places[key] = len(self.waiting)
        self.waiting.append(key)
        self._follow(self.scheduler.offer(request, now_s=self.now_s))

    def serve(self) -> None:
        """A request ends, the next is dispatched, and one arrives."""
        key = next(iter(self.running))
        del self.running[key]
        usage = Usage(prompt_tokens=100, output_tokens=50)
        self.scheduler.first_token(RequestKey(key), now_s=self.now_s)
        self._follow(self.scheduler.finish(RequestKey(key), now_s=self.now_s, usage=usage))
        self.offer(self.keys % 3)

    def cancel(self) -> None:
        """A client in the middle of the queue leaves, and another comes."""
        self._cancel_any()
        self.offer(self.keys % 3)

    def _cancel_any(self) -> None:
        self._cancel(self.waiting[self.generator.randrange(len(self.waiting))])

    def _cancel(self, key: int) -> None:
        self._drop(key)
        self._follow(self.scheduler.cancel(RequestKey(key), now_s=self.now_s))

    def requeue(self) -> None:
        """The engine can't be reached for the newest request, and is back at once."""
        key = next(reversed(self.running))
        del self.running[key]
        self.places[key] = len(self.waiting)
        self.waiting.append(key)
        self._follow(self.scheduler.set_engine_available(False, now_s=self.now_s))
        self._follow(self.scheduler.requeue(RequestKey(key), now_s=self.now_s))
        self._follow(self.scheduler.set_engine_available(True, now_s=self.now_s))

    def refuse(self) -> None:
        """The queue is full, and the newcomer is of the lowest class that waits."""
        self.offer(2)

    def displace(self) -> None:
        """The queue is full, and the newcomer is of the highest class; then all is as before."""
        self.offer(0)
        self._cancel(self.keys)
        self.offer(2)

    def refuse_by_rate(self) -> None:
        """The class has no permit left."""
        self.offer(LIMITED)

    def expire(self) -> None:
        """A client without patience comes in the place of another, and its time is over."""
        self._cancel_any()
        self.offer(1, patience_s=STEP_S / 2)
        self.now_s += STEP_S
        self._follow(self.scheduler.advance(now_s=self.now_s))
        self.offer(1)

    def _follow(self, decisions: tuple[Decision, ...]) -> None:
        for each in decisions:
            self._drop(each.request.key)
            if isinstance(each, Dispatch):
                self.running[each.request.key] = None
        self.scheduler.next_event_s()

    def _drop(self, key: int) -> None:
        """Take the key out of those that wait; the last one stands in its place then."""
        place = self.places.pop(key, None)
        if place is None:
            return
        last = self.waiting.pop()
        if last != key:
            self.waiting[place] = last
            self.places[last] = place


def _held(number: int) -> TenantName:
    return TenantName(f"held-{number}")


def doings(bench: Bench) -> dict[str, Callable[[], None]]:
    """All that is measured, by name."""
    return {
        "serve": bench.serve,
        "requeue": bench.requeue,
        "cancel": bench.cancel,
        "refuse": bench.refuse,
        "displace": bench.displace,
        "refuse by rate": bench.refuse_by_rate,
        "expire": bench.expire,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Medians over the rounds."""

    small_us: float
    large_us: float
    ratio: float


def compare(small: Bench, large: Bench, doing: str) -> Costs:
    """What `doing` costs once on either."""
    pair = (doings(small)[doing], doings(large)[doing])
    with without_collector():
        _cost_us(small, pair[0])
        _cost_us(large, pair[1])
        rounds = [(_cost_us(small, pair[0]), _cost_us(large, pair[1])) for _ in range(ROUNDS)]
    return Costs(
        small_us=statistics.median(small_us for small_us, _ in rounds),
        large_us=statistics.median(large_us for _, large_us in rounds),
        ratio=statistics.median(large_us / small_us for small_us, large_us in rounds),
    )


def _cost_us(bench: Bench, do: Callable[[], None]) -> float:
    start_s = time.thread_time()
    for _ in range(STEPS):
        bench.now_s += STEP_S
        do()
    return (time.thread_time() - start_s) * 1e6 / STEPS


@contextmanager
def without_collector() -> Iterator[None]:
    """No garbage collection inside, whatever was allocated before."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
