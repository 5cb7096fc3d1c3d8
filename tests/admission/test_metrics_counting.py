"""Metrics: what is counted, and what the page says of it."""

import pytest
from giveway_admission.engine_watching import ScrapeResult
from giveway_admission.metrics import MAXIMUM_TOKENS, Metrics
from giveway_admission.outcomes import Outcome
from giveway_policy.defaults import default_document
from giveway_policy.faults import FaultKind
from giveway_scheduler import Usage
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.admin_support import (
    Clock,
    Policy,
    class_statistics,
    engine_reading,
    statistics,
)
from tests.support.scraping import Samples, parse_samples

CLASSES = ("realtime", "standard", "batch")


def made(clock: Clock | None = None) -> Metrics:
    metrics = Metrics(version="1.2.3", clock=clock or Clock())
    metrics.configure(Policy(default_document()))
    return metrics


def scraped(metrics: Metrics) -> Samples:
    return parse_samples(metrics.render().decode())


@pytest.mark.parametrize("class_name", [*CLASSES, "none"])
@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_class_and_outcome_exists_at_zero_from_the_start(
    class_name: str, outcome: Outcome
) -> None:
    """A rate over a series that appears with its first event would miss that event."""
    samples = scraped(made())
    labels = {"class": class_name, "outcome": outcome.value}
    assert samples.value("giveway_requests_total", **labels) == 0


@pytest.mark.parametrize(
    "name",
    [
        "giveway_queue_wait_seconds",
        "giveway_time_to_first_token_seconds",
        "giveway_inter_token_latency_seconds",
        "giveway_request_duration_seconds",
    ],
)
def test_every_class_has_its_histograms_from_the_start(name: str) -> None:
    """Attainment of a class without traffic is "no requests", not "no series"."""
    samples = scraped(made())
    for class_name in CLASSES:
        assert samples.value(f"{name}_count", **{"class": class_name}) == 0
        assert samples.value(f"{name}_bucket", **{"class": class_name, "le": "+Inf"}) == 0


@pytest.mark.parametrize("reason", [*FaultKind, "other"])
def test_every_reason_for_rejecting_a_policy_exists_at_zero(reason: str) -> None:
    """Alerts on rejected policies work from the first one on."""
    assert scraped(made()).value("giveway_policy_rejected_total", reason=reason) == 0


def test_one_request_from_arrival_to_end() -> None:
    """What the data plane reports is what the page says."""
    metrics = made()
    metrics.arrived("realtime")
    metrics.queue_waited("realtime", 0.02)
    metrics.first_token("realtime", 0.25)
    metrics.tokens_gap("realtime", 0.03)
    metrics.gap_observer("realtime")(0.05)
    metrics.ended(
        "realtime",
        "acme",
        Outcome.COMPLETED,
        duration_s=1.5,
        usage=Usage(prompt_tokens=100, cached_tokens=40, output_tokens=7),
    )
    samples = scraped(metrics)
    of_class = {"class": "realtime"}
    assert samples.value("giveway_requests_arrived_total", **of_class) == 1
    assert samples.value("giveway_requests_total", outcome="completed", **of_class) == 1
    assert samples.value("giveway_queue_wait_seconds_sum", **of_class) == 0.02
    assert samples.value("giveway_time_to_first_token_seconds_sum", **of_class) == 0.25
    assert samples.value("giveway_inter_token_latency_seconds_count", **of_class) == 2
    assert samples.value("giveway_request_duration_seconds_sum", **of_class) == 1.5
    ended = {"tenant": "acme", "outcome": "completed", **of_class}
    assert samples.value("giveway_tenant_requests_total", **ended) == 1
    for kind, tokens in (("prompt", 100), ("cached", 40), ("completion", 7)):
        assert samples.value("giveway_tenant_tokens_total", tenant="acme", kind=kind) == tokens
        assert samples.value("giveway_tokens_total", kind=kind, **of_class) == tokens


