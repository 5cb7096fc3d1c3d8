"""Metrics: names that clients choose neither fill the page nor show what is private."""

import sys
import time

import pytest
from giveway_admission.metrics import Metrics
from giveway_admission.outcomes import Outcome
from giveway_admission.policy_facts import PolicyFacts
from giveway_admission.tenant_counts import MAXIMUM_TENANT_SERIES
from giveway_admission.tenant_labels import (
    HIDDEN,
    IDLE_S,
    MAXIMUM_NAMED,
    OTHER,
    TenantLabels,
    shown_tenant,
)
from giveway_policy.defaults import default_document
from giveway_scheduler import Usage

from tests.admission.admin_support import Clock, Policy
from tests.support.scraping import parse_samples

SECRETS = (
    "sk-proj-CANARY0123456789abcdef",
    "Bearer sk-CANARY0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJDQU5BUlkiOjF9.CANARY",
    "hf_CANARY0123456789abcdefghij",
    "c0ffee00CANARYc0ffee00c0ffee00c0ffee00",
    "canary@example.com",
    "key:CANARY123456",
)


def made(**options: int) -> Metrics:
    metrics = Metrics(version="1.2.3", clock=Clock(), **options)
    metrics.configure(Policy(default_document()))
    return metrics


def tenant_labels(metrics: Metrics) -> set[str]:
    samples = parse_samples(metrics.render().decode())
    return {given["tenant"] for _, given, _ in samples.values if "tenant" in given}


def test_twenty_thousand_tenants_leave_the_page_small_and_fast() -> None:
    """C24: below 1 MB, under 200 ms, and nothing lost in the sum."""
    metrics = made()
    outcomes = list(Outcome)
    for index in range(20_000):
        metrics.ended(
            ("realtime", "standard", "batch")[index % 3],
            f"tenant-{index}",
            outcomes[index % len(outcomes)],
            duration_s=1.0,
            usage=Usage(prompt_tokens=10, output_tokens=1),
        )
    for index in range(100):  # those that have a label, in all their combinations
        for class_name in ("realtime", "standard", "batch"):
            for outcome in outcomes:
                metrics.ended(class_name, f"tenant-{index}", outcome, duration_s=1.0)
    took_s = []
    for _ in range(3):
        begun_s = time.thread_time()
        page = metrics.render()
        took_s.append(time.thread_time() - begun_s)
        assert len(page) < 1_000_000
    assert min(took_s) < 0.2
    samples = parse_samples(page.decode())
    assert len({given["tenant"] for _, given, _ in samples.values if "tenant" in given}) == 102
    assert samples.total("giveway_tenant_requests_total") == 20_000 + 100 * 3 * len(outcomes)
    assert samples.total("giveway_tenant_tokens_total", kind="prompt") == 200_000
    assert samples.value("giveway_tenant_tokens_total", tenant="other", kind="prompt") == 199_000


def test_memory_does_not_grow_with_tenants() -> None:
    """C24: what was counted for ten thousand more strangers takes no more room."""
    metrics = made(seen_tenants=10)
    for index in range(1_000):
        metrics.ended("batch", f"tenant-{index}", Outcome.COMPLETED, duration_s=1.0)
    before = sys.getallocatedblocks()
    for index in range(1_000, 11_000):
        metrics.ended("batch", f"tenant-{index}", Outcome.COMPLETED, duration_s=1.0)
    assert sys.getallocatedblocks() - before < 1_000


def test_tenants_of_the_policy_cannot_make_the_page_huge() -> None:
    """Named tenants times classes times outcomes is bounded as well; the rest is other."""
    metrics = Metrics(version="1", clock=Clock())
    classes = tuple(f"class-{index}" for index in range(16))
    tenants = tuple(f"tenant-{index:04}" for index in range(2_000))
    metrics.configure(
        PolicyFacts(
            policy="p",
            epoch=1,
            generation=1,
            hash="0" * 64,
            built_in=False,
            class_names=classes,
            tenants=tenants,
        )
    )
    for tenant in tenants:
        metrics.ended("class-0", tenant, Outcome.EVICTED, duration_s=1.0)
    samples = parse_samples(metrics.render().decode())
    assert len(
        samples.matching("giveway_tenant_requests_total")
    ) <= MAXIMUM_TENANT_SERIES + 16 * len(Outcome)
    assert samples.total("giveway_tenant_requests_total") == len(tenants)


