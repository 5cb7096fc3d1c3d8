"""What does the admin page show?

One function makes the whole `/status` answer out of the proxy's state: plain values, one word per
key, units in the keys. Numbers that count since the start (`arrived`, `outcomes`, `good`, `total`)
are for the reader to take differences of.

Names that a client chose are cleaned, tenants nobody vouches for that look like an address or a key
are hidden. No key, header or prompt is in the state this is made of.
"""

import time
from dataclasses import asdict
from typing import Protocol

import msgspec
from giveway_policy.faults import Fault
from giveway_scheduler import ClassStatistics, Statistics, TenantStatistics

from giveway_admission.engine_watching import EngineReading
from giveway_admission.logs import clean_text
from giveway_admission.metric_names import NO_CLASS
from giveway_admission.metrics import Metrics
from giveway_admission.policy_facts import HasDocument, PolicyFacts
from giveway_admission.recent_decisions import RecentDecisions

MOST_FAULTS_SHOWN = 10


class AdminState(Protocol):
    """What the admin port asks of the proxy."""

    @property
    def metrics(self) -> Metrics: ...

    @property
    def recent_decisions(self) -> RecentDecisions: ...

    @property
    def runtime_policy(self) -> HasDocument: ...

    @property
    def drain_token(self) -> str | None:
        """What `/drain` asks for. None: nothing."""
        ...

    @property
    def engine_up(self) -> bool: ...

    @property
    def engine_reading(self) -> EngineReading | None:
        """What the engine says itself. None: it is not watched."""
        ...

    @property
    def policy_faults(self) -> tuple[Fault, ...]:
        """Why what was written last is not in force, as far as it is not."""
        ...

    @property
    def version(self) -> str: ...

    def statistics(self) -> Statistics: ...

    def ready(self) -> tuple[bool, list[str]]:
        """Whether new requests are wanted, and if not, why not (for a person)."""
        ...

    async def drain(self, timeout_s: float | None) -> bool:
        """Take nothing new and wait until all has ended. False: `timeout_s` was over before
        (None: no limit; draining goes on). May be called again, and at the same time."""
        ...


class StatusWriter:
    """Makes the `/status` answer."""

    def __init__(self, state: AdminState) -> None:
        self._state = state
        self._started_s = time.monotonic()

    def write(self) -> bytes:
        return msgspec.json.encode(self.status())

    def status(self) -> dict[str, object]:
        state, metrics = self._state, self._state.metrics
        now, facts = state.statistics(), metrics.facts
        ready, reasons = state.ready()
        return {
            "version": state.version,
            "uptime_s": round(time.monotonic() - self._started_s, 3),
            "ready": ready,
            "reasons": [clean_text(reason) for reason in reasons],
            "engine": _engine(state.engine_reading, up=state.engine_up),
            "policy": policy_summary(state),
            "scheduler": {
                "algorithm": now.algorithm,
                "seats": now.seats,
                "batch_seats": now.batch_seats,
                "running": now.running,
                "queued": now.queued,
                "queued_bytes": now.queued_bytes,
                "unprefilled_tokens": now.unprefilled_tokens,
                "gate_open": now.gate_open,
                "pressure_ratio": now.pressure_ratio,
            },
            "classes": [_class(each, facts, metrics=metrics) for each in now.classes],
            "early": metrics.progress(NO_CLASS),
            "unknown_classes": [
                {"name": clean_text(name, limit=64), "requests": count}
                for name, count in metrics.unknown_classes()
            ],
            "tenants": [_tenant(each, metrics) for each in now.tenants[:100]],
            "decisions": [
                asdict(each) for each in state.recent_decisions.latest(shown=metrics.shown_tenant)
            ],
        }


def policy_summary(state: AdminState) -> dict[str, object]:
    """The policy in force and what stands against a newer one, for `/status` and `/readyz`."""
    facts = state.metrics.facts
    return {
        "name": facts.policy,
        "built_in": facts.built_in,
        "mode": facts.mode,
        "epoch": facts.epoch,
        "generation": facts.generation,
        "hash": facts.hash,
        "age_s": round(state.metrics.policy_age_s, 1),
        "faults": [
            clean_text(str(fault), limit=600) for fault in state.policy_faults[:MOST_FAULTS_SHOWN]
        ],
    }


def _engine(reading: EngineReading | None, *, up: bool) -> dict[str, object]:
    return {
        "up": up,
        "requests_total": None if reading is None else reading.requests_total,
        "preemptions_total": None if reading is None else reading.preemptions_total,
        "kv_cache_usage_ratio": None if reading is None else reading.kv_cache_usage_ratio,
    }


def _class(now: ClassStatistics, facts: PolicyFacts, *, metrics: Metrics) -> dict[str, object]:
    objectives = []
    for objective in facts.objectives.get(now.name, ()):
        good, total = metrics.within(
            now.name, objective.indicator, threshold_s=objective.threshold_s
        )
        objectives.append(
            {
                "indicator": objective.indicator,
                "threshold_s": objective.threshold_s,
                "target_percent": objective.target_percent,
                "good": good,
                "total": total,
            }
        )
    return {
        **asdict(now),
        "kind": facts.kinds.get(now.name, ""),
        "progress": metrics.progress(now.name),
        "objectives": objectives,
    }


def _tenant(now: TenantStatistics, metrics: Metrics) -> dict[str, object]:
    return {**asdict(now), "name": clean_text(metrics.shown_tenant(now.name), limit=128)}
