"""How well was each objective kept, as Prometheus has it?

One query for each indicator of a policy (`promql`), all at once. What fails is a state of the
observations, and fails for the objectives of that indicator alone. Nothing is guessed: where the
number of good events is not known to be that of all proxies and the whole window, the objective is
not measured.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from giveway_policy.documents import PolicyName
from giveway_policy.enumerations import Indicator
from giveway_policy.resources import Objective, ServiceClass, SLOPolicySpec

from giveway_operator.observations import Observation
from giveway_operator.promql import (
    FAILED_OUTCOMES,
    Counts,
    Sample,
    Selection,
    bound_text,
    latency_query,
    outcomes_query,
    read_counts,
    thresholds_by_indicator,
)
from giveway_operator.querying import QueryError, QueryFailure
from giveway_operator.statuses import ObservationState

DEFAULT_MINIMUM_REQUESTS: Final = 20
"""Of fewer, one slow request is more than the usual deadband of 5 points."""
_ALL = bound_text(math.inf)
_YOUNGEST_RATIO = 0.99
"""Part of the scrapes that a bucket must have been there for."""


class Queries(Protocol):
    async def query(self, promql: str) -> tuple[Sample, ...]:
        """Raises `QueryError`."""
        ...

    async def query_long(self, promql: str) -> tuple[Sample, ...]:
        """For long windows. Raises `QueryError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What one query gave: counts by class and label, or why there are none."""

    counts: Mapping[tuple[str, str], Counts]
    state: ObservationState = ObservationState.MEASURED
    detail: str = ""


class PrometheusObserver:
    """An `Observer` that asks Prometheus."""

    def __init__(self, queries: Queries, *, freshness_s: int = 120, matchers: str = "") -> None:
        self._queries = queries
        self._freshness_s = freshness_s
        self._matchers = matchers

    def selection(self, policy: PolicyName, window_s: int) -> Selection:
        return Selection(
            policy=policy,
            window_s=window_s,
            freshness_s=self._freshness_s,
            matchers=self._matchers,
        )

    async def ask(self, promql: str) -> tuple[Sample, ...]:
        """Any other question. Raises `QueryError`."""
        return await self._queries.query(promql)

    async def observe(self, policy: PolicyName, spec: SLOPolicySpec) -> tuple[Observation, ...]:
        window_s = spec.adjustment.window_seconds
        return await self._observe(self.selection(policy, window_s), spec)

    async def observe_since(
        self, policy: PolicyName, spec: SLOPolicySpec, *, window_s: int
    ) -> tuple[Observation, ...]:
        """Over another window, and with proxies that were there in it and are gone."""
        selection = replace(self.selection(policy, window_s), includes_gone=True)
        return await self._observe(selection, spec)

    async def _observe(self, selection: Selection, spec: SLOPolicySpec) -> tuple[Observation, ...]:
        wanted = thresholds_by_indicator(spec)
        answers = await asyncio.gather(
            *(self._find(indicator, each, selection) for indicator, each in wanted.items())
        )
        found = dict(zip(wanted, answers, strict=True))
        minimum = spec.adjustment.minimum_requests or DEFAULT_MINIMUM_REQUESTS
        return tuple(
            _observation(each, objective, found[objective.indicator], minimum=minimum)
            for each in spec.classes
            for objective in each.objectives
        )

    async def _find(
        self, indicator: Indicator, thresholds_ms: Sequence[int], selection: Selection
    ) -> _Found:
        is_latency = indicator is not Indicator.ERROR_RATE
        query = (
            latency_query(indicator, thresholds_ms, selection)
            if is_latency
            else outcomes_query(selection)
        )
        ask = self._queries.query_long if selection.includes_gone else self._queries.query
        try:
            samples = await ask(query)
            return _Found(counts=read_counts(samples, label="le" if is_latency else "outcome"))
        except QueryError as error:
            is_partial = error.reason is QueryFailure.PARTIAL
            state = (
                ObservationState.PARTIAL_RESPONSE if is_partial else ObservationState.QUERY_FAILED
            )
            return _Found(counts={}, state=state, detail=f"{error.reason}: {error}")
        except ValueError as error:
            return _Found(counts={}, state=ObservationState.QUERY_FAILED, detail=str(error))


def _observation(
    service_class: ServiceClass, objective: Objective, found: _Found, *, minimum: int
) -> Observation:
    blank = Observation(
        class_name=service_class.name,
        indicator=objective.indicator,
        threshold_milliseconds=objective.threshold_milliseconds,
        state=found.state,
        detail=found.detail,
    )
    if found.state is not ObservationState.MEASURED:
        return blank
    of_class = {
        label: counts
        for (name, label), counts in found.counts.items()
        if name == service_class.name
    }
    if objective.threshold_milliseconds is None:
        return _error_rate(blank, of_class, minimum=minimum)
    bound = bound_text(objective.threshold_milliseconds / 1000)
    return _latency(blank, of_class.get(bound), of_class.get(_ALL), minimum=minimum)


def _latency(
    blank: Observation, within: Counts | None, every: Counts | None, *, minimum: int
) -> Observation:
    if every is None:
        return _no_series(blank)
    if within is None:
        detail = "no bucket ends at the threshold yet: the proxies run another policy"
        return replace(blank, state=ObservationState.NO_SERIES, detail=detail)
    if every.events is None or within.scrapes < _YOUNGEST_RATIO * every.scrapes:
        detail = "the window is longer than the threshold has been counted"
        return replace(blank, state=ObservationState.TOO_FEW_REQUESTS, detail=detail)
    return _judged(blank, within.events or 0.0, every.events, minimum=minimum)


def _error_rate(blank: Observation, outcomes: Mapping[str, Counts], *, minimum: int) -> Observation:
    if not outcomes:
        return _no_series(blank)
    known = {name: each.events for name, each in outcomes.items() if each.events is not None}
    if not known:
        detail = "there was one scrape so far"
        return replace(blank, state=ObservationState.TOO_FEW_REQUESTS, detail=detail)
    failed = sum(count for name, count in known.items() if name in FAILED_OUTCOMES)
    every = sum(known.values())
    return _judged(blank, every - failed, every, minimum=minimum)


def _judged(blank: Observation, good: float, every: float, *, minimum: int) -> Observation:
    if every <= 0.0:
        return replace(blank, state=ObservationState.NO_TRAFFIC)
    if every < minimum:
        detail = f"{every:.0f} measurements, {minimum} are needed"
        return replace(
            blank, state=ObservationState.TOO_FEW_REQUESTS, requests=every, detail=detail
        )
    ratio = min(1.0, max(0.0, good / every))
    return replace(blank, attained_ratio=ratio, requests=every)


def _no_series(blank: Observation) -> Observation:
    detail = "Prometheus has no fresh series of a proxy that runs this policy"
    return replace(blank, state=ObservationState.NO_SERIES, detail=detail)
