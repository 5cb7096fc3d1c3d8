"""How does a command run other giveway commands, and leave none of them behind?

Each child leads a process group of its own, so that Ctrl-C reaches the parent alone, which ends the
children in order. Whatever way the parent goes, also by SIGKILL, the kernel kills the child
(PR_SET_PDEATHSIG, Linux). What a child writes to standard error is kept to be shown if it fails.
"""

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Sequence
from typing import Self

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
_KEPT_LINES = 20
_PR_SET_PDEATHSIG = 1
_LONGEST_LINE_BYTES = 2**20


class ChildError(Exception):
    """A child did not start or ended on its own; the text has its last lines."""


class Child:
    """One `giveway` command as a child process, an async context manager."""

    def __init__(self, name: str, arguments: Sequence[str], *, ready: re.Pattern[str]) -> None:
        self.name = name
        self._arguments = arguments
        self._ready = ready
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._errors: deque[str] = deque(maxlen=_KEPT_LINES)
        self._match: asyncio.Future[re.Match[str] | None] | None = None
        """Result None: its output ended without the line."""

    @property
    def pid(self) -> int:
        """Of the running child."""
        assert self._process is not None
        return self._process.pid

    @property
    def ready(self) -> re.Match[str]:
        """The line by which it said that it is ready."""
        match = self._match.result() if self._match is not None else None
        assert match is not None
        return match

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._match = loop.create_future()
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "giveway_command.main",
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_die_with(os.getpid()),
            limit=_LONGEST_LINE_BYTES,
            env=_environment(),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            loop.create_task(self._read_output(process.stdout)),
            loop.create_task(self._read_errors(process.stderr)),
        ]
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                match = await self._match
        except TimeoutError:
            raise await self._failure(f"was not ready within {START_TIMEOUT_S:.0f} s") from None
        if match is None:
            await process.wait()
            raise await self._failure("did not start")

    async def failed(self) -> None:
        """Wait for as long as the child runs; `ChildError` when it ends."""
        assert self._process is not None
        await self._process.wait()
        raise await self._failure("ended")

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL to whatever of its group is still there after a while."""
        process = self._process
        if process is None:
            return
        try:
            if process.returncode is None:
                _signal_group(process.pid, signal.SIGTERM)
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await process.wait()
        except TimeoutError:
            pass
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            await process.wait()
            for reader in self._readers:
                reader.cancel()
            await asyncio.gather(*self._readers, return_exceptions=True)

    async def _failure(self, what: str) -> ChildError:
        process = self._process
        assert process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*self._readers, return_exceptions=True)
        code = "" if process.returncode is None else f" (exit code {process.returncode})"
        lines = "\n".join(f"  {line}" for line in self._errors) or "  (it said nothing)"
        return ChildError(f"giveway {self._arguments[0]} {what}{code}:\n{lines}")

    async def _read_output(self, stream: asyncio.StreamReader) -> None:
        assert self._match is not None
        while line := await _line(stream):
            match = self._ready.search(line)
            if match is not None and not self._match.done():
                self._match.set_result(match)
        if not self._match.done():
            self._match.set_result(None)

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        while line := await _line(stream):
            self._errors.append(line.rstrip())


async def _line(stream: asyncio.StreamReader) -> str:
    try:
        return (await stream.readline()).decode(errors="replace")
    except ValueError:
        return "(a very long line)\n"


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _die_with:  # noqa: N801 - reads as the call that it is
    """Runs in the child between fork and exec: ask to be killed when the parent is gone."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._library = ctypes.CDLL(None) if sys.platform == "linux" else None

    def __call__(self) -> None:
        if self._library is None:
            return
        self._library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._parent:
            os._exit(1)


def _environment() -> dict[str, str]:
    """Without the settings of somebody's own `giveway serve`: a child has what its flags say."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIVEWAY_")}
    return {**kept, "PYTHONUNBUFFERED": "1"}
