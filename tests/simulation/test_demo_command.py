"""The commands demo and calibrate: they show, they explain, they leave nothing behind."""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from giveway_simulation import command_calibrate, command_demo, engine_commands

from tests.support.scripted_engine import ScriptedEngine, answering
from tests.support.vllm_answers import response
from tests.support.waiting import until_blocking

COMMAND = (sys.executable, "-m", "giveway_command.main")


def arguments_of(module: object, *given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)  # type: ignore[attr-defined]
    return parser.parse_args(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--pod", "abacus"), "no pod is called abacus"),
        (("--upstream", "http://127.0.0.1:1", "--in-turn"), "are for emulated engines"),
        (("--trace", "absent.csv"), "absent.csv: cannot be read"),
        (("--policy", "absent.yaml"), "absent.yaml"),
        (("--upstream", "ftp://x"), "is not an address"),
    ],
)
def test_wrong_use_is_exit_code_2_and_says_why(
    given: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started for options that cannot work."""
    assert command_demo.run(arguments_of(command_demo, *given)) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("option", ["--seconds", "--load"])
@pytest.mark.parametrize("value", ["0", "-1", "much", "inf"])
def test_numbers_have_to_be_positive(option: str, value: str) -> None:
    """argparse refuses them with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        arguments_of(command_demo, option, value)
    assert caught.value.code == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["demo", "calibrate"])
async def test_an_engine_that_is_none_is_exit_code_1(name: str, tmp_path: Path) -> None:
    """The address, and what it answered instead."""
    async with ScriptedEngine(answering(response(b"<html>", status=404))) as engine:
        command = [*COMMAND, name, "--upstream", engine.url, "--model", "m"]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await process.communicate()
    assert process.returncode == 1
    assert out == b""
    assert engine.url.encode() in err
    assert b"404" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("module", "given"),
    [(command_demo, ()), (command_calibrate, ("--upstream", "http://127.0.0.1:1"))],
)
def test_without_the_extra_the_way_to_get_it_is_told(
    module: object,
    given: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sidecar's installation has no rich and no matplotlib."""
    monkeypatch.setattr(engine_commands, "find_spec", lambda _: None)
    assert module.run(arguments_of(module, *given)) == 2  # type: ignore[attr-defined]
    assert "pip install '.[simulation]'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_the_demonstration_shows_what_giveway_changes(tmp_path: Path) -> None:
    """Y14 end to end on the emulator: chat holds through giveway, direct it does not."""
    plot = tmp_path / "demo.png"
    done = subprocess.run(
        [*COMMAND, "demo", "--seconds", "8", "-o", "json", "--plot", str(plot)],
        cwd=tmp_path,
        capture_output=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    shown = json.loads(done.stdout)
    direct, giveway = shown["direct"], shown["giveway"]
    chat_direct, chat_giveway = direct["classes"][0], giveway["classes"][0]
    assert chat_giveway["judged"] == chat_direct["judged"] > 20
    assert chat_giveway["in_time"] / chat_giveway["judged"] > 0.9
    assert chat_direct["in_time"] < chat_giveway["in_time"]
    assert giveway["classes"][2]["tokens_per_s"] > 0
    assert giveway["failed"] == direct["failed"] == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demonstration_leaves_no_process(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Ctrl-C, or SIGTERM, in the middle: engines and proxy are gone, and it says so."""
    with subprocess.Popen(
        [*COMMAND, "demo", "--seconds", "50"], cwd=tmp_path, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        while line and not re.search(rb"requests to each", line):
            line = process.stderr.readline()
        children = psutil.Process(process.pid).children()
        assert len(children) == 3
        os.kill(process.pid, number)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert b"interrupted" in rest
    assert b"Traceback" not in rest
    until_blocking(
        lambda: not any(child.is_running() for child in children), what="all children are gone"
    )
