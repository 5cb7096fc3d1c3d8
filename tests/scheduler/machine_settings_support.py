"""Which settings and requests does the state machine draw?

Small numbers that collide often: few seats, few tenants, short queues, bursts of one. Every
`Settings` drawn here is valid; everything else may be absurd. What lets requests wait and go again
is drawn more often than what ends them at once: else nothing deep is ever reached.
"""

from dataclasses import replace
from typing import TypeVar

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
    Request,
    RequestKey,
    Settings,
    ShareUnit,
    TenantName,
    TenantSettings,
    Usage,
    Yielding,
)
from hypothesis import strategies as st

Value = TypeVar("Value")

CLASS_NAMES = [ClassName(name) for name in ("gold", "silver", "bronze", "iron", "lead")]
TENANTS = [TenantName(name) for name in ("ada", "bob", "cy", "di", "ed")]
NAMES = ["", "n0", "n1", "n2", "n3"]
FLOOR_RATIO = 0.0517
"""No sum of the drawn tokens stands in this ratio to another, so that rounding decides nothing."""


def one_of(*values: Value) -> st.SearchStrategy[Value]:
    """One of the values; the first is the simplest."""
    return st.sampled_from(values)


CLASS_LIMITS = one_of(
    *[Limits()] * 6,
    *[Limits(requests_per_s=1.0, request_burst=2.0), Limits(tokens_per_s=997.0)] * 2,
    Limits(requests_per_s=10.0),
    Limits(requests_per_s=3.0, request_burst=0.5),
    Limits(tokens_per_s=100.0, token_burst=50.0),
    Limits(requests_per_s=2.0, tokens_per_s=500.0, token_burst=0.0),
    Limits(requests_per_s=0.0),
    Limits(tokens_per_s=0.0),
)
TENANT_LIMITS = one_of(
    *[Limits()] * 3,
    *[Limits(in_flight=1), Limits(requests_per_s=5.0, request_burst=1.0)] * 2,
    *[Limits(in_flight=3, requests_per_s=2.0), Limits(tokens_per_s=150.0)] * 2,
    Limits(tokens_per_s=1000.0, token_burst=300.0, in_flight=2),
    Limits(in_flight=0),
    Limits(requests_per_s=0.0),
)


@st.composite
def class_settings(draw: st.DrawFn, name: ClassName) -> ClassSettings:
    """One class."""
    return ClassSettings(
        name=name,
        kind=draw(one_of(Kind.INTERACTIVE, Kind.BATCH)),
        weight=draw(one_of(1.0, 70.0, 5.0, 0.0)),
        limits=draw(CLASS_LIMITS),
        over_limit=draw(one_of(OverLimit.QUEUE, OverLimit.REJECT)),
        queue_capacity=draw(one_of(*[100] * 6, 3, 1, 0)),
        time_to_live_s=draw(one_of(60.0, 60.0, 60.0, 15.0, 1.5, 0.0)),
        first_token_target_s=draw(one_of(None, 0.3, 2.0)),
        aging_base=draw(one_of(1.0, 20.0, 100.0)),
        aging_per_ms=draw(one_of(0.005, 0.02, 0.05)),
    )


@st.composite
def concurrencies(draw: st.DrawFn) -> Concurrency:
    """Seats for one class or many, and for every algorithm."""
    seats = draw(one_of(3, 2, 5, 12))
    batch_maximum = draw(st.integers(1, seats - 1))
    return Concurrency(
        seats=seats,
        reserved_seats=draw(st.integers(0, seats - 1)),
        batch_minimum=draw(st.integers(1, batch_maximum)),
        batch_maximum=batch_maximum,
        prompt_gate_tokens=draw(one_of(None, None, 1000, 50, 1)),
        prompt_seconds_per_token=draw(one_of(1e-3, 1e-3, 23.5e-6, 0.0)),
        lower_seats_on_preemption=draw(st.booleans()),
    )


@st.composite
def giving_way(draw: st.DrawFn) -> Settings:
    """Batch below interactive requests and no limits, where batch's seats follow pressure and its
    requests may be stopped: states that settings drawn at random seldom reach."""
    settings = draw(all_settings())
    free = ClassSettings(
        name=CLASS_NAMES[0],
        kind=Kind.INTERACTIVE,
        weight=70.0,
        over_limit=OverLimit.QUEUE,
        time_to_live_s=60.0,
    )
    return replace(
        settings,
        classes=(
            free,
            replace(free, name=CLASS_NAMES[1], weight=25.0, first_token_target_s=2.0),
            replace(free, name=CLASS_NAMES[2], weight=5.0, kind=Kind.BATCH),
        ),
        tenants={},
        algorithm=draw(one_of(Algorithm.INTERACTIVE_FIRST, *Algorithm)),
        concurrency=replace(
            settings.concurrency,
            seats=5,
            reserved_seats=draw(one_of(0, 1)),
            batch_minimum=1,
            batch_maximum=4,
        ),
        queue_capacity=100,
        queue_bytes=2**29,
    )


