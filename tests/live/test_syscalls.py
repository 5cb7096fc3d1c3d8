"""How many system calls does the proxy make for one chunk, and for one request?

The kernel's part is nearly all of what a chunk costs, and it can be counted exactly on any machine:
one read and one write for a chunk, two of each for a request, and a share of the loop's wait.
Counted with strace while a small C program keeps the proxy saturated (`lockstep.c`).
"""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.support.lockstep import CLIENTS, Lockstep, compile_lockstep
from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.alone]

WARM = 2_000
COUNTED = 20_000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled load. Without strace nothing here is proved, so that is a failure."""
    if shutil.which("strace") is None:
        pytest.fail("strace is not installed: system calls can't be counted")
    return compile_lockstep(tmp_path_factory.mktemp("lockstep"))


@pytest.fixture
def load(program: Path, request: pytest.FixtureRequest) -> Iterator[Lockstep]:
    running = Lockstep(program, request.param)
    yield running
    running.stop()


async def calls_per_unit(load: Lockstep, pid: int, folder: Path) -> tuple[float, str]:
    """System calls of `pid` for each thing that the clients read; and strace's table."""
    await until(lambda: load.count() >= WARM, what="the load is warm")
    table, log = folder / "strace.table", folder / "strace.log"
    with log.open("wb") as stderr:
        tracer = _attach(pid, table, stderr)
    try:
        await until(
            lambda: "attached" in log.read_text() or tracer.poll() is not None,
            what="strace is attached",
        )
        assert tracer.poll() is None, f"strace can't attach: {log.read_text()}"
        start = load.count()
        await until(lambda: load.count() >= start + COUNTED, what="counted", within_s=60)
        tracer.send_signal(signal.SIGINT)
        units = load.count() - start
        tracer.wait(timeout=20)
    finally:
        if tracer.poll() is None:
            tracer.kill()
            tracer.wait()
    text = table.read_text()
    return _calls(text) / units, text


def _attach(pid: int, table: Path, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    command = ["strace", "-c", "-f", "-p", str(pid), "-o", str(table)]
    return subprocess.Popen(command, stderr=stderr)


def _calls(table: str) -> int:
    """All calls: the fourth column of the line `total`."""
    (total,) = (line for line in table.splitlines() if line.rstrip().endswith("total"))
    return int(total.split()[3])


@pytest.mark.parametrize("load", ["stream"], indirect=True)
async def test_a_chunk_costs_two_system_calls(
    start_proxy: ProxyStarter, load: Lockstep, tmp_path: Path
) -> None:
    """64 streams in lock step, nothing coalesced: at most 2.1 calls a chunk."""
    upstream = f"http://127.0.0.1:{load.engine_port}"
    proxy = await start_proxy(upstream, documents=[policy(seats=2 * CLIENTS)])
    load.start(proxy.url)
    each, table = await calls_per_unit(load, proxy.pid, tmp_path)
    load.stop()
    assert each <= 2.1, table


@pytest.mark.parametrize("load", ["plain"], indirect=True)
async def test_a_request_costs_four_system_calls(
    start_proxy: ProxyStarter, load: Lockstep, tmp_path: Path
) -> None:
    """64 clients in closed loop, connections kept: at most 4.2 calls a request."""
    upstream = f"http://127.0.0.1:{load.engine_port}"
    proxy = await start_proxy(upstream, documents=[policy(seats=2 * CLIENTS)])
    load.start(proxy.url)
    each, table = await calls_per_unit(load, proxy.pid, tmp_path)
    load.stop()
    assert each <= 4.2, table
