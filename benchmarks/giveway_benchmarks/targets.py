"""Is giveway as fast as it is meant to be? Each target with what was measured."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from giveway_benchmarks.results import CrowdRow, ResultRow
from giveway_benchmarks.tables import Figure, Speeds, cpu_us, held_mb, p99_us, units_per_s

GIVEWAY = "giveway"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target."""

    what: str
    bound: str
    measured: float | None
    """None: what it is compared with was not measured."""
    unit: str
    met: bool | None

    @property
    def word(self) -> str:
        return {None: "not measured", True: "met", False: "**missed**"}[self.met]


def verdicts(rows: Sequence[ResultRow]) -> list[Verdict]:
    speeds = Speeds(rows)

    def ratio(
        what: str, scenario: str, figure: Figure, other: str, *, least: float = 0, most: float = 0
    ) -> Verdict:
        value = speeds.ratio(scenario, GIVEWAY, other, figure)
        return _judged(f"{what} / {other}'s", value, "x", least=least, most=most)

    return [
        ratio("requests/s", "requests", units_per_s, "envoy", least=1.0),
        ratio("requests/s", "requests", units_per_s, "smg", least=4.0),
        ratio("requests/s", "requests", units_per_s, "litellm", least=100.0),
        ratio("CPU per request", "requests", cpu_us, "common", most=0.33),
        ratio("chunks/s, 64 streams", "chunks-64", units_per_s, "envoy", least=1.1),
        ratio("chunks/s, 512 streams", "chunks-512", units_per_s, "envoy", least=1.3),
        ratio("chunks/s, 64 streams", "chunks-64", units_per_s, "litellm", least=100.0),
        ratio("CPU per chunk, 64 streams", "chunks-64", cpu_us, "haproxy", most=1.25),
        ratio("CPU per chunk, 64 streams", "chunks-64", cpu_us, "common", most=0.65),
        ratio("CPU per chunk, 64 streams", "chunks-64", cpu_us, "smg", most=1.0),
        ratio("p99 delay of a token burst", "step", p99_us, "envoy", most=0.6),
        _judged(
            "memory of 1,000 queued requests", held_mb(rows, "held-1000", GIVEWAY), "MB", most=16.0
        ),
        _judged(
            "memory of 100 queued requests of 10 MB",
            held_mb(rows, "held-big", GIVEWAY),
            "MB",
            most=80.0,
        ),
        *_of_crowds(rows),
    ]


def _judged(
    what: str, value: float | None, unit: str, *, least: float = 0, most: float = 0
) -> Verdict:
    bound = f"≥ {least:g} {unit}" if least else f"≤ {most:g} {unit}"
    met = None if value is None else value >= least if least else value <= most
    return Verdict(what=what, bound=bound, measured=value, unit=unit, met=met)


def _of_crowds(rows: Sequence[ResultRow]) -> list[Verdict]:
    crowd_rows = [row for row in rows if isinstance(row, CrowdRow)]

    def of(crowd: str, group: str, figure: Callable[[CrowdRow], float]) -> float | None:
        return _median(
            figure(row) for row in crowd_rows if (row.crowd, row.group) == (crowd, group)
        )

    lost = _median(sum(row.problems.values()) for row in crowd_rows if row.crowd == "waiting")
    calm_ms = of("calm", "realtime", lambda row: row.p99_us / 1e3)
    loaded_ms = of("overload", "realtime", lambda row: row.p99_us / 1e3)
    return [
        _judged("of the waiting crowd, without an answer", lost, "", most=0.0),
        _judged(
            "p99 of the top class in twenty-fold overload / alone",
            None if calm_ms is None or loaded_ms is None else loaded_ms / calm_ms,
            "x",
            most=1.1,
        ),
        _judged("CPU of a refusal", refusal_cpu_us(crowd_rows), "µs", most=100.0),
    ]


def refusal_cpu_us(rows: Sequence[CrowdRow]) -> float | None:
    """CPU time for one refusal while there is nothing else to do."""
    return _median(
        row.cpu_share / row.refusals_per_s * 1e6
        for row in rows
        if (row.crowd, row.group) == ("refusals", "refused") and row.refusals_per_s
    )


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None
