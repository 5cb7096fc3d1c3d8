"""What Prometheus is asked, word for word, and how its counts are read."""

import pytest
from giveway_admission.class_counts import FAILURES
from giveway_admission.metric_names import FAMILIES, NO_CLASS
from giveway_operator.promql import (
    FAILED_OUTCOMES,
    HISTOGRAMS,
    Counts,
    Sample,
    Selection,
    acknowledged_query,
    latency_query,
    outcomes_query,
    read_counts,
)
from giveway_policy.documents import PolicyName
from giveway_policy.enumerations import Indicator

SELECTION = Selection(policy=PolicyName(namespace="llm", name="chat"), window_s=300)
PODS = 'timestamp(giveway_policy_info{policy="llm/chat"}) > time() - 120'


def test_one_query_asks_for_all_thresholds_of_an_indicator() -> None:
    """1000 ms may be written 1 or 1.0; all classes come at once."""
    series = (
        'giveway_time_to_first_token_seconds_bucket{class!="none",'
        'le=~"0\\\\.3|1|1\\\\.0|\\\\+Inf"}[300s]'
    )
    assert latency_query(Indicator.TIME_TO_FIRST_TOKEN, (1000, 300), SELECTION) == (
        f"label_replace(sum by (class, le) (increase({series}) and on (job, instance) ({PODS})), "
        '"giveway_kind", "increase", "", "") or '
        f"label_replace(sum by (class, le) (count_over_time({series}) and on (job, instance) "
        f'({PODS})), "giveway_kind", "scrapes", "", "")'
    )


def test_other_matchers_go_into_every_selector() -> None:
    """One Thanos over several clusters: without them equal names in two clusters would mix."""
    selection = Selection(
        policy=SELECTION.policy, window_s=60, freshness_s=30, matchers='cluster="a"'
    )
    for query in (
        latency_query(Indicator.QUEUE_WAIT, (5,), selection),
        outcomes_query(selection),
        acknowledged_query(selection),
    ):
        assert query.count("{") == query.count('cluster="a"}') > 0


def test_the_proxies_names_and_outcomes_are_those_that_proxies_write() -> None:
    """Both sides hold them, since neither imports the other."""
    names = {family.name for family in FAMILIES}
    assert set(HISTOGRAMS.values()) < names
    assert {"giveway_policy_info", "giveway_requests_total"} < names
    assert frozenset(FAILURES) == FAILED_OUTCOMES
    assert f'class!="{NO_CLASS}"' in outcomes_query(SELECTION)


def test_a_bound_is_one_however_it_is_written() -> None:
    """A fleet while Prometheus is upgraded from 2 to 3 has both in one window: they add up."""

    def sample(kind: str, le: str, value: float) -> Sample:
        return Sample(labels={"giveway_kind": kind, "class": "c0", "le": le}, value=value)

    counts = read_counts(
        [
            sample("increase", "1", 5.0),
            sample("increase", "1.0", 7.0),
            sample("scrapes", "1", 2.0),
            sample("scrapes", "1.0", 3.0),
            sample("scrapes", "+Inf", 5.0),
        ],
        label="le",
    )
    assert counts == {
        ("c0", "1.0"): Counts(12.0, 5.0),
        ("c0", "+Inf"): Counts(None, 5.0),
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_e14_what_is_no_count_is_refused(value: float) -> None:
    labels = {"giveway_kind": "increase", "class": "c0", "le": "1"}
    with pytest.raises(ValueError, match="a count is"):
        read_counts([Sample(labels=labels, value=value)], label="le")


def test_a_bound_that_is_no_number_is_refused() -> None:
    labels = {"giveway_kind": "increase", "class": "c0", "le": "high"}
    with pytest.raises(ValueError, match="'high'"):
        read_counts([Sample(labels=labels, value=1.0)], label="le")
