"""All measurements of a calibration, one after the other, on an engine that is found by its URL."""

from collections.abc import Sequence
from dataclasses import dataclass

from giveway_policy.defaults import default_spec

from giveway_simulation.calibrating import LoadStep, PromptSample, SeatsStep
from giveway_simulation.calibration_runs import (
    IN_FLIGHT,
    Pace,
    Progress,
    measure_load,
    measure_prompts,
    measure_seats,
)
from giveway_simulation.demo_load import Limits, mixed_requests
from giveway_simulation.demo_traffic import demo_traffic
from giveway_simulation.load_client import LoadClient, Target
from giveway_simulation.load_probing import (
    engine_lag_s,
    find_model,
    fitting_limits,
    measure_text_scale,
)
from giveway_simulation.prompt_building import PromptWriter

_LAG_LIMIT_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured, and what a reader has to know."""

    model: str
    prompts: Sequence[PromptSample]
    seats: Sequence[SeatsStep]
    load: Sequence[LoadStep]
    notes: tuple[str, ...]


async def measure_all(
    url: str,
    *,
    model: str | None,
    api_key: str | None,
    limits: Limits,
    seed: int,
    pace: Pace,
    progress: Progress,
) -> Measurements:
    """Raises `EngineProbeError` and `TargetError`. `model` None: the first that it names."""
    progress.phase(f"looking at {url}", lasts_s=None)
    name = model or await find_model(url, api_key=api_key)
    target, scale = await measure_text_scale(Target.parse(url, model=name, api_key=api_key))
    fitting = await fitting_limits(target, limits)
    client = LoadClient(target, prompts=PromptWriter(scale, seed=seed))
    traffic = demo_traffic(default_spec())
    prompts = await measure_prompts(
        client, longest_tokens=fitting.prompt_tokens, pace=pace, progress=progress
    )
    seats = await measure_seats(
        client, mixed_requests(traffic, seed=seed, limits=fitting), pace=pace, progress=progress
    )
    load = await measure_load(
        client,
        mixed_requests(traffic, seed=seed, limits=fitting, batch=False),
        work_per_s=max(step.work_per_s for step in seats),
        seed=seed,
        pace=pace,
        progress=progress,
    )
    return Measurements(
        model=name,
        prompts=prompts,
        seats=seats,
        load=load,
        notes=await _notes(target, seats),
    )


async def _notes(target: Target, seats: Sequence[SeatsStep]) -> tuple[str, ...]:
    notes = []
    lag_s = await engine_lag_s(target)
    if lag_s is not None and lag_s > _LAG_LIMIT_S:
        notes.append(
            f"this machine did not keep up: the emulated engine was {lag_s * 1000:.0f} ms late on "
            "average"
        )
    if all(step.kv_cache_ratio is None for step in seats):
        notes.append("the engine does not tell how full its KV cache is; seats may be too many")
    best = max(seats, key=lambda step: step.work_per_s)
    if best.in_flight == IN_FLIGHT[-1]:
        notes.append(f"throughput still rose at {best.in_flight} requests in flight")
    return tuple(notes)
