"""What is read from its owner at the moment of a scrape?

Nothing here is ever counted up and down, so nothing can drift (C26): each function takes the state
as it is now and writes it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from giveway_scheduler import ClassStatistics, Statistics

from giveway_admission import metric_names as names
from giveway_admission.engine_watching import EngineReading
from giveway_admission.exposition import Family, write_family
from giveway_admission.policy_facts import PolicyFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where gauges are read."""

    statistics: Callable[[], Statistics]
    engine_up: Callable[[], bool]
    draining: Callable[[], bool]
    engine: Callable[[], EngineReading | None] | None
    """None: the engine's own metrics are not watched."""


def write_single(family: Family, value: float, *labels: str) -> str:
    """A family that has one series."""
    return write_family(family, [(family.series(*labels), value)])


def write_policy(facts: PolicyFacts, *, age_s: float) -> str:
    policy, epoch, generation, digest = facts.identity
    info = write_single(names.POLICY_INFO, 1, policy, str(epoch), str(generation), digest)
    return info + write_single(names.POLICY_AGE, round(age_s, 3))


def write_gauges(sources: Sources, *, boosts: Callable[[ClassStatistics], float]) -> str:
    """The scheduler's state. `boosts` makes the scheduler's count one that never goes down."""
    now = sources.statistics()
    by_class: tuple[tuple[Family, Callable[[ClassStatistics], float]], ...] = (
        (names.QUEUED, lambda each: each.queued),
        (names.OLDEST, lambda each: round(each.oldest_waited_s, 6)),
        (names.RUNNING, lambda each: each.running),
        (names.WEIGHT, lambda each: each.weight),
        (names.BOOSTS, boosts),
    )
    parts = [
        write_family(family, [(family.series(each.name), read(each)) for each in now.classes])
        for family, read in by_class
    ]
    parts += (
        write_single(names.SEATS, now.seats),
        write_single(names.BATCH_SEATS, now.batch_seats),
        write_single(names.UNPREFILLED, now.unprefilled_tokens),
        write_single(names.ENGINE_UP, int(sources.engine_up())),
        write_single(names.DRAINING, int(sources.draining())),
    )
    return "".join(parts)


def write_engine(reading: EngineReading) -> str:
    """What the engine says itself; a value that is not known has no series (E17)."""
    scrapes = [
        (names.ENGINE_SCRAPES.series(result), count) for result, count in reading.scrapes.items()
    ]
    values = (
        (names.ENGINE_REQUESTS, reading.requests_total),
        (names.ENGINE_PREEMPTIONS, reading.preemptions_total),
        (names.ENGINE_CACHE, reading.kv_cache_usage_ratio),
    )
    return write_family(names.ENGINE_SCRAPES, scrapes) + "".join(
        write_single(family, value) for family, value in values if value is not None
    )
