"""Do the policy's words become the right numbers?"""

from dataclasses import fields, replace
from typing import TypeVar

import pytest
from giveway_admission.estimates import Estimates
from giveway_admission.translating import prompt_estimates, share_limits, translate
from giveway_policy import enumerations
from giveway_policy.defaults import default_document, default_spec
from giveway_policy.documents import PolicyName, make_document
from giveway_policy.enumerations import Indicator, Kind
from giveway_policy.limits import Limits, TenantLimits
from giveway_policy.mechanics import (
    Accounting,
    AntiStarvation,
    BatchSeats,
    ClassAging,
    Concurrency,
    DeficitRoundRobin,
    DynamicAging,
    Engine,
    InteractiveFirst,
    Scheduling,
    SLOAware,
    WeightedRandom,
)
from giveway_policy.resources import (
    ClassQueue,
    Identity,
    Objective,
    Queue,
    ServiceClass,
    SLOPolicySpec,
)
from giveway_scheduler import (
    Algorithm,
    LatencySignal,
    OverLimit,
    Preemption,
    RateSignal,
    Settings,
    ShareUnit,
    TenantName,
    Yielding,
)
from giveway_scheduler import Concurrency as SchedulerConcurrency
from giveway_scheduler import Kind as SchedulerKind
from giveway_scheduler import Limits as SchedulerLimits

from tests.admission.policy_documents import document, tenant

Part = TypeVar("Part", Settings, Yielding, SchedulerConcurrency)


def _objective(indicator: Indicator, milliseconds: int) -> Objective:
    return Objective(indicator=indicator, threshold_milliseconds=milliseconds, target_percent="99")


SPEC = SLOPolicySpec(
    classes=(
        ServiceClass(
            name="top",
            kind=Kind.INTERACTIVE,
            weight=7,
            limits=Limits(
                requests_per_second=200,
                request_burst=400,
                tokens_per_minute=120_000,
                token_burst=5000,
            ),
            queue=ClassQueue(capacity=11, time_to_live_seconds=12),
            objectives=(
                _objective(Indicator.INTER_TOKEN_LATENCY, 10),
                _objective(Indicator.TIME_TO_FIRST_TOKEN, 900),
                _objective(Indicator.TIME_TO_FIRST_TOKEN, 300),
            ),
        ),
        ServiceClass(name="rest", kind=Kind.BATCH, weight=3),
    ),
    scheduling=Scheduling(
        algorithm=enumerations.Algorithm.WEIGHTED_RANDOM,
        weighted_random=WeightedRandom(share_unit=enumerations.ShareUnit.REQUESTS),
        deficit_round_robin=DeficitRoundRobin(share_unit=enumerations.ShareUnit.TOKENS),
        dynamic_aging=DynamicAging(
            classes=(ClassAging(class_name="rest", base="2.5", aging_per_millisecond="0.01"),)
        ),
        interactive_first=InteractiveFirst(
            requests_per_second_threshold=33,
            latency_threshold_milliseconds=750,
            window_seconds=15,
            smoothing="0.25",
            latency_signal=enumerations.LatencySignal.END_TO_END,
            rate_signal=enumerations.RateSignal.ARRIVED,
        ),
        slo_aware=SLOAware(batch_token_floor_percent="7.5", floor_half_life_seconds=45),
    ),
    preemption=enumerations.Preemption.ABORT_BEFORE_FIRST_TOKEN,
    concurrency=Concurrency(
        seats=40,
        reserved_seats=4,
        batch=BatchSeats(minimum=2, maximum=20),
        prompt_gate_tokens=8192,
        prefill_microseconds_per_1000_tokens=50_000,
        lower_seats_on_preemption=False,
    ),
    anti_starvation=AntiStarvation(
        threshold_seconds=50, boost_seconds=25, check_seconds=5, promotions_per_second=3
    ),
    identity=Identity(),
    queue=Queue(capacity=123, bytes=456_789),
    engine=Engine(cached_token_percent="10"),
    accounting=Accounting(
        first_output_estimate_tokens=100,
        largest_output_estimate_tokens=1000,
        output_token_weight="3.5",
    ),
)


