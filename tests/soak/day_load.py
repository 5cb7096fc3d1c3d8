"""Who asks for what, and when, over some days?

Each hour has a busy stretch, in which requests come as the traces recorded them, more than the
engine can do, and an easy rest with one now and then. A batch tenant dumps jobs. Tenants that
nobody named come, stay for a while among some others, and are never seen again. Every sixth hour
ends with a quarter in which nobody asks for anything.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from giveway_scheduler import ClassName
from giveway_simulation.traces import Sample, TraceRow, load_sample

from tests.soak.day_settings import ALWAYS_NAMED, BATCH, FLOWS, GUEST, REALTIME, STANDARD

HOUR_S = 3600.0
QUIET_HOURS = 6
"""Each so many hours there is a quiet quarter."""
QUIET_S = 900.0
TENANTS_AT_ONCE = 40
JOB_REQUESTS = 60
_BUSY_AT_S = 300.0
CUSTOMER = "customer"
"""Stands for the tenant that the policy in force has named last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request that comes."""

    at_s: float
    """Since the beginning."""
    class_name: ClassName
    tenant: str
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLoad:
    """Equal loads give equal requests."""

    hours: int
    busy_s: float
    """Of each hour."""
    tenants: int
    """That come and go over all the time."""
    easy_per_s: float = 0.05
    """Requests a second outside of the busy stretches (and in them, beside the others)."""
    seed: int = 1

    def requests(self) -> Iterator[Ask]:
        """In order of time."""
        generator = random.Random(self.seed)
        for hour in range(self.hours):
            asks = [*self._busy(hour, generator), *self._easy(hour, generator)]
            end_s = self.quiet_s(hour)
            yield from sorted((ask for ask in asks if ask.at_s < end_s), key=lambda ask: ask.at_s)

    def quiet_s(self, hour: int) -> float:
        """When the last request of this hour has come."""
        end_s = (hour + 1) * HOUR_S
        return end_s - QUIET_S if (hour + 1) % QUIET_HOURS == 0 else end_s

    def _busy(self, hour: int, generator: random.Random) -> Iterator[Ask]:
        start_s = hour * HOUR_S + _BUSY_AT_S
        for sample, class_name in ((Sample.CHAT, REALTIME), (Sample.CODE, STANDARD)):
            for row, after_s in _window(load_sample(sample), self.busy_s, generator):
                chosen = GUEST if generator.random() < 0.05 else class_name
                yield self._ask(start_s + after_s, chosen, row, generator)
        rows = load_sample(Sample.BATCH)
        for after_s in (0.0, self.busy_s / 2):
            for _ in range(JOB_REQUESTS):
                row = generator.choice(rows)
                yield self._ask(start_s + after_s, BATCH, row, generator, tenant="dumper")

    def _easy(self, hour: int, generator: random.Random) -> Iterator[Ask]:
        rows = load_sample(Sample.CHAT)
        at_s = hour * HOUR_S + generator.expovariate(self.easy_per_s)
        while at_s < (hour + 1) * HOUR_S:
            class_name = generator.choice((REALTIME, STANDARD, GUEST, FLOWS, BATCH))
            yield self._ask(at_s, class_name, generator.choice(rows), generator)
            at_s += generator.expovariate(self.easy_per_s)

    def _ask(
        self,
        at_s: float,
        class_name: ClassName,
        row: TraceRow,
        generator: random.Random,
        *,
        tenant: str | None = None,
    ) -> Ask:
        return Ask(
            at_s=at_s,
            class_name=class_name,
            tenant=tenant or self._tenant(at_s, generator),
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
        )

    def _tenant(self, at_s: float, generator: random.Random) -> str:
        lot = generator.random()
        if lot < 0.15:
            return generator.choice(ALWAYS_NAMED)
        if lot < 0.2:
            return CUSTOMER
        first = int(at_s / (self.hours * HOUR_S) * (self.tenants - TENANTS_AT_ONCE))
        return f"passer-by-{first + generator.randrange(TENANTS_AT_ONCE)}"


def _window(
    rows: tuple[TraceRow, ...], length_s: float, generator: random.Random
) -> Iterator[tuple[TraceRow, float]]:
    """A piece of the trace as it was, with times since its beginning."""
    last_s = rows[-1].arrival_s
    assert last_s is not None
    start_s = generator.random() * max(0.0, last_s - length_s)
    for row in rows:
        assert row.arrival_s is not None
        if start_s <= row.arrival_s < start_s + length_s:
            yield row, row.arrival_s - start_s
