"""The scheduler's state as one value."""

from collections.abc import Iterable, Sequence
from heapq import nlargest

from giveway_scheduler.buckets import TokenBucket
from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.seats import Seats
from giveway_scheduler.statistics import BucketStatistics, ClassStatistics, TenantStatistics
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


def _bucket_statistics(bucket: TokenBucket | None, now_s: float) -> BucketStatistics | None:
    if bucket is None:
        return None
    return BucketStatistics(level=bucket.refill(now_s), burst=bucket.burst, per_s=bucket.per_s)