def test_threshold_of_the_policy_is_a_bucket_bound() -> None:
    """H2: P0's 300 ms and P1's 1 s can be read off exactly."""
    metrics = made()
    for after_s in (0.299, 0.3, 0.301):
        metrics.first_token("realtime", after_s)
    name = "giveway_time_to_first_token_seconds_bucket"
    samples = scraped(metrics)
    assert samples.value(name, **{"class": "realtime", "le": "0.3"}) == 2
    assert samples.value(name, **{"class": "standard", "le": "1.0"}) == 0


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.COMPLETED])
def test_only_completed_requests_have_a_duration(outcome: Outcome) -> None:
    """A refusal in a millisecond must not look like a fast answer."""
    metrics = made()
    metrics.ended("realtime", "acme", outcome, duration_s=0.001)
    samples = scraped(metrics)
    assert samples.value("giveway_request_duration_seconds_count", **{"class": "realtime"}) == 0


def test_request_without_a_class_is_counted_as_none() -> None:
    """G14: what is refused early is counted too, and C26's sum holds for it."""
    metrics = made()
    metrics.refused_early(Outcome.NOT_FOUND)
    samples = scraped(metrics)
    assert samples.value("giveway_requests_arrived_total", **{"class": "none"}) == 1
    labels = {"class": "none", "outcome": "not_found"}
    assert samples.value("giveway_requests_total", **labels) == 1


def test_request_of_a_class_that_nobody_knows_is_counted_as_none() -> None:
    """A class that has just gone neither raises nor makes a label."""
    metrics = made()
    metrics.arrived("gone")
    metrics.queue_waited("gone", 1.0)
    metrics.first_token("gone", 1.0)
    metrics.tokens_gap("gone", 1.0)
    metrics.ended("gone", "acme", Outcome.COMPLETED, duration_s=1.0)
    text = metrics.render().decode()
    assert "gone" not in text
    samples = parse_samples(text)
    assert samples.total("giveway_requests_total", **{"class": "none"}) == 1


def test_unknown_class_asked_for_is_counted() -> None:
    """A client's spelling mistake shows."""
    metrics = made()
    metrics.asked_class_unknown()
    assert scraped(metrics).value("giveway_unknown_class_requests_total") == 1


def test_rejected_policies_are_counted_by_reason() -> None:
    """A reason that is not a label value is counted as other."""
    metrics = made()
    metrics.policy_rejected(FaultKind.HASH)
    metrics.policy_rejected("anything else")
    samples = scraped(metrics)
    assert samples.value("giveway_policy_rejected_total", reason="hash") == 1
    assert samples.value("giveway_policy_rejected_total", reason="other") == 1
    assert samples.total("giveway_policy_rejected_total") == 2


@pytest.mark.parametrize(
    ("usage", "expected", "faults"),
    [
        (Usage(prompt_tokens=-5, output_tokens=3), (0, 0, 3), 1),
        (Usage(prompt_tokens=10, cached_tokens=99, output_tokens=0), (10, 10, 0), 0),
        (Usage(prompt_tokens=10**18, output_tokens=-(10**18)), (MAXIMUM_TOKENS, 0, 0), 2),
    ],
)
def test_impossible_usage_is_clamped_and_counted(
    usage: Usage, expected: tuple[int, int, int], faults: int
) -> None:
    """B26: a negative or absurd amount raises nothing and lowers nothing."""
    metrics = made()
    metrics.ended("batch", "acme", Outcome.COMPLETED, duration_s=1.0, usage=usage)
    samples = scraped(metrics)
    kinds = ("prompt", "cached", "completion")
    counted = tuple(
        samples.value("giveway_tenant_tokens_total", tenant="acme", kind=kind) for kind in kinds
    )
    assert counted == expected
    assert samples.value("giveway_implausible_usage_total") == faults


EVENTS = st.lists(
    st.tuples(
        st.sampled_from((*CLASSES, "none", "never-heard-of")),
        st.sampled_from(list(Outcome)),
        st.sampled_from(("acme", "other", "a b", "ops@example.com", "")),
    ),
    max_size=60,
)


@given(EVENTS)
def test_sum_of_outcomes_equals_arrivals(events: list[tuple[str, Outcome, str]]) -> None:
    """C26: for every class, and per tenant altogether."""
    metrics = made()
    early = 0
    for class_name, outcome, tenant in events:
        if class_name == "none":
            metrics.refused_early(outcome)
            early += 1
        else:
            metrics.arrived(class_name)
            metrics.ended(class_name, tenant, outcome, duration_s=0.1)
    samples = scraped(metrics)
    for class_name in (*CLASSES, "none"):
        arrived = samples.total("giveway_requests_arrived_total", **{"class": class_name})
        assert samples.total("giveway_requests_total", **{"class": class_name}) == arrived
    assert samples.total("giveway_tenant_requests_total") == len(events) - early


