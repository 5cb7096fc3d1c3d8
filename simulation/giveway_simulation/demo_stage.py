"""What has to run for the demonstration? Engines, giveway before one of them, and what they can do.

Emulated engines are two equal ones, one of them behind giveway, unless the runs go in turn. A real
engine is first probed: its model, its text scale, its capacity. Everything that was started is
stopped again when the stage is left, whatever happens.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from giveway_policy.resources import SLOPolicySpec

from giveway_simulation.child_processes import Child
from giveway_simulation.demo_load import DemoTraffic, Limits, mixed_requests, work_of
from giveway_simulation.engine_capacity import model_capacity
from giveway_simulation.engine_model import EngineLimits
from giveway_simulation.engine_pods import DEFAULT_POD, PODS
from giveway_simulation.load_client import LoadClient, Target
from giveway_simulation.load_generating import LoadCost
from giveway_simulation.load_probing import (
    find_model,
    fitting_limits,
    measure_capacity,
    measure_text_scale,
    read_api_key,
)
from giveway_simulation.load_records import Measured
from giveway_simulation.prompt_building import PromptWriter, TextScale
from giveway_simulation.traces import TraceRow

EMULATED_MODEL = "emulated"
CAPACITY_PROBE_S = 15.0
FEWEST_REQUESTS = 150
"""In a run. Fewer say nothing about a 95th percentile of each kind."""
_SMALLEST_SCALE = 0.02
_SAMPLED = 1000
_TICK_S = 0.25
_EMULATOR_READY = re.compile(r"^listening on (http://\S+)")
_PROXY_READY = re.compile(r"^data (http://\S+) admin (http://\S+)")


class PhaseView(Protocol):
    """Who tells what is going on."""

    def phase(self, text: str, *, lasts_s: float | None) -> None:
        """A new part begins. `lasts_s` None: a moment."""

    def advance(self, done_s: float) -> None:
        """So much of the present part is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """Engines of our own."""

    pod: str = DEFAULT_POD
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A real engine."""

    url: str
    model: str | None
    """None: the first that it names."""
    api_key_file: Path | None = None
    """Holds the key that it asks for. None: it asks for none."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What to show."""

    engine: Emulated | Upstream
    spec: SLOPolicySpec
    """The policy that holds in the run through giveway."""
    policy: Path | None = None
    """Its file. None: giveway's own default."""
    window_s: float = 60.0
    load: float = 1.2
    """Multiple of what the engine can do."""
    seed: int = 1
    in_turn: bool = False
    """One run after the other also with emulated engines."""
    chat_trace: Sequence[TraceRow] | None = None
    """None: the sample that comes with the package."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One of the two runs, readable while it goes on."""

    name: str
    client: LoadClient | None
    """None: what it would talk to is not started yet."""
    record: list[Measured] = field(default_factory=list)
    zero_s: float | None = None
    """`time.monotonic` at its start. None: not started."""
    cost: LoadCost | None = None
    """None: not ended."""

    def elapsed_s(self, now_s: float, *, window_s: float) -> float:
        """Seconds into its window; the whole window once it ended, 0 before it began."""
        if self.cost is not None:
            return window_s
        return 0.0 if self.zero_s is None else min(window_s, now_s - self.zero_s)


@dataclass(slots=True, kw_only=True)
class Stage:
    """What the runs need."""

    direct: Run
    giveway: Run
    together: bool
    work_per_s: float
    limits: Limits
    children: list[Child]
    emulators: list[Target]
    open_giveway: Callable[[], Awaitable[None]]
    """Start giveway and give its run a client. It is started only for its own run: load that goes
    past it, to an engine that it believes to have for itself, is not what it is there for."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What is known of the engine before the load."""

    target: Target
    scale: TextScale
    work_per_s: float
    limits: Limits
    notes: tuple[str, ...] = ()


@asynccontextmanager
async def set_stage(
    settings: DemoSettings, traffic: DemoTraffic, view: PhaseView
) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        match settings.engine:
            case Emulated() as emulated:
                stage = await _emulated_stage(settings, emulated, traffic, stack, view)
            case Upstream() as upstream:
                stage = await _upstream_stage(settings, upstream, traffic, stack, view)
        if stage.together:
            await stage.open_giveway()
        yield stage


def _make_stage(
    stack: AsyncExitStack,
    settings: DemoSettings,
    *,
    probed: Probed,
    engines: list[Child],
    behind: str,
    key_file: Path | None = None,
) -> Stage:
    """`behind` is the engine that giveway stands before."""
    prompts = PromptWriter(probed.scale, seed=settings.seed)
    target = probed.target

    async def open_giveway() -> None:
        proxy = await stack.enter_async_context(_proxy(behind, settings, key_file=key_file))
        stage.children.append(proxy)
        own = Target.parse(proxy.ready.group(1), model=target.model, api=target.api)
        stage.giveway.client = LoadClient(
            own, prompts=PromptWriter(probed.scale, seed=settings.seed)
        )

    stage = Stage(
        direct=Run(name="direct", client=LoadClient(target, prompts=prompts)),
        giveway=Run(name="giveway", client=None),
        together=len(engines) > 1,
        work_per_s=probed.work_per_s,
        limits=probed.limits,
        children=list(engines),
        emulators=[Target.parse(each.ready.group(1), model=EMULATED_MODEL) for each in engines],
        open_giveway=open_giveway,
        notes=probed.notes,
    )
    return stage


