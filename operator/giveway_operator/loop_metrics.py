"""What does the operator's own metrics page say of the loops?

A collector over what came of each policy last: nothing is counted up and down, so nothing drifts,
and the series of a policy that is gone are gone.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from giveway_policy.documents import PolicyName
from giveway_policy.fields import percent_to_ratio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from giveway_operator.slo_loop import Consideration


class HasFailures(Protocol):
    @property
    def failures(self) -> Mapping[str, int]: ...


class HasLatest(Protocol):
    @property
    def latest(self) -> Mapping[PolicyName, Consideration]: ...


class LoopCollector(Collector):
    """Register it with the operator's registry."""

    def __init__(self, loop: HasLatest, queries: HasFailures) -> None:
        self._loop = loop
        self._queries = queries

    def collect(self) -> Iterator[Metric]:
        objective = ("namespace", "policy", "class", "indicator", "threshold_ms")
        attained = GaugeMetricFamily(
            "giveway_slo_attainment_ratio",
            "Share of good measurements in the policy's window; missing if not measured.",
            labels=objective,
        )
        target = GaugeMetricFamily(
            "giveway_slo_target_ratio", "Share that has to be good.", labels=objective
        )
        weight = GaugeMetricFamily(
            "giveway_weight",
            "Weight of the class as it is published.",
            labels=("namespace", "policy", "class"),
        )
        pods = GaugeMetricFamily(
            "giveway_policy_pods",
            "Ready pods of the policy, and how many acknowledged what is published.",
            labels=("namespace", "policy", "state"),
        )
        for policy, considered in self._loop.latest.items():
            names = (policy.namespace, policy.name)
            pods.add_metric((*names, "ready"), considered.pods.ready)
            if considered.pods.acknowledged is not None:
                pods.add_metric((*names, "acknowledged"), considered.pods.acknowledged)
            for each in considered.classes:
                weight.add_metric((*names, each.name), float(each.weight))
                for kept in each.objectives:
                    threshold = kept.threshold_milliseconds
                    labels = (
                        *names,
                        each.name,
                        kept.indicator.value,
                        "" if threshold is None else str(threshold),
                    )
                    target.add_metric(labels, percent_to_ratio(kept.target_percent))
                    if kept.attained_percent is not None:
                        attained.add_metric(labels, float(kept.attained_percent) / 100)
        failures = CounterMetricFamily(
            "giveway_prometheus_query_failures",
            "Questions to Prometheus that got no answer.",
            labels=("reason",),
        )
        for reason, count in self._queries.failures.items():
            failures.add_metric((reason,), count)
        yield from (attained, target, weight, pods, failures)
