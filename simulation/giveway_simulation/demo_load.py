"""Which requests does the demonstration send, and when?

A chat service and a code completion service send as real traffic did (rows of a trace, their time
stretched to the rate that is wanted), and a while after the start one batch job hands in all of its
summaries at once. The same plan goes to the engine directly and through giveway.

Load is counted in *work*: prompt tokens + `OUTPUT_WORK` x output tokens, which is about what they
cost a pod's time. Load 1 is what the engine can do; the batch job's work is spread over the window
in this count, though it all arrives at one moment. Shares are those of the comparison in
docs/algorithms.md: 30 % chat, 30 % code, 40 % batch.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from giveway_simulation.load_records import PlannedRequest
from giveway_simulation.traces import TraceRow

OUTPUT_WORK = 6.0
"""An output token costs a pod about as much time as six prompt tokens (engine model, H100)."""

CHAT_SHARE, CODE_SHARE, BATCH_SHARE = 0.3, 0.3, 0.4
DUMP_AT_RATIO = 0.15
"""When in the window the batch job arrives: late enough that the time before it shows."""

_TENANTS = (("first", 0.55), ("second", 0.25), ("third", 0.15), ("fourth", 0.05))


class DemoLoadError(Exception):
    """The wanted load cannot be made from these traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoClass:
    """One kind of traffic of the demonstration and the service class that it asks for."""

    label: str
    """What people read: chat, code, batch."""
    class_name: str
    """The policy's name for it."""
    first_token_target_s: float | None
    """None: nobody watches it appear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTraffic:
    """The classes and where their lengths and times come from."""

    chat: DemoClass
    chat_trace: Sequence[TraceRow]
    code: DemoClass
    code_trace: Sequence[TraceRow]
    batch: DemoClass
    batch_trace: Sequence[TraceRow]

    @property
    def classes(self) -> tuple[DemoClass, ...]:
        return (self.chat, self.code, self.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may be, so that it fits the engine's context."""

    prompt_tokens: int = 16_384
    output_tokens: int = 2_048
    scale: float = 1.0
    """Lengths of the trace times this, for an engine so slow that it would answer too few."""

    def of(self, row: TraceRow) -> tuple[int, int]:
        """Prompt and output of a row, as they are sent."""
        return (
            min(max(1, round(row.prompt_tokens * self.scale)), self.prompt_tokens),
            min(max(1, round(row.output_tokens * self.scale)), self.output_tokens),
        )


def work_of(prompt_tokens: int, output_tokens: int) -> float:
    """What a request costs the engine, in prompt tokens."""
    return prompt_tokens + OUTPUT_WORK * output_tokens


def plan_demo(
    traffic: DemoTraffic,
    *,
    work_per_s: float,
    window_s: float,
    seed: int,
    limits: Limits,
) -> tuple[PlannedRequest, ...]:
    """Requests worth `work_per_s` x `window_s`, in order; equal arguments give an equal plan."""
    generator = random.Random(seed)  # noqa: S311 - chooses rows of a trace, no secret
    total = work_per_s * window_s
    plan = [
        *_stretched(
            traffic.chat,
            traffic.chat_trace,
            work=total * CHAT_SHARE,
            window_s=window_s,
            generator=generator,
            limits=limits,
        ),
        *_stretched(
            traffic.code,
            traffic.code_trace,
            work=total * CODE_SHARE,
            window_s=window_s,
            generator=generator,
            limits=limits,
        ),
        *_dump(
            traffic.batch,
            traffic.batch_trace,
            work=total * BATCH_SHARE,
            at_s=window_s * DUMP_AT_RATIO,
            generator=generator,
            limits=limits,
        ),
    ]
    plan.sort(key=lambda planned: planned.due_s)
    return tuple(plan)


def mixed_requests(
    traffic: DemoTraffic, *, seed: int, limits: Limits, batch: bool = True
) -> Iterator[PlannedRequest]:
    """An endless mix with the shares of the plan, all due at once: to probe what an engine can.

    `batch` False: the interactive classes alone.
    """
    generator = random.Random(seed)  # noqa: S311 - as above
    sources = (
        (traffic.chat, traffic.chat_trace, CHAT_SHARE),
        (traffic.code, traffic.code_trace, CODE_SHARE),
        (traffic.batch, traffic.batch_trace, BATCH_SHARE if batch else 0.0),
    )
    weights = [
        share / (sum(_work(row, limits) for row in trace) / len(trace))
        for _, trace, share in sources
    ]
    while True:
        ((demo_class, trace, _),) = generator.choices(sources, weights)
        row = generator.choice(trace)
        yield _planned(demo_class, row, due_s=0.0, tenant="probe", limits=limits)


def _stretched(
    demo_class: DemoClass,
    trace: Sequence[TraceRow],
    *,
    work: float,
    window_s: float,
    generator: random.Random,
    limits: Limits,
) -> list[PlannedRequest]:
    """Rows in a row from a random place on, as many as make the work, over the whole window."""
    times = [row.arrival_s for row in trace if row.arrival_s is not None]
    if len(times) < len(trace) or len(trace) < 2:
        raise DemoLoadError(f"the trace for {demo_class.label} has no arrival times")
    mean_work = sum(_work(row, limits) for row in trace) / len(trace)
    likely = int(work / mean_work) + 1
    if likely * 2 > len(trace):
        raise DemoLoadError(
            f"the trace for {demo_class.label} has {len(trace)} rows, about {likely * 2} are "
            "needed: a shorter --seconds, a lower --load or a longer trace"
        )
    start = generator.randrange(len(trace) - likely * 2 + 1)
    end = start
    done = 0.0
    while done < work and end < len(trace) - 1:
        done += _work(trace[end], limits)
        end += 1
    first_s, span_s = times[start], max(times[end] - times[start], 1e-9)
    return [
        _planned(
            demo_class,
            row,
            due_s=(at_s - first_s) / span_s * window_s,
            tenant=row.tenant or _tenant(demo_class, generator),
            limits=limits,
        )
        for row, at_s in zip(trace[start:end], times[start:end], strict=True)
    ]


def _dump(
    demo_class: DemoClass,
    trace: Sequence[TraceRow],
    *,
    work: float,
    at_s: float,
    generator: random.Random,
    limits: Limits,
) -> list[PlannedRequest]:
    """One tenant's summaries, all at once, worth the work."""
    index = generator.randrange(len(trace))
    plan: list[PlannedRequest] = []
    done = 0.0
    while done < work:
        row = trace[index % len(trace)]
        index += 1
        done += _work(row, limits)
        plan.append(_planned(demo_class, row, due_s=at_s, tenant="summaries", limits=limits))
    return plan


def _planned(
    demo_class: DemoClass, row: TraceRow, *, due_s: float, tenant: str, limits: Limits
) -> PlannedRequest:
    prompt_tokens, output_tokens = limits.of(row)
    return PlannedRequest(
        due_s=due_s,
        class_name=demo_class.class_name,
        tenant=tenant,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
    )


def _work(row: TraceRow, limits: Limits) -> float:
    return work_of(*limits.of(row))


def _tenant(demo_class: DemoClass, generator: random.Random) -> str:
    names = [name for name, _ in _TENANTS]
    shares = [share for _, share in _TENANTS]
    return f"{demo_class.label}-{generator.choices(names, shares)[0]}"
