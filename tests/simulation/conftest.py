"""A running emulator for the tests of its dialect."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from giveway_simulation.emulator import Emulator, EmulatorSettings
from giveway_simulation.emulator_requests import OutputLengths
from giveway_simulation.engine_model import EngineLimits, SchedulingPolicy

from tests.simulation.engine_fixtures import flat_pod

StartEmulator = Callable[..., Awaitable[Emulator]]


@pytest.fixture
async def start_emulator() -> AsyncIterator[StartEmulator]:
    """Start an emulator whose every step takes `step_ms`; it is stopped after the test."""
    running: list[Emulator] = []

    async def start(
        *,
        step_ms: float = 1.0,
        seats: int = 16,
        batched_tokens: int = 1024,
        kv_tokens: int = 65_536,
        priority: bool = False,
        max_model_len: int = 4096,
        max_num_queued_reqs: int | None = None,
        output_lengths: OutputLengths = OutputLengths.FULL,
    ) -> Emulator:
        emulator = Emulator(
            EmulatorSettings(
                model="emulated",
                pod=flat_pod(step_ms=step_ms),
                limits=EngineLimits(
                    max_num_seqs=seats,
                    max_num_batched_tokens=batched_tokens,
                    kv_cache_tokens=kv_tokens,
                    scheduling_policy=SchedulingPolicy.PRIORITY
                    if priority
                    else SchedulingPolicy.FCFS,
                ),
                max_model_len=max_model_len,
                max_num_queued_reqs=max_num_queued_reqs,
                output_lengths=output_lengths,
            )
        )
        await emulator.start("127.0.0.1", 0)
        running.append(emulator)
        return emulator

    yield start
    for emulator in running:
        await emulator.stop()


@pytest.fixture
async def emulator(start_emulator: StartEmulator) -> Emulator:
    """One with the settings that most tests need."""
    return await start_emulator()
