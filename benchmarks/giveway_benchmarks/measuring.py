"""How fast? All proxies, all scenarios, round by round."""

import random
from collections.abc import Iterator, Sequence

from giveway_benchmarks.load_program import RunResult
from giveway_benchmarks.proxies import Kind
from giveway_benchmarks.results import SpeedRow
from giveway_benchmarks.scenarios import SCENARIOS, Scenario
from giveway_benchmarks.stands import DIRECT, Stand, stand

_SEATS = 10_000
"""More than any scenario needs: what is measured is the way, not the wait."""


def measure_speed(
    kinds: Sequence[Kind],
    scenarios: Sequence[str],
    *,
    rounds: int,
    seed: int,
    speed: float,
    realtime: bool,
) -> Iterator[SpeedRow]:
    """In each round the scenarios in random order, and in each all proxies in random order."""
    order = random.Random(seed)
    names = [DIRECT, *(kind.name for kind in kinds)]
    with stand(kinds, seats=_SEATS, realtime=realtime) as running:
        for number in range(rounds):
            for scenario in order.sample(list(scenarios), len(scenarios)):
                for name in order.sample(names, len(names)):
                    yield _measure(running, SCENARIOS[scenario], name, f"{seed}.{number}", speed)


def _measure(running: Stand, scenario: Scenario, name: str, round_: str, speed: float) -> SpeedRow:
    patience = running.patience(name)
    with running.undisturbed(name):
        result = running.load.run(
            [scenario.group],
            port=running.port(name),
            pids=running.pids(name),
            warm_s=scenario.warm_s * speed * patience,
            window_s=scenario.window_s * speed,
            end_s=10 * patience,
            awake=scenario.awake,
        )
    return _row(result, scenario, name, round_)


def _row(result: RunResult, scenario: Scenario, name: str, round_: str) -> SpeedRow:
    (group,) = result.groups
    units = group.tokens if scenario.group.plan == "stream" else group.answers
    problems = dict(group.problems)
    if units == 0:
        problems["nothing_came"] = 1
    if result.blocked_tokens:
        problems["blocked_tokens"] = result.blocked_tokens
    return SpeedRow(
        round=round_,
        scenario=scenario.name,
        proxy=name,
        units_per_s=units / result.window_s,
        cpu_us=result.cpu_s / max(1, units) * 1e6,
        p50_us=group.delays.p50_us,
        p99_us=group.delays.p99_us,
        load_share=result.load_cpu_s / result.window_s,
        problems=problems,
    )
