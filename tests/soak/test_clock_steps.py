"""What if somebody sets the clock, or the machine sleeps?

Everything that is awaited is measured on the monotonic clock. The wall clock is used where a time
has to mean something to another process: in tickets on the disk, and in the log.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import giveway_admission
import giveway_policy
import giveway_scheduler
import pytest
from giveway_admission.serving import Server

from tests.admission.data_plane import running
from tests.admission.ticket_support import (
    desk,
    final,
    status,
    ticket,
    tickets_of,
    with_tickets,
    work,
)
from tests.soak.invented_loop import InventedClock, InventedLoop, live
from tests.support.policies import policy, service_class
from tests.support.raw_client import ask, chat_body, parse_head, request
from tests.support.scripted_engine import ScriptedEngine, chatting
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
DAY_S = 86_400.0
WALL_CLOCK = re.compile(r"time\.time\b|time_ns\(|datetime\.(now|utcnow|today)|CLOCK_REALTIME")
MAY_READ_IT = {"giveway_admission/ticket_offering.py"}


def stepped(clock: Callable[[], float], by_s: float) -> Callable[[], float]:
    return lambda: clock() + by_s


@pytest.mark.slow
@pytest.mark.parametrize("by_s", [-DAY_S, -1.0, DAY_S])
async def test_step_of_the_wall_clock_moves_no_waiting_ticket(by_s: float, tmp_path: Path) -> None:
    """It waits as long as it was promised, is served, and its client is told when to ask."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, policy(seats=1), settings=with_tickets(tmp_path)) as server,
    ):
        paths = [await ticket(server.data_url) for _ in range(2)]
        await until(lambda: engine.busy == 1, what="the first is at the engine")
        work(server).clock = stepped(work(server).clock, by_s)
        assert await status(server.data_url, paths[1]) == "queued"
        asked = await ask(server.data_url, paths[1])
        assert 1 <= int(asked.header("retry-after") or 0) <= 30
        gate.set()
        answers = [await final(server.data_url, path) for path in paths]
        assert [answer.status for answer in answers] == [200, 200]


@pytest.mark.slow
async def test_wall_clock_that_went_back_keeps_answers_no_longer_than_the_step_and_their_time(
    tmp_path: Path,
) -> None:
    """One answer was finished before the step, one after it; once the clock is where the first
    one's time is over, both are gone, and the clock was not asked again and again meanwhile."""
    kept_s = 5.0
    settings = with_tickets(tmp_path, ticket_retention_s=kept_s)
    looks = 0
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        clock = work(server).clock
        first = await ticket(server.data_url)
        assert (await final(server.data_url, first)).status == 200

        def counted() -> float:
            nonlocal looks
            looks += 1
            return clock() - 60.0

        work(server).clock = counted
        second = await ticket(server.data_url)
        assert (await final(server.data_url, second)).status == 200
        before = looks
        work(server)._forget_old()
        assert tickets_of(server).finished == 2, "neither has been kept for its time"
        assert looks <= before + 2
        work(server).clock = stepped(clock, kept_s + 1.0)
        work(server)._forget_old()
        assert tickets_of(server).finished == 0
        assert [(await ask(server.data_url, path)).status for path in (first, second)] == [404] * 2
        assert desk(server).statistics().bytes == 0


def test_nothing_but_tickets_reads_the_wall_clock() -> None:
    """So no step of it can move a bucket, a deadline, a probe or a boost."""
    found: set[str] = set()
    for package in (giveway_admission, giveway_policy, giveway_scheduler):
        assert package.__file__ is not None
        folder = Path(package.__file__).parent
        for path in folder.rglob("*.py"):
            if WALL_CLOCK.search(path.read_text()):
                found.add(str(path.relative_to(folder.parent)))
    assert found == MAY_READ_IT


@pytest.mark.slow
def test_after_an_hour_of_sleep_what_came_is_read_first_and_buckets_are_full_and_not_fuller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two are at the engine, which answered while the machine slept, two wait with time to live
    left, and one waits in vain: its time to live is over."""
    clock = InventedClock()
    clock.patch(monkeypatch)
    classes = [
        service_class("realtime", weight=70, time_to_live_s=60),
        service_class(
            "batch",
            kind="Batch",
            over_limit="Queue",
            time_to_live_s=7200,
            limits={"requestsPerSecond": 1, "requestBurst": 4},
        ),
    ]
    gate = asyncio.Event()

    async def main(loop: InventedLoop) -> None:
        async with (
            ScriptedEngine(chatting(gate=gate)) as engine,
            running(engine.url, tmp_path, policy(classes=classes, seats=2)) as server,
        ):
            tasks = [asyncio.create_task(client(server, "batch")) for _ in range(2)]
            await until(lambda: engine.busy == 2, what="two are at the engine")
            tasks += [asyncio.create_task(client(server, "batch")) for _ in range(2)]
            tasks += [asyncio.create_task(client(server, "realtime"))]
            await until(lambda: server.statistics().queued == 3, what="three wait")
            gate.set()
            clock.sleep_on(3600.0)
            assert await asyncio.gather(*tasks) == [200, 200, 200, 200, 504]
            batch = server.statistics().classes[1].requests
            assert batch is not None
            assert 2.0 <= batch.level <= batch.burst == 4.0

    live(clock, main)


async def client(server: Server, class_name: str) -> int:
    """Ask once, with endless patience; the answer's status."""
    headers = {"X-Giveway-Class": class_name, "Connection": "close"}
    url = urlsplit(server.data_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(request("POST", CHAT, body=chat_body(), headers=headers))
    head = parse_head(await reader.readuntil(b"\r\n\r\n"))
    await reader.read()
    writer.close()
    await writer.wait_closed()
    return head.status
