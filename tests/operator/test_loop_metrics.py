"""The operator's metrics of the loops."""

from giveway_operator.loop_metrics import LoopCollector
from giveway_operator.slo_loop import Consideration
from giveway_operator.statuses import (
    ClassStatus,
    ObjectiveStatus,
    ObservationState,
    PodsStatus,
)
from giveway_policy.documents import PolicyName
from giveway_policy.enumerations import Indicator
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.scraping import parse_samples


def _objective(attained_percent: str | None, indicator: Indicator) -> ObjectiveStatus:
    return ObjectiveStatus(
        indicator=indicator,
        threshold_milliseconds=None if indicator is Indicator.ERROR_RATE else 300,
        target_percent="99",
        attained_percent=attained_percent,
        state=ObservationState.MEASURED if attained_percent else ObservationState.NO_TRAFFIC,
    )


class Loops:
    failures = {"timeout": 3, "partial": 0}  # noqa: RUF012
    latest = {  # noqa: RUF012
        PolicyName(namespace="llm", name="chat"): Consideration(
            weights={"realtime": 31.25},
            classes=(
                ClassStatus(
                    name="realtime",
                    base_weight="25",
                    weight="31.250",
                    objectives=(
                        _objective("93.50", Indicator.TIME_TO_FIRST_TOKEN),
                        _objective(None, Indicator.ERROR_RATE),
                    ),
                ),
            ),
            findings=(),
            pods=PodsStatus(ready=3, acknowledged=2),
            decision=None,
            inputs="",
        )
    }


def test_attainment_targets_weights_and_pods_are_shown() -> None:
    """What could not be measured has no series: it is not 0."""
    registry = CollectorRegistry()
    registry.register(LoopCollector(Loops(), Loops()))
    samples = parse_samples(generate_latest(registry).decode())
    names = {"namespace": "llm", "policy": "chat"}
    of_class = names | {"class": "realtime"}
    first = of_class | {"indicator": "TimeToFirstToken", "threshold_ms": "300"}
    assert samples.value("giveway_slo_attainment_ratio", **first) == 0.935
    assert samples.value("giveway_slo_target_ratio", **first) == 0.99
    assert samples.matching("giveway_slo_attainment_ratio", indicator="ErrorRate") == []
    assert samples.value("giveway_slo_target_ratio", indicator="ErrorRate") == 0.99
    assert samples.value("giveway_weight", **of_class) == 31.25
    assert samples.value("giveway_policy_pods", **names, state="ready") == 3
    assert samples.value("giveway_policy_pods", **names, state="acknowledged") == 2
    assert samples.value("giveway_prometheus_query_failures_total", reason="timeout") == 3
    assert samples.value("giveway_prometheus_query_failures_total", reason="partial") == 0
