"""Futility: an experiment ends where its difference is shown to be too small to matter."""

from collections.abc import Callable

import pytest

from domain.policy import Numbers
from stats.counts.arrivals import Epoch
from stats.decision.evidence import evaluate
from stats.looks.series import Series

Maker = Callable[..., Series]
MANY = 4_000_000


def test_a_difference_that_is_small_and_certain_is_an_answer_first(series) -> None:
    rows = [(0, 0, MANY, 202_500, MANY, 200_000)]
    (seen,) = evaluate([series(rows, as_of=4000, policy=Numbers(futility_margin=0.05))])
    assert seen.totals.ci is not None
    assert 0 < seen.totals.ci[0] < seen.totals.ci[1] < 0.05 * 0.05
    assert seen.decision.verdict == "keep"


@pytest.mark.parametrize("converted", [9760, 10_240])
def test_both_ends_of_the_interval_lie_inside(converted, series) -> None:
    rows = [(0, 0, 200_000, converted, 200_000, 10_000)]
    (seen,) = evaluate([series(rows, as_of=4000, policy=Numbers(futility_margin=0.05))])
    assert seen.totals.ci is not None
    assert min(map(abs, seen.totals.ci)) < 0.05 * 0.05 < max(map(abs, seen.totals.ci))
    assert not seen.decision.decided


def test_the_margin_is_relative_to_controls_rate_at_the_weights_of_the_lift(series) -> None:
    rows = [(0, 0, 400_000, 40_000, MANY, 400_000)]
    for margin, ended in ((0.0185, False), (0.0195, True)):
        (seen,) = evaluate([series(rows, as_of=4000, policy=Numbers(futility_margin=margin))])
        assert seen.totals.ci is not None
        assert (seen.totals.ci[1] < margin * 0.1) == ended
        assert (seen.decision.ended_because == "futility") == ended


def test_a_gated_look_is_no_ground_for_futility(series) -> None:
    # The shares of two hours are each other's mirror, so that time explains the treatment.
    leaking = [(0, 0, MANY, 200_000, 50_000, 2500), (1, 0, 50_000, 2500, MANY, 200_000)]
    for limit, ended in ((10.0, None), (100.0, "futility")):
        policy = Numbers(futility_margin=0.06, vif_limit=limit, horizon_seconds=86_400)
        narrow = evaluate([series(leaking[:1], as_of=300 + 1920, policy=policy)])
        assert narrow[0].decision.ended_because is None
        (seen,) = evaluate([series(leaking, as_of=600 + 1920, policy=policy)])
        assert seen.decision.ended_because == ended
        assert (seen.decision.abstain_reason == "non_identifiable") == (ended is None)


def test_it_waits_until_no_empty_units_could_hide_a_difference(series) -> None:
    """At 60 % a thousandth more units of an arm moves the rate by as much as the margin."""
    rows = [(0, 0, 400_000, 240_000, 400_000, 240_000)]
    policy = Numbers(futility_margin=0.008)
    for shares, ended in (({}, True), ({0: (Epoch(start=0, end=None, share=0.5),)}, False)):
        (seen,) = evaluate([series(rows, as_of=4000, policy=policy, stratum_shares=shares)])
        assert seen.totals.ci is not None
        assert (max(map(abs, seen.totals.ci)) < 0.008 * 0.6) == ended
        assert (seen.decision.ended_because == "futility") == ended
