"""Which values are found on the engine's metrics page, however it is written?"""

import time

import pytest
from giveway_admission.engine_watching import RisingTotal, read_engine_metrics
from hypothesis import given
from hypothesis import strategies as st

PYTHON_FRONTEND = b"""\
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="tiny"} 7.0
# HELP vllm:num_preemptions_created Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_created gauge
vllm:num_preemptions_created{engine="0",model_name="tiny"} 1.7960644841594062e+09
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 30.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 12.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"} 0.0
"""
RUST_FRONTEND = b"""\
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{model_name="tiny",engine="0"} 7
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{model_name="tiny",engine="0"} 0.25
# TYPE vllm:request_success_total counter
vllm:request_success_total{model_name="tiny",engine="0",finished_reason="length"} 42
"""
OLD_NAMES = b"""\
vllm:num_preemptions{model_name="tiny"} 7
vllm:gpu_cache_usage_perc{model_name="tiny"} 0.25
vllm:request_success{finished_reason="length",model_name="tiny"} 42
"""


@pytest.mark.parametrize(
    "page",
    [
        PYTHON_FRONTEND,
        RUST_FRONTEND,
        OLD_NAMES,
        PYTHON_FRONTEND + OLD_NAMES,
        OLD_NAMES + RUST_FRONTEND,
        PYTHON_FRONTEND.replace(b"\n", b"\r\n"),
        RUST_FRONTEND.rstrip(b"\n"),
        RUST_FRONTEND.replace(b" 7\n", b" 7 1796064484000\n"),
        RUST_FRONTEND.replace(b"tiny", rb"a}b\"c{d,e=\\"),
    ],
    ids=["python", "rust", "old", "both", "both-reversed", "crlf", "cut-end", "timed", "quoted"],
)
def test_values_are_found_whatever_the_dialect(page: bytes) -> None:
    """E17: new names, old names, both at once, any order of labels."""
    sample = read_engine_metrics(page)
    assert sample.requests_total == 42
    assert sample.preemptions_total == 7
    assert sample.kv_cache_usage_ratio == 0.25
    assert sample.complete


def test_several_engines_are_added_up_and_the_fullest_cache_counts() -> None:
    """Data parallel: one page, several engines behind it."""
    page = b"".join(
        b'vllm:num_preemptions_total{engine="%d"} %d\nvllm:kv_cache_usage_perc{engine="%d"} 0.%d\n'
        % (engine, engine + 1, engine, engine + 3)
        for engine in range(4)
    )
    sample = read_engine_metrics(page)
    assert sample.preemptions_total == 1 + 2 + 3 + 4
    assert sample.kv_cache_usage_ratio == 0.6


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"# TYPE vllm:num_preemptions_total counter\n",
        b"other:num_preemptions_total 3\n",
        b"xvllm:num_preemptions_total 3\n",
        b"vllm:num_preemptions_total_created 3\n",
        b'vllm:num_preemptions_total{engine="0" 3\n',
        b"vllm:num_preemptions_total NaN\n",
        b"vllm:num_preemptions_total +Inf\n",
        b"vllm:num_preemptions_total -1\n",
        b"vllm:num_preemptions_total three\n",
        b"vllm:num_preemptions_total\n3\n",
        b"vllm:num_preemptions_total " + b"9" * 40 + b"\n",
        b"<html>vllm:num_preemptions_total 3</html>",
    ],
)
def test_what_is_missing_or_nonsense_is_unknown(page: bytes) -> None:
    """E17: never a silent 0."""
    assert read_engine_metrics(page).preemptions_total is None


def test_cache_above_full_is_full() -> None:
    """A share is at most 1."""
    sample = read_engine_metrics(b"vllm:kv_cache_usage_perc 1.5\n")
    assert sample.kv_cache_usage_ratio == 1.0


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_a_fault(page: bytes) -> None:
    """A stranger's answer may be anything."""
    sample = read_engine_metrics(b'vllm:num_preemptions_total{a="' + page)
    assert sample.preemptions_total is None or sample.preemptions_total >= 0


@pytest.mark.parametrize("filler", [b'"a"', b"a", b'"', b"{", b'\\"', b"a=", b" ", b'"\\', b"}"])
def test_hostile_page_takes_no_longer_than_its_length(filler: bytes) -> None:
    """Two megabytes of anything are looked through at once: the streams of others wait for it."""
    page = b"vllm:num_preemptions_total{" + filler * (2 * 2**20 // len(filler))
    begun_s = time.perf_counter()
    assert read_engine_metrics(page).preemptions_total is None
    assert time.perf_counter() - begun_s < 0.2  # about 0.02


def test_counter_that_restarts_goes_on_rising() -> None:
    """The engine was restarted: its counters begin at 0, ours goes on."""
    total = RisingTotal()
    assert [total.total(value) for value in (5.0, 7.0, 0.0, 2.0, 1.0)] == [5, 7, 7, 9, 10]
