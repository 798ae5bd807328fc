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
    """Returns the values of a parameter: the gate's, and other forms of the same promise.

    Those of several parameters are tuples.
    """
    rows = (value if isinstance(value, tuple) else (value,) for value in nightly)
    return [*gate, *(pytest.param(*row, marks=pytest.mark.nightly) for row in rows)]


def examples(*, gate: int, deep: int) -> hypothesis.settings:
    """Gives a test so many examples, by Hypothesis' profile (`make deep`: the long profile).

    Where the gate asks for none, it has those alone that the test itself names.
    """
    long = hypothesis.settings.get_current_profile_name() == LONG_PROFILE
    if not long and not gate:
        return hypothesis.settings(phases=[hypothesis.Phase.explicit])
    return hypothesis.settings(max_examples=deep if long else gate)
