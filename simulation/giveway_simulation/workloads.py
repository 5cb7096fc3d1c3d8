"""What load are the algorithms compared under?

Three classes of four tenants each, on lengths and arrivals of published traces
(`WORKLOAD_SAMPLE.md`):

| rank | lengths and arrivals | work | tenants' requests, % | first token, per token |
|---|---|---|---|---|
| 0 | Azure conversation | 30 % | 55, 25, 15, 5 | 1 s, 50 ms |
| 1 | Azure code completion, in bursts | 30 % | 70, 10, 10, 10 | 5 s, 100 ms |
| 2 | arXiv summaries: one tenant dumps jobs of 100 | 40 % | 40, 20, 20, 20 | none |

Load 1.0 is what the emulated H100 can do: 13.1 requests of this mix a second. A seed chooses the
place in the traces, who sends which row, and the batch arrivals. How a trace comes to the wanted
rate is a choice (`Pace`), and the figures of single runs depend on it, and on the place, by tens of
points: the hour that was recorded has quiet and crowded parts.
"""

import csv
import gzip
import io
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from itertools import count, islice, takewhile

FULL_LOAD_PER_S = 13.1
"""Requests of the mix a second at load 1.0, on the H100 with 1,024 batched tokens."""
OUTPUT_TOKEN_WORK = 6.0
"""Time of an output token in prompt tokens: about this, over the loads of interest, on the H100."""
JOB_REQUESTS = 100
"""What the dumping tenant sends at once."""
SAMPLE = "workload_sample.csv.gz"


