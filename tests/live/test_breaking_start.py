"""Does it start and serve in the odd surroundings that a supervisor or a shell may give it?"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import ask, chat_body
from tests.support.scripted_engine import ScriptedEngine, chatting
from tests.support.vllm_answers import DONE
from tests.support.waiting import until

CHAT = "/v1/chat/completions"


@contextlib.contextmanager
def _started(shell_redirections: str, *, upstream: str, log: Path) -> Iterator[int]:
    """`giveway serve` from a shell that closes or redirects its standard streams; its pid."""
    command = (
        f'exec "{sys.executable}" -m giveway_command.main serve --upstream {upstream} '
        f"--host 127.0.0.1 --port 0 --admin-host 127.0.0.1 --admin-port 0 "
        f"{shell_redirections}"
    )
    with log.open("wb") as stderr:
        process = subprocess.Popen(["/bin/sh", "-c", command], stderr=stderr)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _ports(pid: int) -> list[int]:
    """Where it listens: it may not be able to say so."""
    listed = psutil.Process(pid).net_connections("tcp4")
    return [each.laddr.port for each in listed if each.status == psutil.CONN_LISTEN]


REDIRECTIONS = {
    "stdout closed": ">&-",
    "all closed": "<&- >&- 2>&-",
    "stdout full": ">/dev/full",
    "stderr full": ">/dev/null 2>/dev/full",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REDIRECTIONS)
async def test_it_serves_whatever_became_of_its_standard_streams(name: str, tmp_path: Path) -> None:
    """Closed or full standard streams cost the ready line and the log, never the service."""

    async def answers(pid: int) -> bool:
        asked = [await ask(f"http://127.0.0.1:{port}", CHAT, chat_body()) for port in _ports(pid)]
        return 200 in [each.status for each in asked]

    async with ScriptedEngine(chatting()) as engine:
        with _started(REDIRECTIONS[name], upstream=engine.url, log=tmp_path / "stderr") as pid:
            await until(lambda: answers(pid), what="a request is answered")
            os.kill(pid, 0)


@pytest.mark.slow
def test_with_too_few_files_it_says_so_and_does_not_start() -> None:
    """Instead of a proxy that accepts nobody and calls its engine down."""
    serve = f'exec "{sys.executable}" -m giveway_command.main serve --upstream http://127.0.0.1:1'
    command = ["/bin/sh", "-c", f"ulimit -n 64; {serve}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "only 64 files may be open" in ended.stderr


@pytest.mark.slow
async def test_sighup_ends_nothing_of_a_service(start_proxy: ProxyStarter) -> None:
    """What asks servers to read their configuration again cuts no stream; SIGTERM still ends it."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url)
        running = asyncio.create_task(ask(proxy.url, CHAT, chat_body(stream=True)))
        await until(lambda: engine.busy == 1, what="a stream runs")
        proxy.signal(signal.SIGHUP)
        proxy.signal(signal.SIGHUP)
        await until(lambda: "SIGHUP" in proxy.stderr, what="it is told")
        gate.set()
        assert (await running).body.endswith(DONE)
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200
        assert await proxy.stop() == 0
