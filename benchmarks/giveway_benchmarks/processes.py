"""How is a proxy started, pinned, looked at and ended?"""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

_END_WITHIN_S = 10.0
_LONGEST_PAUSE_S = 2.0


def allow_files(wanted: int) -> int:
    """Let this process and those it starts have so many files open; returns how many it became.

    More than the hard limit needs root.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for limit in (max(hard, wanted), hard):
        with contextlib.suppress(ValueError, PermissionError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            return limit
    return hard


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def pinned(core: int) -> tuple[str, ...]:
    """The command that starts another one on one core."""
    return ("taskset", "-c", str(core))


def pids_of(process: subprocess.Popen[bytes]) -> list[int]:
    """The process and all below it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        return [root.pid, *(child.pid for child in root.children(recursive=True))]
    return []


def pss_bytes(pids: Sequence[int]) -> int:
    """Memory of the processes; what several of them share counts once."""
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids)


def start(
    command: Sequence[str], *, core: int, log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """In a process group of its own, so that its workers end with it."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [*pinned(core), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask, wait, insist."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_WITHIN_S)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def first_in_line(pids: Sequence[int], *, wanted: bool) -> Iterator[None]:
    """Let nothing else of this machine take a core from them meanwhile (needs root).

    The kernel keeps a twentieth of each second back from such processes, which makes the 99th
    percentile of a saturated one useless; of others it is right.
    """
    if not wanted:
        yield
        return
    tasks = _tasks(pids)
    began_s = time.monotonic()
    _schedule(tasks, os.SCHED_FIFO, 1)
    try:
        yield
    finally:
        _schedule(tasks, os.SCHED_OTHER, 0)
        # What had to stand still gets a turn before the next measurement.
        time.sleep(min(_LONGEST_PAUSE_S, (time.monotonic() - began_s) / 2))


def _tasks(pids: Sequence[int]) -> list[int]:
    return [
        int(task.name)
        for pid in pids
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name.isdigit()
    ]


def _schedule(tasks: Sequence[int], policy: int, priority: int) -> None:
    for task in tasks:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(task, policy, os.sched_param(priority))


def wait_for_port(port: int, process: subprocess.Popen[bytes], *, within_s: float) -> None:
    """Until somebody listens."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens on port {port}")
