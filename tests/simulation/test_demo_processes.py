"""Child processes of a command: started, watched, and never left behind."""

import asyncio
import re
import signal
import subprocess
import sys

import psutil
import pytest
from giveway_simulation.child_processes import Child, ChildError

from tests.support.waiting import until, until_blocking

READY = re.compile(r"^listening on (http://\S+)")
PARENT = """
import asyncio, re
from giveway_simulation.child_processes import Child
async def main():
    ready = re.compile("listening on")
    async with Child("engine", ["emulate", "--port", "0"], ready=ready) as child:
        print(child.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def engine(*options: str) -> Child:
    return Child("engine", ["emulate", "--port", "0", *options], ready=READY)


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.slow
async def test_a_child_is_ready_when_it_says_so_and_gone_afterwards() -> None:
    """The address comes from its ready line; leaving the block ends it."""
    async with engine() as child:
        assert child.ready.group(1).startswith("http://127.0.0.1:")
        assert is_alive(child.pid)
        pid = child.pid
    assert not is_alive(pid)


@pytest.mark.slow
async def test_a_child_has_none_of_the_settings_of_its_parents_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever has set GIVEWAY_POLICY for a proxy of their own sees the demonstration's policy."""
    monkeypatch.setenv("GIVEWAY_POLICY", "somebodys.yaml")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    async with engine() as child:
        environment = psutil.Process(child.pid).environ()
    assert environment["SOMETHING_ELSE"] == "kept"
    assert "GIVEWAY_POLICY" not in environment


@pytest.mark.slow
async def test_a_child_that_does_not_start_shows_its_errors() -> None:
    """Wrong use of an option is told with the child's own words."""
    with pytest.raises(ChildError, match="did not start") as caught:
        async with engine("--pod", "abacus"):
            pass
    assert "abacus" in str(caught.value)
    assert "giveway emulate" in str(caught.value)


@pytest.mark.slow
async def test_a_child_that_ends_by_itself_is_noticed() -> None:
    """An engine that is killed in the middle is an error with its exit code."""
    async with engine() as child:
        watching = asyncio.create_task(child.failed())
        psutil.Process(child.pid).send_signal(signal.SIGKILL)
        with pytest.raises(ChildError, match=r"giveway emulate ended \(exit code -9\)"):
            await watching


@pytest.mark.slow
async def test_cancelling_while_a_child_starts_leaves_none() -> None:
    """Ctrl-C in the first half second."""
    before = {each.pid for each in psutil.Process().children()}

    async def start() -> None:
        async with engine():
            await asyncio.Event().wait()

    task = asyncio.create_task(start())
    await until(
        lambda: {each.pid for each in psutil.Process().children()} - before, what="it is started"
    )
    started = {each.pid for each in psutil.Process().children()} - before
    task.cancel()
    await asyncio.wait([task])
    assert not any(is_alive(pid) for pid in started)


@pytest.mark.slow
def test_a_killed_parent_takes_its_child_along() -> None:
    """kill -9 of the parent leaves no engine behind."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    until_blocking(lambda: not is_alive(pid), what="the child is gone")
    assert not is_alive(pid)
