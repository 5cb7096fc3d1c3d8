"""The comparison's command runs, checks what came back, and says when something is wrong."""

import asyncio
import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from giveway_benchmarks.load_program import Group, LoadProgram, compile_load_program
from giveway_benchmarks.processes import free_port

from tests.support.scripted_engine import ScriptedEngine, chatting

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("cc") is None, reason="no C compiler: the load program can't be made"
    ),
]


def test_one_short_round_of_direct_and_giveway(tmp_path: Path) -> None:
    """Every row is there, has figures, and no answer or token was wrong."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "giveway_benchmarks"),
            *("speed", "--rounds", "1", "--speed", "0.2", "--proxies", "giveway-plain"),
            *("--scenarios", "requests,chunks-64", "--results", str(tmp_path / "rows")),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = re.findall(
        r"^([a-z\d-]+) +(direct|giveway-plain) +([\d,]+) ", done.stdout, re.MULTILINE
    )
    pairs = {(scenario, proxy) for scenario, proxy, _ in lines}
    assert pairs == set(itertools.product(("requests", "chunks-64"), ("direct", "giveway-plain")))
    assert all(int(rate.replace(",", "")) > 0 for _, _, rate in lines)
    assert len((tmp_path / "rows").read_text().splitlines()) == 4


def test_every_answer_and_token_is_counted() -> None:
    """Straight to its own engine nothing is lost, and held requests are answered on release."""
    with LoadProgram(engine_port=free_port()) as load:
        port = load.engine_port
        answers = load.run(
            [Group(clients=8, plan="answer")], port=port, warm_s=0.0, window_s=0.2
        ).groups[0]
        streams = load.run(
            [Group(clients=8, plan="stream", arrivals="once")], port=port, warm_s=0.0, window_s=0.2
        ).groups[0]
        held = load.hold(
            [Group(clients=50, plan="hold", arrivals="once", body_bytes=200_000)], port=port
        )
        released = load.release().groups[0]
    assert answers.answers > 100
    assert answers.delays.count == answers.answers
    assert (streams.all_answers, streams.tokens == streams.delays.count) == (8, True)
    assert (held.in_engine, held.in_all, released.all_answers) == (50, 50, 50)
    assert [group.problems for group in (answers, streams, released)] == [{}, {}, {}]


async def test_answers_of_somebody_else_are_a_failure() -> None:
    """An engine that does not repeat the request's marker gives no success at all."""
    async with ScriptedEngine(chatting()) as engine:
        port = int(engine.url.rsplit(":", 1)[1])
        with LoadProgram(engine_port=free_port()) as load:
            result = await asyncio.to_thread(
                load.run,
                [Group(clients=2, plan="answer", arrivals="once")],
                port=port,
                warm_s=0.0,
                window_s=0.3,
            )
    assert result.groups[0].all_answers == 0
    assert result.groups[0].problems == {"wrong_answer": 2}


def test_program_is_compiled_once() -> None:
    """The same source gives the same file, untouched."""
    first = compile_load_program()
    changed_ns = first.stat().st_mtime_ns
    assert compile_load_program() == first
    assert first.stat().st_mtime_ns == changed_ns
