"""Does it start and serve in the odd surroundings that a supervisor or a shell may give it?"""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.raw_client import ask, chat_body
from tests.support.scripted_engine import ScriptedEngine, chatting
from tests.support.waiting import until

CHAT = "/v1/chat/completions"


@contextlib.contextmanager
def _started(shell_redirections: str, *, port: int, upstream: str, log: Path) -> Iterator[int]:
    """`giveway serve` from a shell that closes or redirects its standard streams; its pid."""
    command = (
        f'exec "{sys.executable}" -m giveway_command.main serve --upstream {upstream} '
        f"--host 127.0.0.1 --port {port} --admin-host 127.0.0.1 --admin-port 0 "
        f"{shell_redirections}"
    )
    with log.open("wb") as stderr:
        process = subprocess.Popen(["/bin/sh", "-c", command], stderr=stderr)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


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
    port = _free_port()
    url = f"http://127.0.0.1:{port}"

    async def answers() -> bool:
        with contextlib.suppress(ConnectionError):
            return (await ask(url, CHAT, chat_body())).status == 200
        return False

    async with ScriptedEngine(chatting()) as engine:
        with _started(
            REDIRECTIONS[name], port=port, upstream=engine.url, log=tmp_path / "stderr"
        ) as pid:
            await until(answers, what="a request is answered")
            os.kill(pid, 0)
