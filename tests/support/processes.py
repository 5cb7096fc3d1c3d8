"""How does a test run giveway as the process that users run?

`giveway serve` and `giveway emulate` as child processes: started with the interpreter of the test,
awaited by their ready line, ended without leaving anything behind. Output goes to files, so that no
pipe can fill up and a failed test can show it.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import psutil

from tests.support.waiting import until

START_S = 120.0
"""A start takes half a second of CPU; a machine that is busy with other things may take this long
for it. One that fails ends the wait at once."""
STOP_S = 30.0

_SERVE_READY = re.compile(r"^data (http://\S+) admin (http://\S+)$", re.MULTILINE)
_EMULATE_READY = re.compile(r"^listening on (http://\S+)$", re.MULTILINE)


class GivewayProcess:
    """A running `giveway` command, an async context manager: leaving it kills the process."""

    def __init__(
        self, *arguments: str, logs: Path, name: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.arguments = arguments
        self.name = name
        self.stdout_path = logs / f"{name}.stdout"
        self.stderr_path = logs / f"{name}.stderr"
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._lines_seen = 0
        self._stdout_start = 0

    async def start(self, ready: re.Pattern[str]) -> re.Match[str]:
        """Start, and wait for the line that says it is ready."""
        self.spawn()
        match = await until(
            lambda: self._ready_or_dead(ready), what=f"{self.name} is ready", within_s=START_S
        )
        assert match is not None
        return match

    def spawn(self) -> None:
        """Start without waiting."""
        command = [sys.executable, "-m", "giveway_command.main", *self.arguments]
        if self.stdout_path.exists():
            self._stdout_start = self.stdout_path.stat().st_size
        with ExitStack() as files:
            stdout = files.enter_context(self.stdout_path.open("ab"))
            stderr = files.enter_context(self.stderr_path.open("ab"))
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(self._environment or {})},
            )

    def _ready_or_dead(self, ready: re.Pattern[str]) -> re.Match[str] | None:
        if (code := self.exit_code) is not None:
            raise AssertionError(f"{self.name} ended with {code}:\n{self.stderr}")
        return ready.search(self.stdout)

    @property
    def popen(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def exit_code(self) -> int | None:
        """None: it is running."""
        return self.popen.poll()

    @property
    def stdout(self) -> str:
        """What this start wrote: an earlier process of the same name wrote into the same file."""
        return self.stdout_path.read_bytes()[self._stdout_start :].decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    def new_log_lines(self) -> list[str]:
        """What it wrote to standard error since this was last asked."""
        lines = self.stderr.splitlines()
        self._lines_seen, start = len(lines), self._lines_seen
        return lines[start:]

    @property
    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def peak_rss_bytes(self) -> int:
        """The most that it ever had in memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (peak,) = (line for line in lines if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024

    @property
    def open_files(self) -> int:
        """File descriptors, sockets included."""
        return int(psutil.Process(self.pid).num_fds())

    @property
    def cpu_s(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    async def exited(self, *, within_s: float = STOP_S) -> int:
        """Wait for the end; its exit code."""
        await until(lambda: self.exit_code is not None, what=f"{self.name} ends", within_s=within_s)
        code = self.exit_code
        assert code is not None
        return code

    async def stop(self, *, within_s: float = STOP_S) -> int:
        """SIGTERM, and wait."""
        self.signal(signal.SIGTERM)
        return await self.exited(within_s=within_s)

    async def kill(self) -> None:
        """kill -9, and wait."""
        self.signal(signal.SIGKILL)
        await self.exited()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._process is not None and self.exit_code is None:
            await self.kill()


class Proxy(GivewayProcess):
    """`giveway serve` before `upstream`."""

    def __init__(
        self,
        upstream: str,
        *options: str,
        logs: Path,
        policy: Path | None = None,
        port: int = 0,
        admin_port: int = 0,
        name: str = "serve",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        chosen = ("--policy", str(policy)) if policy is not None else ()
        super().__init__(
            "serve",
            *("--upstream", upstream, "--host", "127.0.0.1", "--port", str(port)),
            *("--admin-host", "127.0.0.1", "--admin-port", str(admin_port)),
            *chosen,
            *options,
            logs=logs,
            name=name,
            environment=environment,
        )
        self.url = ""
        self.admin_url = ""
        self.expected_errors: tuple[str, ...] = ()
        """Words in log lines at error level that this test provokes."""
        self.allowed_growth_bytes: int | None = None
        """Memory that this test may leave. None: what an allocator keeps."""

    async def __aenter__(self) -> Self:
        try:
            match = await self.start(_SERVE_READY)
        except BaseException:
            await self.__aexit__()
            raise
        self.url, self.admin_url = match.groups()
        return self


class Emulator(GivewayProcess):
    """`giveway emulate`."""

    def __init__(self, *options: str, logs: Path, port: int = 0, name: str = "emulate") -> None:
        super().__init__(
            *("emulate", "--host", "127.0.0.1", "--port", str(port), *options),
            logs=logs,
            name=name,
        )
        self.url = ""

    async def __aenter__(self) -> Self:
        try:
            match = await self.start(_EMULATE_READY)
        except BaseException:
            await self.__aexit__()
            raise
        self.url = match.group(1)
        return self
