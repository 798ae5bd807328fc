"""Differences as people read them."""

import pytest

from domain.measure import Measure

RATE = Measure(name="error", mean=False, currency=None, unit="session", control=0.0)
MEAN = Measure(name="paid", mean=True, currency="EUR", unit="user", control=250.0)


@pytest.mark.parametrize(
    ("measure", "low", "high", "words"),
    [
        (RATE, -0.004, 0.034, "-0.40 to +3.40 points"),
        # Control has no error: the true difference cannot be below zero.
        (RATE, RATE.possible(-0.004), 0.034, "0.00 to +3.40 points"),
        (RATE, -0.00002, 0.034, "-0.002 to +3.40 points"),
        (MEAN, -12.0, 0.0, "-0.12 to 0"),
    ],
)
def test_an_end_has_its_sign_and_a_zero_has_none(measure, low, high, words) -> None:
    assert measure.interval(low, high) == words