def test_gauges_are_what_the_scheduler_says_now() -> None:
    """C26: nothing is counted up and down, so a gauge cannot drift: it is read when asked for."""
    metrics = made()
    now = statistics(
        seats=7,
        batch_seats=3,
        unprefilled_tokens=1234,
        classes=(
            class_statistics("realtime", queued=2, oldest_waited_s=1.5, running=5, weight=0.7),
        ),
    )
    metrics.set_sources(lambda: now, engine_up=lambda: False, draining=lambda: True)
    samples = scraped(metrics)
    of_class = {"class": "realtime"}
    assert samples.value("giveway_queue_requests", **of_class) == 2
    assert samples.value("giveway_queue_oldest_seconds", **of_class) == 1.5
    assert samples.value("giveway_running_requests", **of_class) == 5
    assert samples.value("giveway_class_weight", **of_class) == 0.7
    assert samples.value("giveway_seats") == 7
    assert samples.value("giveway_batch_seats") == 3
    assert samples.value("giveway_unprefilled_tokens") == 1234
    assert samples.value("giveway_engine_up") == 0
    assert samples.value("giveway_draining") == 1
    now = statistics(classes=(class_statistics("realtime"),))
    assert scraped(metrics).value("giveway_queue_requests", **of_class) == 0


def test_boosts_never_go_down() -> None:
    """H10's counter rises on when the scheduler starts a class anew."""
    metrics = made()
    boosts = 5
    metrics.set_sources(
        lambda: statistics(classes=(class_statistics("batch", boosts=boosts),)),
        engine_up=lambda: True,
    )
    name = "giveway_starvation_boosts_total"
    assert scraped(metrics).value(name, **{"class": "batch"}) == 5
    boosts = 1
    assert scraped(metrics).value(name, **{"class": "batch"}) == 6
    boosts = 2
    assert scraped(metrics).value(name, **{"class": "batch"}) == 7


def test_engine_values_are_left_out_until_they_are_known() -> None:
    """E17: unknown is not 0."""
    metrics = made()
    reading = engine_reading()
    metrics.set_sources(statistics, engine_up=lambda: True, engine=lambda: reading)
    samples = scraped(metrics)
    assert samples.matching("giveway_engine_requests_total") == []
    assert samples.matching("giveway_engine_preemptions_total") == []
    assert samples.matching("giveway_engine_kv_cache_usage_ratio") == []
    assert len(samples.matching("giveway_engine_scrapes_total")) == len(ScrapeResult)
    reading = engine_reading(requests_total=9.0, preemptions_total=2.0, kv_cache_usage_ratio=0.5)
    samples = scraped(metrics)
    assert samples.value("giveway_engine_requests_total") == 9
    assert samples.value("giveway_engine_preemptions_total") == 2
    assert samples.value("giveway_engine_kv_cache_usage_ratio") == 0.5


def test_policy_and_version_are_shown() -> None:
    """Which policy runs, for how long, and in which giveway."""
    clock = Clock()
    metrics = made(clock)
    clock.now_s += 90
    document = default_document()
    samples = scraped(metrics)
    assert (
        samples.value(
            "giveway_policy_info",
            policy="built-in",
            epoch="0",
            generation="0",
            hash=document.hash,
        )
        == 1
    )
    assert samples.value("giveway_policy_age_seconds") == 90
    assert samples.value("giveway_build_info", version="1.2.3") == 1


def test_process_metrics_are_on_the_page() -> None:
    """Memory and open files: what leaks show in."""
    samples = scraped(made())
    assert samples.value("process_resident_memory_bytes") > 1e6
    assert samples.value("process_open_fds") > 0


def test_progress_tells_what_the_page_needs() -> None:
    """The admin page takes differences of these."""
    metrics = made()
    metrics.arrived("batch")
    metrics.ended(
        "batch",
        "acme",
        Outcome.ENGINE_FAILED,
        duration_s=1.0,
        usage=Usage(prompt_tokens=3, output_tokens=2),
    )
    progress = metrics.progress("batch")
    assert progress.arrived == 1
    assert progress.outcomes == {"engine_failed": 1}
    assert progress.tokens == {"prompt": 3, "cached": 0, "completion": 2}
