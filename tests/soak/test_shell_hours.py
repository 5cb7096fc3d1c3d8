"""Does the whole proxy stand many hours, with a sleep in each, and pile nothing up?

At the end of each hour nobody has asked for forty minutes and all connections have ended. Then
there are the timers and tasks of the probes, and no others; and what the proxy holds does not grow
with the number of requests it has served.
"""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from giveway_admission.serving import Server

from tests.admission.data_plane import LOCAL
from tests.soak.holding import held_by
from tests.soak.invented_loop import InventedClock, InventedLoop, live
from tests.soak.shell_hours import Hours, settle, slow_engine

TIMERS = 8
"""The pauses of probe and watcher, and a few that will do nothing any more."""
TASKS = 3
"""The test's own, and a probe and a watcher of the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One quiet end of an hour."""

    objects: int
    timers: int
    tasks: int
    answered: int
    """By the proxy, since the start, in any way."""


def live_hours(
    hours: int, *, clients: int, tenants: int, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> tuple[list[Moment], Hours]:
    """So many hours; in the first two with four times the clients, so that all is full that is
    bounded."""
    clock = InventedClock()
    clock.patch(monkeypatch)
    moments: list[Moment] = []
    lived: list[Hours] = []

    async def main(loop: InventedLoop) -> None:
        async with slow_engine() as engine, Server(replace(LOCAL, upstream=engine.url)) as server:
            life = Hours(server, engine, clock, folder, tenants=tenants)
            for hour in range(hours):
                await life.hour(clients=clients * (4 if hour < 2 else 1))
                await settle(life)
                moments.append(
                    Moment(
                        objects=held_by(server, without=(loop,)).objects,
                        timers=loop.timers,
                        tasks=len(asyncio.all_tasks()),
                        answered=life.statuses.total(),
                    )
                )
            lived.append(life)

    live(clock, main)
    return moments, lived[0]


def assert_nothing_piles_up(moments: list[Moment], *, since: int, per_request: float) -> None:
    """From the hour `since` on. `per_request`: objects more for each request served meanwhile."""
    assert {each.tasks for each in moments} == {TASKS}, moments
    assert max(each.timers for each in moments) <= TIMERS, moments
    warm, last = moments[since - 1], moments[-1]
    more = last.objects - warm.objects
    assert more <= per_request * (last.answered - warm.answered), moments


def assert_was_eventful(life: Hours) -> None:
    """Most were answered; some were refused, some left."""
    assert life.statuses["200"] > 0.7 * life.statuses.total()
    assert min(life.statuses["429"], life.statuses["left"]) >= 5, life.statuses


@pytest.mark.slow
def test_hours_with_sleeps_leave_no_timer_no_task_and_no_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Five hours, the same twenty tenants all the time."""
    moments, life = live_hours(5, clients=30, tenants=20, monkeypatch=monkeypatch, folder=tmp_path)
    assert_nothing_piles_up(moments, since=2, per_request=0.7)
    assert_was_eventful(life)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_two_days_with_sleeps_leave_no_timer_no_task_and_no_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """48 hours, the same twenty tenants."""
    moments, life = live_hours(48, clients=20, tenants=20, monkeypatch=monkeypatch, folder=tmp_path)
    assert_nothing_piles_up(moments, since=24, per_request=0.2)
    assert_was_eventful(life)