@st.composite
def all_settings(draw: st.DrawFn) -> Settings:
    """Valid settings of every kind."""
    names = draw(st.permutations(CLASS_NAMES))[: draw(st.integers(1, 4))]
    return Settings(
        classes=tuple(draw(class_settings(name)) for name in names),
        tenants={
            name: TenantSettings(
                weight=draw(one_of(1.0, 4.0, 0.25)),
                limits=draw(TENANT_LIMITS),
            )
            for name in TENANTS[: draw(st.integers(0, 3))]
        },
        algorithm=draw(st.sampled_from(Algorithm)),
        share_unit=draw(st.sampled_from(ShareUnit)),
        concurrency=draw(concurrencies()),
        yielding=Yielding(
            requests_per_s_threshold=draw(one_of(1.0, 20.0)),
            latency_threshold_s=draw(one_of(0.5, 0.05)),
            window_s=draw(one_of(2.0, 10.0)),
            latency=draw(st.sampled_from(LatencySignal)),
            rate=draw(st.sampled_from(RateSignal)),
        ),
        anti_starvation=draw(
            one_of(
                None,
                AntiStarvation(threshold_s=3.0, boost_s=2.0, check_s=1.0),
                AntiStarvation(threshold_s=0.3, boost_s=10.0, check_s=0.7, promotions_per_s=0.5),
            )
        ),
        preemption=draw(
            one_of(
                Preemption.ABORT_BEFORE_FIRST_TOKEN,
                Preemption.ABORT_BEFORE_FIRST_TOKEN,
                *Preemption,
            )
        ),
        queue_capacity=draw(one_of(*[100] * 6, 8, 2, 0)),
        queue_bytes=draw(one_of(*[2**29] * 4, 2000, 15)),
        batch_token_floor_ratio=draw(one_of(FLOOR_RATIO, 0.0)),
        batch_token_floor_half_life_s=draw(one_of(30.0, 1.0)),
        first_output_estimate_tokens=draw(one_of(256, 3)),
        largest_output_estimate_tokens=draw(one_of(32768, 100)),
        cached_token_ratio=draw(one_of(1.0, 0.25)),
        output_token_weight=draw(one_of(2.0, 0.0)),
        idle_tenants=draw(one_of(10_000, 1, 0)),
    )


@st.composite
def changed(draw: st.DrawFn, settings: Settings) -> Settings:
    """The same settings with one thing changed."""
    classes = settings.classes
    match draw(st.integers(0, 5)):
        case 0:
            return replace(settings, algorithm=draw(st.sampled_from(Algorithm)))
        case 1:
            return replace(settings, classes=tuple(draw(st.permutations(classes))))
        case 2 if len(classes) > 1:
            gone = draw(st.integers(0, len(classes) - 1))
            return replace(settings, classes=classes[:gone] + classes[gone + 1 :])
        case 3:
            return replace(settings, concurrency=draw(concurrencies()))
        case 4:
            limited = replace(classes[0], limits=draw(CLASS_LIMITS))
            return replace(settings, classes=(limited, *classes[1:]))
        case _:
            limits = {name: TenantSettings(limits=draw(TENANT_LIMITS)) for name in TENANTS[:2]}
            return replace(settings, tenants=limits)


@st.composite
def plain_requests(draw: st.DrawFn, key: int) -> Request:
    """A request such as most clients send."""
    return Request(
        key=RequestKey(key),
        rank=draw(st.integers(0, 3)),
        tenant=draw(st.sampled_from(TENANTS)),
        prompt_tokens=draw(one_of(10, 1, 103, 907, 5003)),
        maximum_output_tokens=draw(one_of(20, 0, None)),
        shows_first_token=draw(one_of(True, True, False)),
    )


@st.composite
def requests(draw: st.DrawFn, key: int) -> Request:
    """A request that a client might send, plain or devious."""
    rank = draw(st.integers(0, 4))
    return Request(
        key=RequestKey(key),
        rank=rank,
        tenant=draw(st.sampled_from(TENANTS)),
        prompt_tokens=draw(one_of(10, 1, 103, 907, 5003)),
        maximum_output_tokens=draw(one_of(None, 20, 0, 4001)),
        answers=draw(one_of(1, 3)),
        size_bytes=draw(one_of(0, 10, 1000)),
        patience_s=draw(one_of(None, None, None, 2.0, 0.2, 0.0, -1.0)),
        name=draw(st.sampled_from(NAMES)),
        workflow=draw(one_of(None, "w")),
        waits_for=draw(one_of(None, *NAMES)),
        ceiling_rank=draw(st.integers(0, 4)),
        shows_first_token=draw(st.booleans()),
        repeatable=draw(st.booleans()),
    )


@st.composite
def chains(draw: st.DrawFn, key: int) -> list[Request]:
    """Requests of one workflow that wait for each other, in any order of arrival (A9)."""
    links = draw(st.permutations(["n1", "n2", "n3"]))
    return [
        Request(
            key=RequestKey(key + place),
            rank=draw(st.integers(0, 3)),
            tenant=draw(st.sampled_from(TENANTS[:3])),
            prompt_tokens=103,
            maximum_output_tokens=20,
            name=name,
            workflow="w",
            waits_for=draw(st.sampled_from(NAMES)),
        )
        for place, name in enumerate(links)
    ]


@st.composite
def usages(draw: st.DrawFn) -> Usage | None:
    """What an engine reports: nothing, the truth, or a lie."""
    if draw(st.booleans()):
        return None
    return Usage(
        prompt_tokens=draw(one_of(10, 0, 5003, -5)),
        cached_tokens=draw(one_of(0, 7, 9999, -1)),
        output_tokens=draw(one_of(20, 0, 100_000, -7)),
    )
