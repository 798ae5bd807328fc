"""The pictures: what the page and Dagster show of each kind of verdict, well-formed and bounded."""

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs

from domain.contract import Contract, contract
from domain.drawing.interval import MOST_POINTS, interval_drawing, thumbnail
from domain.drawing.shapes import steps
from domain.drawing.traffic import Ramp
from domain.evidence.document import Evidence
from domain.wording.looks import estimates, extent, held_spans, looks_of
from domain.wording.picture import picture_of
from domain.words import AbstainReason, Verdict
from orchestration.dagster.report import report
from storage.views.published import PublishedEvidence
from tests.stores.example import example_evidence

START = datetime(2026, 3, 1, tzinfo=UTC)


def at(hours: float) -> str:
    return (START + timedelta(hours=hours)).isoformat().replace("+00:00", "Z")


def document(
    *, looks: int = 48, lift: float = 0.03, e_value: float = 1.0, number: int = 1, **more: Any
) -> Evidence:
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
    return example_evidence(
        sentence=more.get("sentence", "Can't say yet on click."),
        experiment_id=f"exp_{number}",
        as_of=at(looks - 1),
        policy={"target": target, "rho": {"fast": 11.1}},
        arms={
            "control": {"units": 900, "conversions": 90, "rate": 0.1},
            "treatment": {"units": 800, "conversions": 104, "rate": 0.13},
        },
        totals={"e_value": e_value, "lift": lift, "ci": [lift - 0.1, lift + 0.1]},
        looks=more.get("rows", rows),
        gates={"interacting_because": more.get("because", []), **more.get("gates", {})},
        guardrails=more.get("guardrails", []),
        metrics=[{"metric": "click", "role": "target"}, *more.get("guardrails", [])],
        candidate=more.get("candidate"),
        sessions={"accumulated": 1700, "required": 9000.0},
    )


def answer(verdict: str = "abstain", *, decided: bool | None = None, **more: Any) -> Contract:
    lift = None if verdict == "abstain" else 0.03
    return contract(
        "exp_1",
        verdict=Verdict(verdict),
        abstain_reason=AbstainReason(more.get("reason", "power")) if lift is None else None,
        decided=lift is not None if decided is None else decided,
        lift=lift,
    )


def guardrail(metric: str, *, breached: str | None = None, unharmed: str | None = None) -> Any:
    state = "breached" if breached else "unharmed" if unharmed else "not_known"
    tested = {"breached_at": breached, "non_inferior_at": unharmed}
    return {"metric": metric, "state": state, **tested}


class Drawing:
    """A parsed drawing: its shapes by class, and all that can be read in it."""

    def __init__(self, document: Any, contract: Any, ramp: Ramp | None = None) -> None:
        picture = picture_of(document, contract)
        assert picture is not None
        self.svg = interval_drawing(picture, width=700, ramp=ramp)
        self.root = ET.fromstring(self.svg)  # noqa: S314 - our own text
        self.shapes = {name for shape in self.root.iter() if (name := shape.get("class"))}
        self.text = "\n".join(text.text or "" for text in self.root.iter("text"))
        self.titles = [title.text or "" for title in self.root.iter("title")]

    def rectangles(self, name: str) -> int:
        return sum(shape.get("class") == name for shape in self.root.iter("rect"))


CANDIDATE = {
    "at": at(12),
    "lift": 0.03,
    "confidence": 0.96,
    "ci": [0.001, 0.059],
    "cadence": "day",
    "holds": True,
    "waits_for": ["error"],
}
KINDS = {
    "Keep": (document(candidate=CANDIDATE), answer("keep")),
    "Roll back": (document(lift=-0.03, e_value=30.0), answer("rollback")),
    "Iterate": (
        document(candidate=CANDIDATE, guardrails=[guardrail("error", breached=at(20))]),
        answer("iterate"),
    ),
    "Almost: keep": (document(candidate=CANDIDATE), answer()),
    "Can't say yet": (document(), answer()),
    "Can't say: the split is not fair": (
        document(gated=range(5, 48), because=["crossover"]),
        answer(reason="interacting"),
    ),
    "No answer": (document(lift=0.0), answer(decided=True)),
}


@pytest.mark.parametrize("word", KINDS)
def test_each_answer_shows_the_interval_and_no_difference(word) -> None:
    (entry,) = dict(report([published(*KINDS[word])])).values()

    assert {"band", "estimate", "zero"} <= Drawing(*KINDS[word]).shapes
    image = base64.b64decode(str(entry.value).partition("base64,")[2].rstrip(")"))
    assert len(list(ET.fromstring(image))) == 3  # noqa: S314 - band, estimate, no difference


@pytest.mark.parametrize(
    ("word", "marks"),
    [
        ("Keep", {"fired": "fired 01 Mar 12:00", "decided": "decided 02 Mar 23:00"}),
        ("Almost: keep", {"fired": "fired 01 Mar 12:00"}),
        ("Roll back", {"fired": "fired and decided 02 Mar 23:00"}),
        ("Can't say yet", {}),
    ],
)
def test_it_is_marked_when_the_test_fired_and_when_the_verdict_was_decided(word, marks) -> None:
    drawing = Drawing(*KINDS[word])

    assert drawing.shapes & {"fired", "decided"} == marks.keys()
    assert all(words in drawing.text for words in marks.values())


def test_a_crossing_that_a_gate_held_is_not_marked_as_fired() -> None:
    drawing = Drawing(document(e_value=1e6, gated=[47]), answer(reason="interacting"))

    assert "fired" not in drawing.shapes


