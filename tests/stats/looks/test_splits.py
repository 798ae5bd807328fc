"""Strata by need: pooled at first, split where the arms carry a flag unequally, past included."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.calibration.many_flags.build import BLOCK, Build, correlated, independent, leaning
from domain.metric import DAY
from domain.policy import Numbers
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.closed_cells import ClosedCells
from stats.counts.traits import Traits
from stats.decision.evidence import evaluate
from stats.looks.series import Series
from stats.looks.splits import MOST_STRATA
from stats.looks.stratification import stratified

rng = np.random.default_rng


def one_series(build: Build, seed: int, flag: int = 0) -> Series:
    (series,) = build.series(rng(seed), flag)
    return series


LEANING = Build(draw=leaning(3, treated=0.54), lifts=(0.0, 0.5, 0.5, 0.5), units=12_000)


def test_an_evaluation_as_of_an_earlier_look_is_what_it_was_then() -> None:
    series = one_series(LEANING, 1)
    (last,) = evaluate([series])
    assert last.splits
    for look in last.looks[:: max(1, len(last.looks) // 7)]:
        as_of = int(look.at.timestamp())
        (then,) = evaluate([replace(series, as_of=as_of)])
        assert then.as_of == as_of
        assert then.totals.e_value == look.e_value
        assert then.totals.p_running_min == look.p_running_min


def test_what_is_read_of_one_experiment_does_not_depend_on_the_stages_of_another() -> None:
    many = one_series(LEANING, 1)
    block = np.arange(12, dtype=np.int64) * 3600
    few = replace(
        many,
        traits=None,
        allocation=(Epoch(start=0, end=None, share=0.5),),
        arrivals=Arrivals(block=block, treatment=0 * block + 100, others=0 * block + 900),
    )
    (alone,), (_, beside) = evaluate([few]), evaluate([many, few])
    assert alone.shortfall is not None
    assert beside.gates == alone.gates


def test_a_flag_that_splits_does_so_in_every_block_that_went_before() -> None:
    series = one_series(LEANING, 1)
    whole = stratified(series)
    assert whole.stages[0].flags == ()
    now = whole.stages[-1]
    assert now.flags
    before, after = (len(set(each.series.target.stratum.tolist())) for each in whole.stages[:2])
    assert before < after
    (evidence,) = evaluate([series])
    # The same counts in strata that were split from the start.
    (alone,) = evaluate([replace(now.series, policy=series.policy, as_of=series.as_of)])
    sums, expected = evidence.totals, alone.totals
    assert (sums.S, sums.W, sums.V) == (expected.S, expected.W, expected.V)


def test_outcomes_never_split() -> None:
    series = one_series(LEANING, 1)
    nobody = np.zeros_like(series.target.x1)
    silent = replace(series, target=replace(series.target, x1=nobody, x0=nobody))
    assert [stage.flags for stage in stratified(silent).stages] == [
        stage.flags for stage in stratified(series).stages
    ]


def test_pooling_loses_no_unit() -> None:
    series = one_series(Build(draw=independent(6), lifts=(0.0,) * 6, units=6000), 2)
    (evidence,) = evaluate([series])
    finest = int(series.target.n1.sum() + series.target.n0.sum())
    pooled = stratified(series).stages[0].series.target
    assert int(pooled.n1.sum() + pooled.n0.sum()) == finest
    assert evidence.units_in_cells <= finest


def test_the_arms_mirror_each_other_in_every_stage() -> None:
    series = one_series(Build(draw=correlated, lifts=(0.0, 0.5), units=6000), 3)
    (plain,) = evaluate([series])
    cells = series.target
    mirrored = replace(cells, n1=cells.n0, x1=cells.x0, n0=cells.n1, x0=cells.x1)
    swapped = replace(series, target=mirrored)
    (other,) = evaluate([swapped])
    assert [split.since for split in plain.splits] == [split.since for split in other.splits]
    assert pytest.approx(-other.totals.S) == plain.totals.S
    assert plain.totals.W == other.totals.W


def many_lineages(lineages: int, units: int) -> Series:
    at = np.arange(lineages * units)
    own = at % lineages
    return Series(
        policy=Numbers(split_at=3.0),
        start=0,
        as_of=10 * DAY,
        closed_at=None,
        cuts=(),
        target=ClosedCells(
            block=at // lineages * BLOCK,
            stratum=own,
            n1=np.full(at.size, 2),
            x1=np.full(at.size, 1),
            n0=np.full(at.size, 2),
            x0=np.full(at.size, 1),
        ),
        traits=Traits(
            lineage=np.arange(lineages), names=(), values=np.zeros((0, lineages), dtype=np.int64)
        ),
    )


def test_only_the_first_256_lineages_are_compared() -> None:
    series = many_lineages(2 * MOST_STRATA, 40)
    (evidence,) = evaluate([series])
    (half,) = evaluate([many_lineages(MOST_STRATA, 40)])
    assert evidence.units_in_cells == half.units_in_cells
    assert evidence.totals.W == half.totals.W
    assert sum(evidence.units_excluded) == half.units_in_cells


def test_flags_that_depend_but_cannot_all_split_are_named() -> None:
    """Twelve flags on a hash with six others: eight split, and the rest confounds."""
    build = Build(
        draw=lambda draw, units: np.hstack(
            [own := draw.random((units, 1)) < 0.5]
            + [own ^ (draw.random((units, 1)) < 0.3) for _ in range(12)]
        ),
        lifts=(0.0,) * 13,
        units=6000,
    )
    (evidence,) = evaluate([one_series(build, 4)])
    assert evidence.decision.abstain_reason == "non_identifiable"
    assert len(evidence.splits) + len(evidence.confounded_by) == 12
