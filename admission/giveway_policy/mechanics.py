"""How is the order made, and how much may run at once?

The parts of an SLOPolicy's spec that tune mechanisms. Defaults are those of the published designs,
or of the engine model where the description says nothing else.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from giveway_policy.enumerations import (
    Algorithm,
    EnginePriority,
    EngineType,
    EngineUsage,
    LatencySignal,
    OnTelemetryLoss,
    RateSignal,
    ShareUnit,
)
from giveway_policy.fields import ClassName, DecimalText, Model, Percent, Ratio

HIGHEST_AGING = ("100", "0.05")
MIDDLE_AGING = ("20", "0.02")
LOWEST_AGING = ("1", "0.005")
"""A1 and A2: base and growth per millisecond of the published three levels."""


class WeightedRandom(Model):
    share_unit: ShareUnit = Field(
        default=ShareUnit.TOKENS,
        description="What weights divide. Tokens: LLM tokens, so that a long prompt counts as "
        "much as it costs. Requests: requests, whatever they cost.",
    )


class DeficitRoundRobin(Model):
    share_unit: ShareUnit = Field(
        default=ShareUnit.TOKENS,
        description="What weights divide. Tokens: LLM tokens. Requests: requests.",
    )


class ClassAging(Model):
    class_name: ClassName = Field(alias="class", description="The class.")
    base: DecimalText = Field(
        description="Score of a request that has not waited, as a decimal string."
    )
    aging_per_millisecond: DecimalText = Field(
        description="By how much the score grows with every millisecond waited, as a decimal "
        "string."
    )


class DynamicAging(Model):
    classes: tuple[ClassAging, ...] = Field(
        default=(),
        max_length=16,
        description="Base and growth of the score per class. The highest score goes first. A class "
        "that is not listed has 100 and 0.05 if it is the highest, 1 and 0.005 if it is the "
        "lowest, otherwise 20 and 0.02.",
    )


class InteractiveFirst(Model):
    requests_per_second_threshold: int = Field(
        default=20,
        ge=1,
        le=1_000_000,
        description="Rate of interactive requests at which batch is down to its minimum.",
    )
    rate_signal: RateSignal = Field(
        default=RateSignal.FINISHED,
        description="Which interactive requests make the rate. Finished: those whose answer has "
        "ended, as published. Arrived: those that came, so that batch gives way before the first "
        "of them is answered.",
    )
    latency_threshold_milliseconds: int = Field(
        default=500,
        ge=1,
        le=3_600_000,
        description="95th percentile of interactive latency at which batch is down to its minimum.",
    )
    latency_signal: LatencySignal = Field(
        default=LatencySignal.FIRST_TOKEN,
        description="Which latency that is. FirstToken: to the first token, or to the end of a "
        "request that is not streamed. EndToEnd: to the end, as published; a long answer then "
        "hides how long its first token took.",
    )
    window_seconds: int = Field(
        default=10,
        ge=1,
        le=3600,
        description="Sliding window in which rate and latency are measured. 5 to 30 is sensible.",
    )
    smoothing: Ratio = Field(
        default="0.3",
        description="Weight of the newest measurement in the smoothed pressure, as a decimal "
        "string above 0, up to 1. Smaller is calmer.",
    )


class SLOAware(Model):
    batch_token_floor_percent: Percent = Field(
        default="5",
        description="Share of recent tokens that the Batch classes get whatever else waits, as a "
        "decimal string. It bounds how long batch waits.",
    )
    floor_half_life_seconds: int = Field(
        default=30,
        ge=1,
        le=3600,
        description="After how long a token counts half as recent.",
    )


class Scheduling(Model):
    algorithm: Algorithm = Field(
        default=Algorithm.SLO_AWARE,
        description="Whose request goes next. SLOAware: by objectives, with a prompt gate and a "
        "floor for batch. WeightedRandom: a draw by weight. DeficitRoundRobin: exact shares by "
        "weight. DynamicAging: the highest score, which grows with waiting. InteractiveFirst: "
        "batch only when nothing interactive waits, on a number of seats that follows the "
        "interactive pressure.",
    )
    weighted_random: WeightedRandom = Field(
        default_factory=WeightedRandom, description="Settings of algorithm WeightedRandom."
    )
    deficit_round_robin: DeficitRoundRobin = Field(
        default_factory=DeficitRoundRobin, description="Settings of algorithm DeficitRoundRobin."
    )
    dynamic_aging: DynamicAging = Field(
        default_factory=DynamicAging, description="Settings of algorithm DynamicAging."
    )
    interactive_first: InteractiveFirst = Field(
        default_factory=InteractiveFirst, description="Settings of algorithm InteractiveFirst."
    )
    slo_aware: SLOAware = Field(
        default_factory=SLOAware, description="Settings of algorithm SLOAware."
    )

    def with_aging_of(self, names: Sequence[str]) -> "Scheduling":
        """The same with an ageing for every class of `names`, highest first; others are kept."""
        listed = {each.class_name for each in self.dynamic_aging.classes}
        missing = [
            _default_aging(name, rank, of=len(names))
            for rank, name in enumerate(dict.fromkeys(names))
            if name not in listed
        ]
        if not missing:
            return self
        classes = (*self.dynamic_aging.classes, *missing)
        return self.model_copy(update={"dynamic_aging": DynamicAging(classes=classes)})


def _default_aging(name: str, rank: int, *, of: int) -> ClassAging:
    if rank == 0:
        base, growth = HIGHEST_AGING
    elif rank == of - 1:
        base, growth = LOWEST_AGING
    else:
        base, growth = MIDDLE_AGING
    return ClassAging(class_name=name, base=base, aging_per_millisecond=growth)


def _default_reserved_seats(data: dict[str, Any]) -> int:
    return int(data.get("seats", 64)) // 8


class BatchSeats(Model):
    minimum: int = Field(
        default=1,
        ge=0,
        le=100_000,
        description="Seats that batch may always use, at least 1: with 0 it would starve under "
        "steady interactive load.",
    )
    maximum: int = Field(
        default_factory=lambda: 48,
        ge=0,
        le=100_000,
        description="Seats that all Batch classes together may use at most, fewer than seats. "
        "Default: three quarters of seats.",
    )


class Concurrency(Model):
    seats: int = Field(
        default=64,
        ge=1,
        le=100_000,
        description="Requests at one engine at once. `giveway calibrate` measures a good number.",
    )
    reserved_seats: int = Field(
        default_factory=_default_reserved_seats,
        ge=0,
        le=100_000,
        description="Seats that only the highest class may use. Default: an eighth of seats.",
    )
    batch: BatchSeats = Field(
        default_factory=BatchSeats,
        validate_default=True,
        description="Seats of the Batch classes together.",
    )
    prompt_gate_tokens: int = Field(
        default=4096,
        ge=0,
        le=10_000_000,
        description="Requests below the highest class go only while fewer prompt tokens than this "
        "wait for their prefill at the engine; one request may always go. About four times the "
        "engine's --max-num-batched-tokens. 0: no gate.",
    )
    prefill_microseconds_per_1000_tokens: int = Field(
        default=23_500,
        ge=1,
        le=1_000_000_000,
        description="How long the engine computes on 1,000 prompt tokens. `giveway calibrate` "
        "measures it; the default is a model's estimate for an 8B model on an H100.",
    )
    lower_seats_on_preemption: bool = Field(
        default=True,
        description="Take seats back while the engine reports that it preempts for want of KV "
        "cache, and give them again slowly.",
    )

    @field_validator("batch", mode="after")
    @classmethod
    def _fill_in_batch_maximum(cls, batch: BatchSeats, info: ValidationInfo) -> BatchSeats:
        if "maximum" in batch.model_fields_set or "seats" not in info.data:
            return batch
        return batch.model_copy(update={"maximum": max(1, info.data["seats"] * 3 // 4)})


class AntiStarvation(Model):
    enabled: bool = Field(default=True, description="false: no class is ever boosted.")
    threshold_seconds: int = Field(
        default=60,
        ge=1,
        le=86_400,
        description="A class whose oldest waiting request has waited this long is boosted.",
    )
    boost_seconds: int = Field(
        default=30,
        ge=1,
        le=3600,
        description="How long a boost lasts. 10 is too short to serve anything; 60 hurts the "
        "objectives of the highest class.",
    )
    check_seconds: int = Field(
        default=10, ge=1, le=3600, description="How often starving classes are looked for."
    )
    promotions_per_second: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Requests of a boosted class that may overtake in a second, charged to that "
        "class.",
    )


class Adjustment(Model):
    interval_seconds: int = Field(
        default=30, ge=5, le=3600, description="How often weights are decided."
    )
    window_seconds: int = Field(
        default=300, ge=30, le=86_400, description="Over how long attainment is measured."
    )
    amplification: DecimalText = Field(
        default="5",
        description="How strongly a missed target raises a weight: base x (1 + miss x this), as a "
        "decimal string.",
    )
    deadband_percent: Percent = Field(
        default="5",
        description="Deviation from the target, in percentage points, below which nothing is "
        "changed, as a decimal string. With a target of 99 the default acts only below 94.",
    )
    maximum_step_percent: Percent = Field(
        default="20",
        description="By how much one decision may change a weight at most, as a decimal string.",
    )
    on_telemetry_loss: OnTelemetryLoss = Field(
        default=OnTelemetryLoss.HOLD,
        description="What happens to weights while nothing can be measured. Hold: they stay. "
        "DecayToBase: they go back to the policy's, step by step, after telemetryLossSeconds.",
    )
    telemetry_loss_seconds: int | None = Field(
        default=None,
        ge=0,
        le=86_400,
        description="How long nothing may be measured before DecayToBase takes effect. Default: "
        "two windows.",
    )
    minimum_requests: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Measurements that the window must hold before an objective is judged by "
        "them. Default: 20.",
    )


class Engine(Model):
    type: EngineType = Field(
        default=EngineType.VLLM,
        description="Which engine it is. So far all are spoken to as vLLM is.",
    )
    priority: EnginePriority = Field(
        default=EnginePriority.FORWARD,
        description="Forward: our order goes down to the engine as its own priority, unless "
        "preemption is None. None: it is not told any, and a priority that the client sent is "
        "removed.",
    )
    usage: EngineUsage = Field(
        default=EngineUsage.ALWAYS,
        description="Always: the engine is asked for its token counts also where the client did "
        "not ask, and the client does not see them. AsAsked: only what the client asked for; "
        "tokens are then estimated.",
    )
    connect_timeout_seconds: int = Field(
        default=5, ge=1, le=300, description="How long connecting to the engine may take."
    )
    idle_timeout_seconds: int = Field(
        default=600,
        ge=1,
        le=86_400,
        description="How long the engine may send nothing during a request: 504 engine_timeout "
        "before its answer began, a cut connection after.",
    )
    cached_token_percent: Percent = Field(
        default="100",
        description="What a prompt token is charged that the engine took from its prefix cache, "
        "as a decimal string.",
    )


def _piece(kind: str, default: int) -> Any:
    return Field(
        default=None,
        ge=1,
        le=1_000_000,
        description=f"What {kind} in a prompt is taken for until the engine has counted, "
        f"whatever its size. Absent: {default:,}.",
    )


class Accounting(Model):
    first_output_estimate_tokens: int = Field(
        default=256,
        ge=1,
        le=1_000_000,
        description="Output reserved for a request that names no maximum, until its class has a "
        "history.",
    )
    largest_output_estimate_tokens: int = Field(
        default=32_768,
        ge=1,
        le=10_000_000,
        description="Output reserved at most, however large the maximum that a request names.",
    )
    bytes_per_token: int | None = Field(
        default=None,
        ge=1,
        le=16,
        description="Bytes of text taken for one token of a prompt until the engine has counted: "
        "English 4, code 3, Chinese 2. Absent: 4.",
    )
    image_tokens: int | None = _piece(
        "a picture (where a body is too long to be read at once: a picture, sound or file)", 1024
    )
    audio_tokens: int | None = _piece("a sound", 1024)
    video_tokens: int | None = _piece("a film", 8192)
    file_tokens: int | None = _piece("an attached file", 4096)
    output_token_weight: DecimalText = Field(
        default="2",
        description="What an output token weighs against a prompt token when tenants of a class "
        "share it, as a decimal string.",
    )
