"""Calibration of flags in a single build: independent flags are pooled, others split."""

from typing import Any

import numpy as np
import pytest

from benchmarks.calibration.many_flags.build import (
    Build,
    correlated,
    in_one_layer,
    independent,
    on_one_hash,
)
from benchmarks.calibration.proportion import Proportion, bounds
from domain.policy import SPLIT_AT
from stats.decision.evidence import Evidence


def sizes(small: int, full: int) -> list[Any]:
    return [
        pytest.param(small, id="small"),
        pytest.param(full, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]),
    ]


def least(name: str, hits: int, count: int) -> float:
    """Prints a row of the calibration's table, and gives the least that the share surely is."""
    print(Proportion(name=name, hits=hits, count=count).row())  # noqa: T201  # the table
    return bounds(hits, count)[0]


def information(evidence: Evidence) -> float:
    """The part of the information in the two arms that is used."""
    n1, n0 = evidence.arms.treatment.units, evidence.arms.control.units
    return evidence.totals.W * (n1 + n0) / (n1 * n0)


@pytest.mark.parametrize(
    "flags", [10, pytest.param(40, marks=[pytest.mark.calibration, pytest.mark.timeout(3600)])]
)
def test_independent_flags_of_one_build_are_told_apart(flags) -> None:
    build = Build(draw=independent(flags), lifts=(0.5, *[0.0] * (flags - 1)))
    every = build.evidence(np.random.default_rng(20_261_221), *range(flags))
    assert every[0].decision.verdict == "keep"
    assert sum(each.decision.verdict != "abstain" for each in every[1:]) <= 2 + flags // 20
    assert all(each.decision.abstain_reason != "non_identifiable" for each in every)
    used = [information(each) for each in every]
    print(f"{flags} flags: information used {np.mean(used):.3f}, least {min(used):.3f}")  # noqa: T201 - read by people
    assert np.mean(used) > (0.95 if flags == 10 else 0.75)


@pytest.mark.parametrize("count", sizes(16, 1000))
def test_an_independent_flag_seldom_splits_the_strata(count) -> None:
    build = Build(draw=independent(2), lifts=(0.0, 0.0))
    rng = np.random.default_rng(20_261_224)
    split = sum(bool(each.splits) for _ in range(count) for each in build.evidence(rng, 0))
    assert least("an independent flag splits the strata", split, count) <= 1 / SPLIT_AT


@pytest.mark.parametrize(
    ("draw", "verdicts"),
    [
        (on_one_hash, [("abstain", "non_identifiable")] * 2),
        (in_one_layer, [("keep", None), ("abstain", "power")]),
        (correlated, [("keep", None), ("abstain", "power")]),
    ],
)
def test_dependent_flags_are_split_and_only_what_is_aliased_stays_open(draw, verdicts) -> None:
    """The first flag has +50 %, the second nothing."""
    every = Build(draw=draw, lifts=(0.5, 0.0)).evidence(np.random.default_rng(20_261_225), 0, 1)
    decisions = [each.decision for each in every]
    assert [(str(each.verdict), each.abstain_reason) for each in decisions] == verdicts
    assert [[split.flag for split in each.splits] for each in every] == [["flag 1"], ["flag 0"]]
