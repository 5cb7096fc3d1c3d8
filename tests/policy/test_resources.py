"""What an SLOPolicy and a TenantPriority can say, and what they say when they say nothing."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, get_args

import giveway_scheduler
import pytest
from giveway_policy import enumerations
from giveway_policy.defaults import default_spec
from giveway_policy.fields import percent_to_ratio
from giveway_policy.resources import SLOPolicy
from giveway_policy.tenants import TenantPriority
from pydantic import BaseModel

from tests.policy.policy_texts import policy_with, problems_of, tenant_with, valid_policy

RESOURCES = (SLOPolicy, TenantPriority)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _models(field.annotation)
    else:
        for part in get_args(annotation):
            yield from _models(part)


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_field_is_described(resource: type[BaseModel]) -> None:
    """The description is what `kubectl explain` shows: each field has one, as whole sentences."""
    found = set(_models(resource))
    assert len(found) > 5
    for model in found:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            if model.__name__ != "Metadata" and name not in ("kind", "api_version"):
                assert field.description.endswith("."), f"{model.__name__}.{name}"


def _schemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for key, value in schema.get("properties", {}).items():
        yield from _schemas(value, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _schemas(schema[key], f"{path}[]")
    for value in schema.get("anyOf", []):
        yield from _schemas(value, path)
    for key, value in schema.get("$defs", {}).items():
        yield from _schemas(value, key)


@pytest.mark.parametrize("resource", RESOURCES)
def test_everything_is_bounded_and_nothing_is_a_float(resource: type[BaseModel]) -> None:
    """Strings, lists, maps and numbers of a spec have a largest size; no field holds a float."""
    schema = resource.model_json_schema(by_alias=True)
    checked = 0
    for path, part in _schemas(schema, resource.__name__):
        if path.startswith(("Metadata", f"{resource.__name__}.")) or "const" in part:
            continue
        if part.get("x-kubernetes-int-or-string") or path.endswith("Queue.bytes"):
            continue
        kind = part.get("type")
        assert kind != "number", path
        if kind == "string" and "enum" not in part:
            assert "maxLength" in part, path
        elif kind == "array":
            assert "maxItems" in part, path
        elif kind == "integer":
            assert {"minimum", "maximum"} <= part.keys(), path
        elif kind == "object" and "properties" not in part:
            assert "maxProperties" in part, path
        checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    "name",
    ["Algorithm", "Kind", "OverLimit", "Preemption", "ShareUnit"],
)
def test_the_scheduler_knows_the_same_words(name: str) -> None:
    """A choice of the policy is the scheduler's choice of the same name, word for word."""
    ours: type[StrEnum] = getattr(enumerations, name)
    theirs: type[StrEnum] = getattr(giveway_scheduler, name)
    assert [each.value for each in ours] == [each.value for each in theirs]


def test_defaults_are_those_of_the_scheduler() -> None:
    """Wherever both have a default, it is one and the same number."""
    spec = valid_policy(policy_with()).spec
    settings = giveway_scheduler.Settings(classes=())
    seats, theirs = spec.concurrency, settings.concurrency
    assert (seats.seats, seats.reserved_seats) == (theirs.seats, theirs.reserved_seats)
    assert (seats.batch.minimum, seats.batch.maximum) == (
        theirs.batch_minimum,
        theirs.batch_maximum,
    )
    assert seats.prompt_gate_tokens == theirs.prompt_gate_tokens
    # 23,500 us per 1,000 tokens = 23.5 us a token
    assert seats.prefill_microseconds_per_1000_tokens / 1e9 == pytest.approx(
        theirs.prompt_seconds_per_token
    )
    assert seats.lower_seats_on_preemption == theirs.lower_seats_on_preemption
    starvation, boost = spec.anti_starvation, settings.anti_starvation
    assert boost is not None
    assert starvation.enabled
    assert (
        starvation.threshold_seconds,
        starvation.boost_seconds,
        starvation.check_seconds,
        starvation.promotions_per_second,
    ) == (boost.threshold_s, boost.boost_s, boost.check_s, boost.promotions_per_s)
    first, yielding = spec.scheduling.interactive_first, settings.yielding
    assert (
        first.requests_per_second_threshold,
        first.latency_threshold_milliseconds / 1000,
        first.window_seconds,
        float(first.smoothing),
        first.latency_signal.value,
        first.rate_signal.value,
    ) == (
        yielding.requests_per_s_threshold,
        yielding.latency_threshold_s,
        yielding.window_s,
        yielding.smoothing,
        yielding.latency,
        yielding.rate,
    )
    assert spec.scheduling.algorithm.value == settings.algorithm.value
    assert spec.scheduling.weighted_random.share_unit.value == settings.share_unit.value
    assert spec.scheduling.deficit_round_robin.share_unit.value == settings.share_unit.value
    assert spec.preemption.value == settings.preemption.value
    assert (spec.queue.capacity, spec.queue.bytes) == (
        settings.queue_capacity,
        settings.queue_bytes,
    )
    aware = spec.scheduling.slo_aware
    assert percent_to_ratio(aware.batch_token_floor_percent) == settings.batch_token_floor_ratio
    assert aware.floor_half_life_seconds == settings.batch_token_floor_half_life_s
    accounting = spec.accounting
    assert accounting.first_output_estimate_tokens == settings.first_output_estimate_tokens
    assert accounting.largest_output_estimate_tokens == settings.largest_output_estimate_tokens
    assert float(accounting.output_token_weight) == settings.output_token_weight
    assert percent_to_ratio(spec.engine.cached_token_percent) == settings.cached_token_ratio


