"""Calibration (Y10) of a running engine whose true constants are known."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from giveway_policy.compiling import compile_policies
from giveway_policy.loading import load_path

from tests.support.processes import Emulator

SPEED = 4.0


async def calibrated(upstream: str, *options: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "giveway_command.main", "calibrate", "--upstream", upstream),
        *options,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out


@pytest.mark.nightly
@pytest.mark.timeout(150)
async def test_the_constants_of_the_emulated_engine_are_found(tmp_path: Path) -> None:
    """An H100 at four times its speed.

    23.5 us / 4 a token, at most 25 % more, since attention and the weights' reading are in it; 64
    seats or a neighbour; a knee between 0.6 and 1.1 of what it can do, 16.5 interactive requests/s.
    """
    options = ("--speed", str(SPEED), "--max-num-seqs", "512")
    async with Emulator(*options, logs=tmp_path) as engine:
        out = await calibrated(engine.url, "--step-seconds", "3", "-o", "json")
    found = json.loads(out)["found"]
    cost_us = found["prompt_seconds_per_token"] * 1e6 * SPEED
    assert 23.5 * 0.9 <= cost_us <= 23.5 * 1.25
    assert found["seats"] in {48, 64, 96, 128}
    assert found["knee_requests_per_s"] is not None
    assert 0.6 <= found["knee_requests_per_s"] / (16.5 * SPEED) <= 1.1


@pytest.mark.slow
@pytest.mark.timeout(100)
async def test_what_is_printed_is_a_policy(tmp_path: Path) -> None:
    """However short the steps: standard output is YAML that takes effect as it is."""
    async with Emulator("--speed", "8", logs=tmp_path) as engine:
        out = await calibrated(engine.url, "--step-seconds", "0.3", "--max-prompt-tokens", "2000")
    path = tmp_path / "policy.yaml"
    path.write_bytes(out)
    loading = load_path(path)
    compilation = compile_policies(loading.policies, loading.tenants)
    assert not loading.faults
    assert not compilation.faults
    assert compilation.documents[0].spec.concurrency.seats >= 4
