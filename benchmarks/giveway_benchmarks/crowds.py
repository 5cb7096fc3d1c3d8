"""Does giveway stand crowds?

*waiting*: 1,000 streams hold all seats and 10,000 clients wait (fewer if this machine allows fewer
open files, of which a client may need two); then the streams end, and everyone gets his answer.
*overload*: twenty times what the engine can do, for a minute, nearly all of it of a lower class;
*calm* is the top class alone, so that the two can be compared. *refusals*: seats and queue are
full, and 64 clients ask again as soon as they are refused: what a refusal costs.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from giveway_benchmarks.load_program import Group, RunResult
from giveway_benchmarks.processes import allow_files, pss_bytes
from giveway_benchmarks.proxies import FILES, Kind
from giveway_benchmarks.results import CrowdRow
from giveway_benchmarks.rivals import GIVEWAY, GIVEWAY_OVERLOAD
from giveway_benchmarks.stands import CREDENTIALS, stand

_ENGINE_US = 80_000
_SEATS_OF_OVERLOAD = 8
"""With 80 ms for a request the engine does 100 a second."""
CAPACITY_PER_S = _SEATS_OF_OVERLOAD * 1_000_000 // _ENGINE_US
OVERLOAD = 20
_TOP_PER_S = 20.0
"""Two of them at once at most, so they never wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Some groups at once."""

    name: str
    kind: Kind
    seats: int
    groups: dict[str, Group]
    warm_s: float
    window_s: float
    awake: bool = False


_WAITING = min(10_000, allow_files(FILES) // 2 - 1_000 - 200)


def _of_class(name: str) -> dict[str, str]:
    return {**CREDENTIALS, "X-Giveway-Class": name}


_TOP = Group(
    clients=200,
    plan="answer_later",
    engine_us=_ENGINE_US,
    arrivals="open",
    requests_per_s=_TOP_PER_S,
    headers=_of_class("realtime"),
)
WAITING = Crowd(
    name="waiting",
    kind=GIVEWAY,
    seats=1000,
    groups={
        "1,000 streams": Group(
            clients=1000,
            plan="stream",
            arrivals="once",
            tokens="spread",
            tokens_per_s=5.0,
            headers=_of_class("realtime"),
        ),
        f"{_WAITING:,} waiting": Group(
            clients=_WAITING, plan="answer", arrivals="once", headers=_of_class("standard")
        ),
    },
    warm_s=10.0,
    window_s=10.0,
)
CALM = Crowd(
    name="calm",
    kind=GIVEWAY_OVERLOAD,
    seats=_SEATS_OF_OVERLOAD,
    groups={"realtime": _TOP},
    warm_s=1.0,
    window_s=15.0,
)
OVERLOADED = Crowd(
    name="overload",
    kind=GIVEWAY_OVERLOAD,
    seats=_SEATS_OF_OVERLOAD,
    groups={
        "realtime": _TOP,
        "standard": replace(
            _TOP,
            clients=2000,
            requests_per_s=OVERLOAD * CAPACITY_PER_S - _TOP_PER_S,
            headers=_of_class("standard"),
        ),
    },
    warm_s=1.0,
    window_s=60.0,
)
_STANDARD = _of_class("standard")
REFUSALS = Crowd(
    name="refusals",
    kind=GIVEWAY_OVERLOAD,
    seats=_SEATS_OF_OVERLOAD,
    groups={
        "holding": Group(clients=56, plan="hold", arrivals="once", headers=_STANDARD),
        "refused": Group(clients=64, plan="answer", headers=_STANDARD),
    },
    warm_s=1.0,
    window_s=3.0,
    awake=True,
)
"""56: the 6 seats that are not reserved, and the queue of 50."""
CROWDS = {each.name: each for each in (WAITING, CALM, OVERLOADED, REFUSALS)}
_REFUSING = frozenset({OVERLOADED.name, REFUSALS.name})


def measure_crowds(
    names: Sequence[str], *, round_: str, speed: float, realtime: bool
) -> Iterator[CrowdRow]:
    """A fresh process for each."""
    for name in names:
        crowd = CROWDS[name]
        with stand([crowd.kind], seats=crowd.seats, realtime=realtime) as running:
            pids = running.pids(crowd.kind.name)
            with running.undisturbed(crowd.kind.name):
                running.load.begin(
                    list(crowd.groups.values()),
                    port=running.port(crowd.kind.name),
                    pids=pids,
                    warm_s=crowd.warm_s,
                    window_s=crowd.window_s * speed,
                    end_s=60,
                    awake=crowd.awake,
                )
                time.sleep(crowd.warm_s + crowd.window_s * speed / 2)
                memory = pss_bytes(pids)
                result = running.load.result()
        yield from _rows(crowd, result, memory, round_)


def _rows(crowd: Crowd, result: RunResult, memory: int, round_: str) -> Iterator[CrowdRow]:
    for (name, wanted), group in zip(crowd.groups.items(), result.groups, strict=True):
        problems = dict(group.problems)
        refused = problems.pop("refused", 0)
        if crowd.name not in _REFUSING and refused:
            problems["refused"] = refused
        if wanted.arrivals == "once" and group.all_answers != wanted.clients:
            problems["not_answered"] = wanted.clients - group.all_answers
        yield CrowdRow(
            round=round_,
            crowd=crowd.name,
            group=name,
            answers_per_s=group.answers / result.window_s,
            tokens_per_s=group.tokens / result.window_s,
            all_answers=group.all_answers,
            refused=group.refusals.count,
            refusals_per_s=group.refusals.count / result.window_s,
            p50_us=group.delays.p50_us,
            p99_us=group.delays.p99_us,
            refusal_p50_us=group.refusals.p50_us,
            refusal_p99_us=group.refusals.p99_us,
            cpu_share=result.cpu_s / result.window_s,
            pss_bytes=memory,
            problems=problems,
        )
