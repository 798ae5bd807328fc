"""The pictures: what each kind of verdict shows, well-formed and bounded."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from domain.wording.looks import estimates, extent, held_spans, looks_of
from orchestration.dagster.report import MOST_PICTURES, chosen, report
from orchestration.pictures.interval import WIDTH, interval_picture
from orchestration.pictures.plot import MOST_CURVES, curve, evidence_plot
from orchestration.pictures.svg import as_markdown, path
from orchestration.pictures.thumbnail import thumbnail
from storage.views.published import PublishedEvidence
from storage.views.ramp import Ramp, Step

SVG = "{http://www.w3.org/2000/svg}"
START = datetime(2026, 3, 1, tzinfo=UTC)


def at(hours: float) -> str:
    return (START + timedelta(hours=hours)).isoformat().replace("+00:00", "Z")


def document(
    *, looks: int = 48, lift: float = 0.03, e_value: float = 1.0, number: int = 1, **more: Any
) -> dict[str, Any]:
    """An evidence document whose interval narrows down around a lift, a look an hour."""
    rows = [
        {
            "at": at(turn),
            "e_value": e_value if turn == looks - 1 else 1.0,
            "p_running_min": 0.5,
            "lift": lift,
            "ci": [lift - 1 / (turn + 1) ** 0.5, lift + 1 / (turn + 1) ** 0.5],
            "gated": turn in more.get("gated", ()),
        }
        for turn in range(looks)
    ]
    target = {"name": "click", "kind": more.get("kind", "conversion"), "currency": "USD"}
    return {
        "sentence": more.get("sentence", "Can't say yet on click."),
        "experiment_id": f"exp_{number}",
        "as_of": at(looks - 1),
        "policy": {
            "level": more.get("level", 0.05),
            "target": target,
            "unit": "session",
            "rho": {"day": 25.0, "fast": 11.1},
        },
        "arms": {
            "control": {"units": 900, "conversions": 90, "rate": 0.1, "late": 0},
            "treatment": {"units": 800, "conversions": 104, "rate": 0.13, "late": 0},
        },
        "totals": {"e_value": e_value, "lift": lift, "ci": [lift - 0.1, lift + 0.1]},
        "looks": more.get("rows", rows),
        "gates": {"vif": 1.0, "interacting_because": more.get("because", [])},
        "guardrails": more.get("guardrails", []),
        "candidate": more.get("candidate"),
        "sessions": {"accumulated": 1700, "required": 9000.0},
    }


def contract(verdict: str = "abstain", *, decided: bool | None = None, **more: Any) -> Any:
    return {
        "experiment_id": "exp_1",
        "verdict": verdict,
        "abstain_reason": more.get("reason", "power") if verdict == "abstain" else None,
        "lift": None if verdict == "abstain" else 0.03,
        "power_state": {"decided": verdict != "abstain" if decided is None else decided},
    }


def guardrail(metric: str, *, breached: str | None = None, unharmed: str | None = None) -> Any:
    return {"metric": metric, "breached_at": breached, "non_inferior_at": unharmed}


class Picture:
    """A parsed picture: its elements by id, and all that can be read in it."""

    def __init__(self, svg: str | None) -> None:
        assert svg is not None
        self.root = ET.fromstring(svg)  # noqa: S314 - our own text
        self.ids = {one.get("id"): one for one in self.root.iter() if one.get("id")}
        self.lines = list(self.root.iter(f"{SVG}text"))
        self.text = "\n".join(one.text or "" for one in self.lines)


RAMP = Ramp(
    at=[START + timedelta(hours=hour) for hour in (6, 24, 47)],
    control=[90, 450, 1000],
    treatment=[10, 60, 700],
    steps=[
        Step(at=START - timedelta(hours=2), share=0.1),
        Step(at=START + timedelta(hours=25), share=0.5),
    ],
)


def test_a_picture_shows_the_units_of_each_arm_and_the_steps_of_the_ramp() -> None:
    picture = Picture(interval_picture(document(), contract(), RAMP))
    for words in ("sessions", "1,000 control", "700 treatment", "share 10 %", "share 50 %"):
        assert words in picture.text
    assert {"control", "treatment"} <= picture.ids.keys()
    assert dict(report([standing(1)], {"exp_1": RAMP}))["exp_1 in full"].value != (
        dict(report([standing(1)], {}))["exp_1 in full"].value
    )
    # Of an experiment whose units are not known there is none.
    assert "share" not in drawn(document(), contract()).text


def drawn(found: dict[str, Any], answer: Any) -> Picture:
    return Picture(interval_picture(found, answer))


CANDIDATE = {"at": at(12), "lift": 0.03, "ci": [0.001, 0.059], "waits_for": ["error"]}
KINDS = {
    "Keep": (document(candidate=CANDIDATE), contract("keep")),
    "Roll back": (document(lift=-0.03, e_value=30.0), contract("rollback")),
    "Iterate": (
        document(candidate=CANDIDATE, guardrails=[guardrail("error", breached=at(20))]),
        contract("iterate"),
    ),
    "Almost: keep": (document(candidate=CANDIDATE), contract()),
    "Can't say yet": (document(), contract()),
    "Can't say: the split is not fair": (
        document(gated=range(5, 48), because=["crossover"]),
        contract(reason="interacting"),
    ),
    "No answer": (document(lift=0.0), contract(decided=True)),
}


@pytest.mark.parametrize("word", KINDS)
def test_each_answer_leads_with_its_word_and_shows_the_interval_and_no_difference(word) -> None:
    picture = drawn(*KINDS[word])

    assert picture.lines[0].text.startswith(f"{word} · click")
    assert {"interval", "estimate", "no-difference"} <= picture.ids.keys()
    assert picture.root.get("width") == str(WIDTH) == "700"


@pytest.mark.parametrize("word", ["Keep", "Iterate", "Almost: keep"])
def test_a_candidate_is_marked_where_it_fired(word) -> None:
    assert "fired 01 Mar 12:00" in drawn(*KINDS[word]).text


def test_a_verdict_that_waited_is_marked_where_it_was_decided_too() -> None:
    picture = drawn(*KINDS["Keep"])

    assert {"fired", "decided"} <= picture.ids.keys()
    assert "decided 02 Mar 23:00" in picture.text


def test_a_verdict_decided_where_the_test_fired_is_marked_once() -> None:
    picture = drawn(*KINDS["Roll back"])

    assert "fired and decided 02 Mar 23:00" in picture.text
    assert "decided" not in picture.ids


def test_a_crossing_that_a_gate_held_is_not_marked_as_fired() -> None:
    picture = drawn(document(e_value=1e6, gated=[47]), contract(reason="interacting"))

    assert "fired" not in picture.ids


def test_an_open_experiment_is_marked_nowhere() -> None:
    assert not {"fired", "decided"} & drawn(*KINDS["Can't say yet"]).ids.keys()


def test_spans_that_a_gate_held_are_hatched_and_named() -> None:
    found = document(gated=[3, 4, 5, 20], because=["crossover", "lateness"])
    held = held_spans(looks_of(found))

    picture = drawn(found, contract(reason="interacting"))

    hatched = [one for one in picture.root.iter(f"{SVG}rect") if one.get("fill") == "url(#held)"]
    assert [round((end - begin) / 3600) for begin, end in held] == [3, 1]
    assert len(hatched) == 2 * len(held) + 1  # in the plot, in the lane; and in the legend
    assert "held: crossover +1" in picture.text


def test_each_guardrail_says_how_it_stands_the_breached_first() -> None:
    watched = [
        guardrail("latency", unharmed=at(10)),
        guardrail("arrival"),
        guardrail("error", breached=at(20)),
    ]

    text = drawn(document(guardrails=watched), contract("iterate")).text

    assert "breached 01 Mar 20:00" in text
    assert "unharmed 01 Mar 10:00" in text
    assert text.index("error") < text.index("arrival") < text.index("latency")


def test_the_scale_is_where_the_interval_informs_not_where_it_began() -> None:
    wide = document(looks=200, lift=0.01)
    wide["looks"][0]["ci"] = [-1.0, 1.0]

    low, high = extent(estimates(looks_of(wide)))

    assert low < 0 < high
    assert high - low < 0.4


def test_zero_is_in_the_picture_however_far_the_interval_is_from_it() -> None:
    far = [
        {"at": at(turn), "e_value": 1.0, "lift": 5.0, "ci": [4.9, 5.1], "gated": False}
        for turn in range(9)
    ]

    picture = drawn(document(rows=far), contract())

    x, y = picture.ids["no-difference"].get("d").removeprefix("M").split("l")[0].split()
    assert 0 < float(y) < float(picture.root.get("height"))
    assert float(x) > 0


@pytest.mark.parametrize("looks", [1, 2, 3, 500])
def test_any_number_of_looks_is_drawn_in_little_room(looks) -> None:
    picture = interval_picture(document(looks=looks), contract())

    assert picture is not None
    assert "interval" in Picture(picture).ids
    assert len(as_markdown(picture, alt="exp_1")) < 20_000


def test_looks_before_units_of_both_arms_met_are_drawn_without_an_interval() -> None:
    rows = [
        {"at": at(turn), "e_value": 1.0, "lift": None, "ci": None, "gated": True}
        for turn in range(4)
    ]

    picture = drawn(document(rows=rows), contract(reason="non_identifiable"))

    assert "interval" not in picture.ids
    assert "no block holds units of both arms" in picture.text
    assert "held: " in picture.text


def test_before_the_first_look_there_is_no_picture() -> None:
    waiting = {"experiment_id": "exp_1", "sentence": "No answer.", "as_of": None}

    assert interval_picture(waiting, contract()) is None
    assert thumbnail(waiting, contract()) is None
    assert evidence_plot([waiting]) is None
    assert evidence_plot([]) is None


def test_rates_are_told_in_points_and_in_percent_of_control() -> None:
    text = drawn(*KINDS["Keep"]).text

    assert "+3.00 points +30 %" in text
    assert "control 900 (10.00 %)" in text


def test_means_are_told_in_their_own_unit() -> None:
    text = drawn(document(kind="mean", lift=42.0), contract()).text

    assert "USD per session" in text
    assert "points" not in text


def test_names_of_others_are_text_and_never_markup() -> None:
    found = document(sentence='<script>alert("1")</script> & so on')
    found["policy"]["target"]["name"] = "<b>&amp;"

    picture = drawn(found, contract())

    assert '<script>alert("1")</script> & so on' in picture.text
    assert not list(picture.root.iter(f"{SVG}script"))


def test_labels_at_the_right_edge_keep_their_distance() -> None:
    rows = document()["looks"]
    rows[-1]["ci"] = [0.0299, 0.0301]

    heights = [
        float(one.get("y"))
        for one in drawn(document(rows=rows), contract()).lines
        if one.text.endswith(" %") and "points" in one.text
    ]

    assert len(heights) == 3
    assert heights[1] - heights[0] >= 14
    assert heights[2] - heights[1] >= 14


def test_relative_steps_do_not_add_up_their_rounding() -> None:
    points = [(0.04 * number, 0.0) for number in range(1000)]

    steps = path(points, fill="none").split('d="M')[1].split('"')[0].replace("l", " ").split()

    assert abs(sum(float(step) for step in steps[::2]) - points[-1][0]) <= 0.06


# --- In place, and compared ------------------------------------------------------------------


def standing(number: int, **more: Any) -> PublishedEvidence:
    answer = {**contract(), "experiment_id": f"exp_{number}"}
    return PublishedEvidence(
        experiment_id=f"exp_{number}",
        document=document(number=number, **more),
        contract=answer,
    )


def test_what_an_experiment_says_fits_where_dagster_shows_it_without_a_click(monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_PUBLIC_URL", "https://reward.example.com/")
    shown = dict(report([standing(1, looks=500, sentence="word " * 300)], {}))

    assert len(shown["exp_1"].value) < 1_000
    assert "[exp_1](https://reward.example.com/dashboard/experiments/exp_1)" in shown["exp_1"].value
    assert "(data:image/svg+xml;base64," in shown["exp_1"].value
    assert len(shown["exp_1 in full"].value) < 20_000


def test_without_a_public_address_there_is_no_link(monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_PUBLIC_URL", "javascript:alert(1)")

    assert dict(report([standing(1)], {}))["exp_1"].value.startswith("exp_1: Can't say yet")


def test_some_that_were_decided_last_are_shown_and_the_rest_are_the_nearest() -> None:
    nearest = [standing(number) for number in range(9)]
    lately = [standing(number) for number in range(10, 19)]

    assert [one.experiment_id for one in chosen(nearest, lately)] == [
        "exp_10",
        "exp_11",
        "exp_0",
        "exp_1",
    ]
    assert len(chosen([], lately)) == MOST_PICTURES
    assert chosen([], []) == []


def test_the_test_fires_at_zero_decades() -> None:
    found = curve(document(looks=2, e_value=20.0))

    assert found is not None
    assert abs(found.decades[-1]) < 1e-12


def test_a_second_attempt_must_reach_further() -> None:
    found = curve(document(looks=2, e_value=20.0, level=0.05 / 4))

    assert found is not None
    assert found.decades[-1] < 0


def test_the_comparison_stays_small_however_much_there_is_to_show() -> None:
    many = [document(number=number, looks=500, e_value=1.0 + number) for number in range(30)]

    plot = evidence_plot(many)

    assert plot is not None
    assert plot.count('class="curve"') == MOST_CURVES
    assert "exp_29" in plot
    assert "exp_0<" not in plot
    assert len(as_markdown(plot, alt="evidence")) < 20_000


def test_infinite_evidence_is_drawn_at_the_edge() -> None:
    found = [document(looks=1, e_value=1e300), document(number=2, looks=3, e_value=0.0)]

    assert "compared" not in dict(report([standing(1)], {}))
    assert Picture(evidence_plot(found)).root.tag == f"{SVG}svg"


def test_the_image_needs_no_file_and_no_address() -> None:
    text = as_markdown("<svg/>", alt="evidence")

    assert base64.b64decode(text.partition("base64,")[2].rstrip(")")) == b"<svg/>"
