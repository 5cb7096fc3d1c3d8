"""Whether the last change arrived at all ready pods."""

import pytest
from giveway_operator.acknowledging import Arrival, acknowledge
from giveway_operator.promql import Sample


def running(*documents: tuple[int, int, float]) -> list[Sample]:
    return [
        Sample(labels={"epoch": str(epoch), "generation": str(generation)}, value=count)
        for epoch, generation, count in documents
    ]


@pytest.mark.parametrize(
    ("found", "ready", "waited_s", "arrival", "acknowledged"),
    [
        (running((2, 5, 3.0)), 3, 0.0, Arrival.ARRIVED, 3),
        (running((2, 5, 2.0), (2, 4, 1.0)), 3, 10.0, Arrival.AWAITED, 2),
        (running((2, 5, 2.0), (3, 1, 1.0)), 3, 10.0, Arrival.ARRIVED, 3),  # newer is as good
        (running((1, 9, 3.0)), 3, 10.0, Arrival.AWAITED, 0),  # the epoch counts first
        (running((2, 4, 3.0)), 3, 180.0, Arrival.OVERDUE, 0),
        (None, 3, 10.0, Arrival.AWAITED, None),
        (None, 3, 180.0, Arrival.OVERDUE, None),
        ([], 0, 0.0, Arrival.ARRIVED, 0),  # there is nobody to wait for
        (running((2, 5, 5.0)), 3, 0.0, Arrival.ARRIVED, 5),  # two are ending
    ],
)
def test_it_arrived_when_every_ready_pod_runs_it_or_a_newer_one(
    found: list[Sample] | None,
    ready: int,
    waited_s: float,
    arrival: Arrival,
    acknowledged: int | None,
) -> None:
    result = acknowledge((2, 5), found, ready=ready, waited_s=waited_s)
    assert (result.arrival, result.acknowledged) == (arrival, acknowledged)


def test_what_does_not_arrive_in_time_is_said() -> None:
    result = acknowledge((2, 5), running((2, 5, 1.0)), ready=3, waited_s=200.0)
    assert result.message.startswith("1 of 3 ready pods run epoch 2 generation 5 after 200 s")


def test_series_that_are_not_ours_are_passed_over() -> None:
    junk = [Sample(labels={"epoch": "x"}, value=1.0), Sample(labels={}, value=float("nan"))]
    bad = [Sample(labels={"epoch": "2", "generation": "5"}, value=float("nan"))]
    result = acknowledge((2, 5), [*junk, *bad, *running((2, 5, 1.0))], ready=1, waited_s=0.0)
    assert result.arrival is Arrival.ARRIVED
