"""Whatever happens, the scheduler keeps its promises.

The machine is `machine_support.py`; what it found is in `test_state_machine_finds.py`.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.scheduler.machine_support import SchedulerMachine

SHORT = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
LEAST_SHORT_STEPS = 7_000
LONG = settings(SHORT, max_examples=500, stateful_step_count=60, derandomize=False)
PARTS = 10
"""The nightly run is cut so that workers share it and what one has tried is forgotten after it."""
LEAST_STEPS_OF_ALL_PARTS = 200_000


def run(wanted: settings) -> int:
    """How many steps all the machines took."""
    SchedulerMachine.steps = 0
    run_state_machine_as_test(SchedulerMachine, settings=wanted)
    print(f"{SchedulerMachine.steps} steps")
    return SchedulerMachine.steps


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_promises_hold_whatever_is_done() -> None:
    """Every arrival ends once, seats and limits hold, nothing idles beside work, tokens add up, one
    jump in time equals many small ones. The same runs each time. (Shrinking a failure takes long.)
    """
    assert run(SHORT) >= LEAST_SHORT_STEPS


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_over_200_000_steps(part: int) -> None:
    """The same, with new runs every night."""
    assert run(LONG) >= LEAST_STEPS_OF_ALL_PARTS / PARTS