def test_spans_that_a_gate_held_are_shaded_and_named() -> None:
    evidence = document(gated=[3, 4, 5, 20], because=["crossover", "lateness"])
    held = held_spans(looks_of(evidence))

    drawing = Drawing(evidence, answer(reason="interacting"))

    assert [round((end - begin) / 3600) for begin, end in held] == [3, 1]
    assert drawing.rectangles("held") == 2 * len(held)  # in the plot, and in the lane
    assert "gates: held: crossover +1" in drawing.text


def test_each_guardrail_says_how_it_stands_the_breached_first() -> None:
    watched = [
        guardrail("latency", unharmed=at(10)),
        guardrail("arrival"),
        guardrail("error", breached=at(20)),
    ]

    text = Drawing(document(guardrails=watched), answer("iterate")).text

    assert "error: breached 01 Mar 20:00" in text
    assert "latency: unharmed 01 Mar 10:00" in text
    assert text.index("error") < text.index("arrival") < text.index("latency")


def test_the_scale_is_where_the_interval_informs_not_where_it_began() -> None:
    wide = document(looks=200, lift=0.01)
    first, *others = wide.looks
    looks = (structs.replace(first, ci=(-1.0, 1.0)), *others)

    low, high = extent(estimates(looks_of(structs.replace(wide, looks=looks))))

    assert low < 0 < high
    assert high - low < 0.4


@pytest.mark.parametrize("size", [0.00013, 0.07, 5.0, 300.0, 123_456.0])
def test_an_axis_counts_evenly_from_end_to_end_with_zero_among_its_values(size) -> None:
    rows = [
        {
            "at": at(turn),
            "e_value": 1.0,
            "lift": size,
            "ci": [0.9 * size, 1.1 * size],
            "gated": False,
        }
        for turn in range(9)
    ]

    labels = Drawing(document(rows=rows, kind="mean"), answer()).root.iter("text")

    ticks = [text.text for text in labels if text.get("text-anchor") == "end"]
    values = [float(tick or "") for tick in ticks if re.fullmatch(r"[+-]?[\d.e+-]+", tick or "")]
    distances = {round(after / (values[1] - values[0]), 6) for after in values}
    assert 0.0 in values
    assert distances == {float(number) for number in range(len(values))}
    assert len(values) >= 3


@pytest.mark.parametrize("looks", [1, 2, 3, 28 * 288])
def test_any_number_of_looks_is_drawn_in_little_room(looks) -> None:
    evidence = document(looks=looks, candidate={**CANDIDATE, "at": at(looks // 3)})
    drawing = Drawing(evidence, answer())

    assert {"band", "fired"} <= drawing.shapes
    assert len(drawing.titles) == min(looks, MOST_POINTS)
    assert sum("the test fired" in title.split("; ") for title in drawing.titles) == 1
    assert len(drawing.svg) < 60_000


def test_looks_before_units_of_both_arms_met_are_drawn_without_an_interval() -> None:
    rows = [
        {"at": at(turn), "e_value": 1.0, "lift": None, "ci": None, "gated": True}
        for turn in range(4)
    ]

    drawing = Drawing(document(rows=rows), answer(reason="non_identifiable"))

    assert "band" not in drawing.shapes
    assert "no block holds units of both arms" in drawing.text
    assert "held: " in drawing.text


def test_before_the_first_look_there_is_no_picture() -> None:
    assert picture_of(example_evidence(looks=[]), answer()) is None
    picture = picture_of(document(looks=1), answer())
    assert picture is not None
    assert thumbnail(picture) is None


def test_relative_steps_do_not_add_up_their_rounding() -> None:
    places = [(0.04 * number, 0.0) for number in range(1000)]

    numbers = steps(places).removeprefix("M").replace("l", " ").split()

    assert abs(sum(float(step) for step in numbers[::2]) - places[-1][0]) <= 0.06


# --- In Dagster ----------------------------------------------------------------------------------


def published(document: Any, served: Any = None, *, number: int = 1) -> PublishedEvidence:
    return PublishedEvidence(
        experiment_id=f"exp_{number}", document=document, contract=served or answer()
    )


def test_an_experiment_fits_where_dagster_shows_it_without_a_click(monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_PUBLIC_URL", "https://reward.example.com/")
    (entry,) = dict(report([published(document(looks=500, sentence="word " * 300))])).values()

    assert len(str(entry.value)) < 1_000
    assert "[exp_1](https://reward.example.com/dashboard/experiments/exp_1)" in str(entry.value)
    assert "(data:image/svg+xml;base64," in str(entry.value)


def test_without_a_public_address_there_is_no_link(monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_PUBLIC_URL", "javascript:alert(1)")

    aliased = document(gates={"vif": "inf", "aliased_with": ["beta = on"]})
    entry, other = dict(report([published(document()), published(aliased, number=2)])).values()
    assert "VIF ∞, aliased with beta = on." in str(other.value)
    assert "yet on click. VIF 1.00. exp_1\n\n![exp_1](data:" in str(entry.value)


def test_an_experiment_is_named_by_its_change_and_by_its_id_where_a_change_has_several() -> None:
    commit, flag = (structs.replace(document(), change=(each,)) for each in ("c" * 40, "beta=on"))
    entries = dict(report([published(commit), published(flag), published(flag, number=2)]))
    assert list(entries) == ["c" * 40, "beta=on exp_1", "beta=on exp_2"]
