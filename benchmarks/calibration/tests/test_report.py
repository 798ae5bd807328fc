"""Each claim of the report `docs/calibration.md`, simulated: guardrails, gates, endings, means."""

import pytest

from benchmarks.calibration.ratios import ratios
from benchmarks.calibration.report import (
    endings,
    false_answers,
    futility,
    guardrails,
    interactions,
    intervals,
    means,
    sample_ratios,
    strata_errors,
)
from benchmarks.calibration.sections.adjustment import adjustment
from benchmarks.calibration.sections.empty_units import empty_units
from benchmarks.calibration.sections.gates import unequal_arms
from benchmarks.calibration.sections.many_changes import many_changes
from benchmarks.calibration.sections.section import Run
from tests.repetition import also_nightly

SECTIONS = also_nightly(
    (false_answers, guardrails, interactions),
    # By day each has a smaller form: test_blocks.py, test_attempts.py and test_closing.py here, and
    # the gates, means, ratios and intervals in tests/stats/.
    (
        *(intervals, sample_ratios, futility, means, adjustment, ratios),
        *(endings, strata_errors, unequal_arms, empty_units, many_changes),
    ),
)


@pytest.mark.requirement("service.always-valid")
@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(0.02, id="small"),
        pytest.param(1.0, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(7200)]),
    ],
)
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_no_claim_of_the_report_is_outside_its_bounds(section, scale) -> None:
    rows = section(Run(scale=scale, say=lambda _: None)).rows
    for row in rows:
        print(row.row())  # noqa: T201  # the table is what the full calibration is run for
    assert [row.name for row in rows if row.judgement == "**OUTSIDE**"] == []
    assert any(row.judgement == "holds" for row in rows)
