"""Equal tenants of which one asks for nearly everything."""

import pytest
from giveway_scheduler import Algorithm
from giveway_simulation.baselines import StrictOrder
from giveway_simulation.coupling import ScheduledAdmission, comparison_settings
from giveway_simulation.engine_model import EngineLimits, SchedulingPolicy
from giveway_simulation.engine_pods import DEFAULT_POD, PODS
from giveway_simulation.measures import Window, attainment_ratio, max_min_jain
from giveway_simulation.simulating import Admission, Run, simulate
from giveway_simulation.workloads import Objective, tenant_name, uneven_tenants

SHARES = (0.82,) + (0.02,) * 9
CONVERSATIONS_PER_S = 15.2
"""What the pod can do of these, about."""
DURATION_S = 240.0
WINDOW = Window(start_s=60.0, end_s=220.0)
WITHIN_A_SECOND = Objective(first_token_s=1.0, token_s=float("inf"))


def run(rank: int, *, load: float, admission: Admission | None = None) -> Run:
    """Under SLOAware, unless another admission is given."""
    return simulate(
        uneven_tenants(
            SHARES, load * CONVERSATIONS_PER_S, rank=rank, seed=1, duration_s=DURATION_S
        ),
        admission or ScheduledAdmission(comparison_settings(Algorithm.SLO_AWARE), seed=1),
        pod=PODS[DEFAULT_POD],
        limits=EngineLimits(scheduling_policy=SchedulingPolicy.PRIORITY),
        duration_s=DURATION_S,
    )


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("load", [1.5, 2.0])
def test_tenant_with_82_percent_of_the_requests_hurts_nobody_else(rank: int, load: float) -> None:
    """In each class: max-min Jain >= 0.99, the nine others >= 95 % within 1 s."""
    result = run(rank, load=load)
    assert max_min_jain(result, rank=rank, window=WINDOW) >= 0.99
    others = [
        attainment_ratio(
            result,
            rank=rank,
            objective=WITHIN_A_SECOND,
            window=WINDOW,
            tenant=tenant_name(rank, number),
        )
        for number in range(1, len(SHARES))
    ]
    assert sum(others) / len(others) >= 0.95


@pytest.mark.slow
def test_measure_sees_an_order_that_is_not_fair() -> None:
    """First come, first served inside a class: the nine wait as long as the one."""
    result = run(0, load=2.0, admission=StrictOrder(seats=128))
    others = attainment_ratio(
        result, rank=0, objective=WITHIN_A_SECOND, window=WINDOW, tenant=tenant_name(0, 1)
    )
    assert others < 0.1
    assert max_min_jain(result, rank=0, window=WINDOW) < 0.99
