"""The text that Prometheus reads, read back by its own client's parser."""

import math

import pytest
from giveway_admission.exposition import Family, MetricKind, write_family, write_histograms
from giveway_admission.histograms import HistogramFamily
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.support.scraping import parse_samples

GAUGE = Family(name="some_gauge", kind=MetricKind.GAUGE, help="Meaning.", labels=("a", "b"))
HISTOGRAM = Family(name="some_seconds", kind=MetricKind.HISTOGRAM, help="Meaning.", labels=("c",))


@given(st.text(), st.text())
def test_any_label_value_comes_back_as_it_was(first: str, second: str) -> None:
    """G10: quotes, backslashes, line ends and emoji cannot break out of a label."""
    first, second = (text.replace("\r", "") for text in (first, second))
    text = write_family(GAUGE, [(GAUGE.series(first, second), 1.5)])
    family = next(iter(text_string_to_metric_families(text)))
    assert [sample.labels for sample in family.samples] == [{"a": first, "b": second}]


@pytest.mark.parametrize("value", [0, 1, -3, 10**16, 0.1, 1e-9, 1e300, math.inf, -math.inf])
def test_any_number_comes_back_as_it_was(value: float) -> None:
    """Whole numbers, fractions, and what is beyond all."""
    text = write_family(GAUGE, [(GAUGE.series("x", "y"), value)])
    assert parse_samples(text).value("some_gauge", a="x", b="y") == value


def test_not_a_number_is_written_as_prometheus_reads_it() -> None:
    """NaN is a legal value of a gauge."""
    text = write_family(GAUGE, [(GAUGE.series("x", "y"), math.nan)])
    assert math.isnan(parse_samples(text).value("some_gauge"))


def test_histogram_is_cumulative_and_complete() -> None:
    """Buckets rise to +Inf, which equals the count."""
    family = HistogramFamily((0.1, 1.0))
    for label, values in (("x", (0.05, 0.1, 0.5, 7.0)), ("y", ())):
        child = family.child(label)
        for value in values:
            child.observe(value)
    samples = parse_samples(write_histograms(HISTOGRAM, family))
    for bound, count in (("0.1", 2), ("1.0", 3), ("+Inf", 4)):
        assert samples.value("some_seconds_bucket", c="x", le=bound) == count
        assert samples.value("some_seconds_bucket", c="y", le=bound) == 0
    assert samples.value("some_seconds_count", c="x") == 4
    assert samples.value("some_seconds_sum", c="x") == pytest.approx(7.65)


def test_wrong_number_of_label_values_is_a_fault() -> None:
    """A series can't be written without one of its labels."""
    with pytest.raises(ValueError, match="zip"):
        GAUGE.series("x")
