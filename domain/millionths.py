"""Millionths: an event's `value` as the whole number that the store keeps and adds up exactly."""

import math
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

MILLION = 1_000_000
LARGEST_VALUE = 10**9
# An amount of revenue, in minor units, counts as at most this much: its millionths fill 64 bits.
LARGEST_AMOUNT = (2**63 - 1) // MILLION
VALUE_RULE = "a value is a finite number from -1000000000 to 1000000000"


def value_in_millionths(value: float) -> int:
    """Returns a value as whole millionths, as the API, an import and a replay store it.

    Six decimals are kept: the value's shortest decimal text is rounded to the nearest millionth,
    a tie to the even millionth.

    Raises:
        ValueError: The value is not finite, or larger than 10⁹ in size; the message is the rule.
    """
    if not -LARGEST_VALUE <= value <= LARGEST_VALUE:
        raise ValueError(VALUE_RULE)
    nearest = round(value * MILLION)
    # Most values have six decimals at most; then this is the shortest text's own number, because
    # two numbers of at most fifteen digits are never the same double.
    if nearest / MILLION == value:
        return nearest
    text = Decimal(repr(float(value)))
    return int((text * MILLION).to_integral_value(rounding=ROUND_HALF_EVEN))


def cap_in_millionths(cap: float) -> int:
    """Returns a metric's cap as whole millionths, cut off as SQL's `floor` does."""
    return math.floor(Fraction(repr(float(cap))) * MILLION)