def test_class_defaults_are_those_of_the_scheduler() -> None:
    """An interactive class, a tenant, the lowest class's ageing: the scheduler's numbers."""
    spec = default_spec()
    theirs = giveway_scheduler.ClassSettings(
        name=giveway_scheduler.ClassName("x"), kind=giveway_scheduler.Kind.INTERACTIVE, weight=1.0
    )
    first = spec.classes[0]
    assert first.queue.capacity == theirs.queue_capacity
    assert first.queue.time_to_live_seconds == theirs.time_to_live_s
    assert first.over_limit.value == theirs.over_limit.value
    lowest = spec.scheduling.dynamic_aging.classes[-1]
    assert float(lowest.base) == theirs.aging_base
    assert float(lowest.aging_per_millisecond) == theirs.aging_per_ms
    tenant = TenantPriority.model_fields["spec"].annotation
    assert tenant is not None
    assert tenant.model_fields["weight"].default == giveway_scheduler.TenantSettings().weight


def test_what_is_done_over_the_limit_follows_the_kind() -> None:
    """H4, A6: interactive is refused and waits 15 s at most, batch waits, up to an hour."""
    interactive, _, batch = valid_policy(policy_with()).spec.classes
    assert (interactive.over_limit, interactive.queue.time_to_live_seconds) == ("Reject", 15)
    assert (batch.over_limit, batch.queue.time_to_live_seconds) == ("Queue", 3600)


def test_a_default_by_kind_gives_way_to_what_is_written() -> None:
    """Also when it stands beside another field of the same block."""
    written = {
        "name": "b",
        "kind": "Batch",
        "overLimit": "Reject",
        "queue": {"capacity": 3, "timeToLiveSeconds": 15},
    }
    half = {"name": "c", "kind": "Batch", "queue": {"capacity": 3}}
    first, second = valid_policy(policy_with(classes=[written, half])).spec.classes
    assert (first.over_limit, first.queue.time_to_live_seconds) == ("Reject", 15)
    assert (second.queue.capacity, second.queue.time_to_live_seconds) == (3, 3600)


@pytest.mark.parametrize(
    ("seats", "reserved", "batch"),
    [
        (64, 8, 48),  # an eighth and three quarters
        (8, 1, 6),  # Y2, Y3: the published 8 and 6
        (4, 0, 3),
        (1, 0, 1),
    ],
)
def test_seats_of_batch_follow_the_seats(seats: int, reserved: int, batch: int) -> None:
    """Y2, Y3: whoever sets seats alone gets parts that fit."""
    concurrency = valid_policy(policy_with(concurrency={"seats": seats})).spec.concurrency
    assert (concurrency.reserved_seats, concurrency.batch.maximum) == (reserved, batch)


@pytest.mark.parametrize(
    ("limits", "request_burst", "token_burst"),
    [
        ({"requestsPerSecond": 200}, 200, None),  # H3: one second's requests
        ({"requestsPerSecond": 200, "requestBurst": 400}, 400, None),  # H3: published double burst
        ({"requestsPerMinute": 6000}, 100, None),
        ({"requestsPerMinute": 20}, 1, None),  # less than one a second: one at a time
        ({"requestsPerMinute": 0}, None, None),
        ({"tokensPerMinute": 60_000}, None, 10_000),  # ten seconds' tokens
        ({"tokensPerMinute": 1}, None, 1),  # rounded up
        ({"requestsPerSecond": 0, "tokensPerMinute": 0}, None, None),
        ({}, None, None),
    ],
)
def test_bursts_follow_the_rates(
    limits: dict[str, int], request_burst: int | None, token_burst: int | None
) -> None:
    """H3, A8: a burst that is not written is one second's requests, ten seconds' tokens."""
    one = {"name": "a", "kind": "Interactive", "limits": limits}
    found = valid_policy(policy_with(classes=[one])).spec.classes[0].limits
    assert (found.request_burst, found.token_burst) == (request_burst, token_burst)


