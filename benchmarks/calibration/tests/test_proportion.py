"""What the calibration's report says of a claim, and that it draws what it counted."""

from xml.etree import ElementTree as ET

import pytest

from benchmarks.calibration.chart import Chart, Line
from benchmarks.calibration.proportion import Proportion


@pytest.mark.parametrize(
    ("hits", "at_most", "at_least", "judgement"),
    [
        (40, 0.05, None, "holds"),
        (55, 0.05, None, "within error"),
        (80, 0.05, None, "**OUTSIDE**"),
        (950, None, 0.9, "holds"),
        (895, None, 0.9, "within error"),
        (800, None, 0.9, "**OUTSIDE**"),
        (500, None, None, "–"),
    ],
)
def test_a_share_is_judged_by_its_bound_and_its_error(hits, at_most, at_least, judgement) -> None:
    result = Proportion(name="x", hits=hits, count=1000, at_most=at_most, at_least=at_least)
    assert result.judgement == judgement


def test_a_chart_is_wellformed_and_draws_each_line_and_interval() -> None:
    line = Line(name="a < b", x=[0, 1], y=[0.1, 0.2], intervals=[(0.0, 0.2), (0.1, 0.3)])
    chart = Chart(
        title="t", lines=[line], ticks=[(0, "0"), (1, "1")], across="x", top=1.0, bound=0.5
    )
    root = ET.fromstring(chart.svg())  # noqa: S314 - our own text
    names = [element.tag.split("}")[1] for element in root.iter()]
    assert names.count("polyline") == 1
    assert names.count("path") == 6 + 1 + 2
