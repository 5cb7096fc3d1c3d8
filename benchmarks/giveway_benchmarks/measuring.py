"""One measurement: one proxy, one scenario, one round."""

from dataclasses import dataclass

import msgspec

from giveway_benchmarks.load_program import LoadProgram, RunResult
from giveway_benchmarks.processes import first_in_line
from giveway_benchmarks.proxies import Proxy
from giveway_benchmarks.scenarios import Scenario

DIRECT = "direct"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What it gave."""

    round: int
    scenario: str
    proxy: str
    units_per_s: float
    """Requests or chunks."""
    cpu_us: float
    """Of the proxy, for each of them."""
    p50_us: float
    p99_us: float
    load_share: float
    """Of its core, by the load program: near 1 it is itself the limit."""
    problems: dict[str, int]
    """Of any kind. A row that has some is a failure, whatever its figures."""

    @property
    def failed(self) -> bool:
        return bool(self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What stays the same for all measurements."""

    load: LoadProgram
    proxies: dict[str, Proxy]
    realtime: bool
    speed: float = 1.0
    """Longer or shorter windows than usual."""

    def measure(self, scenario: Scenario, name: str, number: int) -> Row:
        proxy = self.proxies.get(name)
        pids = proxy.pids() if proxy is not None else []
        with first_in_line([self.load.pid, *pids], wanted=self.realtime):
            result = self.load.run(
                scenario.groups(),
                port=proxy.port if proxy is not None else self.load.engine_port,
                pids=pids,
                warm_s=scenario.warm_s * self.speed,
                window_s=scenario.window_s * self.speed,
            )
        return _row(result, scenario, name, number)


def _row(result: RunResult, scenario: Scenario, name: str, number: int) -> Row:
    units = scenario.units(result)
    problems: dict[str, int] = {}
    for group in result.groups:
        problems.update(group.problems)
    if units == 0:
        problems["nothing_came"] = 1
    if result.blocked_tokens:
        problems["blocked_tokens"] = result.blocked_tokens
    return Row(
        round=number,
        scenario=scenario.name,
        proxy=name,
        units_per_s=units / result.window_s,
        cpu_us=result.cpu_s / max(1, units) * 1e6,
        p50_us=result.groups[0].delays.p50_us,
        p99_us=result.groups[0].delays.p99_us,
        load_share=result.load_cpu_s / result.window_s,
        problems=problems,
    )
