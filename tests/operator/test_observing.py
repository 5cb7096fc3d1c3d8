"""What observations follow from Prometheus' counts. (tests/cluster has the same on a real one.)"""

import pytest
from giveway_operator.observing import PrometheusObserver
from giveway_operator.promql import Sample
from giveway_operator.querying import QueryError, QueryFailure
from giveway_operator.statuses import ObservationState
from giveway_policy.documents import PolicyName

from tests.operator.plants import spec

POLICY = PolicyName(namespace="llm", name="chat")
SPEC = spec(10, targets=("99",))


def count(kind: str, le: str, value: float) -> Sample:
    return Sample(labels={"giveway_kind": kind, "class": "c0", "le": le}, value=value)


class Answering:
    def __init__(self, *samples: Sample, error: QueryError | None = None) -> None:
        self._samples = samples
        self._error = error
        self.asked: list[str] = []

    async def query(self, promql: str) -> tuple[Sample, ...]:
        self.asked.append(promql)
        if self._error is not None:
            raise self._error
        return self._samples

    async def query_long(self, promql: str) -> tuple[Sample, ...]:
        return await self.query(f"long {promql}")


def counts(good: float, every: float, *, young: bool = False) -> tuple[Sample, ...]:
    return (
        count("increase", "0.3", good),
        count("increase", "+Inf", every),
        count("scrapes", "0.3", 10.0 if young else 20.0),
        count("scrapes", "+Inf", 20.0),
    )


@pytest.mark.parametrize(
    ("samples", "state", "ratio"),
    [
        (counts(75.0, 100.0), ObservationState.MEASURED, 0.75),
        (counts(101.0, 100.0), ObservationState.MEASURED, 1.0),  # extrapolated each for itself
        (counts(0.0, 0.0), ObservationState.NO_TRAFFIC, None),
        (counts(19.0, 19.0), ObservationState.TOO_FEW_REQUESTS, None),
        (counts(20.0, 20.0), ObservationState.MEASURED, 1.0),
        (counts(75.0, 100.0, young=True), ObservationState.TOO_FEW_REQUESTS, None),
        ((count("scrapes", "+Inf", 1.0),), ObservationState.NO_SERIES, None),
        (
            (count("scrapes", "+Inf", 1.0), count("scrapes", "0.3", 1.0)),
            ObservationState.TOO_FEW_REQUESTS,
            None,
        ),
        ((), ObservationState.NO_SERIES, None),
        (counts(float("nan"), 100.0), ObservationState.QUERY_FAILED, None),
    ],
)
async def test_each_count_has_its_state(
    samples: tuple[Sample, ...], state: ObservationState, ratio: float | None
) -> None:
    """A bucket that is younger than the count of all would make a ratio too small: it has none."""
    (found,) = await PrometheusObserver(Answering(*samples)).observe(POLICY, SPEC)
    assert (found.state, found.attained_ratio) == (state, ratio)


@pytest.mark.parametrize("reason", QueryFailure)
async def test_a_failure_is_a_state_with_its_reason(reason: QueryFailure) -> None:
    queries = Answering(error=QueryError(reason, "so it is"))
    (found,) = await PrometheusObserver(queries).observe(POLICY, SPEC)
    is_partial = reason is QueryFailure.PARTIAL
    assert found.state is (
        ObservationState.PARTIAL_RESPONSE if is_partial else ObservationState.QUERY_FAILED
    )
    assert found.detail == f"{reason.value}: so it is"


async def test_the_budget_is_asked_for_apart_and_with_proxies_that_are_gone() -> None:
    queries = Answering(*counts(75.0, 100.0))
    await PrometheusObserver(queries).observe_since(POLICY, SPEC, window_s=3600)
    (asked,) = queries.asked
    assert asked.startswith("long ")
    assert 'last_over_time(giveway_policy_info{policy="llm/chat"}[3600s])' in asked
