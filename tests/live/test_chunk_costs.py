"""Is anything of the event loop made anew for a chunk?

A future, a task and a callback for each chunk are what makes the usual proxy slow in a burst: all
sockets are read first, then all tasks run, then all writes go out. Here the proxy runs inside the
test, on a loop that counts what it makes, while a C program keeps 64 streams in lock step.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path

import pytest
from giveway_admission.serving import Server
from giveway_admission.settings import ProxySettings

from tests.support.lockstep import CLIENTS, Lockstep, compile_lockstep
from tests.support.policies import policy, write_policy
from tests.support.waiting import until

WARM = 2_000
COUNTED = 20_000


class Counting:
    """Counts the tasks and futures that a loop makes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.made = 0
        self._make_future = loop.create_future
        loop.create_future = self._future  # type: ignore[method-assign]
        loop.set_task_factory(self._task)  # type: ignore[arg-type]

    def _future(self) -> asyncio.Future[object]:
        self.made += 1
        return self._make_future()

    def _task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[object, object, object],
        **options: object,
    ) -> asyncio.Task[object]:
        self.made += 1
        return asyncio.Task(coroutine, loop=loop, **options)  # type: ignore[arg-type]


@pytest.mark.slow
async def test_no_task_and_no_future_is_made_for_a_chunk(tmp_path: Path) -> None:
    """20,000 chunks in lock step: the loop makes less than one task or future in a hundred."""
    load = Lockstep(compile_lockstep(tmp_path), "stream")
    settings = ProxySettings(
        upstream=f"http://127.0.0.1:{load.engine_port}",
        policy=write_policy(tmp_path, policy(seats=2 * CLIENTS)),
        host="127.0.0.1",
        port=0,
        admin_host="127.0.0.1",
        admin_port=0,
    )
    async with Server(settings) as server:
        load.start(server.data_url)
        await until(lambda: load.count() >= WARM, what="the load is warm")
        counting = Counting(asyncio.get_running_loop())
        start = load.count()
        await until(lambda: load.count() >= start + COUNTED, what="counted", within_s=60)
        made, chunks = counting.made, load.count() - start
        load.stop()
    assert chunks >= COUNTED
    assert made < chunks / 100
