"""What does the emulator tell Prometheus? vLLM 0.32's metric names, labels and buckets.

An aborted request is in no per-request histogram and in no `request_success_total`, as behind
vLLM's Python frontend. Families that make no sense without a GPU are left out. Two of our own,
`emulator:step_lag_seconds_max` and `_mean`, tell how late steps ended, so that a measurement on an
overloaded machine is not mistaken for one of the engine.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from giveway_simulation.emulator_engine import Lag
from giveway_simulation.engine_model import EngineLimits, EngineStatistics, StepStart

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"

_FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_GAP_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_ITERATION_TOKENS = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
)  # fmt: skip
_ANSWERS = (1.0, 2.0, 5.0, 10.0, 20.0)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
_FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


@dataclass(slots=True)
class RequestTimes:
    """When what happened to one sequence, on the event loop's clock. None: not yet."""

    arrived_s: float
    prompt_tokens: int
    scheduled_s: float | None = None
    first_token_s: float | None = None
    preempted_s: float | None = None
    preemptions: int = 0


class Histogram:
    """Counts below bounds; rendered cumulatively."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, *, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class EngineMetrics:
    """All families. Also the observer of the engine's steps."""

    def __init__(self, *, model: str, limits: EngineLimits, max_model_len: int) -> None:
        self._model = model
        self._limits = limits
        tokens = _one_two_five(max_model_len)
        self._histograms: dict[str, Histogram] = {
            "request_prompt_tokens": Histogram(tokens),
            "request_generation_tokens": Histogram(tokens),
            "iteration_tokens_total": Histogram(_ITERATION_TOKENS),
            "request_max_num_generation_tokens": Histogram(tokens),
            "request_params_n": Histogram(_ANSWERS),
            "request_params_max_tokens": Histogram(tokens),
            "time_to_first_token_seconds": Histogram(_FIRST_TOKEN_S),
            "inter_token_latency_seconds": Histogram(_GAP_S),
            "request_time_per_output_token_seconds": Histogram(_GAP_S),
            "e2e_request_latency_seconds": Histogram(_REQUEST_S),
            "request_queue_time_seconds": Histogram(_REQUEST_S),
            "request_inference_time_seconds": Histogram(_REQUEST_S),
            "request_prefill_time_seconds": Histogram(_REQUEST_S),
            "request_decode_time_seconds": Histogram(_REQUEST_S),
            "request_num_preemptions": Histogram(_PREEMPTIONS),
            "request_prefill_kv_computed_tokens": Histogram(tokens),
        }
        self._success = dict.fromkeys(_FINISH_REASONS, 0)
        self._rejected = 0
        self._prompt_tokens = 0
        self._http: dict[tuple[str, str, str], int] = {}
        self._times: dict[int, RequestTimes] = {}
        self._decoding = 0
        """Sequences that decoded in the step before: they wait for their next token since then."""
        self._last_end_s = 0.0

    def sequence_arrived(self, key: int, *, prompt_tokens: int, now_s: float) -> None:
        self._times[key] = RequestTimes(arrived_s=now_s, prompt_tokens=prompt_tokens)

    def sequence_aborted(self, key: int) -> None:
        self._times.pop(key, None)

    def sequence_finished(
        self,
        key: int,
        *,
        reason: str,
        prompt_tokens: int,
        output_tokens: int,
        maximum_tokens: int,
        now_s: float,
    ) -> None:
        times = self._times.pop(key, None)
        if times is None or times.scheduled_s is None or times.first_token_s is None:
            return
        self._success[reason] += 1
        decode_s = now_s - times.first_token_s
        for name, value in (
            ("request_prompt_tokens", prompt_tokens),
            ("request_generation_tokens", output_tokens),
            ("request_max_num_generation_tokens", maximum_tokens),
            ("request_params_max_tokens", maximum_tokens),
            ("request_prefill_kv_computed_tokens", prompt_tokens),
            ("request_params_n", 1),
            ("request_num_preemptions", times.preemptions),
            ("e2e_request_latency_seconds", now_s - times.arrived_s),
            ("request_queue_time_seconds", times.scheduled_s - times.arrived_s),
            ("request_inference_time_seconds", now_s - times.scheduled_s),
            ("request_prefill_time_seconds", times.first_token_s - times.scheduled_s),
            ("request_decode_time_seconds", decode_s),
        ):
            self._histograms[name].observe(value)
        if output_tokens > 1:
            self._histograms["request_time_per_output_token_seconds"].observe(
                decode_s / (output_tokens - 1)
            )

    def rejected(self) -> None:
        self._rejected += 1

    def answered(self, handler: str, *, method: str, status: int) -> None:
        key = (handler, method, f"{status // 100}xx")
        self._http[key] = self._http.get(key, 0) + 1

    def step_started(self, step: StepStart, *, now_s: float) -> None:
        for key in step.admitted:
            times = self._times.get(key)
            if times is not None and times.scheduled_s is None:
                times.scheduled_s = now_s
        for key in step.preempted:
            times = self._times.get(key)
            if times is not None:
                times.preemptions += 1
                times.preempted_s = now_s
        self._decoding -= len(step.preempted)

    def step_ended(
        self, first: tuple[int, ...], *, going_on: int, finished: int, now_s: float
    ) -> None:
        # A prompt counts when its first token comes, and once however often it was evicted: as in
        # vLLM, where a step that only computes chunks is no iteration.
        prompt_tokens = 0
        # All of them got a token; those whose first it was have no gap before it.
        gaps = going_on + finished - len(first)
        if gaps > 0:
            gap_s = now_s - self._last_end_s
            self._histograms["inter_token_latency_seconds"].observe(gap_s, times=gaps)
        for key in first:
            times = self._times.get(key)
            if times is not None:
                times.first_token_s = now_s
                self._histograms["time_to_first_token_seconds"].observe(now_s - times.arrived_s)
                prompt_tokens += times.prompt_tokens
        self._prompt_tokens += prompt_tokens
        tokens = prompt_tokens + going_on + finished
        if tokens:
            self._histograms["iteration_tokens_total"].observe(tokens)
        self._last_end_s = now_s

    def render(self, engine: EngineStatistics, *, lag: Lag) -> str:
        lines: list[str] = []
        base = {"engine": "0", "model_name": self._model}
        for kind, name, labels, value in self._samples(engine, base=base):
            heading = f"# TYPE vllm:{name} {kind}"
            if heading not in lines:
                lines += [f"# HELP vllm:{name} {name.replace('_', ' ')}.", heading]
            lines.append(f"vllm:{name}{_labels(labels)} {value!r}")
        for name, histogram in self._histograms.items():
            lines += [f"# HELP vllm:{name} {name.replace('_', ' ')}."]
            lines += [f"# TYPE vllm:{name} histogram"]
            lines += _histogram_lines(f"vllm:{name}", base, histogram)
        lines.append("# HELP http_requests_total Total number of requests by method and status.")
        lines.append("# TYPE http_requests_total counter")
        for (handler, method, status), count in self._http.items():
            labels = {"handler": handler, "method": method, "status": status}
            lines.append(f"http_requests_total{_labels(labels)} {float(count)!r}")
        for name, value in (("max", lag.maximum_s), ("mean", lag.mean_s), ("last", lag.last_s)):
            lines.append(f"# HELP emulator:step_lag_seconds_{name} How late steps ended.")
            lines.append(f"# TYPE emulator:step_lag_seconds_{name} gauge")
            lines.append(f"emulator:step_lag_seconds_{name} {value!r}")
        return "\n".join(lines) + "\n"

    def _samples(
        self, engine: EngineStatistics, *, base: dict[str, str]
    ) -> Iterable[tuple[str, str, dict[str, str], float]]:
        """Gauges and counters: kind, name, labels, value."""
        blocks = self._limits.kv_blocks
        yield "gauge", "num_requests_running", base, float(engine.running)
        yield "gauge", "num_requests_waiting", base, float(engine.waiting)
        reasons = (("capacity", float(engine.waiting)), ("deferred", 0.0))
        for reason, waiting in reasons:
            yield "gauge", "num_requests_waiting_by_reason", base | {"reason": reason}, waiting
        for state, value in (("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)):
            yield "gauge", "engine_sleep_state", base | {"sleep_state": state}, value
        yield "gauge", "kv_cache_usage_perc", base, engine.kv_usage_ratio
        info = {
            "block_size": str(self._limits.block_tokens),
            "cache_dtype": "auto",
            "engine": "0",
            "kv_cache_size_tokens": str(blocks * self._limits.block_tokens),
            "num_gpu_blocks": str(blocks),
        }
        yield "gauge", "cache_config_info", info, 1.0
        yield "counter", "prefix_cache_queries_total", base, float(self._prompt_tokens)
        yield "counter", "prefix_cache_hits_total", base, 0.0
        yield "counter", "num_preemptions_total", base, float(engine.preemptions)
        yield "counter", "prompt_tokens_total", base, float(self._prompt_tokens)
        yield "counter", "generation_tokens_total", base, float(engine.generation_tokens)
        for reason, count in self._success.items():
            yield "counter", "request_success_total", base | {"finished_reason": reason}, count
        for reason, rejections in (
            ("max_num_queued_reqs", float(self._rejected)),
            ("max_num_queued_tokens", 0.0),
        ):
            labels = {"model_name": self._model, "reason": reason}
            yield "counter", "admission_rejections_total", labels, rejections


def _histogram_lines(name: str, base: Mapping[str, str], histogram: Histogram) -> list[str]:
    lines: list[str] = []
    below = 0
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        below += count
        labels = dict(base) | {"le": "+Inf" if bound is None else repr(bound)}
        lines.append(f"{name}_bucket{_labels(dict(sorted(labels.items())))} {float(below)!r}")
    lines.append(f"{name}_count{_labels(base)} {float(below)!r}")
    lines.append(f"{name}_sum{_labels(base)} {float(histogram.total)!r}")
    return lines


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to the limit."""
    bounds: list[float] = []
    decade = 1
    while decade <= limit:
        bounds += [float(step * decade) for step in (1, 2, 5) if step * decade <= limit]
        decade *= 10
    return tuple(bounds)
