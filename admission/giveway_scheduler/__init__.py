"""The scheduler core: who goes next. Standard library only, no clock, no I/O."""

from giveway_scheduler.decisions import (
    Abort,
    Decision,
    Dispatch,
    DispatchReason,
    Evict,
    Expire,
    Reject,
    RejectReason,
)
from giveway_scheduler.requests import ClassName, Request, RequestKey, TenantName, Usage
from giveway_scheduler.scheduling import Scheduler
from giveway_scheduler.settings import (
    Algorithm,
    AntiStarvation,
    ClassSettings,
    Concurrency,
    Kind,
    Limits,
    OverLimit,
    Preemption,
    Settings,
    ShareUnit,
    TenantSettings,
    Yielding,
)
from giveway_scheduler.statistics import (
    BucketStatistics,
    ClassStatistics,
    Statistics,
    TenantStatistics,
)

__all__ = [
    "Abort",
    "Algorithm",
    "AntiStarvation",
    "BucketStatistics",
    "ClassName",
    "ClassSettings",
    "ClassStatistics",
    "Concurrency",
    "Decision",
    "Dispatch",
    "DispatchReason",
    "Evict",
    "Expire",
    "Kind",
    "Limits",
    "OverLimit",
    "Preemption",
    "Reject",
    "RejectReason",
    "Request",
    "RequestKey",
    "Scheduler",
    "Settings",
    "ShareUnit",
    "Statistics",
    "TenantName",
    "TenantSettings",
    "TenantStatistics",
    "Usage",
    "Yielding",
]
