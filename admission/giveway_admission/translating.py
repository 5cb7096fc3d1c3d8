"""Which scheduler settings follow from a policy document?

The one place where the words of resources become the scheduler's numbers: milliseconds and minutes
become seconds, percentages become ratios, and limits of the fleet become this proxy's share. Where
the document has weights that the operator decided, those hold and not the policy's own.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal

from giveway_policy import enumerations, limits, resources
from giveway_policy.documents import PolicyDocument
from giveway_policy.documents import Tenant as PolicyTenant
from giveway_policy.fields import percent_to_ratio
from giveway_policy.mechanics import ClassAging, Scheduling
from giveway_scheduler import (
    Algorithm,
    AntiStarvation,
    ClassName,
    ClassSettings,
    Concurrency,
    Kind,
    LatencySignal,
    Limits,
    OverLimit,
    Preemption,
    RateSignal,
    Settings,
    ShareUnit,
    TenantName,
    TenantSettings,
    Yielding,
)

from giveway_admission.estimates import Estimates

_SECONDS_PER_MINUTE = 60


def translate(document: PolicyDocument) -> Settings:
    """The settings of one proxy under this document."""
    spec = document.spec
    concurrency, boost, queue = spec.concurrency, spec.anti_starvation, spec.queue
    first, accounting = spec.scheduling.interactive_first, spec.accounting
    return Settings(
        classes=_classes(document),
        tenants={
            TenantName(tenant.name): _tenant(tenant, share=document.share)
            for tenant in document.tenants
        },
        algorithm=Algorithm(spec.scheduling.algorithm.value),
        share_unit=_share_unit(spec.scheduling),
        concurrency=Concurrency(
            seats=concurrency.seats,
            reserved_seats=concurrency.reserved_seats,
            batch_minimum=concurrency.batch.minimum,
            batch_maximum=concurrency.batch.maximum,
            prompt_gate_tokens=concurrency.prompt_gate_tokens or None,
            prompt_seconds_per_token=concurrency.prefill_microseconds_per_1000_tokens / 1e9,
            lower_seats_on_preemption=concurrency.lower_seats_on_preemption,
        ),
        yielding=Yielding(
            requests_per_s_threshold=float(first.requests_per_second_threshold),
            latency_threshold_s=first.latency_threshold_milliseconds / 1000,
            window_s=float(first.window_seconds),
            smoothing=float(first.smoothing),
            latency=LatencySignal(first.latency_signal.value),
            rate=RateSignal(first.rate_signal.value),
        ),
        anti_starvation=AntiStarvation(
            threshold_s=float(boost.threshold_seconds),
            boost_s=float(boost.boost_seconds),
            check_s=float(boost.check_seconds),
            promotions_per_s=float(boost.promotions_per_second),
        )
        if boost.enabled
        else None,
        preemption=Preemption(spec.preemption.value),
        queue_capacity=queue.capacity,
        queue_bytes=queue.bytes,
        batch_token_floor_ratio=percent_to_ratio(
            spec.scheduling.slo_aware.batch_token_floor_percent
        ),
        batch_token_floor_half_life_s=float(spec.scheduling.slo_aware.floor_half_life_seconds),
        first_output_estimate_tokens=accounting.first_output_estimate_tokens,
        largest_output_estimate_tokens=accounting.largest_output_estimate_tokens,
        cached_token_ratio=percent_to_ratio(spec.engine.cached_token_percent),
        output_token_weight=float(accounting.output_token_weight),
    )


def prompt_estimates(document: PolicyDocument) -> Estimates:
    """What prompts are taken for: as the policy says, and as giveway guesses otherwise."""
    accounting = document.spec.accounting
    said = {each.name: getattr(accounting, each.name, None) for each in fields(Estimates)}
    return Estimates(**{name: value for name, value in said.items() if value is not None})


def share_limits(whole: limits.Limits, share: float) -> Limits:
    """This proxy's part. A burst stays large enough for one request, or for one token."""
    in_flight = whole.in_flight if isinstance(whole, limits.TenantLimits) else None
    per_second = _scaled(whole.requests_per_second, share)
    per_minute = _scaled(whole.requests_per_minute, share / _SECONDS_PER_MINUTE)
    return Limits(
        requests_per_s=per_second if per_minute is None else per_minute,
        request_burst=_scaled(whole.request_burst, share, minimum=1.0),
        tokens_per_s=_scaled(whole.tokens_per_minute, share / _SECONDS_PER_MINUTE),
        token_burst=_scaled(whole.token_burst, share, minimum=1.0),
        in_flight=None if in_flight is None else math.ceil(in_flight * share),
    )


def _scaled(limit: int | None, factor: float, *, minimum: float = 0.0) -> float | None:
    return None if limit is None else max(minimum, limit * factor)


def _classes(document: PolicyDocument) -> tuple[ClassSettings, ...]:
    spec = document.spec
    agings = {aging.class_name: aging for aging in spec.scheduling.dynamic_aging.classes}
    weights = document.class_weights
    return tuple(
        _class(each, agings, weight=weights[each.name], share=document.share)
        for each in spec.classes
    )


def _class(
    each: resources.ServiceClass,
    agings: Mapping[str, ClassAging],
    *,
    weight: float,
    share: float,
) -> ClassSettings:
    aging = agings.get(each.name)
    defaults = ClassSettings(name=ClassName(each.name), kind=Kind(each.kind.value), weight=0.0)
    return ClassSettings(
        name=ClassName(each.name),
        kind=Kind(each.kind.value),
        weight=weight,
        limits=share_limits(each.limits, share),
        over_limit=OverLimit(each.over_limit.value),
        queue_capacity=each.queue.capacity,
        time_to_live_s=float(each.queue.time_to_live_seconds),
        first_token_target_s=_first_token_target_s(each),
        aging_base=defaults.aging_base if aging is None else float(Decimal(aging.base)),
        aging_per_ms=defaults.aging_per_ms
        if aging is None
        else float(Decimal(aging.aging_per_millisecond)),
    )


def _first_token_target_s(each: resources.ServiceClass) -> float | None:
    """The strictest TTFT objective: a request that can't meet it any more is late."""
    thresholds_ms = [
        objective.threshold_milliseconds
        for objective in each.objectives
        if objective.indicator is enumerations.Indicator.TIME_TO_FIRST_TOKEN
        and objective.threshold_milliseconds is not None
    ]
    return min(thresholds_ms) / 1000 if thresholds_ms else None


def _tenant(tenant: PolicyTenant, *, share: float) -> TenantSettings:
    return TenantSettings(weight=float(tenant.weight), limits=share_limits(tenant.limits, share))


def _share_unit(scheduling: Scheduling) -> ShareUnit:
    """Only two algorithms leave the choice; all others count tokens."""
    if scheduling.algorithm is enumerations.Algorithm.WEIGHTED_RANDOM:
        return ShareUnit(scheduling.weighted_random.share_unit.value)
    if scheduling.algorithm is enumerations.Algorithm.DEFICIT_ROUND_ROBIN:
        return ShareUnit(scheduling.deficit_round_robin.share_unit.value)
    return ShareUnit.TOKENS
