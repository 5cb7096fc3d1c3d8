"""Under which algorithm a weight means anything."""

import itertools

import pytest
from giveway_admission.translating import translate
from giveway_operator.sharing import sharing, weights_mean_something
from giveway_policy.defaults import default_spec
from giveway_policy.documents import PolicyName, make_document
from giveway_policy.enumerations import Algorithm, Kind
from giveway_policy.mechanics import AntiStarvation, BatchSeats, Concurrency, Scheduling
from giveway_policy.resources import ServiceClass, SLOPolicySpec
from giveway_scheduler import Request, RequestKey, TenantName

from tests.scheduler.driving import Driver
from tests.scheduler.serving_support import Server

I, B = Kind.INTERACTIVE, Kind.BATCH  # noqa: E741


def _spec(algorithm: Algorithm, *kinds: Kind) -> SLOPolicySpec:
    return SLOPolicySpec(
        classes=tuple(ServiceClass(name=f"c{rank}", kind=kind) for rank, kind in enumerate(kinds)),
        scheduling=Scheduling(algorithm=algorithm),
    )


@pytest.mark.parametrize(
    ("algorithm", "kinds", "shared"),
    [
        (Algorithm.WEIGHTED_RANDOM, (I, I, B), {"c0", "c1", "c2"}),
        (Algorithm.DEFICIT_ROUND_ROBIN, (I, B), {"c0", "c1"}),
        (Algorithm.WEIGHTED_RANDOM, (I,), set()),
        (Algorithm.SLO_AWARE, (I, I, B), set()),
        (Algorithm.SLO_AWARE, (I, I, I, B), {"c1", "c2"}),
        (Algorithm.SLO_AWARE, (I, B, B), {"c1", "c2"}),
        (Algorithm.DYNAMIC_AGING, (I, I, B), set()),
        (Algorithm.INTERACTIVE_FIRST, (I, I, B), set()),
    ],
)
def test_a_class_shares_with_those_of_its_group(
    algorithm: Algorithm, kinds: tuple[Kind, ...], shared: set[str]
) -> None:
    assert sharing(_spec(algorithm, *kinds)) == shared


def test_the_built_in_policy_shares_nothing_by_weight() -> None:
    """Its first class is strict, batch has a floor, and there is one class between."""
    assert not weights_mean_something(default_spec())


def _served_share(spec: SLOPolicySpec, pair: tuple[int, int], weight: float) -> float:
    """Of 200 requests of two classes that always have work: the part of the first of the pair, if
    it has this weight and all others have 1."""
    weights = {each.name: 1.0 for each in spec.classes} | {spec.classes[pair[0]].name: weight}
    settings = translate(make_document(PolicyName(name="x"), spec, weights=weights))
    keys = itertools.count()

    def another(rank: int) -> Request:
        return Request(
            key=RequestKey(next(keys)),
            rank=rank,
            tenant=TenantName("t"),
            prompt_tokens=100,
            maximum_output_tokens=100,
        )

    driver = Driver(settings)
    server = Server(driver, lambda _: 1.0, on_served=lambda served: [another(served.request.rank)])
    server.start_with(*(another(rank) for rank in pair for _ in range(20)))
    served = server.run(until_s=200.0)
    return sum(each.request.rank == pair[0] for each in served) / len(served)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [(I, I, B), (I, I, I, B), (I, B, B)], ids=str)
@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_scheduler_shares_by_weight_just_where_it_says(
    algorithm: Algorithm, kinds: tuple[Kind, ...]
) -> None:
    """The operator does not know the scheduler, so what it believes of it is checked here: a class
    shares if ten times the weight gives it more against some other class."""
    spec = _spec(algorithm, *kinds)
    seats = Concurrency(
        seats=1, reserved_seats=0, batch=BatchSeats(minimum=1, maximum=1), prompt_gate_tokens=0
    )
    if algorithm is Algorithm.INTERACTIVE_FIRST:
        seats = seats.model_copy(update={"seats": 2})
    spec = spec.model_copy(
        update={"concurrency": seats, "anti_starvation": AntiStarvation(enabled=False)}
    )
    found = {
        spec.classes[rank].name
        for rank in range(len(kinds))
        for other in range(len(kinds))
        if other != rank
        and _served_share(spec, (rank, other), 10.0) > _served_share(spec, (rank, other), 1.0) + 0.1
    }
    assert found == sharing(spec)
