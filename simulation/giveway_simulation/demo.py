"""What does giveway change? The same load on an engine, directly and through giveway (Y14).

The load is planned once (`demo_load`) and sent twice. Emulated engines get it at the same time: two
equal ones, one of them behind giveway, so that both can be watched side by side. A real engine gets
it one after the other. Everything that was started is stopped again, whatever happens.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from giveway_policy.enumerations import Indicator, Kind
from giveway_policy.resources import SLOPolicySpec

from giveway_simulation.child_processes import Child
from giveway_simulation.demo_figures import RunFigures, run_figures
from giveway_simulation.demo_load import (
    DUMP_AT_RATIO,
    DemoClass,
    DemoTraffic,
    Limits,
    mixed_requests,
    plan_demo,
)
from giveway_simulation.demo_verdict import Verdict, judge
from giveway_simulation.engine_capacity import model_capacity
from giveway_simulation.engine_model import EngineLimits
from giveway_simulation.engine_pods import PODS
from giveway_simulation.load_client import LoadClient, Target
from giveway_simulation.load_generating import LoadCost, run_open_loop
from giveway_simulation.load_probing import (
    engine_lag_s,
    find_model,
    measure_capacity,
    measure_text_scale,
)
from giveway_simulation.load_records import Measured, PlannedRequest
from giveway_simulation.prompt_building import PromptWriter, TextScale
from giveway_simulation.traces import Sample, TraceRow, load_sample

EMULATED_MODEL = "emulated"
REFRESH_S = 0.5
SETTLE_S = 2.0
"""Between two runs on one engine: what was cut off has left it by then."""
_LAG_LIMIT_S = 0.02
_CLIENT_CORES_LIMIT = 0.7

_EMULATOR_READY = re.compile(r"^listening on (http://\S+)")
_PROXY_READY = re.compile(r"^data (http://\S+) admin (http://\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """Engines of our own."""

    pod: str = "h100-llama-3-8b"
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A real engine."""

    url: str
    model: str | None
    """None: the first that it names."""
    api_key: str | None = None
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
    client: LoadClient
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPicture:
    """How the demonstration stands at a moment."""

    classes: tuple[DemoClass, ...]
    window_s: float
    batch_from_s: float
    elapsed_s: tuple[float, float]
    figures: tuple[RunFigures, RunFigures]
    """Directly, through giveway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What came out."""

    picture: DemoPicture
    direct: Sequence[Measured]
    giveway: Sequence[Measured]
    verdict: Verdict
    work_per_s: float
    """What the engine can do, as `demo_load` counts work."""
    requests: int
    notes: tuple[str, ...]
    """What a reader has to know to trust the figures."""


class DemoView(Protocol):
    """Who shows it."""

    def phase(self, text: str, *, lasts_s: float | None) -> None:
        """A new part begins. `lasts_s` None: a moment."""

    def show(self, picture: DemoPicture) -> None:
        """The figures as they stand."""


async def run_demo(settings: DemoSettings, view: DemoView) -> DemoResult:
    """Start what is needed, run both, judge; raises `ChildError`, `EngineProbeError`,
    `DemoLoadError`."""
    traffic = demo_traffic(settings.spec, chat_trace=settings.chat_trace)
    async with _stage(settings, traffic, view) as stage:
        plan = plan_demo(
            traffic,
            work_per_s=stage.work_per_s * settings.load,
            window_s=settings.window_s,
            seed=settings.seed,
            limits=stage.limits,
        )
        await _while_alive(stage.children, _run_both(settings, stage, plan, view, traffic))
        notes = await _notes(stage)
    picture = _picture(settings, traffic, stage)
    return DemoResult(
        picture=picture,
        direct=stage.direct.record,
        giveway=stage.giveway.record,
        verdict=judge(*picture.figures, traffic.classes),
        work_per_s=stage.work_per_s,
        requests=len(plan),
        notes=notes,
    )