def test_every_setting_follows_from_the_policy() -> None:
    """No number of the scheduler's is left at its default by oversight."""
    limits = TenantLimits(requests_per_second=10, tokens_per_minute=600, in_flight=5)
    settings = translate(
        document(spec=SPEC, tenants=(tenant("acme", weight=4, limits=limits),), share=0.5)
    )
    top, rest = settings.classes
    assert (top.name, top.kind, top.weight) == ("top", SchedulerKind.INTERACTIVE, 7.0)
    assert top.limits == SchedulerLimits(
        requests_per_s=100.0, request_burst=200.0, tokens_per_s=1000.0, token_burst=2500.0
    )
    assert (top.over_limit, rest.over_limit) == (OverLimit.REJECT, OverLimit.QUEUE)
    assert (top.queue_capacity, top.time_to_live_s) == (11, 12.0)
    assert (top.first_token_target_s, rest.first_token_target_s) == (0.3, None)
    assert (top.aging_base, top.aging_per_ms) == (100.0, 0.05)
    assert (rest.aging_base, rest.aging_per_ms) == (2.5, 0.01)
    acme = settings.tenants[TenantName("acme")]
    assert acme.weight == 4.0
    assert acme.limits == SchedulerLimits(
        requests_per_s=5.0,
        request_burst=5.0,
        tokens_per_s=5.0,
        token_burst=50.0,
        in_flight=3,
    )
    assert settings.algorithm is Algorithm.WEIGHTED_RANDOM
    assert settings.share_unit is ShareUnit.REQUESTS
    assert settings.preemption is Preemption.ABORT_BEFORE_FIRST_TOKEN
    concurrency = settings.concurrency
    assert (concurrency.seats, concurrency.reserved_seats) == (40, 4)
    assert (concurrency.batch_minimum, concurrency.batch_maximum) == (2, 20)
    assert concurrency.prompt_gate_tokens == 8192
    assert concurrency.prompt_seconds_per_token == pytest.approx(50e-6)
    assert not concurrency.lower_seats_on_preemption
    yielding = settings.yielding
    assert (yielding.requests_per_s_threshold, yielding.latency_threshold_s) == (33.0, 0.75)
    assert (yielding.window_s, yielding.smoothing) == (15.0, 0.25)
    assert (yielding.latency, yielding.rate) == (LatencySignal.END_TO_END, RateSignal.ARRIVED)
    boost = settings.anti_starvation
    assert boost is not None
    assert (boost.threshold_s, boost.boost_s, boost.check_s) == (50.0, 25.0, 5.0)
    assert boost.promotions_per_s == 3.0
    assert (settings.queue_capacity, settings.queue_bytes) == (123, 456_789)
    assert settings.batch_token_floor_ratio == pytest.approx(0.075)
    assert settings.batch_token_floor_half_life_s == 45.0
    assert settings.first_output_estimate_tokens == 100
    assert settings.largest_output_estimate_tokens == 1000
    assert settings.cached_token_ratio == pytest.approx(0.1)
    assert settings.output_token_weight == 3.5


def test_the_policy_above_changes_every_setting() -> None:
    """So that the test above says something about each of them."""
    settings = translate(document(spec=SPEC, tenants=(tenant("acme"),)))
    defaults = Settings(classes=())
    assert _equal_fields(settings, defaults) == {"idle_tenants"}, "it is no matter of policy"
    assert _equal_fields(settings.yielding, defaults.yielding) == set()
    assert _equal_fields(settings.concurrency, defaults.concurrency) == set()


def _equal_fields(one: Part, other: Part) -> set[str]:
    names = (field.name for field in fields(one))
    return {name for name in names if getattr(one, name) == getattr(other, name)}


def test_weights_that_the_operator_decided_hold_and_not_those_of_the_policy() -> None:
    """All else stays as the policy says: a reload of weights moves nothing but weights."""
    name, spec = PolicyName(name="x"), default_spec()
    plain = translate(make_document(name, spec))
    moved = translate(make_document(name, spec, weights={"realtime": 66.0, "standard": 29.0}))
    assert [each.weight for each in moved.classes] == [66.0, 29.0, 5.0]
    weights = {each.name: each.weight for each in plain.classes}
    assert plain == replace(
        moved, classes=tuple(replace(each, weight=weights[each.name]) for each in moved.classes)
    )


