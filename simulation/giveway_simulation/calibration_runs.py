"""How are the measurements of a calibration taken from a live engine?

Three parts, each bounded in time: single requests on the idle engine for the prompt's cost; a
closed loop that never runs dry, with more and more requests in flight, for seats; and interactive
requests alone at a rising rate, for the knee. The engine should have no other load meanwhile.
"""

import asyncio
import math
import random
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from giveway_simulation.calibrating import KV_CACHE_LIMIT, LoadStep, PromptSample, SeatsStep
from giveway_simulation.demo_figures import first_token_wait_s, percentile, tokens_between
from giveway_simulation.demo_load import work_of
from giveway_simulation.load_client import LoadClient
from giveway_simulation.load_generating import run_open_loop
from giveway_simulation.load_probing import EngineProbeError, engine_gauge, probe
from giveway_simulation.load_records import Ending, Measured, PlannedRequest

IN_FLIGHT = (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
LOAD_RATIOS = (0.2, 0.4, 0.55, 0.65, 0.75, 0.85, 0.95, 1.05, 1.15)
"""Of what the engine did at best: dense where the knee is, and past it, or there is none."""
_PROMPT_STEP = 1.3
_SHORTEST_PROMPT_TOKENS = 256
_LONGEST_PROMPT_TOKENS = 4096
"""Most prompts are shorter; attention makes the tokens of longer ones dearer."""
_PROMPT_ROUNDS = 4
_SLOWEST_PROMPT_S = 3.0
_NO_GAIN = 1.02
_KV_CACHE_GAUGE = "vllm:kv_cache_usage_perc"


class Progress(Protocol):
    """Who shows how far it is."""

    def phase(self, text: str, *, lasts_s: float | None) -> None: ...

    def advance(self, done_s: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long to measure."""

    prompts_s: float = 20.0
    """At most, for all single requests."""
    step_s: float = 8.0
    """Each number of requests in flight. The first third is left out."""
    load_step_s: float = 10.0
    """Each rate. The first quarter is left out."""


async def measure_prompts(
    client: LoadClient, *, longest_tokens: int, pace: Pace, progress: Progress
) -> list[PromptSample]:
    """Time to first token of prompts of many lengths, one at a time, in rounds."""
    progress.phase("prompt cost: single requests on the idle engine", lasts_s=pace.prompts_s)
    began_s = time.monotonic()
    lengths = _lengths(min(longest_tokens, _LONGEST_PROMPT_TOKENS))
    samples: list[PromptSample] = []
    await _first_token_s(client, lengths[0])
    for _ in range(_PROMPT_ROUNDS):
        for length in list(lengths):
            if time.monotonic() - began_s > pace.prompts_s and len(samples) >= len(lengths):
                return samples
            tokens, first_s = await _first_token_s(client, length)
            samples.append(PromptSample(prompt_tokens=tokens, first_token_s=first_s))
            progress.advance(time.monotonic() - began_s)
            if first_s > _SLOWEST_PROMPT_S:
                lengths = [each for each in lengths if each <= length]
                break
    return samples


def _lengths(longest_tokens: int) -> list[int]:
    lengths = []
    length = float(min(_SHORTEST_PROMPT_TOKENS, max(2, longest_tokens // 4)))
    while length <= longest_tokens:
        lengths.append(int(length))
        length *= _PROMPT_STEP
    return lengths


async def _first_token_s(client: LoadClient, prompt_tokens: int) -> tuple[int, float]:
    measured = await probe(client, prompt_tokens=prompt_tokens, output_tokens=2)
    if measured.ending is not Ending.COMPLETED or measured.sent_s is None:
        raise EngineProbeError(
            f"{client.target.address}: a prompt of {prompt_tokens} tokens failed: {measured.error}"
        )
    return measured.prompt_tokens, measured.token_times_s[0] - measured.sent_s


async def measure_seats(
    client: LoadClient, requests: Iterator[PlannedRequest], *, pace: Pace, progress: Progress
) -> list[SeatsStep]:
    """Throughput with more and more requests in flight, until two steps bring nothing more."""
    progress.phase("seats: more and more requests in flight", lasts_s=pace.step_s * len(IN_FLIGHT))
    loop = asyncio.get_running_loop()
    zero_s = time.monotonic()
    record: list[Measured] = []
    tasks: set[asyncio.Task[None]] = set()
    steps: list[SeatsStep] = []
    try:
        for in_flight in IN_FLIGHT:
            for _ in range(in_flight - len(tasks)):
                tasks.add(loop.create_task(_keep_asking(client, requests, record, zero_s=zero_s)))
            from_s = time.monotonic() - zero_s + pace.step_s / 3
            to_s = from_s + pace.step_s * 2 / 3
            await _wait_until(zero_s + to_s, zero_s=zero_s, progress=progress, watched=tasks)
            kv_cache = await engine_gauge(client.target, _KV_CACHE_GAUGE)
            steps.append(
                SeatsStep(
                    in_flight=in_flight,
                    work_per_s=_work_between(record, from_s, to_s) / (to_s - from_s),
                    kv_cache_ratio=kv_cache,
                )
            )
            if _brings_nothing_more(steps) or (kv_cache or 0.0) > KV_CACHE_LIMIT:
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return steps


async def _keep_asking(
    client: LoadClient,
    requests: Iterator[PlannedRequest],
    record: list[Measured],
    *,
    zero_s: float,
) -> None:
    """One seat that is never empty; a request that does not complete is an error of the run."""
    for planned in requests:
        request = client.prepare(planned)
        measured = Measured(planned=replace(planned, due_s=time.monotonic() - zero_s))
        record.append(measured)
        await client.ask(measured, zero_s=zero_s, request=request)
        if measured.ending is not Ending.COMPLETED:
            status = f" (status {measured.status})" if measured.status else ""
            raise EngineProbeError(
                f"{client.target.address} did not answer under load{status}: {measured.error}"
            )


def _work_between(record: Sequence[Measured], from_s: float, to_s: float) -> float:
    work = 0.0
    for measured in record:
        times = measured.token_times_s
        outputs = bisect_left(times, to_s) - bisect_left(times, from_s)
        work += work_of(tokens_between(measured, from_s, to_s) - outputs, outputs)
    return work


def _brings_nothing_more(steps: Sequence[SeatsStep]) -> bool:
    """Are the last two steps no better than the best before them?"""
    if len(steps) < 3:
        return False
    before = max(step.work_per_s for step in steps[:-2])
    return all(step.work_per_s < before * _NO_GAIN for step in steps[-2:])


async def measure_load(
    client: LoadClient,
    requests: Iterator[PlannedRequest],
    *,
    work_per_s: float,
    seed: int,
    pace: Pace,
    progress: Progress,
) -> list[LoadStep]:
    """p95 of the time to first token while the rate of interactive requests rises."""
    window_s = pace.load_step_s * len(LOAD_RATIOS)
    progress.phase("knee: interactive requests at a rising rate", lasts_s=window_s)
    plan, rates = _rising_plan(requests, work_per_s=work_per_s, seed=seed, pace=pace)
    record: list[Measured] = []
    began_s = time.monotonic()
    run = asyncio.create_task(run_open_loop(client, plan, window_s=window_s, record=record))
    try:
        await _wait_until(began_s + window_s, zero_s=began_s, progress=progress, watched=set())
        await run
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    broken = [m for m in record if m.ending in {Ending.FAILED, Ending.REFUSED}]
    if len(broken) * 20 > len(record):
        raise EngineProbeError(
            f"{client.target.address}: {len(broken)} of {len(record)} requests failed under load, "
            f"the first: {broken[0].error}"
        )
    return _load_steps(record, rates, pace=pace)


def _rising_plan(
    requests: Iterator[PlannedRequest], *, work_per_s: float, seed: int, pace: Pace
) -> tuple[list[PlannedRequest], list[float]]:
    """Arrivals at random in each step, as many as make the step's work; and the rates.

    The work of a step is exact, since random lengths would move the load of a short step by a
    fifth; the times are those of a Poisson process of which the number of arrivals is known.
    """
    generator = random.Random(seed)  # noqa: S311 - arrival times of a load test
    plan: list[PlannedRequest] = []
    rates: list[float] = []
    for index, ratio in enumerate(LOAD_RATIOS):
        work = ratio * work_per_s * pace.load_step_s
        chosen: list[PlannedRequest] = []
        while work > 0:
            chosen.append(next(requests))
            work -= work_of(chosen[-1].prompt_tokens, chosen[-1].output_tokens)
        start_s = index * pace.load_step_s
        plan.extend(
            replace(each, due_s=start_s + generator.random() * pace.load_step_s) for each in chosen
        )
        rates.append(len(chosen) / pace.load_step_s)
    plan.sort(key=lambda planned: planned.due_s)
    return plan, _in_order(rates)


def _in_order(rates: Sequence[float]) -> list[float]:
    """Each at least the one before: load rises, though the number of requests may not quite."""
    highest = 0.0
    ordered = []
    for rate in rates:
        highest = max(highest, rate)
        ordered.append(highest)
    return ordered


def _load_steps(
    record: Sequence[Measured], rates: Sequence[float], *, pace: Pace
) -> list[LoadStep]:
    steps: list[LoadStep] = []
    for index, rate in enumerate(rates):
        start_s, end_s = index * pace.load_step_s, (index + 1) * pace.load_step_s
        from_s = start_s + pace.load_step_s / 4
        waits = sorted(
            first_token_wait_s(m, now_s=pace.load_step_s * len(rates))
            for m in record
            if from_s <= m.planned.due_s < end_s
        )
        p95 = percentile(waits, 0.95)
        if p95 is not None and math.isfinite(p95.value_s):
            steps.append(LoadStep(requests_per_s=rate, p95_s=p95.value_s))
    return steps


async def _wait_until(
    at_s: float, *, zero_s: float, progress: Progress, watched: set[asyncio.Task[None]]
) -> None:
    """Wait and let the bar go on; raise what ended a watched task."""
    while (left_s := at_s - time.monotonic()) > 0:
        if watched:
            done, _ = await asyncio.wait(
                watched, timeout=min(0.25, left_s), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        else:
            await asyncio.sleep(min(0.25, left_s))
        progress.advance(time.monotonic() - zero_s)
