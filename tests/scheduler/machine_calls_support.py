"""What can be done to a scheduler?

Each call as a value, so that two schedulers and a model can be told the same.
"""

from dataclasses import dataclass
from typing import assert_never

from giveway_scheduler import Decision, Request, RequestKey, Scheduler, Settings, Usage


@dataclass(frozen=True, slots=True)
class Offer:
    request: Request


@dataclass(frozen=True, slots=True)
class FirstToken:
    key: RequestKey


@dataclass(frozen=True, slots=True)
class Finish:
    key: RequestKey
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Cancel:
    key: RequestKey
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Requeue:
    key: RequestKey


@dataclass(frozen=True, slots=True)
class EngineIs:
    available: bool


@dataclass(frozen=True, slots=True)
class Preempted:
    count: int


@dataclass(frozen=True, slots=True)
class Configure:
    settings: Settings


@dataclass(frozen=True, slots=True)
class Advance:
    pass


Call = Offer | FirstToken | Finish | Cancel | Requeue | EngineIs | Preempted | Configure | Advance


def perform(call: Call, scheduler: Scheduler, *, now_s: float) -> tuple[Decision, ...]:
    """Do it."""
    match call:
        case Offer(request):
            return scheduler.offer(request, now_s=now_s)
        case FirstToken(key):
            return scheduler.first_token(key, now_s=now_s)
        case Finish(key, usage):
            return scheduler.finish(key, now_s=now_s, usage=usage)
        case Cancel(key, usage):
            return scheduler.cancel(key, now_s=now_s, usage=usage)
        case Requeue(key):
            return scheduler.requeue(key, now_s=now_s)
        case EngineIs(available):
            return scheduler.set_engine_available(available, now_s=now_s)
        case Preempted(count):
            return scheduler.report_preemptions(count, now_s=now_s)
        case Configure(settings):
            return scheduler.configure(settings, now_s=now_s)
        case Advance():
            return scheduler.advance(now_s=now_s)
        case _:
            assert_never(call)
