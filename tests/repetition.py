"""How often a test repeats itself: a few times in every run, many times in its long form."""

import pytest


def times(*, gate: int, deep: int) -> pytest.MarkDecorator:
    """Gives a test its `times`."""
    long = pytest.param(deep, marks=[pytest.mark.deep, pytest.mark.timeout(3600)])
    return pytest.mark.parametrize("times", [gate, long])
