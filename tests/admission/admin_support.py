"""A proxy's state as the admin port sees it, made up."""

import asyncio
from dataclasses import dataclass, field

from giveway_admission.engine_watching import EngineReading, ScrapeResult
from giveway_admission.metrics import Metrics
from giveway_admission.policy_facts import HasDocument
from giveway_admission.recent_decisions import RecentDecisions
from giveway_policy.defaults import default_document
from giveway_policy.documents import PolicyDocument
from giveway_policy.faults import Fault
from giveway_scheduler import (
    BucketStatistics,
    ClassName,
    ClassStatistics,
    Statistics,
    TenantName,
    TenantStatistics,
)


@dataclass(slots=True)
class Clock:
    """Time that passes only when a test says so."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(frozen=True, slots=True)
class Policy:
    """The part of a runtime policy that metrics and admin use."""

    document: PolicyDocument


def class_statistics(name: str, **changes: object) -> ClassStatistics:
    values: dict[str, object] = {
        "name": ClassName(name),
        "weight": 0.5,
        "queued": 0,
        "queued_bytes": 0,
        "queued_tokens": 0,
        "oldest_waited_s": 0.0,
        "running": 0,
        "seats": 64,
        "output_estimate_tokens": 256,
        "served_tokens": 0.0,
        "boosts": 0,
        "boosted": False,
        "requests": None,
        "tokens": None,
    }
    return ClassStatistics(**(values | changes))  # type: ignore[arg-type]


def tenant_statistics(name: str, **changes: object) -> TenantStatistics:
    values: dict[str, object] = {
        "name": TenantName(name),
        "weight": 1.0,
        "queued": 0,
        "running": 0,
        "served_tokens": 0.0,
        "requests": None,
        "tokens": None,
    }
    return TenantStatistics(**(values | changes))  # type: ignore[arg-type]


def statistics(**changes: object) -> Statistics:
    values: dict[str, object] = {
        "algorithm": "SLOAware",
        "seats": 64,
        "batch_seats": 48,
        "running": 0,
        "queued": 0,
        "queued_bytes": 0,
        "unprefilled_tokens": 0,
        "gate_open": True,
        "pressure_ratio": 0.0,
        "engine_available": True,
        "classes": tuple(
            class_statistics(name, requests=BucketStatistics(level=50.0, burst=100.0, per_s=100.0))
            for name in ("realtime", "standard", "batch")
        ),
        "tenants": (),
    }
    return Statistics(**(values | changes))  # type: ignore[arg-type]


def engine_reading(**changes: object) -> EngineReading:
    values: dict[str, object] = {
        "requests_total": None,
        "preemptions_total": None,
        "kv_cache_usage_ratio": None,
        "scrapes": dict.fromkeys(ScrapeResult, 0),
    }
    return EngineReading(**(values | changes))  # type: ignore[arg-type]


@dataclass(slots=True)
class MadeUpState:
    """Implements `AdminState`."""

    metrics: Metrics = field(default_factory=lambda: Metrics(version="1.2.3"))
    recent_decisions: RecentDecisions = field(default_factory=RecentDecisions)
    runtime_policy: HasDocument = field(default_factory=lambda: Policy(default_document()))
    drain_token: str | None = None
    engine_up: bool = True
    engine_reading: EngineReading | None = None
    version: str = "1.2.3"
    now: Statistics = field(default_factory=statistics)
    reasons: list[str] = field(default_factory=list)
    policy_faults: tuple[Fault, ...] = ()
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    drains: list[float | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metrics.configure(self.runtime_policy)
        self.metrics.set_sources(self.statistics, engine_up=lambda: self.engine_up)

    def statistics(self) -> Statistics:
        return self.now

    def ready(self) -> tuple[bool, list[str]]:
        return not self.reasons, self.reasons

    async def drain(self, timeout_s: float | None) -> bool:
        self.drains.append(timeout_s)
        try:
            await asyncio.wait_for(self.drained.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
