"""Does an SLOPolicy make sense?

One small function per question, all in `CHECKS`. What a field may hold by itself is in the models.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal

from giveway_policy.enumerations import Algorithm, Indicator, Kind
from giveway_policy.faults import Path, Problem
from giveway_policy.limits import Limits
from giveway_policy.resources import Objective, SLOPolicySpec

RESERVED_CLASSES = frozenset({"none"})
"""Metrics say `none` for a request that was refused before it had a class."""
RESERVED_TENANTS = frozenset({"other"})
"""Metrics say `other` for all tenants beyond the busiest."""

_LARGEST_THRESHOLD_MS = {
    Indicator.TIME_TO_FIRST_TOKEN: 3_600_000,
    Indicator.QUEUE_WAIT: 86_400_000,
    Indicator.INTER_TOKEN_LATENCY: 60_000,
    Indicator.REQUEST_DURATION: 86_400_000,
}


def check_policy(spec: SLOPolicySpec) -> list[Problem]:
    """Everything in it that cannot work. Empty: it can be put in force."""
    return [problem for check in CHECKS for problem in check(spec)]


def check_limits(limits: Limits, path: Path) -> Iterator[Problem]:
    """One rate of requests, and a burst only for a rate that lets something pass."""
    per_second, per_minute = limits.requests_per_second, limits.requests_per_minute
    if per_second is not None and per_minute is not None:
        yield Problem(
            path=(*path, "requestsPerMinute"),
            reason="requestsPerSecond is given too, and both limit the same",
            fix="keep one of them",
        )
    requests = per_second if per_minute is None else per_minute
    requests_name = "requestsPerSecond" if per_minute is None else "requestsPerMinute"
    pairs = (
        ("requestBurst", limits.request_burst, requests_name, requests),
        ("tokenBurst", limits.token_burst, "tokensPerMinute", limits.tokens_per_minute),
    )
    for burst_name, burst, rate_name, rate in pairs:
        if burst is not None and not rate:
            why = "there is no limit" if rate is None else "nothing passes at all"
            yield Problem(
                path=(*path, burst_name),
                reason=f"{burst_name} means nothing, since {why}",
                fix=f"set {rate_name} above 0, or remove {burst_name}",
            )


def class_missing(spec: SLOPolicySpec, name: str, path: Path) -> Problem:
    """There is no class of this name in the policy."""
    names = ", ".join(dict.fromkeys(each.name for each in spec.classes))
    return Problem(
        path=path, reason=f"there is no class {name} in the policy", fix=f"use one of: {names}"
    )


def _check_names(spec: SLOPolicySpec) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, each in enumerate(spec.classes):
        path: Path = ("spec", "classes", index, "name")
        if each.name in first:
            yield Problem(
                path=path,
                reason=f"the class {each.name} stands twice, first as classes[{first[each.name]}]",
                fix="give each class a name of its own",
            )
        if each.name in RESERVED_CLASSES:
            yield Problem(
                path=path,
                reason=f"{each.name} is what metrics say for requests without a class",
                fix="take another name",
            )
        first.setdefault(each.name, index)
    if spec.identity.fallback_tenant in RESERVED_TENANTS:
        yield Problem(
            path=("spec", "identity", "fallbackTenant"),
            reason=f"{spec.identity.fallback_tenant} is what metrics say for many tenants together",
            fix="take another name",
        )


def _check_weights(spec: SLOPolicySpec) -> Iterator[Problem]:
    if all(each.weight == 0 for each in spec.classes):
        yield Problem(
            path=("spec", "classes"),
            reason="all weights are 0, so nobody has a share",
            fix="give at least one class a weight above 0",
        )


def _check_class_limits(spec: SLOPolicySpec) -> Iterator[Problem]:
    for index, each in enumerate(spec.classes):
        yield from check_limits(each.limits, ("spec", "classes", index, "limits"))


def _check_objectives(spec: SLOPolicySpec) -> Iterator[Problem]:
    for index, each in enumerate(spec.classes):
        seen: set[tuple[Indicator, int | None]] = set()
        for number, objective in enumerate(each.objectives):
            path: Path = ("spec", "classes", index, "objectives", number)
            yield from _check_objective(objective, path)
            identity = (objective.indicator, objective.threshold_milliseconds)
            if identity in seen:
                yield Problem(
                    path=path,
                    reason="the same indicator and threshold stand twice in this class",
                    fix="keep one of them",
                )
            seen.add(identity)


def _check_objective(objective: Objective, path: Path) -> Iterator[Problem]:
    threshold, indicator = objective.threshold_milliseconds, objective.indicator
    where = (*path, "thresholdMilliseconds")
    if indicator is Indicator.ERROR_RATE:
        if threshold is not None:
            yield Problem(
                path=where, reason="an error rate has no threshold in time", fix="remove it"
            )
    elif threshold is None:
        yield Problem(
            path=where,
            reason=f"{indicator} needs a threshold",
            fix="add thresholdMilliseconds: up to how long is it good?",
        )
    elif threshold > _LARGEST_THRESHOLD_MS[indicator]:
        yield Problem(
            path=where,
            reason=f"{threshold} ms is too long for {indicator}",
            fix=f"write milliseconds, at most {_LARGEST_THRESHOLD_MS[indicator]}",
        )
    target = Decimal(objective.target_percent)
    if target in (0, 100):
        yield Problem(
            path=(*path, "targetPercent"),
            reason="a target of 0 asks for nothing"
            if target == 0
            else "a target of 100 is missed by a single slow request, for ever",
            fix='write a target between, like "99.9"',
        )


def _check_sources(spec: SLOPolicySpec) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, each in enumerate(spec.sources):
        path: Path = ("spec", "sources", index)
        if spec.class_rank(each.class_name) is None:
            yield class_missing(spec, each.class_name, (*path, "class"))
        if each.source in seen:
            yield Problem(
                path=(*path, "source"),
                reason=f"the source {each.source} stands twice",
                fix="keep one of them",
            )
        seen.add(each.source)


def _check_concurrency(spec: SLOPolicySpec) -> Iterator[Problem]:
    seats, batch = spec.concurrency.seats, spec.concurrency.batch
    path: Path = ("spec", "concurrency")
    if batch.minimum < 1:
        yield Problem(
            path=(*path, "batch", "minimum"),
            reason="a minimum of 0 starves batch under steady interactive load",
            fix="set it to at least 1",
        )
    if batch.minimum > batch.maximum:
        yield Problem(
            path=(*path, "batch", "minimum"),
            reason=f"the minimum {batch.minimum} is above the maximum {batch.maximum}",
            fix="set minimum to at most maximum",
        )
    if batch.maximum > seats:
        yield Problem(
            path=(*path, "batch", "maximum"),
            reason=f"the maximum {batch.maximum} is above the {seats} seats that there are",
            fix=f"set it to at most {seats}",
        )
    if len(spec.classes) > 1 and spec.concurrency.reserved_seats >= seats:
        yield Problem(
            path=(*path, "reservedSeats"),
            reason=f"all {seats} seats are reserved, so no class but the first ever runs",
            fix=f"set it to at most {seats - 1}",
        )


def _check_algorithm(spec: SLOPolicySpec) -> Iterator[Problem]:
    path: Path = ("spec", "scheduling")
    kinds = {each.kind for each in spec.classes}
    scheduling = spec.scheduling
    if scheduling.algorithm is Algorithm.INTERACTIVE_FIRST and Kind.INTERACTIVE not in kinds:
        yield Problem(
            path=(*path, "algorithm"),
            reason="InteractiveFirst needs a class of kind Interactive, and there is none",
            fix="give a class the kind Interactive, or take another algorithm",
        )
    seats, maximum = spec.concurrency.seats, spec.concurrency.batch.maximum
    if (
        scheduling.algorithm is Algorithm.INTERACTIVE_FIRST
        and kinds == set(Kind)
        and maximum >= seats
    ):
        yield Problem(
            path=("spec", "concurrency", "batch", "maximum"),
            reason=f"batch may take all {seats} seats, so none is left for interactive requests",
            fix=f"set it to at most {seats - 1}" if seats > 1 else "set seats to at least 2",
        )
    if Decimal(scheduling.interactive_first.smoothing) == 0:
        yield Problem(
            path=(*path, "interactiveFirst", "smoothing"),
            reason="with 0 the pressure never moves",
            fix='write a number above 0, like "0.3"',
        )
    if Decimal(scheduling.slo_aware.batch_token_floor_percent) == 100:
        yield Problem(
            path=(*path, "sloAware", "batchTokenFloorPercent"),
            reason="a floor of 100 leaves nothing to interactive requests",
            fix='write a small share, like "5"',
        )
    seen: set[str] = set()
    for index, each in enumerate(scheduling.dynamic_aging.classes):
        where = (*path, "dynamicAging", "classes", index, "class")
        if spec.class_rank(each.class_name) is None:
            yield class_missing(spec, each.class_name, where)
        if each.class_name in seen:
            yield Problem(
                path=where,
                reason=f"the class {each.class_name} stands twice",
                fix="keep one of them",
            )
        seen.add(each.class_name)


def _check_identity(spec: SLOPolicySpec) -> Iterator[Problem]:
    identity, path = spec.identity, ("spec", "identity")
    if len(set(identity.trusted_headers)) < len(identity.trusted_headers):
        yield Problem(
            path=(*path, "trustedHeaders"), reason="a header stands twice", fix="keep one of them"
        )
    ceiling = spec.class_rank(identity.fallback_class)
    default = spec.class_rank(identity.fallback_default_class)
    if ceiling is None:
        yield class_missing(spec, identity.fallback_class, (*path, "fallbackClass"))
    if default is None and identity.fallback_default_class != identity.fallback_class:
        where = (*path, "fallbackDefaultClass")
        yield class_missing(spec, identity.fallback_default_class, where)
    if ceiling is not None and default is not None and default < ceiling:
        yield Problem(
            path=(*path, "fallbackDefaultClass"),
            reason=f"{identity.fallback_default_class} is above {identity.fallback_class}, the "
            "highest class that the fallback tenant may have",
            fix="take fallbackClass or a class after it",
        )
    if identity.jwt is not None:
        yield Problem(
            path=(*path, "jwt"),
            reason="JSON Web Tokens are not yet supported",
            fix="remove it; use API keys, or a header that your gateway sets after verifying",
        )


def _check_adjustment(spec: SLOPolicySpec) -> Iterator[Problem]:
    adjustment, path = spec.adjustment, ("spec", "adjustment")
    if adjustment.window_seconds < adjustment.interval_seconds:
        yield Problem(
            path=(*path, "windowSeconds"),
            reason="the window is shorter than the interval, so some requests are never looked at",
            fix=f"set it to at least {adjustment.interval_seconds}",
        )
    if Decimal(adjustment.maximum_step_percent) == 0:
        yield Problem(
            path=(*path, "maximumStepPercent"),
            reason="with 0 no weight ever moves",
            fix='write a number above 0, like "20"',
        )


def _check_accounting(spec: SLOPolicySpec) -> Iterator[Problem]:
    accounting, path = spec.accounting, ("spec", "accounting")
    if accounting.first_output_estimate_tokens > accounting.largest_output_estimate_tokens:
        yield Problem(
            path=(*path, "firstOutputEstimateTokens"),
            reason="the first estimate is above the largest",
            fix=f"set it to at most {accounting.largest_output_estimate_tokens}",
        )
    if Decimal(accounting.output_token_weight) == 0:
        yield Problem(
            path=(*path, "outputTokenWeight"),
            reason="with 0 generated tokens are free",
            fix='write a number above 0, like "2"',
        )


CHECKS: tuple[Callable[[SLOPolicySpec], Iterator[Problem]], ...] = (
    _check_names,
    _check_weights,
    _check_class_limits,
    _check_objectives,
    _check_sources,
    _check_concurrency,
    _check_algorithm,
    _check_identity,
    _check_adjustment,
    _check_accounting,
)
