"""Metrics: a policy that changes while requests are counted."""

from giveway_admission.metrics import MAXIMUM_CLASSES, Metrics
from giveway_admission.outcomes import Outcome
from giveway_admission.policy_facts import ObjectiveFacts, PolicyFacts
from giveway_policy.enumerations import Indicator
from giveway_scheduler import Usage
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.admission.admin_support import Clock
from tests.support.scraping import Samples, parse_samples


def facts(
    *class_names: str, thresholds_s: tuple[float, ...] = (), generation: int = 1, **changes: object
) -> PolicyFacts:
    objectives = tuple(
        ObjectiveFacts(
            indicator=Indicator.TIME_TO_FIRST_TOKEN, threshold_s=each, target_percent="99"
        )
        for each in thresholds_s
    )
    values: dict[str, object] = {
        "policy": "chat",
        "epoch": 1,
        "generation": generation,
        "hash": f"{generation:064x}",
        "built_in": False,
        "class_names": class_names,
        "tenants": ("anonymous",),
        "objectives": {class_names[0]: objectives},
    }
    return PolicyFacts(**(values | changes))  # type: ignore[arg-type]


def scraped(metrics: Metrics) -> Samples:
    return parse_samples(metrics.render().decode())


def test_counts_survive_a_reload() -> None:
    """A policy that changes is no restart: nothing goes back to 0."""
    metrics = Metrics(version="1")
    metrics.configure(facts("realtime", "batch", thresholds_s=(0.3,)))
    metrics.arrived("realtime")
    metrics.first_token("realtime", 0.31)
    metrics.ended("realtime", "acme", Outcome.COMPLETED, duration_s=1.0)
    metrics.configure(facts("realtime", "batch", thresholds_s=(0.35,), generation=2))
    samples = scraped(metrics)
    assert samples.value("giveway_requests_arrived_total", **{"class": "realtime"}) == 1
    assert samples.value("giveway_time_to_first_token_seconds_sum", **{"class": "realtime"}) == 0.31
    assert samples.value("giveway_tenant_requests_total", tenant="acme") == 1
    metrics.first_token("realtime", 0.34)
    name = "giveway_time_to_first_token_seconds_bucket"
    samples = scraped(metrics)
    for bound, count in (("0.3", 0), ("0.35", 1), ("0.4", 2)):
        assert samples.value(name, **{"class": "realtime", "le": bound}) == count


def test_class_that_is_gone_keeps_counting_its_last_requests() -> None:
    """A request that was let in under the old policy still ends under its class."""
    metrics = Metrics(version="1")
    metrics.configure(facts("realtime", "batch"))
    metrics.arrived("batch")
    metrics.configure(facts("realtime", "offline", generation=2))
    metrics.ended("batch", "acme", Outcome.COMPLETED, duration_s=1.0)
    samples = scraped(metrics)
    assert samples.value("giveway_requests_total", outcome="completed", **{"class": "batch"}) == 1
    assert samples.value("giveway_requests_total", outcome="completed", **{"class": "offline"}) == 0


def test_classes_that_come_and_go_do_not_pile_up() -> None:
    """C24: a hundred renamings later the page is as large as before."""
    metrics = Metrics(version="1")
    for generation in range(100):
        metrics.configure(facts("top", f"class-{generation}", generation=generation))
        metrics.ended(f"class-{generation}", "acme", Outcome.COMPLETED, duration_s=1.0)
    samples = scraped(metrics)
    labels = {given["class"] for _, given, _ in samples.values if "class" in given}
    assert len(labels) <= MAXIMUM_CLASSES
    assert {"top", "class-99", "none"} <= labels
    assert "class-0" not in labels


def test_age_starts_anew_with_another_policy_alone() -> None:
    """Reading the same document again is no change."""
    clock = Clock()
    metrics = Metrics(version="1", clock=clock)
    metrics.configure(facts("realtime"))
    clock.now_s += 50
    metrics.configure(facts("realtime"))
    assert metrics.policy_age_s == 50
    metrics.configure(facts("realtime", generation=2))
    assert metrics.policy_age_s == 0


def test_one_policy_is_shown_at_a_time() -> None:
    """The series of the former policy ends."""
    metrics = Metrics(version="1")
    metrics.configure(facts("realtime"))
    metrics.configure(facts("realtime", generation=2))
    assert len(scraped(metrics).matching("giveway_policy_info")) == 1


def test_named_tenant_exists_at_zero_and_keeps_its_count_when_it_is_not_named_any_more() -> None:
    """A tenant that leaves the policy becomes one like others."""
    metrics = Metrics(version="1")
    metrics.configure(facts("realtime", tenants=("anonymous", "acme")))
    assert scraped(metrics).value("giveway_tenant_requests_total", tenant="acme") == 0
    metrics.ended("realtime", "acme", Outcome.COMPLETED, duration_s=1.0)
    metrics.configure(facts("realtime", generation=2))
    assert scraped(metrics).value("giveway_tenant_requests_total", tenant="acme") == 1


COUNTERS = (
    "giveway_requests_arrived_total",
    "giveway_requests_total",
    "giveway_tokens_total",
    "giveway_time_to_first_token_seconds_bucket",
    "giveway_time_to_first_token_seconds_count",
    "giveway_tenant_requests_total",
    "giveway_tenant_tokens_total",
)
CLASS_SETS = st.sampled_from(
    [("realtime", "batch"), ("realtime",), ("batch", "standard"), ("standard", "realtime")]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(CLASS_SETS, st.lists(st.floats(0.05, 3.0), max_size=3)),
        st.tuples(
            st.sampled_from(("realtime", "standard", "batch")),
            st.sampled_from(("acme", "globex", "x y")),
        ),
    ),
    max_size=25,
)


@settings(max_examples=25)  # each reads the page up to 25 times
@given(STEPS)
def test_no_counter_ever_goes_down(steps: list[tuple[object, object]]) -> None:
    """Whatever policies come, each counter that a scrape showed is at least as high in the next."""
    metrics = Metrics(version="1", clock=Clock())
    metrics.configure(facts("realtime", "batch"))
    before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for number, (first, second) in enumerate(steps):
        if isinstance(first, tuple):
            assert isinstance(second, list)
            metrics.configure(facts(*first, thresholds_s=tuple(second), generation=number + 2))
        else:
            assert isinstance(first, str)
            assert isinstance(second, str)
            metrics.arrived(first)
            metrics.first_token(first, 0.7)
            usage = Usage(prompt_tokens=1, output_tokens=1)
            metrics.ended(first, second, Outcome.COMPLETED, duration_s=0.5, usage=usage)
        now = {
            (name, tuple(sorted(given.items()))): value
            for name, given, value in scraped(metrics).values
            if name in COUNTERS
        }
        assert [key for key, value in before.items() if now.get(key, value) < value] == []
        assert len(before.keys() - now.keys()) == 0
        before = now