def test_ageing_is_the_published_one_for_classes_that_are_not_listed() -> None:
    """A1, A2: 100/0.05, 20/0.02, 1/0.005 for the highest, the middle and the lowest."""
    listed = [{"class": "standard", "base": "7", "agingPerMillisecond": "0.5"}]
    spec = valid_policy(policy_with()).spec
    assert [
        (each.class_name, each.base, each.aging_per_millisecond)
        for each in spec.scheduling.dynamic_aging.classes
    ] == [("realtime", "100", "0.05"), ("standard", "20", "0.02"), ("batch", "1", "0.005")]
    spec = valid_policy(policy_with(scheduling={"dynamicAging": {"classes": listed}})).spec
    found = {each.class_name: each.base for each in spec.scheduling.dynamic_aging.classes}
    assert found == {"standard": "7", "realtime": "100", "batch": "1"}


@pytest.mark.parametrize(
    ("identity", "ceiling", "default"),
    [
        ({}, "batch", "batch"),
        ({"fallbackClass": "realtime"}, "realtime", "realtime"),
        ({"fallbackClass": "realtime", "fallbackDefaultClass": "batch"}, "realtime", "batch"),
    ],
)
def test_the_fallback_class_is_the_lowest_unless_written(
    identity: dict[str, str], ceiling: str, default: str
) -> None:
    """Nobody unknown gets priority by default."""
    found = valid_policy(policy_with(identity=identity)).spec.identity
    assert (found.fallback_class, found.fallback_default_class) == (ceiling, default)
    assert found.trusted_headers == ()


@pytest.mark.parametrize(
    ("size", "in_bytes"),
    [("512Mi", 512 * 2**20), ("1Gi", 2**30), ("4Ki", 4096), ("17", 17), (536_870_912, 2**29)],
)
def test_memory_is_a_quantity(size: str | int, in_bytes: int) -> None:
    """Written as Kubernetes writes it; a plain number of bytes is right too."""
    assert valid_policy(policy_with(queue={"bytes": size})).spec.queue.bytes == in_bytes


@pytest.mark.parametrize("size", ["", "Mi", "-1", "0", "5Zi", "1.5Gi", "5 Mi", "٣", "9" * 14, 0])
def test_what_is_no_quantity_is_refused(size: str | int) -> None:
    assert [each.path for each in problems_of(policy_with(queue={"bytes": size}))] == [
        ("spec", "queue", "bytes")
    ]


@pytest.mark.parametrize("percent", ["0", "5", "99.5", "99.9999", "100", "100.0"])
def test_percentages_are_decimal_strings(percent: str) -> None:
    spec = valid_policy(policy_with(adjustment={"deadbandPercent": percent})).spec
    assert spec.adjustment.deadband_percent == percent
    assert percent_to_ratio(percent) == pytest.approx(float(percent) / 100)


@pytest.mark.parametrize("percent", ["", "101", "100.1", "-1", "5%", "1e1", "099", ".5", "nan", 5])
def test_what_is_no_percentage_is_refused(percent: str | int) -> None:
    found = problems_of(policy_with(adjustment={"deadbandPercent": percent}))
    assert [each.path for each in found] == [("spec", "adjustment", "deadbandPercent")]


def test_names_as_in_python_are_refused() -> None:
    """A resource has one spelling, that which the API server knows."""
    found = problems_of(policy_with(anti_starvation={}))
    assert [each.path for each in found] == [("spec", "anti_starvation")]
    assert found[0].fix == "did you mean antiStarvation?"


def test_null_means_absent() -> None:
    """As for the API server; so `limits: {requestsPerSecond: null}` is no limit."""
    one = {"name": "a", "kind": "Interactive", "limits": {"requestsPerSecond": None}}
    spec = valid_policy(policy_with(classes=[one], concurrency=None)).spec
    assert spec.classes[0].limits.requests_per_second is None
    assert spec.concurrency.seats == 64


def test_zero_is_a_limit() -> None:
    """0 lets nothing pass; it is not the same as no limit."""
    found = problems_of(tenant_with(limits={"inFlight": 0, "requestsPerSecond": 0}))
    assert found == []


def test_what_kubernetes_adds_to_an_object_is_no_typo() -> None:
    """The output of `kubectl get -o yaml` can be linted as it is."""
    value = policy_with()
    value["metadata"] = {
        "name": "chat",
        "namespace": "llm",
        "uid": "0a",
        "resourceVersion": "12",
        "generation": 3,
        "creationTimestamp": "2025-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
    }
    value["status"] = {"observedGeneration": 3}
    assert problems_of(value) == []
