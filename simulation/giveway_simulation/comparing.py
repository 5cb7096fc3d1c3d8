"""How do the algorithms compare on one pod, at loads below and above what it can do?

One H100 with Llama-3-8B and 1,024 batched tokens, the load of `workloads`, 900 s of which 120 to
840 are judged. Every arrival waits until it is served. `python -m giveway_simulation.comparing`
prints the table: share of the first class's requests within their objective / of the second's /
batch tokens a second.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from giveway_scheduler import Algorithm

from giveway_simulation.baselines import Direct, StrictOrder
from giveway_simulation.coupling import PUBLISHED_SEATS, ScheduledAdmission, comparison_settings
from giveway_simulation.engine_model import EngineLimits, SchedulingPolicy
from giveway_simulation.engine_pods import DEFAULT_POD, PODS
from giveway_simulation.measures import Window, attainment_ratio, tokens_per_s
from giveway_simulation.simulating import Admission, Run, simulate
from giveway_simulation.workloads import CLASS_LOADS, Pace, comparison_workload

DURATION_S = 900.0
LOADS = (0.8, 1.2, 2.0)
SEEDS = (0, 1, 2, 3, 4)

_FCFS = EngineLimits()
_PRIORITY = EngineLimits(scheduling_policy=SchedulingPolicy.PRIORITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """What stands before which engine."""

    make: Callable[[int], Admission]
    """From the run's seed."""
    limits: EngineLimits


FIFO = "FIFO into vLLM"
STRICT = f"strict priority, {PUBLISHED_SEATS} seats"
ENGINE_PRIORITY = "vLLM priority scheduling"

ARRANGEMENTS: Mapping[str, Arrangement] = {
    FIFO: Arrangement(make=lambda _: Direct(), limits=_FCFS),
    STRICT: Arrangement(make=lambda _: StrictOrder(seats=PUBLISHED_SEATS), limits=_FCFS),
    ENGINE_PRIORITY: Arrangement(make=lambda _: Direct(), limits=_PRIORITY),
    **{
        algorithm.value: Arrangement(
            make=lambda seed, algorithm=algorithm: ScheduledAdmission(  # type: ignore[misc]
                comparison_settings(algorithm), seed=seed
            ),
            limits=_PRIORITY,
        )
        for algorithm in Algorithm
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One cell of the table."""

    attained: tuple[float, float]
    """Shares of the first two classes' requests that met their objective."""
    batch_tokens_per_s: float
    tokens_per_s: float

    def __str__(self) -> str:
        first, second = (f"{100 * ratio:.0f}" for ratio in self.attained)
        return f"{first} / {second} / {self.batch_tokens_per_s:.0f}"


def judge(
    name: str,
    load: float,
    *,
    seed: int,
    duration_s: float = DURATION_S,
    pace: Pace = Pace.STRETCHED,
) -> Figures:
    """Run one arrangement once."""
    arrangement = ARRANGEMENTS[name]
    run = simulate(
        comparison_workload(load, seed=seed, duration_s=duration_s, pace=pace),
        arrangement.make(seed),
        pod=PODS[DEFAULT_POD],
        limits=arrangement.limits,
        duration_s=duration_s,
    )
    return figures_of(run)


def figures_of(run: Run) -> Figures:
    """Judge the arrivals after the first 2/15 of the run and before its last 1/15."""
    window = Window(start_s=run.duration_s * 2 / 15, end_s=run.duration_s * 14 / 15)
    first, second = (
        attainment_ratio(run, rank=rank, objective=each.objective, window=window)
        for rank, each in enumerate(CLASS_LOADS)
        if each.objective is not None
    )
    return Figures(
        attained=(first, second),
        batch_tokens_per_s=tokens_per_s(run, window=window, rank=len(CLASS_LOADS) - 1),
        tokens_per_s=tokens_per_s(run, window=window),
    )


def mean_of(figures: Sequence[Figures]) -> Figures:
    """The mean over seeds."""
    return Figures(
        attained=(
            fmean(each.attained[0] for each in figures),
            fmean(each.attained[1] for each in figures),
        ),
        batch_tokens_per_s=fmean(each.batch_tokens_per_s for each in figures),
        tokens_per_s=fmean(each.tokens_per_s for each in figures),
    )


def main() -> None:
    """Print the table in Markdown, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many runs of each")
    parser.add_argument(
        "--pace", type=Pace, choices=list(Pace), default=Pace.STRETCHED, help="of the traces"
    )
    arguments = parser.parse_args()
    print("| | " + " | ".join(f"{load}x load" for load in LOADS) + " |")
    print("|---" * (len(LOADS) + 1) + "|")
    for name in ARRANGEMENTS:
        cells = [
            mean_of(
                [
                    judge(name, load, seed=seed, pace=arguments.pace)
                    for seed in range(arguments.seeds)
                ]
            )
            for load in LOADS
        ]
        print(f"| {name} | " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