def demo_traffic(
    spec: SLOPolicySpec, *, chat_trace: Sequence[TraceRow] | None = None
) -> DemoTraffic:
    """Which class of the policy chat, code and batch ask for, and the TTFT that each is owed.

    Chat is the highest interactive class, code the next one (the same if there is one only), batch
    the first of kind Batch, else the lowest.
    """
    interactive = [each for each in spec.classes if each.kind is Kind.INTERACTIVE]
    batch = [each for each in spec.classes if each.kind is Kind.BATCH]
    first = (interactive or list(spec.classes))[0]
    second = interactive[1] if len(interactive) > 1 else first

    def targeted(label: str, index: int) -> DemoClass:
        chosen = (first, second)[index]
        thresholds = [
            objective.threshold_milliseconds
            for objective in chosen.objectives
            if objective.indicator is Indicator.TIME_TO_FIRST_TOKEN
        ]
        milliseconds = next((ms for ms in thresholds if ms is not None), 1000)
        return DemoClass(
            label=label, class_name=chosen.name, first_token_target_s=milliseconds / 1000
        )

    return DemoTraffic(
        chat=targeted("chat", 0),
        chat_trace=chat_trace or load_sample(Sample.CHAT),
        code=targeted("code", 1),
        code_trace=load_sample(Sample.CODE),
        batch=DemoClass(
            label="batch",
            class_name=(batch[0] if batch else spec.classes[-1]).name,
            first_token_target_s=None,
        ),
        batch_trace=load_sample(Sample.BATCH),
    )


@dataclass(slots=True, kw_only=True)
class _Stage:
    """What the runs need."""

    direct: Run
    giveway: Run
    together: bool
    work_per_s: float
    limits: Limits
    children: list[Child]
    emulators: list[Target]


@asynccontextmanager
async def _stage(
    settings: DemoSettings, traffic: DemoTraffic, view: DemoView
) -> AsyncIterator[_Stage]:
    async with AsyncExitStack() as stack:
        match settings.engine:
            case Emulated() as emulated:
                stage = await _emulated_stage(settings, emulated, traffic, stack, view)
            case Upstream() as upstream:
                stage = await _upstream_stage(settings, upstream, traffic, stack, view)
        yield stage


async def _emulated_stage(
    settings: DemoSettings,
    emulated: Emulated,
    traffic: DemoTraffic,
    stack: AsyncExitStack,
    view: DemoView,
) -> _Stage:
    view.phase("starting the emulated engine and giveway", lasts_s=None)
    engines = [_emulator(emulated) for _ in range(1 if settings.in_turn else 2)]
    await asyncio.gather(*(stack.enter_async_context(engine) for engine in engines))
    urls = [engine.ready.group(1) for engine in engines]
    proxy = await stack.enter_async_context(_proxy(urls[-1], settings))
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
    return _Stage(
        direct=_run("direct", target, target.address, scale, settings),
        giveway=_run("giveway", target, proxy.ready.group(1), scale, settings),
        together=not settings.in_turn,
        work_per_s=capacity,
        limits=limits,
        children=[*engines, proxy],
        emulators=[Target.parse(url, model=EMULATED_MODEL) for url in urls],
    )


async def _upstream_stage(
    settings: DemoSettings,
    upstream: Upstream,
    traffic: DemoTraffic,
    stack: AsyncExitStack,
    view: DemoView,
) -> _Stage:
    view.phase(f"looking at {upstream.url}", lasts_s=None)
    model = upstream.model or await find_model(upstream.url, api_key=upstream.api_key)
    named = Target.parse(upstream.url, model=model, api_key=upstream.api_key)
    target, scale = await measure_text_scale(named)
    proxy = await stack.enter_async_context(_proxy(target.address, settings))
    capacity = await measure_capacity(
        LoadClient(target, prompts=PromptWriter(scale, seed=settings.seed)),
        mixed_requests(traffic, seed=settings.seed, limits=upstream.limits),
        on_start=lambda lasts_s: view.phase(
            f"finding out how much {model} at {target.address} can do", lasts_s=lasts_s
        ),
    )
    return _Stage(
        direct=_run("direct", target, target.address, scale, settings),
        giveway=_run("giveway", target, proxy.ready.group(1), scale, settings),
        together=False,
        work_per_s=capacity,
        limits=upstream.limits,
        children=[proxy],
        emulators=[],
    )