@pytest.mark.parametrize("secret", SECRETS)
def test_name_that_may_be_a_secret_is_no_label(secret: str) -> None:
    """G04: keys, tokens and addresses are counted in other and never shown."""
    metrics = made()
    metrics.ended("batch", secret, Outcome.COMPLETED, duration_s=1.0)
    assert "canary" not in metrics.render().decode().lower()
    assert tenant_labels(metrics) == {"anonymous", "other"}
    assert metrics.shown_tenant(secret) == HIDDEN


@pytest.mark.parametrize("tenant", ["", "a b", "x" * 64, "\n", 'quote"', "naïve", "-a", "😀"])
def test_name_that_is_no_plain_word_is_no_label(tenant: str) -> None:
    """G10: what a client sends is not copied onto the page unless it is harmless."""
    metrics = made()
    metrics.ended("batch", tenant, Outcome.COMPLETED, duration_s=1.0)
    assert tenant_labels(metrics) == {"anonymous", "other"}


@pytest.mark.parametrize("tenant", ["acme", "team/search", "org:7", "a.b_c-d", "sk", "key"])
def test_ordinary_name_is_a_label(tenant: str) -> None:
    """The rule against secrets does not catch names that people use."""
    metrics = made()
    metrics.ended("batch", tenant, Outcome.COMPLETED, duration_s=1.0)
    assert tenant in tenant_labels(metrics)
    assert shown_tenant(tenant) == tenant


def test_name_in_the_policy_is_a_label_whatever_it_looks_like() -> None:
    """Naming a tenant in the policy is the permission to show it."""
    labels = TenantLabels(0, released=lambda _: None, clock=Clock())
    labels.configure(["ops@example.com"])
    assert labels.label("ops@example.com") == "ops@example.com"
    assert labels.shown("ops@example.com") == "ops@example.com"
    assert labels.label("dev@example.com") == OTHER


def test_place_of_a_silent_tenant_goes_to_a_newcomer() -> None:
    """A hundred strangers at the start cannot hide everybody who comes later."""
    clock = Clock()
    released: list[str] = []
    labels = TenantLabels(2, released=released.append, clock=clock)
    assert [labels.label(name) for name in ("a", "b", "c")] == ["a", "b", OTHER]
    clock.now_s += IDLE_S - 1
    assert labels.label("b") == "b"
    assert labels.label("c") == OTHER
    clock.now_s += 1
    assert (labels.label("c"), released) == ("c", ["a"])
    assert labels.label("a") == OTHER


def test_series_of_a_released_tenant_end() -> None:
    """They are not added to other, which would look like traffic that never was."""
    clock = Clock()
    metrics = Metrics(version="1", seen_tenants=1, clock=clock)
    metrics.configure(Policy(default_document()))
    metrics.ended("batch", "first", Outcome.COMPLETED, duration_s=1.0)
    clock.now_s += IDLE_S
    metrics.ended("batch", "second", Outcome.COMPLETED, duration_s=1.0)
    samples = parse_samples(metrics.render().decode())
    assert samples.matching("giveway_tenant_requests_total", tenant="first") == []
    assert samples.total("giveway_tenant_requests_total", tenant="other") == 0
    assert samples.total("giveway_tenant_requests_total", tenant="second") == 1


def test_tenant_that_is_called_other_is_other() -> None:
    """It gets no series of its own beside the collective one."""
    labels = TenantLabels(5, released=lambda _: None, clock=Clock())
    assert labels.label(OTHER) == OTHER


def test_only_so_many_named_tenants_have_a_label() -> None:
    """The policy's list may be longer than a page can bear."""
    labels = TenantLabels(0, released=lambda _: None, clock=Clock())
    labels.configure(f"t{index:05}" for index in range(MAXIMUM_NAMED * 2))
    assert len(labels.named()) == MAXIMUM_NAMED


def test_counting_a_token_gap_takes_a_handful_of_calls() -> None:
    """It happens for every token of every stream: a lookup, a bisection, two additions."""
    metrics = made()
    calls: list[str] = []

    def note(frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            calls.append(event)

    sys.setprofile(note)
    try:
        metrics.tokens_gap("realtime", 0.03)
    finally:
        sys.setprofile(None)
    # tokens_gap, dict.get, observe, bisect_left, and the profiler's own end.
    assert len(calls) <= 5
