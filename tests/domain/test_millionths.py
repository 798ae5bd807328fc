"""Millionths: values to six decimals, as whole numbers that add up exactly."""

from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domain.millionths import LARGEST_AMOUNT, LARGEST_VALUE, cap_in_millionths, value_in_millionths

VALUES = st.floats(min_value=-LARGEST_VALUE, max_value=LARGEST_VALUE)


@given(value=VALUES)
@example(value=0.0000005)
@example(value=0.0000015)
@example(value=2.5e-06)
@example(value=-2.5e-06)
@example(value=999_999_999.9999995)
def test_a_value_is_rounded_half_even_from_its_shortest_decimal_text(value) -> None:
    exact = Decimal(repr(value)).quantize(Decimal("0.000001"), rounding=ROUND_HALF_EVEN)
    assert value_in_millionths(value) == exact * 1_000_000


@given(value=VALUES)
def test_what_was_kept_is_kept_again_as_it_was(value) -> None:
    kept = value_in_millionths(value)
    assert value_in_millionths(kept / 1_000_000) == kept


@pytest.mark.parametrize(
    "value", [1e200, -1e200, 1_000_000_000.0000001, float("inf"), float("-inf"), float("nan")]
)
def test_a_value_that_is_not_finite_or_too_large_is_refused(value) -> None:
    with pytest.raises(ValueError, match="finite number from -1000000000 to 1000000000"):
        value_in_millionths(value)


def test_the_largest_amount_of_revenue_is_the_last_whose_millionths_64_bits_hold() -> None:
    assert LARGEST_AMOUNT * 1_000_000 < 2**63 <= (LARGEST_AMOUNT + 1) * 1_000_000


def test_a_cap_is_cut_to_whole_millionths() -> None:
    assert cap_in_millionths(50.0) == 50_000_000
    assert cap_in_millionths(0.1) == 100_000
    assert cap_in_millionths(1.0000009) == 1_000_000
