"""The scheduler's state as one value."""

import math
from collections.abc import Iterable, Sequence
from heapq import nlargest

from giveway_scheduler.buckets import Budget, TokenBucket
from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.seats import Seats
from giveway_scheduler.statistics import (
    BucketStatistics,
    ClassStatistics,
    Quota,
    TenantStatistics,
)
from giveway_scheduler.tenancy import Tenant

MOST_TENANTS = 100
"""Tenants told of, the busiest first: a page and a metric must stay bounded."""


def class_statistics(
    classes: Sequence[ServiceClass], seats: Seats, *, boosted: ServiceClass | None, now_s: float
) -> tuple[ClassStatistics, ...]:
    """Every class, by rank."""
    return tuple(
        ClassStatistics(
            name=each.settings.name,
            weight=each.settings.weight,
            queued=len(each.queue),
            queued_bytes=each.queue.bytes,
            queued_tokens=each.queue.tokens,
            oldest_waited_s=now_s - oldest.offered_s if (oldest := each.queue.oldest) else 0.0,
            running=each.running,
            seats=seats.limit_of(each),
            output_estimate_tokens=each.estimate.tokens,
            served_tokens=each.served_tokens,
            boosts=each.boosts,
            boosted=each is boosted,
            requests=_bucket_statistics(each.budget.requests, now_s),
            tokens=_bucket_statistics(each.budget.tokens, now_s),
        )
        for each in classes
    )


def tenant_statistics(tenants: Iterable[Tenant], *, now_s: float) -> tuple[TenantStatistics, ...]:
    """The busiest tenants: most running, then most queued, then most served."""
    busiest = nlargest(
        MOST_TENANTS,
        tenants,
        key=lambda tenant: (tenant.running, tenant.queued, tenant.served_tokens),
    )
    return tuple(
        TenantStatistics(
            name=each.name,
            weight=each.weight,
            queued=each.queued,
            running=each.running,
            served_tokens=each.served_tokens,
            requests=_bucket_statistics(each.budget.requests, now_s),
            tokens=_bucket_statistics(each.budget.tokens, now_s),
        )
        for each in busiest
    )


def quota(of_class: Budget, of_tenant: Budget | None, *, now_s: float) -> Quota | None:
    """The tighter bucket of each kind. None: neither class nor tenant has a limit."""
    if not (of_class.is_limited or (of_tenant is not None and of_tenant.is_limited)):
        return None
    budgets = (of_class,) if of_tenant is None else (of_class, of_tenant)
    requests = _tightest([each.requests for each in budgets], now_s)
    tokens = _tightest([each.tokens for each in budgets], now_s)
    if requests is None and tokens is None:
        return None
    return Quota(
        requests=_bucket_statistics(requests, now_s), tokens=_bucket_statistics(tokens, now_s)
    )


def _tightest(buckets: list[TokenBucket | None], now_s: float) -> TokenBucket | None:
    tightest: TokenBucket | None = None
    least = math.inf
    for bucket in buckets:
        if bucket is None:
            continue
        left = bucket.refill(now_s) / bucket.burst if bucket.burst > 0.0 else 0.0
        if left < least:
            tightest, least = bucket, left
    return tightest


def _bucket_statistics(bucket: TokenBucket | None, now_s: float) -> BucketStatistics | None:
    if bucket is None:
        return None
    return BucketStatistics(level=bucket.refill(now_s), burst=bucket.burst, per_s=bucket.per_s)