async def _emulated_stage(
    settings: DemoSettings,
    emulated: Emulated,
    traffic: DemoTraffic,
    stack: AsyncExitStack,
    view: PhaseView,
) -> Stage:
    view.phase("starting the emulated engine and giveway", lasts_s=None)
    engines = [_emulator(emulated) for _ in range(1 if settings.in_turn else 2)]
    await asyncio.gather(*(stack.enter_async_context(engine) for engine in engines))
    urls = [engine.ready.group(1) for engine in engines]
    target, scale = await measure_text_scale(Target.parse(urls[0], model=EMULATED_MODEL))
    pod = PODS[emulated.pod]
    engine_limits = EngineLimits(
        max_num_seqs=emulated.max_num_seqs,
        max_num_batched_tokens=emulated.max_num_batched_tokens,
        kv_cache_tokens=pod.kv_cache_tokens,
    )
    limits = Limits()
    capacity = model_capacity(
        pod, engine_limits, mixed_requests(traffic, seed=settings.seed, limits=limits)
    )
    return _make_stage(
        stack,
        settings,
        probed=Probed(target=target, scale=scale, work_per_s=capacity, limits=limits),
        engines=engines,
        behind=urls[-1],
    )


async def _upstream_stage(
    settings: DemoSettings,
    upstream: Upstream,
    traffic: DemoTraffic,
    stack: AsyncExitStack,
    view: PhaseView,
) -> Stage:
    view.phase(f"looking at {upstream.url}", lasts_s=None)
    key = read_api_key(upstream.api_key_file)
    model = upstream.model or await find_model(upstream.url, api_key=key)
    named = Target.parse(upstream.url, model=model, api_key=key)
    target, scale = await measure_text_scale(named)
    limits = await fitting_limits(target, upstream.limits)
    client = LoadClient(target, prompts=PromptWriter(scale, seed=settings.seed))

    async def capacity_with(narrowed: Limits) -> float:
        requests = mixed_requests(traffic, seed=settings.seed, limits=narrowed)
        return await measure_capacity(client, requests, window_s=CAPACITY_PROBE_S)

    text = f"finding out how much {model} at {target.address} can do"
    view.phase(text, lasts_s=CAPACITY_PROBE_S)
    capacity = await _shown(view, capacity_with(limits))
    notes: tuple[str, ...] = ()
    wanted = length_scale(
        traffic, limits, work=capacity * settings.load * settings.window_s, seed=settings.seed
    )
    if wanted < 1.0:
        limits = replace(limits, scale=wanted)
        view.phase(f"{text}, with shorter requests", lasts_s=CAPACITY_PROBE_S)
        capacity = await _shown(view, capacity_with(limits))
        note = (
            f"The engine is slow: all lengths of the traces were shortened to {wanted * 100:.0f} % "
            f"of what they are, so that about {FEWEST_REQUESTS} requests fit a run."
        )
        notes = (note,)
    return _make_stage(
        stack,
        settings,
        probed=Probed(target=target, scale=scale, work_per_s=capacity, limits=limits, notes=notes),
        engines=[],
        behind=target.address,
        key_file=upstream.api_key_file,
    )


def length_scale(traffic: DemoTraffic, limits: Limits, *, work: float, seed: int) -> float:
    """By what lengths have to shrink so that `work` is enough requests; 1 if it is anyway."""
    requests = mixed_requests(traffic, seed=seed, limits=limits)
    sample = [next(requests) for _ in range(_SAMPLED)]
    mean = sum(work_of(each.prompt_tokens, each.output_tokens) for each in sample) / len(sample)
    return min(1.0, max(_SMALLEST_SCALE, work / mean / FEWEST_REQUESTS))


async def _shown(view: PhaseView, work: Coroutine[None, None, float]) -> float:
    """Do the work and let the view's bar go on with the time."""
    began_s = time.monotonic()
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_TICK_S)
            view.advance(time.monotonic() - began_s)
        return await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _emulator(emulated: Emulated) -> Child:
    return Child(
        "engine",
        [
            *("emulate", "--host", "127.0.0.1", "--port", "0", "--model", EMULATED_MODEL),
            *("--pod", emulated.pod, "--max-num-seqs", str(emulated.max_num_seqs)),
            *("--max-num-batched-tokens", str(emulated.max_num_batched_tokens)),
            *("--scheduling-policy", "priority"),
        ],
        ready=_EMULATOR_READY,
    )


def _proxy(upstream: str, settings: DemoSettings, *, key_file: Path | None = None) -> Child:
    """`key_file` None: the engine asks for no key."""
    policy = () if settings.policy is None else ("--policy", str(settings.policy))
    key = () if key_file is None else ("--engine-api-key-file", str(key_file))
    return Child(
        "giveway",
        [
            *("serve", "--upstream", upstream, "--host", "127.0.0.1", "--port", "0"),
            *("--admin-host", "127.0.0.1", "--admin-port", "0", *policy, *key),
        ],
        ready=_PROXY_READY,
    )