def _run(name: str, target: Target, url: str, scale: TextScale, settings: DemoSettings) -> Run:
    own = Target.parse(url, model=target.model, api=target.api, api_key=target.api_key)
    return Run(name=name, client=LoadClient(own, prompts=PromptWriter(scale, seed=settings.seed)))


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


def _proxy(upstream: str, settings: DemoSettings) -> Child:
    policy = () if settings.policy is None else ("--policy", str(settings.policy))
    return Child(
        "giveway",
        [
            *("serve", "--upstream", upstream, "--host", "127.0.0.1", "--port", "0"),
            *("--admin-host", "127.0.0.1", "--admin-port", "0", *policy),
        ],
        ready=_PROXY_READY,
    )


async def _run_both(
    settings: DemoSettings,
    stage: _Stage,
    plan: Sequence[PlannedRequest],
    view: DemoView,
    traffic: DemoTraffic,
) -> None:
    async def load(run: Run) -> None:
        def started(zero_s: float) -> None:
            run.zero_s = zero_s

        run.cost = await run_open_loop(
            run.client, plan, window_s=settings.window_s, record=run.record, on_start=started
        )

    async def show() -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            view.show(_picture(settings, traffic, stage))

    shower = asyncio.create_task(show())
    try:
        if stage.together:
            view.phase(
                f"{len(plan)} requests to each of two equal engines, one behind giveway",
                lasts_s=settings.window_s,
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(load(stage.direct))
                group.create_task(load(stage.giveway))
        else:
            view.phase(f"{len(plan)} requests directly", lasts_s=settings.window_s)
            await load(stage.direct)
            await asyncio.sleep(SETTLE_S)
            view.phase("the same through giveway", lasts_s=settings.window_s)
            await load(stage.giveway)
    finally:
        shower.cancel()
        await asyncio.gather(shower, return_exceptions=True)


def _picture(settings: DemoSettings, traffic: DemoTraffic, stage: _Stage) -> DemoPicture:
    now_s = time.monotonic()
    batch_from_s = settings.window_s * DUMP_AT_RATIO
    elapsed = [
        run.elapsed_s(now_s, window_s=settings.window_s) for run in (stage.direct, stage.giveway)
    ]
    direct, giveway = (
        run_figures(run.record, traffic.classes, now_s=at_s, batch_from_s=batch_from_s)
        for run, at_s in zip((stage.direct, stage.giveway), elapsed, strict=True)
    )
    return DemoPicture(
        classes=traffic.classes,
        window_s=settings.window_s,
        batch_from_s=batch_from_s,
        elapsed_s=(elapsed[0], elapsed[1]),
        figures=(direct, giveway),
    )


async def _while_alive(children: Sequence[Child], work: Coroutine[None, None, None]) -> None:
    """Do the work; `ChildError` as soon as a child ends before it."""
    task = asyncio.create_task(work)
    watchers = [asyncio.create_task(child.failed()) for child in children]
    try:
        done, _ = await asyncio.wait({task, *watchers}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (task, *watchers):
            each.cancel()
        await asyncio.gather(task, *watchers, return_exceptions=True)
    for watcher in watchers:
        if watcher in done:
            watcher.result()
    await task


async def _notes(stage: _Stage) -> tuple[str, ...]:
    """What did not go as it should: a machine that was too slow, answers that broke."""
    notes: list[str] = []
    for target in stage.emulators:
        lag_s = await engine_lag_s(target)
        if lag_s is not None and lag_s > _LAG_LIMIT_S:
            notes.append(
                f"This machine did not keep up: an emulated engine was {lag_s * 1000:.0f} ms late "
                "on average, so the figures are about the machine too. Try --in-turn, or a slower "
                "--pod."
            )
    costs = [run.cost for run in (stage.direct, stage.giveway) if run.cost is not None]
    if costs:
        cores = max(cost.cpu_s for cost in costs) / max(cost.wall_s for cost in costs)
        if cores > _CLIENT_CORES_LIMIT:
            notes.append(
                f"The load client used {cores * 100:.0f} % of a core: it may have measured itself."
            )
    return tuple(notes)
