"""Which numbers does a policy need for this engine? (Y10) From measurements to a policy, no I/O.

- **seats**: the fewest requests in flight that reach `SEATS_SHARE` of the best throughput, among
  those that leave the KV cache its reserve.
- **prompt cost**: the slope of time to first token over prompt length on an idle engine. It holds
  all that a prompt token costs, attention and the weights' reading included, so it lies up to a
  fifth above the arithmetic alone (engine model of the H100: 26.5 to 28 against 23.5 us).
- **thresholds** of InteractiveFirst (Y4): rate and p95 of the time to first token at the knee, when
  interactive load alone rises step by step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from giveway_simulation.knees import Point, fewest_with, knee_of_latency, rising, robust_line

SEATS_SHARE = 0.97
"""Of the best throughput. The rest would cost twice the requests in flight, and their latency."""
KV_CACHE_LIMIT = 0.85
"""Above this share of the KV cache preemptions begin when answers grow."""


class CalibrationError(Exception):
    """The measurements do not say what they should; the text says which and what may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSample:
    """One request on an idle engine."""

    prompt_tokens: int
    first_token_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatsStep:
    """Saturated with so many requests in flight."""

    in_flight: int
    work_per_s: float
    """As `demo_load.work_of` counts."""
    kv_cache_ratio: float | None
    """Share of the KV cache in use. None: the engine does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStep:
    """Interactive requests at one rate."""

    requests_per_s: float
    p95_s: float
    """Time to first token; a lower bound where requests still waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was found."""

    seats: int
    best_work_per_s: float
    """Highest throughput of a step; noise included."""
    prompt_seconds_per_token: float
    first_token_base_s: float
    """Time to first token that does not depend on the prompt."""
    knee_requests_per_s: float | None
    """None: the load curve has no knee; it was not raised far enough."""
    knee_p95_s: float | None
    """None with the above."""


def calibrate(
    prompts: Sequence[PromptSample], seats: Sequence[SeatsStep], load: Sequence[LoadStep]
) -> Calibration:
    """The numbers; raises `CalibrationError` where measurements cannot give them."""
    try:
        cost = robust_line([Point(x=each.prompt_tokens, y=each.first_token_s) for each in prompts])
    except ValueError:
        raise CalibrationError("the prompts all had one length: no cost per token") from None
    if cost.slope <= 0:
        raise CalibrationError(
            "longer prompts did not take longer: other load on the engine, or a prefix cache that "
            "knows the prompts"
        )
    fitting = [
        step
        for step in seats
        if step.kv_cache_ratio is None or step.kv_cache_ratio <= KV_CACHE_LIMIT
    ] or list(seats[:1])
    if not fitting:
        raise CalibrationError("no throughput was measured")
    throughput = rising([Point(x=step.in_flight, y=step.work_per_s) for step in fitting])
    chosen = fewest_with(throughput, share=SEATS_SHARE)
    knee = knee_of_latency([Point(x=step.requests_per_s, y=step.p95_s) for step in load])
    return Calibration(
        seats=int(chosen.x),
        best_work_per_s=max(step.work_per_s for step in seats),
        prompt_seconds_per_token=cost.slope,
        first_token_base_s=max(0.0, cost.base),
        knee_requests_per_s=None if knee is None else knee.x,
        knee_p95_s=None if knee is None else knee.y,
    )


def policy_of(calibration: Calibration) -> dict[str, object]:
    """A whole SLOPolicy: the built-in classes with the measured numbers; defaults are left out."""
    from giveway_policy.defaults import default_spec
    from giveway_policy.resources import API_VERSION

    spec: dict[str, object] = default_spec().model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    spec["concurrency"] = {
        "seats": calibration.seats,
        "prefillMicrosecondsPer1000Tokens": max(
            1, round(calibration.prompt_seconds_per_token * 1e9)
        ),
    }
    if calibration.knee_requests_per_s is not None and calibration.knee_p95_s is not None:
        spec["scheduling"] = {
            "interactiveFirst": {
                "requestsPerSecondThreshold": max(1, round(calibration.knee_requests_per_s)),
                "latencyThresholdMilliseconds": max(1, round(calibration.knee_p95_s * 1000)),
            }
        }
    return {
        "apiVersion": API_VERSION,
        "kind": "SLOPolicy",
        "metadata": {"name": "calibrated"},
        "spec": spec,
    }
