"""A policy whose weights decide what two classes get, and whose loop is as quick as can be."""

from typing import Any

from giveway_policy.enumerations import Algorithm, Indicator, Kind, ShareUnit, TrustedHeader
from giveway_policy.mechanics import (
    Adjustment,
    BatchSeats,
    Concurrency,
    Scheduling,
    WeightedRandom,
)
from giveway_policy.resources import (
    ClassQueue,
    Identity,
    Objective,
    Selector,
    ServiceClass,
    SLOPolicySpec,
)


def shared_policy() -> SLOPolicySpec:
    """Standard has 10 of 100, and at most 10 x 5.5 of 145 if it misses everything: 38 %."""
    return SLOPolicySpec(
        selector=Selector(match_labels={"app": "vllm"}),
        classes=(
            ServiceClass(
                name="standard",
                kind=Kind.INTERACTIVE,
                weight=10,
                queue=ClassQueue(time_to_live_seconds=3),
                objectives=(
                    Objective(
                        indicator=Indicator.TIME_TO_FIRST_TOKEN,
                        threshold_milliseconds=1000,
                        target_percent="90",
                    ),
                ),
            ),
            ServiceClass(name="batch", kind=Kind.BATCH, weight=90),
        ),
        scheduling=Scheduling(
            algorithm=Algorithm.WEIGHTED_RANDOM,
            weighted_random=WeightedRandom(share_unit=ShareUnit.REQUESTS),
        ),
        concurrency=Concurrency(
            seats=2, reserved_seats=0, batch=BatchSeats(minimum=1, maximum=2), prompt_gate_tokens=0
        ),
        identity=Identity(trusted_headers=(TrustedHeader.CLASS,), fallback_class="standard"),
        adjustment=Adjustment(
            interval_seconds=5, window_seconds=30, maximum_step_percent="50", minimum_requests=10
        ),
    )


def policy_resource(namespace: str) -> dict[str, Any]:
    spec = shared_policy().model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_unset=True
    )
    return {
        "apiVersion": "giveway.dev/v1alpha1",
        "kind": "SLOPolicy",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": spec,
    }
