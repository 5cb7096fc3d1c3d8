"""What is reported fits into its fields, however extreme."""

import pytest
from giveway_operator.statuses import BurnRate, ObjectiveStatus, ObservationState, decimal_text
from giveway_policy.enumerations import Indicator
from hypothesis import given
from hypothesis import strategies as st


@given(value=st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_any_finite_number_can_be_reported(value: float) -> None:
    assert BurnRate(window_seconds=300, rate=decimal_text(value)).rate


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_budget_may_be_overdrawn(value: float) -> None:
    status = ObjectiveStatus(
        indicator=Indicator.ERROR_RATE,
        target_percent="99",
        state=ObservationState.MEASURED,
        error_budget_remaining_percent=decimal_text(value),
    )
    assert status.error_budget_remaining_percent


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00"), (93.336, "93.34"), (-12.5, "-12.50"), (1e300, "9999999.99")]
)
def test_numbers_are_rounded_and_never_written_with_an_exponent(value: float, text: str) -> None:
    assert decimal_text(value) == text
