"""Short ways to set a scheduler up, drive it, and read what it decided."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from giveway_scheduler import (
    Abort,
    ClassName,
    ClassSettings,
    Concurrency,
    Decision,
    Dispatch,
    Evict,
    Expire,
    Kind,
    OverLimit,
    Reject,
    Request,
    RequestKey,
    Scheduler,
    Settings,
    Statistics,
    TenantName,
    Usage,
)

REALTIME = ClassSettings(
    name=ClassName("realtime"),
    kind=Kind.INTERACTIVE,
    weight=70.0,
    first_token_target_s=0.3,
    aging_base=100.0,
    aging_per_ms=0.05,
)
STANDARD = ClassSettings(
    name=ClassName("standard"),
    kind=Kind.INTERACTIVE,
    weight=25.0,
    first_token_target_s=1.0,
    aging_base=20.0,
    aging_per_ms=0.02,
)
BATCH = ClassSettings(
    name=ClassName("batch"),
    kind=Kind.BATCH,
    weight=5.0,
    over_limit=OverLimit.QUEUE,
    time_to_live_s=3600.0,
)
CLASSES = (REALTIME, STANDARD, BATCH)
"""The published three (H1-H6, A1, A2), without limits."""


def seats(count: int, **more: object) -> Concurrency:
    """So many seats, nothing reserved, batch may have all, no prompt gate; `more` changes that."""
    plain = Concurrency(seats=count, reserved_seats=0, batch_maximum=count, prompt_gate_tokens=None)
    return replace(plain, **more)  # type: ignore[arg-type]


def request(key: int, rank: int = 0, **more: object) -> Request:
    """A request of 10 prompt tokens by tenant `acme`; `more` changes that."""
    plain = Request(key=RequestKey(key), rank=rank, tenant=TenantName("acme"), prompt_tokens=10)
    return replace(plain, **more)  # type: ignore[arg-type]


def tenant(name: str) -> TenantName:
    """The tenant's name, as the scheduler types it."""
    return TenantName(name)


@dataclass(slots=True)
class Driver:
    """A scheduler with a hand on its clock, and all that it decided."""

    settings: Settings
    now_s: float = 0.0
    seed: int = 1
    scheduler: Scheduler = field(init=False)
    decisions: list[Decision] = field(default_factory=list)
    requests: dict[int, Request] = field(default_factory=dict)
    running: list[int] = field(default_factory=list)
    """Keys at the engine, in order of dispatch."""

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            self.settings, now_s=self.now_s, generator=random.Random(self.seed)
        )

    def offer(self, *requests: Request) -> list[Decision]:
        """Offer requests at this moment."""
        new: list[Decision] = []
        for each in requests:
            self.requests[each.key] = each
            new += self._note(self.scheduler.offer(each, now_s=self.now_s))
        return new

    def first_token(self, key: int) -> list[Decision]:
        return self._note(self.scheduler.first_token(RequestKey(key), now_s=self.now_s))

    def finish(self, key: int, *, output: int = 0, prompt: int | None = None) -> list[Decision]:
        """The request ends with the prompt it was offered with, or another one."""
        tokens = self.requests[key].prompt_tokens if prompt is None else prompt
        return self.end(key, Usage(prompt_tokens=tokens, output_tokens=output))

    def end(self, key: int, usage: Usage | None) -> list[Decision]:
        self._leave(key)
        return self._note(self.scheduler.finish(RequestKey(key), now_s=self.now_s, usage=usage))

    def cancel(self, key: int, usage: Usage | None = None) -> list[Decision]:
        self._leave(key)
        return self._note(self.scheduler.cancel(RequestKey(key), now_s=self.now_s, usage=usage))

    def requeue(self, key: int) -> list[Decision]:
        self._leave(key)
        return self._note(self.scheduler.requeue(RequestKey(key), now_s=self.now_s))

    def set_engine_available(self, available: bool) -> list[Decision]:
        return self._note(self.scheduler.set_engine_available(available, now_s=self.now_s))

    def report_preemptions(self, count: int) -> list[Decision]:
        return self._note(self.scheduler.report_preemptions(count, now_s=self.now_s))

    def configure(self, settings: Settings) -> list[Decision]:
        self.settings = settings
        return self._note(self.scheduler.configure(settings, now_s=self.now_s))

    def at(self, now_s: float) -> list[Decision]:
        """Go to this time in one step."""
        self.now_s = now_s
        return self._note(self.scheduler.advance(now_s=now_s))

    def until(self, now_s: float) -> list[Decision]:
        """Go to this time as a shell does: a step at each event that is announced."""
        return self.announced(now_s) + self.at(now_s)

    def announced(self, until_s: float) -> list[Decision]:
        """Make the steps that are announced up to this time, and stand at the last of them."""
        new: list[Decision] = []
        for _ in range(100_000):
            event_s = self.scheduler.next_event_s()
            if event_s is None or event_s > until_s:
                return new
            new += self.at(max(event_s, self.now_s))
        raise AssertionError("the scheduler announces events without end")

    def serve(self, *, output: int = 0, most: int = 10_000) -> list[int]:
        """End the longest running requests one after the other till none runs; all keys ended."""
        served: list[int] = []
        while self.running and len(served) < most:
            served.append(self.running[0])
            self.finish(self.running[0], output=output)
        return served

    def statistics(self) -> Statistics:
        return self.scheduler.statistics(now_s=self.now_s)

    def _note(self, decisions: Sequence[Decision]) -> list[Decision]:
        self.decisions += decisions
        for each in decisions:
            if isinstance(each, Dispatch):
                self.running.append(each.request.key)
            elif isinstance(each, Abort):
                self.running.remove(each.request.key)
        return list(decisions)

    def _leave(self, key: int) -> None:
        if key in self.running:
            self.running.remove(key)


def dispatched(decisions: Iterable[Decision]) -> list[int]:
    """Keys of the dispatches, in order."""
    return [each.request.key for each in decisions if isinstance(each, Dispatch)]


def rejected(decisions: Iterable[Decision]) -> list[int]:
    """Keys of the rejects, in order."""
    return [each.request.key for each in decisions if isinstance(each, Reject)]


def evicted(decisions: Iterable[Decision]) -> list[int]:
    """Keys of the evictions, in order."""
    return [each.request.key for each in decisions if isinstance(each, Evict)]


def expired(decisions: Iterable[Decision]) -> list[int]:
    """Keys of the expiries, in order."""
    return [each.request.key for each in decisions if isinstance(each, Expire)]
