"""How often a test repeats itself: a few times in every run, many times in its long form."""

import hypothesis
import pytest

LONG_PROFILE = "long"


def times(*, gate: int, deep: int, nightly: int | None = None) -> pytest.MarkDecorator:
    """Gives a test its `times`; `nightly` where the gate has no time for as many as one wants."""
    long = pytest.param(deep, marks=[pytest.mark.deep, pytest.mark.timeout(3600)])
    more = [] if nightly is None else [pytest.param(nightly, marks=pytest.mark.nightly)]
    return pytest.mark.parametrize("times", [gate, *more, long])


def examples(*, gate: int, deep: int) -> hypothesis.settings:
    """Gives a test so many examples, by the profile of Hypothesis (`make deep`: the long one)."""
    long = hypothesis.settings.get_current_profile_name() == LONG_PROFILE
    return hypothesis.settings(max_examples=deep if long else gate)
