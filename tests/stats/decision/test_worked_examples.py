"""The worked examples of the specification, and the page that explains them."""

import doctest
from pathlib import Path

import pytest

from stats.decision.evidence import Evidence, evaluate

FIRST = [(12000, 720, 12000, 600)]
SECOND = [
    (120, 9, 880, 44),
    (310, 22, 690, 31),
    (505, 41, 495, 22),
    (0, 0, 40, 3),
    (498, 30, 502, 28),
]
PRINTED = {
    "60.000000000 6000.000000000 311.862994291 0.010000000 45.293017792 0.022078458 "
    "[0.000776966, 0.019223034] 1.000000000": FIRST,
    "18.511000000 819.471000000 44.495575757 0.022588963 8.443084260 0.118440130 "
    "[-0.002927903, 0.049701189] 1.128423878": SECOND,
}


def printed(seen: Evidence) -> str:
    sums = seen.totals
    assert sums.lift is not None
    assert sums.ci is not None
    numbers = (sums.S, sums.W, sums.V, sums.lift, sums.e_value, sums.p_value)
    left = " ".join(f"{number:.9f}" for number in numbers)
    return f"{left} [{sums.ci[0]:.9f}, {sums.ci[1]:.9f}] {seen.vif:.9f}"


@pytest.mark.parametrize("expected", PRINTED, ids=("first", "second"))
def test_the_specified_tables_are_reproduced_to_every_printed_digit(expected, series) -> None:
    cells = PRINTED[expected]
    rows = [(i, 0, *cell) for i, cell in enumerate(cells)]
    each = tuple(300 * i for i in range(len(cells)))
    (seen,) = evaluate([series(rows, as_of=300 * len(cells) + 1920, cuts=each)])
    assert printed(seen) == expected


def test_the_examples_of_the_statistics_page_hold() -> None:
    page = Path(__file__).parents[3] / "docs" / "statistics.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0