def test_the_built_in_policy_becomes_the_published_numbers() -> None:
    """H2, H3, H4, A1, A2: three classes, burst = one second's requests."""
    settings = translate(default_document())
    published = [
        (each.name, each.limits.requests_per_s, each.limits.request_burst, each.over_limit)
        for each in settings.classes
    ]
    assert published == [
        ("realtime", 200.0, 200.0, OverLimit.REJECT),
        ("standard", 100.0, 100.0, OverLimit.REJECT),
        ("batch", 50.0, 50.0, OverLimit.QUEUE),
    ]
    assert [each.first_token_target_s for each in settings.classes] == [0.3, 1.0, None]
    assert [each.weight for each in settings.classes] == [70.0, 25.0, 5.0]
    assert [each.aging_base for each in settings.classes] == [100.0, 20.0, 1.0]
    assert [each.aging_per_ms for each in settings.classes] == [0.05, 0.02, 0.005]
    assert settings.algorithm is Algorithm.SLO_AWARE


@pytest.mark.parametrize(
    ("limits", "share", "expected"),
    [
        (Limits(), 0.5, SchedulerLimits()),
        (
            Limits(requests_per_second=0, tokens_per_minute=0),
            0.5,
            SchedulerLimits(requests_per_s=0.0, tokens_per_s=0.0),
        ),
        (
            Limits(requests_per_second=1),
            0.25,
            SchedulerLimits(requests_per_s=0.25, request_burst=1.0),
        ),
        (
            Limits(requests_per_minute=30),
            0.5,
            SchedulerLimits(requests_per_s=0.25, request_burst=1.0),
        ),
        (Limits(requests_per_minute=0), 0.5, SchedulerLimits(requests_per_s=0.0)),
        (
            Limits(tokens_per_minute=60),
            0.25,
            SchedulerLimits(tokens_per_s=0.25, token_burst=2.5),
        ),
        (TenantLimits(in_flight=0), 0.5, SchedulerLimits(in_flight=0)),
        (TenantLimits(in_flight=3), 0.1, SchedulerLimits(in_flight=1)),
        (TenantLimits(in_flight=3), 1.0, SchedulerLimits(in_flight=3)),
    ],
)
def test_a_proxy_takes_its_share(limits: Limits, share: float, expected: SchedulerLimits) -> None:
    """Rates exactly; a burst still lets one request through; nothing stays nothing (Y12)."""
    assert share_limits(limits, share) == expected


def test_no_gate_and_no_boost_can_be_said() -> None:
    """0 tokens is no gate; a boost can be switched off."""
    spec = SLOPolicySpec(
        classes=(ServiceClass(name="only", kind=Kind.INTERACTIVE),),
        concurrency=Concurrency(prompt_gate_tokens=0),
        anti_starvation=AntiStarvation(enabled=False),
    )
    settings = translate(document(spec=spec))
    assert settings.concurrency.prompt_gate_tokens is None
    assert settings.anti_starvation is None


@pytest.mark.parametrize("algorithm", list(enumerations.Algorithm))
def test_each_algorithm_has_its_unit(algorithm: enumerations.Algorithm) -> None:
    """Requests are counted only where the policy can say so, and does (H6, H11)."""
    scheduling = Scheduling(
        algorithm=algorithm,
        weighted_random=WeightedRandom(share_unit=enumerations.ShareUnit.REQUESTS),
        deficit_round_robin=DeficitRoundRobin(share_unit=enumerations.ShareUnit.REQUESTS),
    )
    spec = SLOPolicySpec(
        classes=(ServiceClass(name="only", kind=Kind.INTERACTIVE),), scheduling=scheduling
    )
    settings = translate(document(spec=spec))
    assert settings.algorithm.value == algorithm.value
    counts_requests = algorithm in (
        enumerations.Algorithm.WEIGHTED_RANDOM,
        enumerations.Algorithm.DEFICIT_ROUND_ROBIN,
    )
    assert (settings.share_unit is ShareUnit.REQUESTS) is counts_requests


def test_what_a_policy_does_not_say_of_prompts_is_giveways_guess() -> None:
    """And the descriptions of the fields name these guesses."""
    guesses = Estimates()
    assert prompt_estimates(default_document()) == guesses
    said = Accounting(bytes_per_token=2, image_tokens=85, file_tokens=9)
    assert prompt_estimates(
        document(spec=default_spec().model_copy(update={"accounting": said}))
    ) == replace(guesses, bytes_per_token=2, image_tokens=85, file_tokens=9)
    for name, field in Accounting.model_fields.items():
        if hasattr(guesses, name):
            assert f"Absent: {getattr(guesses, name):,}." in str(field.description)
