"""A section of the calibration's page is written by itself, and the others stay."""

import pytest

from benchmarks.calibration.proportion import Proportion
from benchmarks.calibration.report import DOCS
from benchmarks.calibration.sections.each_gate import each_gate
from benchmarks.calibration.sections.page import PEERS, claims, with_claims, with_section
from benchmarks.calibration.sections.section import Section
from domain.cause import Cause


def section(title: str, hits: int) -> Section:
    rows = [
        Proportion(name="an answer", hits=hits, count=100, at_most=0.05),
        Proportion(name="without a claim", hits=99, count=100),
    ]
    return Section(title=title, text="What was simulated.", rows=rows)


PAGE = ["# Calibration", "", claims([]), "", *section("A", 1).lines(), f"## {PEERS}", "", "Ours."]


def test_a_section_takes_the_place_of_its_own_title_and_nothing_else() -> None:
    page = with_section(with_section(PAGE, section("B", 7)), section("A", 2))
    heads = [line for line in page if line.startswith("## ")]
    assert heads == ["## A", "## B", f"## {PEERS}"]
    assert with_section(page, section("A", 1))[4:11] == PAGE[4:11]
    assert page[-1] == "Ours."


@pytest.mark.parametrize(
    ("hits", "said"),
    [(1, "None is outside. Within error: 0"), (7, "None is outside. Within error: 1"),
     (30, "Outside are: an answer. Within error: 0")],
)  # fmt: skip
def test_claims_are_counted_and_a_row_without_one_is_none(hits, said) -> None:
    page = with_claims(with_section(PAGE, section("B", hits)))
    assert page[2].startswith(f"Claims of the engine: 2. {said}.")


def test_a_line_of_many_rows_is_that_which_is_nearest_to_breaking_its_claim() -> None:
    rows = [
        Proportion(name=f"an answer, share {share} %", hits=hits, count=count, at_most=0.05)
        for share, hits, count in ((1, 2, 20), (5, 90, 1000), (20, 1, 100))
    ]
    page = with_section(PAGE, Section(title="B", text="", rows=rows))
    assert "| an answer, share 5 % (worst of 3) | 0.090 of 1,000 |" in "\n".join(page)
    assert with_claims(page)[2].startswith(
        "Claims of the engine: 4. Outside are: an answer, share 5 %. Within error: 0."
    )


def test_each_gate_of_the_page_is_made_of_rows_that_the_page_has() -> None:
    page = (DOCS / "calibration.md").read_text().splitlines()
    table = "\n".join(each_gate(page).lines())
    assert "not measured" not in table
    assert [cause for cause in Cause if f"`{cause}`" not in table] == []
    assert with_section(page, each_gate(page)) == page
