"""Calibration (Y10): measurements become a policy that takes effect, and the right one."""

from pathlib import Path

import pytest
import yaml
from giveway_policy.compiling import compile_policies
from giveway_policy.defaults import default_spec
from giveway_policy.loading import load_path
from giveway_simulation.calibrating import (
    Calibration,
    CalibrationError,
    LoadStep,
    PromptSample,
    SeatsStep,
    calibrate,
    policy_of,
)
from giveway_simulation.calibration_plots import plot_calibration
from giveway_simulation.demo_load import Limits, mixed_requests
from giveway_simulation.demo_traffic import demo_traffic
from giveway_simulation.engine_capacity import model_capacity
from giveway_simulation.engine_model import EngineLimits
from giveway_simulation.engine_pods import PODS

PROMPTS = [
    PromptSample(prompt_tokens=tokens, first_token_s=0.007 + 25e-6 * tokens)
    for tokens in (256, 512, 1024, 2048, 4096)
]
LOAD = [
    LoadStep(requests_per_s=rate, p95_s=p95_s)
    for rate, p95_s in [(2, 0.1), (4, 0.1), (6, 0.12), (8, 0.15), (10, 0.3), (12, 2.0)]
]


def steps(*values: tuple[int, float, float | None]) -> list[SeatsStep]:
    return [
        SeatsStep(in_flight=in_flight, work_per_s=work, kv_cache_ratio=kv)
        for in_flight, work, kv in values
    ]


def test_seats_are_the_fewest_that_fill_the_engine() -> None:
    """97 % of 1,000 is reached at 64, not at 32."""
    seats = steps((16, 700, 0.1), (32, 900, 0.2), (64, 980, 0.4), (128, 1000, 0.7))
    assert calibrate(PROMPTS, seats, LOAD).seats == 64


def test_seats_leave_the_kv_cache_its_reserve() -> None:
    """What needs more than 85 % of the KV cache is not chosen, however fast it is."""
    seats = steps((16, 700, 0.3), (32, 900, 0.6), (64, 1500, 0.95))
    assert calibrate(PROMPTS, seats, LOAD).seats == 32


def test_an_engine_that_tells_nothing_about_its_cache_is_calibrated_by_throughput() -> None:
    """Other engines than vLLM have no such metric."""
    assert calibrate(PROMPTS, steps((16, 700, None), (32, 705, None)), LOAD).seats == 16


def test_prompt_cost_and_knee_are_those_of_the_measurements() -> None:
    """25 us a token were put in; latency doubles after 8 requests/s and explodes after 10."""
    found = calibrate(PROMPTS, steps((16, 700, None)), LOAD)
    assert found.prompt_seconds_per_token == pytest.approx(25e-6)
    assert found.first_token_base_s == pytest.approx(0.007)
    assert found.knee_requests_per_s == 10
    assert found.knee_p95_s == pytest.approx(0.3)


def test_a_prefix_cache_that_knows_the_prompts_is_noticed() -> None:
    """Longer prompts that take no longer give an error instead of a cost of nothing."""
    flat = [PromptSample(prompt_tokens=tokens, first_token_s=0.02) for tokens in (100, 200, 400)]
    with pytest.raises(CalibrationError, match="prefix cache"):
        calibrate(flat, steps((16, 700, None)), LOAD)
    with pytest.raises(CalibrationError, match="one length"):
        calibrate(flat[:1], steps((16, 700, None)), LOAD)
    with pytest.raises(CalibrationError, match="throughput"):
        calibrate(PROMPTS, [], LOAD)


@pytest.mark.parametrize("with_knee", [True, False])
def test_the_policy_is_accepted_and_says_what_was_found(tmp_path: Path, with_knee: bool) -> None:
    """What `giveway calibrate` prints can be given to `giveway serve` as it is."""
    calibration = Calibration(
        seats=96,
        best_work_per_s=36_000,
        prompt_seconds_per_token=27.2e-6,
        first_token_base_s=0.003,
        knee_requests_per_s=14.4 if with_knee else None,
        knee_p95_s=0.311 if with_knee else None,
    )
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy_of(calibration)))
    loading = load_path(path)
    compilation = compile_policies(loading.policies, loading.tenants)
    assert not loading.faults
    assert not compilation.faults
    spec = compilation.documents[0].spec
    assert spec.concurrency.seats == 96
    assert spec.concurrency.prefill_microseconds_per_1000_tokens == 27_200
    interactive = spec.scheduling.interactive_first
    published = (20, 500)
    assert (
        interactive.requests_per_second_threshold,
        interactive.latency_threshold_milliseconds,
    ) == ((14, 311) if with_knee else published)
    assert [each.name for each in spec.classes] == [each.name for each in default_spec().classes]


@pytest.mark.slow
def test_the_seats_of_the_model_are_between_48_and_96() -> None:
    """The truth for a live calibration of the emulated H100: 64 seats reach 97.6 % of the best."""
    pod = PODS["h100-llama-3-8b"]
    traffic = demo_traffic(default_spec())

    def capacity(seats: int) -> float:
        requests = mixed_requests(traffic, seed=1, limits=Limits())
        limits = EngineLimits(max_num_seqs=seats, kv_cache_tokens=pod.kv_cache_tokens)
        return model_capacity(pod, limits, requests)

    seats = [(count, capacity(count), None) for count in (16, 32, 48, 64, 96, 128, 256)]
    assert calibrate(PROMPTS, steps(*seats), LOAD).seats in {64, 96}
    assert seats[2][1] / seats[-1][1] == pytest.approx(0.93, abs=0.01)


@pytest.mark.slow
def test_a_calibration_is_plotted(tmp_path: Path) -> None:
    """The three curves end in a PNG file, also without a knee."""
    seats = steps((16, 700, 0.1), (32, 900, 0.2))
    for name, load in (("knee", LOAD), ("none", LOAD[:2])):
        path = tmp_path / "made" / f"{name}.png"
        plot_calibration(calibrate(PROMPTS, seats, load), PROMPTS, seats, load, path=path)
        assert path.read_bytes().startswith(b"\x89PNG")
