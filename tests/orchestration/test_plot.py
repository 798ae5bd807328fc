"""The plot: well-formed, bounded, and of the curves that matter."""

import base64
from xml.etree import ElementTree as ET

from orchestration.plot import MOST_CURVES, as_markdown, curve, evidence_plot


def document(number: int, *, looks: int, e_value: float, level: float = 0.05) -> dict[str, object]:
    return {
        "experiment_id": f"exp_{number}",
        "policy": {"level": level},
        "looks": [
            {"at": f"2026-03-{1 + turn // 24:02}T{turn % 24:02}:00:00Z", "e_value": e_value}
            for turn in range(looks)
        ],
    }


def test_the_test_fires_at_zero_decades() -> None:
    found = curve(document(1, looks=2, e_value=20.0))

    assert found is not None
    assert abs(found.decades[-1]) < 1e-12


def test_a_second_attempt_must_reach_further() -> None:
    found = curve(document(1, looks=2, e_value=20.0, level=0.05 / 4))

    assert found is not None
    assert found.decades[-1] < 0


def test_without_a_look_there_is_no_plot() -> None:
    assert evidence_plot([{"experiment_id": "exp_1", "as_of": None}]) is None
    assert evidence_plot([]) is None


def test_a_plot_stays_small_however_much_there_is_to_show() -> None:
    many = [document(number, looks=500, e_value=1.0 + number) for number in range(30)]

    plot = evidence_plot(many)

    assert plot is not None
    assert plot.count("<polyline") == MOST_CURVES
    assert "exp_29" in plot
    assert "exp_0<" not in plot
    assert len(as_markdown(plot)) < 20_000


def test_infinite_evidence_is_drawn_at_the_edge() -> None:
    plot = evidence_plot([document(1, looks=1, e_value=1e300), document(2, looks=3, e_value=0.0)])

    assert plot is not None
    assert ET.fromstring(plot).tag.endswith("svg")  # noqa: S314 - our own text


def test_the_image_needs_no_file_and_no_address() -> None:
    text = as_markdown("<svg/>")

    assert base64.b64decode(text.partition("base64,")[2].rstrip(")")) == b"<svg/>"