class Pace(StrEnum):
    """How a trace is brought to a rate."""

    STRETCHED = "stretched"
    """Each cut lasts as long as the run: bursts stay, and the offered requests are as many for all
    places in the trace. What seeds differ by is then not how much is asked."""
    RECORDED = "recorded"
    """The clock of the whole trace goes faster or slower by one factor: a crowded part of it stays
    more than a quiet one, and what a run is offered depends on its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request that will come."""

    at_s: float
    rank: int
    tenant: str
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """When a request of a class counts as served in time. Both have to hold."""

    first_token_s: float
    token_s: float
    """Mean time per output token after the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLoad:
    """One class of the comparison."""

    source: str
    work_share: float
    tenant_shares: tuple[float, ...]
    objective: Objective | None
    """None: best effort."""


CLASS_LOADS = (
    ClassLoad(
        source="chat",
        work_share=0.3,
        tenant_shares=(0.55, 0.25, 0.15, 0.05),
        objective=Objective(first_token_s=1.0, token_s=0.050),
    ),
    ClassLoad(
        source="code",
        work_share=0.3,
        tenant_shares=(0.7, 0.1, 0.1, 0.1),
        objective=Objective(first_token_s=5.0, token_s=0.100),
    ),
    ClassLoad(source="batch", work_share=0.4, tenant_shares=(0.4, 0.2, 0.2, 0.2), objective=None),
)


@dataclass(frozen=True, slots=True)
class _Row:
    gap_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def work(self) -> float:
        return self.prompt_tokens + OUTPUT_TOKEN_WORK * self.output_tokens


def comparison_workload(
    load: float, *, seed: int, duration_s: float, pace: Pace = Pace.STRETCHED
) -> tuple[Arrival, ...]:
    """All arrivals of one run at `load` times what the pod can do, in order."""
    generator = random.Random(seed)  # noqa: S311
    arrivals: list[Arrival] = []
    for rank, (class_load, per_s) in enumerate(zip(CLASS_LOADS, rates(load), strict=True)):
        rows = _rows(class_load.source)
        if class_load.objective is not None:
            arrivals += _traced(
                rows, per_s, pace=pace, rank=rank, generator=generator, duration_s=duration_s
            )
        else:
            arrivals += _batch(rows, per_s, rank=rank, generator=generator, duration_s=duration_s)
    return tuple(sorted(arrivals, key=lambda arrival: arrival.at_s))


def rates(load: float) -> tuple[float, ...]:
    """Requests a second of each class."""
    parts = [class_load.work_share / _mean_work(class_load.source) for class_load in CLASS_LOADS]
    return tuple(load * FULL_LOAD_PER_S * part / sum(parts) for part in parts)


def uneven_tenants(
    shares: Sequence[float], per_s: float, *, rank: int, seed: int, duration_s: float
) -> tuple[Arrival, ...]:
    """Conversations of one class at random times, from equal tenants with unequal shares."""
    generator = random.Random(seed)  # noqa: S311
    rows = _rows("chat")
    return tuple(
        Arrival(
            at_s=at_s,
            rank=rank,
            tenant=_tenant(rank, shares, generator=generator),
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
        )
        for at_s in _poisson(per_s, generator=generator, duration_s=duration_s)
        for row in [generator.choice(rows)]
    )


def _traced(
    rows: Sequence[_Row],
    per_s: float,
    *,
    pace: Pace,
    rank: int,
    generator: random.Random,
    duration_s: float,
) -> Iterator[Arrival]:
    """A cut of the trace at the wanted rate. A trace that is too short starts again."""
    start = generator.randrange(len(rows))
    onward = (rows[at % len(rows)] for at in count(start))
    if pace is Pace.STRETCHED:
        cut = list(islice(onward, round(per_s * duration_s)))
        factor = duration_s / sum(row.gap_s for row in cut)
        timed = _in_time(cut, factor)
    else:
        factor = len(rows) / sum(row.gap_s for row in rows) / per_s
        timed = takewhile(lambda pair: pair[0] < duration_s, _in_time(onward, factor))
    for at_s, row in timed:
        yield Arrival(
            at_s=at_s,
            rank=rank,
            tenant=_tenant(rank, CLASS_LOADS[rank].tenant_shares, generator=generator),
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
        )


def _in_time(rows: Iterable[_Row], factor: float) -> Iterator[tuple[float, _Row]]:
    """When each row comes if all gaps are longer by a factor."""
    at_s = 0.0
    for row in rows:
        at_s += row.gap_s * factor
        yield at_s, row


def _batch(
    rows: Sequence[_Row],
    per_s: float,
    *,
    rank: int,
    generator: random.Random,
    duration_s: float,
) -> Iterator[Arrival]:
    """The first tenant's jobs at about even intervals, the others' requests at random."""
    dumping, *others = CLASS_LOADS[rank].tenant_shares
    period_s = JOB_REQUESTS / (per_s * dumping)
    times = [
        (at_s, 0)
        for job in range(round(duration_s / period_s))
        for at_s in [(job + generator.random()) * period_s] * JOB_REQUESTS
    ]
    for number, share in enumerate(others, start=1):
        poisson = _poisson(per_s * share, generator=generator, duration_s=duration_s)
        times += [(at_s, number) for at_s in poisson]
    for at_s, number in sorted(times):
        row = generator.choice(rows)
        yield Arrival(
            at_s=at_s,
            rank=rank,
            tenant=tenant_name(rank, number),
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
        )


def _poisson(per_s: float, *, generator: random.Random, duration_s: float) -> Iterator[float]:
    at_s = generator.expovariate(per_s)
    while at_s < duration_s:
        yield at_s
        at_s += generator.expovariate(per_s)


def _tenant(rank: int, shares: Sequence[float], *, generator: random.Random) -> str:
    (number,) = generator.choices(range(len(shares)), weights=shares)
    return tenant_name(rank, number)


def tenant_name(rank: int, number: int) -> str:
    """The name of the class's tenant that has share `number`."""
    return f"class-{rank}-tenant-{number}"


def _mean_work(source: str) -> float:
    rows = _rows(source)
    return sum(row.work for row in rows) / len(rows)


@cache
def _rows(source: str) -> tuple[_Row, ...]:
    packed = resources.files("giveway_simulation").joinpath(SAMPLE).read_bytes()
    with io.StringIO(gzip.decompress(packed).decode("ascii")) as text:
        return tuple(
            _Row(
                int(row["gap_ms"] or 0) / 1000.0,
                int(row["prompt_tokens"]),
                max(1, int(row["output_tokens"])),
            )
            for row in csv.DictReader(text)
            if row["source"] == source
        )
