"""How much memory do requests take while they wait?

A fresh process each time, warmed up by the same requests, then as many as wanted that the engine
does not answer. Proxies that queue get 16 seats, so nearly all wait in them; in the others all are
at the engine. At the end the engine answers, and everyone must get his answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from giveway_benchmarks.load_program import Group
from giveway_benchmarks.processes import pss_bytes
from giveway_benchmarks.proxies import Kind
from giveway_benchmarks.results import MemoryRow
from giveway_benchmarks.stands import CREDENTIALS, stand

_SEATS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLoad:
    """Requests that wait."""

    name: str
    title: str
    group: Group
    warm_requests: int


def _held(clients: int, body_bytes: int) -> Group:
    return Group(
        clients=clients, plan="hold", arrivals="once", body_bytes=body_bytes, headers=CREDENTIALS
    )


HELD_SMALL = HeldLoad(
    name="held-1000",
    title="1,000 requests of 2 KB held",
    group=_held(1000, 2048),
    warm_requests=64,
)
HELD_BIG = HeldLoad(
    name="held-big",
    title="100 requests of 10 MB held",
    group=_held(100, 10_000_000),
    warm_requests=2,
)
HELD_LOADS = {each.name: each for each in (HELD_SMALL, HELD_BIG)}


def measure_memory(
    kinds: Sequence[Kind], loads: Sequence[str], *, round_: str, realtime: bool
) -> Iterator[MemoryRow]:
    """One process for each row."""
    for name in loads:
        for kind in kinds:
            yield _measure(kind, HELD_LOADS[name], round_, realtime=realtime)


def _measure(kind: Kind, held: HeldLoad, round_: str, *, realtime: bool) -> MemoryRow:
    seats = _SEATS if kind.queues else 10_000
    with (
        stand([kind], seats=seats, realtime=realtime) as running,
        running.undisturbed(kind.name),
    ):
        port, pids = running.port(kind.name), running.pids(kind.name)
        warm = replace(held.group, plan="answer", clients=held.warm_requests)
        running.load.run([warm], port=port, warm_s=0.0, window_s=0.2, end_s=30)
        idle_bytes = pss_bytes(pids)
        now = running.load.hold([held.group], port=port, end_s=60)
        held_bytes = pss_bytes(running.pids(kind.name))
        answered = running.load.release()
    problems = dict(answered.groups[0].problems)
    if now.in_all != held.group.clients:
        problems["not_held"] = held.group.clients - now.in_all
    return MemoryRow(
        round=round_,
        proxy=kind.name,
        load=held.name,
        requests=now.in_all,
        in_engine=now.in_engine,
        idle_bytes=idle_bytes,
        held_bytes=held_bytes - idle_bytes,
        problems=problems,
    )
