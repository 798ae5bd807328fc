"""`explain`: the sentence, the tables and the plot, of evidence that the walk made."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs
from sqlalchemy import text as sql

from cli.changes.explain import needed
from cli.changes.interval_plot import MOST_ROWS, WIDTH, interval_plot
from domain.evidence.document import Evidence, evidence_of
from domain.evidence.effect import Effect
from domain.wording.effect import effect_line
from orchestration.once import materialize_pipeline
from storage.tenants.projects import CreatedProject
from tests.conftest import Store, filled_model, fresh_store, serving_store
from tests.stores.example import example_evidence
from tests.world import World

START = datetime(2026, 11, 21, 9, tzinfo=UTC)


def look(minutes: float, low: float, high: float, **members: Any) -> dict[str, Any]:
    at = (START + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    result = {"at": at, "e_value": 1.0, "lift": (low + high) / 2, "ci": [low, high], "gated": False}
    return {**result, **members}


def drawn(*looks: dict[str, Any], kind: str = "conversion") -> str:
    evidence = example_evidence(looks=looks, policy={"target": {"kind": kind}})
    return str(interval_plot(evidence) or "")


def rows(plot: str) -> dict[str, str]:
    """The drawn rows by what their axis says, without the axis."""
    lines = [line for line in plot.splitlines() if "┤" in line]
    return {line.split("┤")[0].strip(): line.split("┤")[1] for line in lines}


NARROWING = [look(60 * hour, 0.02 - 0.3 / hour, 0.02 + 0.3 / hour) for hour in range(1, 25)]


class TestThePlot:
    def test_is_not_drawn_of_a_single_look(self) -> None:
        assert drawn(look(0, -0.1, 0.1)) == ""
        assert drawn(look(0, -0.1, 0.1), look(5, -0.1, 0.1, ci=None, lift=None)) == ""

    def test_ends_where_the_last_interval_ends(self) -> None:
        looks = [look(minutes, -0.02, 0.04, lift=0.02) for minutes in range(0, 60, 5)]
        places = rows(drawn(*looks))
        assert places["+4"] == "░" * WIDTH
        assert places["-2"] == "░" * WIDTH
        assert places["+2"] == "━" * WIDTH
        assert places["0"] == "─" * WIDTH
        assert next(iter(places)) == "+4"
        assert list(places)[-1] == "-2"

    def test_fits_whatever_the_scale(self) -> None:
        for size in (1e-6, 0.0013, 0.07, 0.5, 1.0):
            lines = drawn(look(0, -size, size), look(5, -size, 0.9 * size)).splitlines()
            assert len([line for line in lines if line[10:11] in ("┤", "│")]) <= MOST_ROWS
            assert max(map(len, lines)) <= 80

    def test_marks_the_first_ungated_look_that_fired(self) -> None:
        looks = [*NARROWING]
        looks[10] = {**looks[10], "e_value": 400.0, "gated": True}
        looks[14] = {**looks[14], "e_value": 20.0}
        looks[20] = {**looks[20], "e_value": 90.0}
        plot = drawn(*looks)
        assert plot.count("◆") == 2, "once in the plot and once in its legend"
        assert "◆ fired 2026-11-22 00:00 UTC" in plot
        assert "a gate held" in plot

    def test_of_looks_that_did_not_fire_marks_none(self) -> None:
        plot = drawn(*NARROWING)
        assert "◆" not in plot
        assert "a gate held" not in plot

    def test_shows_a_firing_that_shares_its_column_with_later_looks(self) -> None:
        looks = [look(minutes, 0.01, 0.03) for minutes in range(0, 5000, 5)]
        looks[500] = {**looks[500], "e_value": 30.0}
        assert drawn(*looks).count("◆") == 2

    def test_of_a_mean_is_in_its_own_units(self) -> None:
        looks = [look(minutes, -20.0, 40.0) for minutes in (0, 5, 10)]
        assert "points" not in drawn(*looks, kind="mean")
        assert "+40" in rows(drawn(*looks, kind="mean"))


def explained_shop(store: Store) -> tuple[CreatedProject, str]:
    """A shop with evidence of a canary that triples the orders; returns it and the experiment."""
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=60)
    with serving_store(store) as client:
        world = World.new(store, client, begin=begin)
        world.deploy("aaaaaaa", minutes=-60)
        world.deploy("bbbbbbb", 0.5, minutes=0)
        for sha, rate in (("aaaaaaa", 0.2), ("bbbbbbb", 0.6)):
            world.crowd(sha, start=31, minutes=180, units=450, rates={"order": rate})
        world.send()
        experiment_id = world.register(target_metric="order")
    assert materialize_pipeline(store.url)
    return world.project, experiment_id


# Posted and computed once: each test has a copy of the store.
@pytest.fixture(scope="module")
def _model(postgres_url, migrated_template) -> Iterator[Any]:
    with filled_model(postgres_url, migrated_template, explained_shop) as model:
        yield model


@pytest.fixture
def service(postgres_url, _model) -> Iterator[World]:
    name, (project, _) = _model
    with fresh_store(postgres_url, name) as store, serving_store(store) as client:
        yield World(store=store, client=client, project=project)


@pytest.fixture
def explained(_model) -> str:
    return _model[1][1]


def test_evidence_is_told_whole(served, command, explained) -> None:
    result = command("explain", explained)
    document = served.get(f"/v1/reward/{explained}/evidence").json()
    assert result.exit_code == 0, result.output
    flat = " ".join(result.stdout.split())
    assert flat.startswith(document["sentence"])
    assert f"As of {document['as_of']}" in result.stdout
    for arm in document["arms"].values():
        assert f"{arm['units']:,}" in result.stdout
    assert "◆ fired" in result.stdout
    for guardrail in document["guardrails"]:
        assert guardrail["metric"] in result.stdout
    evidence = evidence_of(served.get(f"/v1/reward/{explained}/evidence").content)
    assert isinstance(evidence, Evidence)
    effect = msgspec.convert(served.get(f"/v1/reward/{explained}/effect").json(), Effect)
    assert f"{effect_line(structs.replace(evidence, effect=effect))}" in flat
    # It is on history.
    assert "Do not train on the estimate" in flat
    assert document["digest"][:16] in result.stdout
    # It is decided: nothing more will be known of it.
    assert "not known yet" not in flat
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_document_is_printed_to_the_byte(served, command, explained) -> None:
    text = served.get(f"/v1/reward/{explained}/evidence").text
    assert command("explain", explained, "--json").stdout == text + "\n"


def test_before_any_look_it_says_so(served, command) -> None:
    for sha in ("ccccccc", "ddddddd"):
        deploy = served.deploy(sha, environment="staging")
    experiment_id = served.register(deploy_id=deploy["deploy_id"])
    starts = command("explain", experiment_id)
    assert starts.exit_code == 0
    assert "It starts with the next run of the pipeline." in starts.stdout
    served.freeze()
    result = command("explain", experiment_id)
    assert result.exit_code == 0
    assert "Nothing was measured yet" in result.stdout
    assert "The first look at activation can come at" in result.stdout
    # A program that asks for the document gets none.
    assert command("explain", experiment_id, "--json").exit_code == 1


def test_it_shows_the_effect_that_was_measured_since_the_decision(
    served, command, explained
) -> None:
    effect = served.get(f"/v1/reward/{explained}/effect").json()
    assert effect["after_decision"]["state"] != "final"
    fresh = {**effect, "estimate": 0.1234, "basis": "at_reward"}
    with served.store.engine.begin() as connection:
        changed = connection.execute(
            sql("UPDATE follow_ups SET state = 'final', effect = CAST(:effect AS json)"),
            {"effect": json.dumps(fresh)},
        )
        assert changed.rowcount == 1
    explanation = " ".join(command("explain", explained).stdout.split())
    assert "+12.34 points" in explanation
    assert "over its full time" in explanation


def test_the_units_that_are_needed_come_with_their_aim() -> None:
    sessions = {"required": 19_534.2}
    waiting = {
        "at": START.isoformat(),
        "lift": 0.05,
        "confidence": 0.99,
        "ci": [0.01, 0.09],
        "cadence": "day",
        "holds": True,
    }
    searching = example_evidence(sessions=sessions, candidate=None)
    assert needed(searching) == "about 19,534 sessions to find a 20 % change"
    almost = example_evidence(sessions=sessions, candidate={**waiting, "waits_for": ["error"]})
    assert needed(almost) == "about 19,534 sessions to be sure that error did not get worse"
    assert needed(example_evidence(sessions=sessions, candidate={**waiting, "waits_for": []})) == ""
    assert needed(example_evidence(sessions={"required": None})) == ""
