"""Does it start and serve in the odd surroundings that a supervisor or a shell may give it?"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.raw_client import ask, chat_body
from tests.support.scripted_engine import ScriptedEngine, chatting
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
