"""How often a test repeats itself: a few times in every run, many times in its long form."""

from collections.abc import Iterable
from typing import Any

import hypothesis
import pytest

LONG_PROFILE = "long"


def times(*, gate: int, deep: int, nightly: int | None = None) -> pytest.MarkDecorator:
    """Gives a test its `times`; `nightly` where the gate has no time for so many."""
    long = pytest.param(deep, marks=[pytest.mark.deep, pytest.mark.timeout(3600)])
    more = [] if nightly is None else [pytest.param(nightly, marks=pytest.mark.nightly)]
    return pytest.mark.parametrize("times", [gate, *more, long])


def also_nightly(gate: Iterable[Any], nightly: Iterable[Any]) -> list[Any]:
    """Returns the values of a parameter: the gate's, and other forms of the same promise."""
    return [*gate, *(pytest.param(value, marks=pytest.mark.nightly) for value in nightly)]


def examples(*, gate: int, deep: int) -> hypothesis.settings:
    """Gives a test so many examples, by Hypothesis' profile (`make deep`: the long profile)."""
    long = hypothesis.settings.get_current_profile_name() == LONG_PROFILE
    return hypothesis.settings(max_examples=deep if long else gate)
