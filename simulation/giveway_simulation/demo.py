"""What does giveway change? The same load on an engine, directly and through giveway (Y14).

The load is planned once (`demo_load`) and sent twice. Emulated engines get it at the same time: two
equal ones, one of them behind giveway, so that both can be watched side by side. A real engine gets
it one after the other. Everything that was started is stopped again, whatever happens.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Protocol

from giveway_simulation.child_processes import Child
from giveway_simulation.demo_figures import RunFigures, run_figures
from giveway_simulation.demo_load import DUMP_AT_RATIO, DemoClass, DemoTraffic, plan_demo
from giveway_simulation.demo_stage import DemoSettings, PhaseView, Run, Stage, set_stage
from giveway_simulation.demo_traffic import demo_traffic
from giveway_simulation.demo_verdict import Verdict, judge
from giveway_simulation.load_generating import run_open_loop
from giveway_simulation.load_probing import engine_lag_s
from giveway_simulation.load_records import Ending, Measured, PlannedRequest

REFRESH_S = 0.5
SETTLE_S = 2.0
"""Between two runs on one engine: what was cut off has left it by then."""
_LAG_LIMIT_S = 0.005
"""Of an emulated engine's steps, on average; they take 30 to 40 ms."""
_CLIENT_CORES_LIMIT = 0.7


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


class DemoView(PhaseView, Protocol):
    """Who shows it."""

    def show(self, picture: DemoPicture) -> None:
        """The figures as they stand."""


async def run_demo(settings: DemoSettings, view: DemoView) -> DemoResult:
    """Start what is needed, run both, judge; raises `ChildError`, `EngineProbeError`,
    `DemoLoadError`."""
    traffic = demo_traffic(settings.spec, chat_trace=settings.chat_trace)
    async with set_stage(settings, traffic, view) as stage:
        plan = plan_demo(
            traffic,
            work_per_s=stage.work_per_s * settings.load,
            window_s=settings.window_s,
            seed=settings.seed,
            limits=stage.limits,
        )
        await _run_both(settings, stage, plan, view, traffic)
        notes = await _notes(stage, traffic)
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


async def _run_both(
    settings: DemoSettings,
    stage: Stage,
    plan: Sequence[PlannedRequest],
    view: DemoView,
    traffic: DemoTraffic,
) -> None:
    async def load(run: Run) -> None:
        assert run.client is not None

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
            await _while_alive(stage.children, load(stage.direct), load(stage.giveway))
        else:
            view.phase(f"{len(plan)} requests directly", lasts_s=settings.window_s)
            await _while_alive(stage.children, load(stage.direct))
            await asyncio.sleep(SETTLE_S)
            await stage.open_giveway()
            view.phase("the same through giveway", lasts_s=settings.window_s)
            await _while_alive(stage.children, load(stage.giveway))
    finally:
        shower.cancel()
        await asyncio.gather(shower, return_exceptions=True)


def _picture(settings: DemoSettings, traffic: DemoTraffic, stage: Stage) -> DemoPicture:
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


async def _while_alive(children: Sequence[Child], *loads: Coroutine[None, None, None]) -> None:
    """Do the loads together; `ChildError` as soon as a child ends before them."""

    async def all_loads() -> None:
        await asyncio.gather(*loads)

    work = asyncio.create_task(all_loads())
    watchers = [asyncio.create_task(child.failed()) for child in children]
    try:
        await asyncio.wait({work, *watchers}, return_when=asyncio.FIRST_COMPLETED)
        for watcher in watchers:
            if watcher.done():
                watcher.result()
        await work
    finally:
        for each in (work, *watchers):
            each.cancel()
        await asyncio.gather(work, *watchers, return_exceptions=True)


async def _notes(stage: Stage, traffic: DemoTraffic) -> tuple[str, ...]:
    """What did not go as it should: a machine too slow, answers that broke, classes mistaken."""
    notes = list(stage.notes)
    for target in stage.emulators:
        lag_s = await engine_lag_s(target)
        if lag_s is not None and lag_s > _LAG_LIMIT_S:
            notes.append(
                f"This machine did not keep up: an emulated engine's steps were "
                f"{lag_s * 1000:.0f} ms late on average, so the figures are about the machine too. "
                "Try --in-turn, or a slower --pod."
            )
    costs = [run.cost for run in (stage.direct, stage.giveway) if run.cost is not None]
    cores = max((cost.cores for cost in costs), default=0.0)
    if cores > _CLIENT_CORES_LIMIT:
        notes.append(
            f"The load client used {cores * 100:.0f} % of a core: it may have measured itself."
        )
    for run in (stage.direct, stage.giveway):
        broken = [m for m in run.record if m.ending in {Ending.FAILED, Ending.NOT_SENT}]
        if broken:
            notes.append(
                f"{len(broken)} requests broke ({run.name}), the first one: "
                f"{broken[0].error or broken[0].ending}."
            )
        refused = Counter(m.error for m in run.record if m.ending is Ending.REFUSED)
        notes.extend(
            f"{count} requests were refused ({run.name}): {error}"
            for error, count in refused.most_common(2)
        )
    notes.extend(_mistaken_classes(stage.giveway.record, traffic))
    return tuple(notes)


def _mistaken_classes(record: Sequence[Measured], traffic: DemoTraffic) -> list[str]:
    """Classes that the policy did not let the load ask for."""
    notes = []
    for demo_class in traffic.classes:
        served = Counter(
            m.served_class
            for m in record
            if m.planned.class_name == demo_class.class_name and m.served_class is not None
        )
        for name, count in served.most_common(1):
            if name != demo_class.class_name:
                notes.append(
                    f"giveway served {count} of {demo_class.label}'s requests as {name}, though "
                    f"they asked for {demo_class.class_name}: the policy has to trust "
                    "X-Giveway-Class and let the fallback tenant ask for it (identity)."
                )
    return notes
