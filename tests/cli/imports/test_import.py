"""`import`: files of each kind become the same events, all of them or none."""

import gzip
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from cli.imports.tables import opened_table
from cli.main import main
from domain.absence import ZERO_UUID
from tests.repetition import also_nightly

LINES = [
    {
        "event": "page_view",
        "session_id": "s1",
        "occurred_at": "2026-10-01T00:00:00Z",
        "commit": "abcdef1",
        "user_ref": "mary",
    },
    {"event": "order", "session_id": "s1", "occurred_at": "2026-10-01T02:00:00+02:00", "value": 3},
]

EVENT_MAP = """
layout = "event"
unit = "who"
[times]
column = "at"
zone = "Europe/Berlin"
[columns]
event = "what"
[constants]
environment = "staging"
"""


@pytest.fixture
def run(tenant, monkeypatch) -> Callable[..., Result]:
    """Imports into a project of the test's own."""
    monkeypatch.setenv("SERVICE_DATABASE_URL", tenant.store.url)
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")

    def command(*words: Any) -> Result:
        project = ["--project", tenant.project.name]
        return CliRunner().invoke(main, ["import", *map(str, words), *project])

    return command


@pytest.fixture
def stored(tenant) -> Callable[[], list[Any]]:
    rows = text(
        "SELECT * FROM runtime_events WHERE project_id = :id ORDER BY occurred_at, event DESC"
    )
    return lambda: list(
        tenant.in_store(lambda connection: connection.execute(rows, {"id": tenant.project_id}))
    )


def test_lines_of_runtime_events_need_no_map(run, stored, tmp_path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text("\n".join(map(json.dumps, LINES)) + "\n\n")
    result = run(file)
    assert result.exit_code == 0, result.output
    view, order = stored()
    assert view.occurred_at == view.received_at == order.occurred_at == order.received_at
    assert (view.commit_sha, order.value) == ("abcdef1", 3_000_000)
    assert b"mary" not in view.pseudonym


@pytest.mark.parametrize(
    ("broken", "word"),
    [
        ({**LINES[0], "session_id": ""}, "session_id"),
        ({**LINES[0], "occurred_at": "yesterday"}, "occurred_at"),
        ({"event": "page_view", "session_id": "s"}, "occurred_at"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_stored(run, stored, tmp_path, broken, word) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text("\n".join(json.dumps(line) for line in [*LINES, broken]))
    result = run(file)
    assert result.exit_code == 1
    assert "line 3" in result.output
    assert word in result.output
    assert stored() == []


@pytest.mark.parametrize("cell", ["inf", "1e200", "-1e10", "12 dollars"])
def test_a_value_that_the_store_cannot_add_up_is_refused_in_one_line(
    run, stored, tmp_path, cell
) -> None:
    file, layout = tmp_path / "rows.csv", tmp_path / "map.toml"
    layout.write_text(EVENT_MAP.replace("[columns]", "[columns]\nvalue = 'worth'"))
    at = "2026-07-01 12:00:00"
    file.write_text(f"who,what,at,worth\nu1,paid,{at},2.5\nu1,paid,{at},{cell}\n")
    result = run(file, "--map", layout)
    assert result.exit_code == 1
    (line,) = (line for line in result.output.splitlines() if line.startswith("Error"))
    assert cell in line
    assert "row 2 (line 3), column 'worth'" in line
    assert stored() == []


def test_history_after_the_start_of_a_bound_experiment_is_refused(run, stored, tmp_path) -> None:
    layout = mapped(tmp_path, UNIT_MAP + EXPERIMENT)
    file = saved(tmp_path, outcomes([0, 1]), "csv")
    assert run(file, "--map", layout).exit_code == 0
    before = stored()
    again = run(file, "--map", layout)
    assert again.exit_code == 1
    assert "already registered" in again.output
    without = run(file, "--map", mapped(tmp_path, UNIT_MAP))
    assert without.exit_code == 1
    assert "send history before registering" in without.output
    assert stored() == before


UNIT_MAP = """
layout = "unit"
unit = "who"
arm = "arm"
[times]
column = "at"
[commits]
old = "aaaaaaa"
new = "bbbbbbb"
[metrics]
hit = "order"
"""
EXPERIMENT = """
[experiment]
control_commit = "aaaaaaa"
treatment_commit = "bbbbbbb"
target_metric = "order"
"""
AT = "2026-10-01T00:00:00Z"


def outcomes(hits: Any) -> pd.DataFrame:
    """A row a unit, in turn of an arm and of the other, a minute apart."""
    count = len(hits)
    at = pd.Timestamp(AT) + pd.to_timedelta(range(count), unit="min")
    arms = ["old", "new"] * count
    return pd.DataFrame(
        {"who": [f"u{i}" for i in range(count)], "at": at, "arm": arms[:count], "hit": hits}
    )


def saved(folder: Path, frame: pd.DataFrame, form: str) -> Path:
    file = folder / f"rows.{form}"
    if form == "csv":
        frame.to_csv(file, index=False)
    elif form == "parquet":
        frame.to_parquet(file)
    else:
        frame.to_json(file, orient="records", lines=True, date_format="iso")
    return file


def mapped(folder: Path, text_of_map: str) -> Path:
    layout = folder / "map.toml"
    layout.write_text(text_of_map)
    return layout


@pytest.fixture
def judged_evidence(tenant) -> Callable[[], dict[str, Any]]:
    """The evidence of the experiment that was imported, some weeks later."""

    def judged() -> dict[str, Any]:
        words = ["--as-of", "2026-11-24T00:00:00Z", "--project", tenant.project.name]
        answer = CliRunner().invoke(main, ["evaluate", *words, "--evidence", "--json"])
        return json.loads(answer.stdout)[0]["evidence"]

    return judged


def error_of(result: Result) -> str:
    """The last line of an import."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0].removeprefix("Error: ")


COLUMNS_OF_OUTCOMES = {
    "NULL and numbers, as a LEFT JOIN exports them": [None, 17.0, 0.0, 4.5],
    "a nullable boolean": pd.array([None, True, False, True], dtype="boolean"),
    "true and false": [False, True, False, True],
    "words": ["False", "True", "no", "YES"],
    "empty and NA": ["", "1", "NA", "1.0"],
    "whole numbers": [0, 1, 0, -3],
    "nothing and yes": [None, "t", None, "y"],
}


@pytest.mark.parametrize("form", also_nightly(["csv"], ["parquet", "ndjson"]))
@pytest.mark.parametrize("hits", COLUMNS_OF_OUTCOMES.values(), ids=COLUMNS_OF_OUTCOMES)
def test_an_empty_outcome_is_a_no_in_every_format(run, stored, tmp_path, form, hits) -> None:
    result = run(
        saved(tmp_path, outcomes(hits), form), "--map", mapped(tmp_path, UNIT_MAP), "--json"
    )
    assert result.exit_code == 0, result.output
    counts = json.loads(result.stdout)["events_by_name"]
    assert (counts["order"], counts["page_view"]) == (2, 4)
    assert sorted(row.session_id for row in stored() if row.event == "order") == ["u1", "u3"]


@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson"])
def test_rows_of_events_are_read_in_every_format_and_an_empty_member_is_absent(
    run, stored, tmp_path, form
) -> None:
    frame = pd.DataFrame(
        {
            "who": ["u1", "u2"],
            "what": ["page_view", "order"],
            "at": pd.to_datetime(["2026-07-01 12:00:00", "2026-07-01 12:00:00"]),
            "build": ["abcdef1", None],
            "worth": [None, 2.5],
            "page": [None, "/cart"],
            "customer": [None, "mary"],
            "key": [None, "e1"],
        }
    )
    text_of_map = EVENT_MAP.replace(
        "[columns]",
        "[columns]\ncommit = 'build'\nvalue = 'worth'\nroute = 'page'\nuser_ref = 'customer'\n"
        "event_id = 'key'",
    )
    result = run(saved(tmp_path, frame, form), "--map", mapped(tmp_path, text_of_map))
    assert result.exit_code == 0, result.output
    view, order = sorted(stored(), key=lambda row: row.session_id)
    absent = (view.value, view.route, view.pseudonym)
    assert (view.commit_sha, *absent) == ("abcdef1", None, None, None)
    assert (order.commit_sha, order.value, order.route) == (None, 2_500_000, "/cart")
    assert order.pseudonym is not None
    assert (view.event_id, order.event_id) == (None, "e1")
    assert [(row.session_id, row.event) for row in (view, order)] == [
        ("u1", "page_view"),
        ("u2", "order"),
    ]
    # Naive times are of the map's zone: summer in Berlin is two hours ahead.
    assert {row.occurred_at.isoformat() for row in (view, order)} == {"2026-07-01T10:00:00+00:00"}
    assert {row.environment for row in (view, order)} == {"staging"}


FIRST = "who,at,arm,hit\nu0,2026-10-01T00:00:00Z,old,0\n"
BERLIN = UNIT_MAP.replace('column = "at"', 'column = "at"\nzone = "Europe/Berlin"')
MISTAKES = {
    "outcome column": ("u1,A,new,1", ("hit =", "hitt ="), "'hitt'", "did you mean 'hit'?"),
    "time column": ("u1,A,new,1", ('"at"', '"when"'), "times.column", "who, at, arm, hit"),
    "arm column": ("u1,A,new,1", ('arm = "arm"', 'arm = "group"'), "'group'", "it has"),
    "unit column": ("u1,A,new,1", ('"who"', '"user"'), "'user'", "it has"),
    "thousands": ('u1,A,new,"278,100.00"', None, "cell '278,100.00'", "separators of thousands"),
    "another word for yes": ("u1,A,new,ja", None, "cell 'ja'", "named by yes in [metrics]"),
    "yes of no row": ("u1,A,new,1", ('"order"', '{event = "a", yes = ["2"]}'), "'2'", "has 0, 1"),
    "infinity": ("", ("[times]", "where = [{hit = [1, inf]}]\n[times]"), "where.0.hit.1 is inf"),
    "not a number": ("", ("[times]", "constants.route = nan\n[times]"), "constants.route is nan"),
    "decimal comma": ('u1,A,new,"1,5"', None, "column 'hit', cell '1,5'", 'decimal = ","'),
    "no outcome": ("u1,A,new,maybe", None, "row 2 (line 3), column 'hit', cell 'maybe'", "yes"),
    "empty time": ("u1,,new,1", None, "column 'at', cell ''", "names no time"),
    "other form of time": ("u1,10/25/2026 01:00,new,1", None, "10/25/2026 01:00", "format"),
    "seconds and milliseconds": (
        "u1,1790000000,new,1\nu2,1790000000000,new,1",
        None,
        "row 3 (line 4), column 'at', cell '1790000000000'",
        "milliseconds",
    ),
    "empty unit": (",A,new,1", None, "column 'who', cell ''", "names no unit"),
    "future": ("u1,2097-01-01T00:00:00Z,new,1", None, "2097-01-01", "in the future"),
    "long unit": (f"{'x' * 300},A,new,1", None, "session_id", "1 to 128 characters"),
    "commit": ("u1,A,new,1", ("aaaaaaa", "m000000a"), "commits.old", "hexadecimal"),
    "arm of no row": ("u1,A,new,1", ("new =", "newer ="), "'newer'", "'new'"),
    "cells missing": ("u1,A", None, "line 3", "has 2 cells"),
    "zone": ("u1,A,new,1", ('"at"', '"at"\nzone = "Berlin"'), "times", "Europe/Berlin"),
    "two ways of times": ("", ('column = "at"', 'column = "at"\nspread_days = 3'), "spread_days"),
    "no arm": ("", ('arm = "arm"', ""), "needs arm", "[commits]"),
    "no member of an event": ("", ("[metrics]", '[columns]\ncolour = "c"\n[metrics]'), "'colour'"),
    "no TOML": ("", ('layout = "unit"', "layout ="), "map.toml: is not TOML"),
    "no member": ("u1,A,new,1", ("[times]", "colour = 3\n[times]"), "'colour'", "known are"),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_ends_in_one_line_that_names_it(run, stored, tmp_path, mistake) -> None:
    rows, change, *words = mistake
    file = tmp_path / "rows.csv"
    file.write_text(FIRST + rows.replace(",A,", f",{AT},").replace(",A", f",{AT}") + "\n")
    text_of_map = UNIT_MAP if change is None else UNIT_MAP.replace(*change)
    line = error_of(run(file, "--map", mapped(tmp_path, text_of_map)))
    for word in words:
        assert word in line
    assert len(line) < 400
    assert stored() == []


TYPING_ERRORS = {
    "treatment_commit": ("treatment_commit = 'bbbbbbc'", "'bbbbbbb'"),
    "control_commit": ("control_commit = 'aaaaaac'", "'aaaaaaa'"),
    "target_metric": ("target_metric = 'ordr'", "'order'"),
    "guardrails": ("guardrails = ['eror']", "page_view"),
}


@pytest.mark.parametrize("layout", also_nightly(["unit"], ["event"]))
@pytest.mark.parametrize("member", TYPING_ERRORS)
def test_what_an_experiment_names_must_stand_in_the_file(
    *, run, stored, tmp_path, member, layout
) -> None:
    wrong, known = TYPING_ERRORS[member]
    kept = [line for line in EXPERIMENT.splitlines() if not line.startswith(member)]
    experiment = "\n".join([*kept, wrong])
    if layout == "unit":
        rows, text_of_map = outcomes([0, 1]), UNIT_MAP
    else:
        rows = pd.DataFrame(
            {
                "who": ["u1", "u1", "u2"],
                "what": ["page_view", "order", "page_view"],
                "at": [AT] * 3,
                "build": ["aaaaaaa", "aaaaaaa", "bbbbbbb"],
            }
        )
        text_of_map = EVENT_MAP.replace("[columns]", "[columns]\ncommit = 'build'")
    file = saved(tmp_path, rows, "csv")
    line = error_of(run(file, "--map", mapped(tmp_path, text_of_map + experiment)))
    assert f"experiment.{member}" in line
    assert known in line
    assert stored() == []


def test_a_commit_of_the_map_means_whatever_of_its_id_the_file_writes_unless_that_is_two(
    run, stored, tmp_path
) -> None:
    build = ["aaaaaaa", "aaaaaaa1", "bbbbbbb1"]
    rows = pd.DataFrame(
        {
            "who": ["u1", "u1", "u2"],
            "what": ["page_view", "order", "page_view"],
            "at": [AT] * 3,
            "build": build,
        }
    )
    text_of_map = EVENT_MAP.replace("[columns]", "[columns]\ncommit = 'build'") + EXPERIMENT
    rows["build"] = ["aaaaaaa2", *build[1:]]
    line = error_of(run(saved(tmp_path, rows, "csv"), "--map", mapped(tmp_path, text_of_map)))
    assert "control_commit: in the file, aaaaaaa begins 2 commits: aaaaaaa1, aaaaaaa2" in line
    assert stored() == []
    rows["build"] = build
    done = run(saved(tmp_path, rows, "csv"), "--map", mapped(tmp_path, text_of_map))
    assert done.exit_code == 0, done.output
    assert re.search(r"control +aaaaaaa +1 of 1 units", done.output)
    assert re.search(r"treatment +bbbbbbb +1 of 1 units", done.output)


def test_a_table_without_a_map_is_told_what_a_map_says(run, tmp_path) -> None:
    for form in ("csv", "parquet"):
        result = run(saved(tmp_path, outcomes([0, 1]), form))
        assert result.exit_code == 1
        assert "--map" in result.stderr
        assert "who, at, arm, hit" in result.stderr
        assert 'layout = "event"' in result.stderr


TIMES = {
    "offsets that change": (
        "",
        ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"],
        ["00:30", "01:30"],
    ),
    "epoch seconds": ('unit = "s"', [1792888200, 1792891800], ["00:30", "01:30"]),
    "epoch milliseconds, detected": ("", [1792888200000, 1792891800000], ["00:30", "01:30"]),
    "a format": (
        'format = "%m/%d/%Y %H:%M"',
        ["10/25/2026 00:30", "10/25/2026 01:30"],
        ["00:30", "01:30"],
    ),
    "the earlier of two": (
        'zone = "Europe/Berlin"\nambiguous = "earlier"',
        ["2026-10-25 02:30:00", "2026-10-25 03:30:00"],
        ["00:30", "02:30"],
    ),
    "the later of two": (
        'zone = "Europe/Berlin"\nambiguous = "later"',
        ["2026-10-25 02:30:00", "2026-10-25 03:30:00"],
        ["01:30", "02:30"],
    ),
    "an hour that is never": (
        'zone = "Europe/Berlin"\nnonexistent = "shift_forward"',
        ["2026-03-29 02:30:00", "2026-03-29 03:40:00"],
        ["01:30", "01:40"],
    ),
    "as BigQuery writes": (
        "",
        ["2026-10-25 00:30:00 UTC", "2026-10-25 01:30:00+00"],
        ["00:30", "01:30"],
    ),
    "as Snowflake writes": (
        "",
        ["2026-10-24 17:30:00.000 -0700", "2026-10-25 01:30:00.000 +0000"],
        ["00:30", "01:30"],
    ),
}


@pytest.mark.parametrize("case", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_times_are_read_in_every_form_that_is_unambiguous(
    *, run, stored, tmp_path, case, form
) -> None:
    members, cells, expected = case
    frame = outcomes([0, 0]).assign(at=cells)
    text_of_map = UNIT_MAP.replace('column = "at"', f'column = "at"\n{members}')
    result = run(saved(tmp_path, frame, form), "--map", mapped(tmp_path, text_of_map))
    assert result.exit_code == 0, result.output
    assert sorted(f"{row.occurred_at:%H:%M}" for row in stored()) == expected
    assert ("were read as milliseconds" in result.stdout) == (cells[0] == 1792888200000)


@pytest.mark.parametrize(
    ("time", "word"), [("2026-10-25 02:30:00", "ambiguous"), ("2026-03-29 02:30:00", "nonexistent")]
)
def test_an_hour_that_is_twice_or_never_is_refused_by_its_row(
    run, stored, tmp_path, time, word
) -> None:
    file = saved(tmp_path, outcomes([0, 0]).assign(at=["2026-01-01 00:00:00", time]), "csv")
    line = error_of(run(file, "--map", mapped(tmp_path, BERLIN)))
    assert line.startswith("row 2 (line 3), column 'at'")
    assert word in line
    assert stored() == []


def test_a_users_name_is_never_shown(run, tmp_path) -> None:
    frame = outcomes([0, 0]).assign(customer=["ann", "mary" * 100])
    text_of_map = UNIT_MAP.replace("[metrics]", "[columns]\nuser_ref = 'customer'\n[metrics]")
    line = error_of(run(saved(tmp_path, frame, "csv"), "--map", mapped(tmp_path, text_of_map)))
    assert "user_ref" in line
    assert "row 2" in line
    assert "mary" not in line


TWO = 'red = "bbbbbbb"\nblue = "ccccccc"'
LISTED = EXPERIMENT.replace("[experiment]", "[[experiment]]")
THREE_ARMS = UNIT_MAP.replace("old", "none").replace('new = "bbbbbbb"', TWO) + LISTED
THREE_ARMS += LISTED.replace("bbbbbbb", "ccccccc")


def test_a_file_of_three_arms_becomes_two_experiments_with_one_control(
    run, stored, tmp_path
) -> None:
    arms = ["none", "red", "blue", "none", "red", "blue", "green"]
    frame = outcomes([0, 1, 1, 0, 1, 0, 1]).assign(arm=arms)
    words = (saved(tmp_path, frame, "csv"), "--map", mapped(tmp_path, THREE_ARMS), "--json")
    rehearsed = run(*words, "--dry-run")
    assert stored() == []
    result = run(*words)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["skipped_rows"] == {"arm 'green'": 1}
    red, blue = report["experiments"]
    assert red["experiment_id"] != blue["experiment_id"]
    assert red["arms"]["control"] == blue["arms"]["control"]
    assert red["arms"]["control"]["units"] == 2
    assert (red["arms"]["treatment"]["converting"], blue["arms"]["treatment"]["converting"]) == (
        2,
        1,
    )
    assert [each["units"]["compared_with_none"] for each in (red, blue)] == [2, 2]
    # A rehearsal counts the same, and has no experiment to name.
    for experiment in report["experiments"]:
        experiment["experiment_id"] = None
    assert json.loads(rehearsed.stdout) == {**report, "dry_run": True}


def test_an_import_into_a_sampled_project_stores_all_and_says_what_is_counted(
    run, tenant, stored, tmp_path
) -> None:
    tenant.settings(sample_rate=0.25)
    result = run(
        saved(tmp_path, outcomes([0, 1, 0, 1]), "csv"), "--map", mapped(tmp_path, UNIT_MAP)
    )
    assert result.exit_code == 0, result.output
    assert "sample_rate is 0.25" in result.output
    assert len({event.session_id for event in stored()}) == 4


LATER = UNIT_MAP.replace('hit = "order"', 'ordered = { event = "order", at = "ordered" }')


@pytest.mark.nightly
def test_conversions_hours_later_are_counted_by_the_window_of_the_map(
    run, stored, tmp_path
) -> None:
    later = pd.Timestamp(AT) + pd.Timedelta(hours=20)
    frame = outcomes([0] * 4).assign(ordered=[pd.NaT, later, pd.NaT, later])
    file = saved(tmp_path, frame, "parquet")
    narrow = run(file, "--map", mapped(tmp_path, LATER + EXPERIMENT), "--dry-run")
    assert "2 of 2 `order` events fall outside the window of 30 minutes" in narrow.stdout
    assert 'window = "1d"' in narrow.stdout
    layout = mapped(tmp_path, LATER + EXPERIMENT + 'window = "1d"\n')
    result = run(file, "--map", layout, "--json")
    assert result.exit_code == 0, result.output
    (experiment,) = json.loads(result.stdout)["experiments"]
    assert experiment["arms"]["treatment"]["converting"] == 2
    assert experiment["outcomes"] == 2
    assert not any("window" in warning for warning in experiment["warnings"])
    orders = [row.occurred_at for row in stored() if row.event == "order"]
    assert orders == [later.to_pydatetime()] * 2


def test_settings_that_contradict_a_map_are_named_beside_it(run, tenant, stored, tmp_path) -> None:
    tenant.settings(metrics={"order": {"window_seconds": 3600}})
    layout = mapped(tmp_path, UNIT_MAP + EXPERIMENT + 'window = "3d"\n')
    line = error_of(run(saved(tmp_path, outcomes([0, 1]), "csv"), "--map", layout))
    assert "experiment.window is '3d'" in line
    assert "metrics.order.window_seconds = 3600" in line
    assert stored() == []


def test_an_amount_of_each_unit_becomes_a_mean_in_minor_units(run, stored, tmp_path) -> None:
    text_of_map = UNIT_MAP.replace(
        'hit = "order"', 'hit = { event = "order", value = true, currency = "USD" }'
    )
    text_of_map += EXPERIMENT.replace("'order'", "'revenue'").replace('"order"', '"revenue"')
    text_of_map += "sources = ['order']\nkind = 'mean'\n"
    file = saved(tmp_path, outcomes([None, 12.34, 0.0, 7.66]), "csv")
    result = run(file, "--map", mapped(tmp_path, text_of_map))
    assert result.exit_code == 0, result.output
    assert [row.value for row in stored() if row.value] == [1_234_000_000, 766_000_000]
    assert "10 USD a unit" in result.stdout


@pytest.mark.nightly
def test_units_after_the_horizon_are_counted_by_arm_and_the_map_may_move_it(
    run, judged_evidence, tmp_path
) -> None:
    at = pd.Timestamp(AT) - pd.Timedelta(days=200) + pd.to_timedelta(range(116), unit="D")
    file = saved(tmp_path, outcomes([0, 1] * 58).assign(at=at), "csv")
    cut = run(file, "--map", mapped(tmp_path, UNIT_MAP + EXPERIMENT), "--dry-run")
    assert "counted 28 of 116 units in the file: 44 of control and 44 of treatment" in cut.stdout
    assert "set horizon_days in [experiment]" in cut.stdout
    layout = mapped(tmp_path, UNIT_MAP + EXPERIMENT + "horizon_days = 366\n")
    report = run(file, "--map", layout)
    assert len(re.findall(" 58 units", report.stdout)) == 2, report.output
    arms = judged_evidence()["arms"]
    assert [arms[arm]["units"] for arm in ("control", "treatment")] == [58, 58]


def test_a_guardrail_that_no_row_has_holds_no_keep_back_and_the_crossing_is_said(
    run, stored, judged_evidence, tmp_path
) -> None:
    # The arms are alike at first; then treatment sells more: it crosses at 70 % of the rows.
    hits = [
        int(i % 10 in (0, 1, 2, 3)) if i < 1250 else int(i % 2 or i % 10 == 0) for i in range(2000)
    ]
    file, layout = saved(tmp_path, outcomes(hits), "csv"), mapped(tmp_path, UNIT_MAP + EXPERIMENT)
    rehearsed = run(file, "--map", layout, "--dry-run").stdout
    assert stored() == []
    assert "no row has an event of guardrail 'error', so this experiment goes" in rehearsed
    report = run(file, "--map", layout).stdout
    unregistered = re.sub(", registered as exp_[0-9a-f]+", "", report)
    assert unregistered.splitlines()[2:-1] == rehearsed.splitlines()[2:-1]
    evidence = judged_evidence()
    crossing = evidence["sessions"]["accumulated"]
    assert 1200 < crossing < 1500
    said = f"judged, at {evidence['as_of']} with {crossing:,} units: Keep: order rose by"
    assert said in report
    assert evidence["sentence"] in report
    assert evidence["policy"]["guardrails"] == []


@pytest.mark.nightly
def test_an_import_counts_what_the_verdict_will_count_and_says_why_the_rest_does_not(
    run, judged_evidence, tmp_path
) -> None:
    lines = outcomes([0, 1, 0, 1]).assign(worth=["", 5, "", ""])
    early = lines[:1].assign(at=pd.Timestamp(AT) - pd.Timedelta(minutes=10))
    old_only = mapped(tmp_path, UNIT_MAP.replace('new = "bbbbbbb"', ""))
    assert run(saved(tmp_path, early, "csv"), "--map", old_only).exit_code == 0
    rows = [
        {"who": row.who, "at": row.at, "arm": row.arm, "what": what, "worth": worth}
        for row in lines.itertuples()
        for what, worth in [("page_view", ""), *([("order", row.worth)] if row.hit else [])]
    ]
    text_of_map = EVENT_MAP.replace('"who"', '"who"\narm = "arm"').replace("staging", "production")
    text_of_map = text_of_map.replace("[columns]", "[columns]\nvalue = 'worth'")
    words = "[commits]\nold = 'aaaaaaa'\nnew = 'bbbbbbb'\n" + EXPERIMENT + "kind = 'mean'\n"
    file = saved(tmp_path, pd.DataFrame(rows), "csv")
    report = run(file, "--map", mapped(tmp_path, text_of_map + words))
    assert report.exit_code == 0, report.output
    # Ten minutes before, the log has seen a unit of control; and an order has no value.
    assert re.search(r"control +aaaaaaa +1 of 2 units +0 with order", report.stdout)
    assert re.search(r"treatment +bbbbbbb +2 of 2 units +2 with order", report.stdout)
    assert "do not count: 1 seen before the start" in report.stdout
    assert (
        "Left out: 1 event of treatment and no events of control, without a value." in report.stdout
    )
    evidence = judged_evidence()
    assert [evidence["arms"][arm]["units"] for arm in ("control", "treatment")] == [1, 2]
    assert evidence["counts"]["in_flight"] == 1


def test_totals_of_days_are_refused_unless_the_map_says_that_they_are_units(
    run, stored, tmp_path
) -> None:
    rows = [
        f"Old;{day}.08.2026;{300 + 20 * day}\nNew;{day}.08.2026;{310 + 19 * day}"
        for day in range(1, 31)
    ]
    file = tmp_path / "campaign.csv"
    text_of_rows = "\n".join(["Campaign Name;Date;# of Purchase", *rows]) + "\n"
    file.write_text(text_of_rows.replace("Old;7.08.2026;440", "Old;7.08.2026;"))
    text_of_map = (
        UNIT_MAP.replace('unit = "who"', "")
        .replace('arm = "arm"', 'arm = "Campaign Name"')
        .replace('column = "at"', 'column = "Date"\nformat = "%d.%m.%Y"')
        .replace("old =", "Old =")
        .replace("new =", "New =")
        .replace("hit", '"# of Purchase"')
    )
    line = error_of(run(file, "--map", mapped(tmp_path, text_of_map)))
    assert line.startswith("these are totals, not units: 60 rows are sums by arm and day")
    assert "'# of Purchase'" in line
    assert stored() == []
    undated = text_of_map.replace(
        'column = "Date"\nformat = "%d.%m.%Y"', f'spread_days = 30\nstart = "{AT}"'
    )
    line = error_of(run(file, "--map", mapped(tmp_path, undated)))
    assert line.startswith("these are totals, not units: 60 rows name neither unit nor time")
    taken = run(file, "--map", mapped(tmp_path, "totals = true\n" + text_of_map))
    assert taken.exit_code == 0, taken.output
    assert (
        "Column '# of Purchase' has numbers up to 900: each number but 0 counts as a yes"
        in taken.stdout
    )
    assert len(stored()) == 60 + 59


ACTIONS = (
    EVENT_MAP.replace('"who"', '"id"\narm = "group"')
    .replace("what", "action")
    .replace("at", "date")
)
WORDS = '[commits]\ncontrol = "aaaaaaa"\nexperiment = "bbbbbbb"\n'
CLICKS = EXPERIMENT.replace("order", "click") + 'window = "2d"\n'


@pytest.mark.nightly
def test_a_log_of_events_may_name_its_arms_by_words(run, tmp_path) -> None:
    file = tmp_path / "actions.csv"
    file.write_text(
        "date,id,group,action\n"
        "2026-09-01,1,control ,view\n2026-09-01,2,experiment,view\n2026-09-01,3,holdout,view\n"
        "2026-09-02,2,experiment,click\n2026-09-02,1,,click\n2026-09-02,4,control,view\n"
        "2026-09-02,5,experiment,click\n"
    )
    result = run(file, "--map", mapped(tmp_path, ACTIONS + WORDS + CLICKS), "--dry-run")
    assert result.exit_code == 0, result.output
    assert re.search(r"control +aaaaaaa +2 of 2 units +1 with click \(50.00 %\)", result.stdout)
    assert re.search(r"treatment +bbbbbbb +2 of 2 units +2 with click", result.stdout)
    assert "1 rows of arms that [commits] does not name are skipped: 'holdout' 1." in result.stdout
    assert "1 of 4 units begin with their outcome, `click`, so that it exposes" in result.stdout
    exposed = mapped(tmp_path, "exposures = ['view']\n" + ACTIONS + WORDS + CLICKS)
    result = run(file, "--map", exposed)
    assert result.exit_code == 0, result.output
    assert re.search(r"treatment +bbbbbbb +1 of 1 units +1 with click", result.stdout)
    assert "begin with their outcome" not in result.stdout
    without = mapped(tmp_path, ACTIONS + CLICKS)
    assert "arm, a column of words, and [commits]" in error_of(run(file, "--map", without))


def test_a_fault_in_the_last_row_leaves_nothing_in_the_store(run, stored, tmp_path) -> None:
    rows = "".join(f"u{i},{AT},{'old' if i % 2 else 'new'},1\n" for i in range(12_000))
    file = tmp_path / "rows.csv.gz"
    file.write_bytes(gzip.compress(f"who,at,arm,hit\n{rows}u,{AT},new,perhaps\n".encode()))
    line = error_of(run(file, "--map", mapped(tmp_path, UNIT_MAP + EXPERIMENT)))
    assert line.startswith("row 12001 (line 12002)")
    assert stored() == []


def test_empty_outcomes_are_counted_by_arm(run, tmp_path) -> None:
    file = saved(tmp_path, outcomes(["", "1", "0", "1", "", ""]), "csv")
    result = run(file, "--map", mapped(tmp_path, UNIT_MAP + EXPERIMENT), "--dry-run")
    assert "Warning: Empty outcomes count as none: fill these cells of the file" in result.stdout
    said = "Empty cells in column 'hit' count as no outcome: 'new' 1 of 3 (33.3 %), 'old' 2 of 3"
    assert said in result.stdout
    assert "order (empty)" in result.stdout
    # Where no cell says no, empty cells do.
    file = saved(tmp_path, outcomes(["", "1", "", "1", "", ""]), "csv")
    result = run(file, "--map", mapped(tmp_path, UNIT_MAP), "--dry-run")
    assert "order (empty)" not in result.stdout


@pytest.mark.nightly
def test_outcomes_that_are_empty_more_often_in_an_arm_hold_the_answer_back(
    run, judged_evidence, tmp_path
) -> None:
    # Of either arm 30 % have an outcome; a third of treatment's are not known.
    hits = ["" if i % 2 and i % 20 < 4 else int(i % 20 < 6) for i in range(4000)]
    layout = mapped(tmp_path, UNIT_MAP + EXPERIMENT)
    report = run(saved(tmp_path, outcomes(hits), "csv"), "--map", layout)
    assert report.exit_code == 0, report.output
    evidence = judged_evidence()
    assert evidence["totals"]["e_value"] > 20
    assert evidence["gates"]["interacting_because"] == ["empty"]
    assert "400 outcomes of" in evidence["sentence"]
    assert evidence["advice"][0].startswith("Empty outcomes count as none")


def test_half_a_yen_is_named_by_its_row(run, stored, tmp_path) -> None:
    amounts = 'hit = { event = "order", value = true, currency = "JPY" }'
    layout = mapped(tmp_path, UNIT_MAP.replace('hit = "order"', amounts))
    line = error_of(run(saved(tmp_path, outcomes(["1", "2", "80.5"]), "csv"), "--map", layout))
    assert line.startswith("row 3 (line 4), column 'hit', cell '80.5': is no whole number")
    assert stored() == []


def test_a_filter_of_the_target_holds_in_the_counts_of_the_file_too(run, tenant, tmp_path) -> None:
    tenant.settings(metrics={"order": {"where": {"plan": ["pro", "team"]}}})
    plans = ({"plan": "pro"}, {"plan": "free"}, {}, {"plan": "team", "x": 1})
    rows = [
        {"at": AT, "what": what, "who": f"u{unit}", "sha": "ab"[unit % 2] * 7, "more": plan}
        for unit, plan in enumerate(plans)
        for what in ("page_view", "order")
    ]
    columns = "commit = 'sha'\nproperties = 'more'\nevent = 'what'"
    layout = EVENT_MAP.replace('event = "what"', columns).replace("staging", "production")
    file = saved(tmp_path, pd.DataFrame(rows), "ndjson")
    report = run(file, "--map", mapped(tmp_path, layout + EXPERIMENT), "--dry-run", "--json")
    assert report.exit_code == 0, report.output
    (judged,) = json.loads(report.stdout)["experiments"]
    assert judged["outcomes"] == sum(arm["converting"] for arm in judged["arms"].values()) == 2


IDS = 1_445_000_000_000_000_000
# What tools make of such ids where a column is to hold numbers with gaps, of each identifier.
ROUNDED = {
    "session_id": lambda ids: ids.astype("float64"),
    "event_id": lambda ids: (ids - IDS + 2**24).astype("float32"),
    "user_ref": lambda ids: ids.map("{:.5E}".format),
    "unit": lambda ids: ids.map("{:.5E}".format).str.replace(".", ","),
}


@pytest.mark.parametrize("member", ROUNDED)
@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson"])
def test_ids_that_have_lost_their_digits_end_the_import_by_their_column(
    *, run, stored, tmp_path, form, member
) -> None:
    ids = ROUNDED[member](IDS + pd.Series(range(40)))
    if form == "ndjson" and ids.dtype == "float32":
        ids = ids.astype("float64") * 1e12  # As float32, pandas writes them in full.
    frame = outcomes([0, 1] * 20).assign(what="page_view", who=ids)
    layout = EVENT_MAP
    if member != "unit":
        layout = layout.replace('unit = "who"', "").replace(
            "[columns]", f"[columns]\n{member} = 'who'"
        )
    line = error_of(run(saved(tmp_path, frame, form), "--map", mapped(tmp_path, layout)))
    assert re.match(r"row 1( \(line .\))?, column 'who', cell ", line)
    assert ("not shown" in line) == (member == "user_ref")
    assert "export the column as whole numbers or as text" in line
    assert stored() == []


@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson"])
@pytest.mark.parametrize(
    ("ids", "units"),
    [
        ([IDS, IDS + 1], {str(IDS), str(IDS + 1)}),
        ([851104.0, 851105.0], {"851104", "851105"}),
        (["851104.0", "v1.0"], {"851104.0", "v1.0"}),
        (["12345e10", "7e2"], {"12345e10", "7e2"}),
    ],
)
def test_an_id_is_what_it_was_before_its_column_became_floating_point(
    *, run, stored, tmp_path, form, ids, units
) -> None:
    file = saved(tmp_path, outcomes([0, 1]).assign(who=ids), form)
    result = run(file, "--map", mapped(tmp_path, UNIT_MAP))
    assert result.exit_code == 0, result.output
    assert {row.session_id for row in stored()} == units


def test_numbers_of_ndjson_in_e_notation_are_no_ids(run, tmp_path) -> None:
    file = tmp_path / "rows.ndjson"
    row = '{"who": 8.51104e+06, "at": "2026-10-01T00:00:00Z", "arm": "old", "hit": 1}'
    file.write_text(row)
    line = error_of(run(file, "--map", mapped(tmp_path, UNIT_MAP)))
    assert "column 'who'" in line
    file.write_text(json.dumps({**LINES[0], "session_id": "1.445E+18"}))
    assert "column 'session_id', cell '1.445E+18'" in error_of(run(file))


@pytest.mark.parametrize("form", ["parquet", "ndjson"])
def test_bytes_of_a_uuid_are_its_text_and_members_of_a_member_have_names(
    run, stored, tmp_path, form
) -> None:
    ids = [uuid.uuid4() for _ in range(2)]
    cells = [each.bytes if form == "parquet" else str(each) for each in ids]
    frame = outcomes([0, 1]).assign(who=[{"id": {"own": cell}} for cell in cells])
    layout = mapped(tmp_path, UNIT_MAP.replace('"who"', '"who.id.own"'))
    result = run(saved(tmp_path, frame, form), "--map", layout)
    assert result.exit_code == 0, result.output
    assert {row.session_id for row in stored()} == set(map(str, ids))
    file = saved(tmp_path, outcomes([0, 1]).assign(who=[b"\0" * 15 + b"1"] * 2), "parquet")
    line = error_of(run(file, "--map", mapped(tmp_path, UNIT_MAP)))
    assert "column 'who' holds bytes" in line


@pytest.mark.parametrize("member", ["session_id", "event_id", "user_ref"])
def test_words_for_nothing_are_no_ids_and_name_nobody(run, stored, tmp_path, member) -> None:
    layout = EVENT_MAP.replace('unit = "who"', 'unit = "who"' if member != "session_id" else "")
    layout = layout.replace("[columns]", f"[columns]\n{member} = 'id'")
    rows = outcomes([0, 0]).assign(what="page_view")
    for word in ("undefined", " UNDEFINED", "[object Object]", ZERO_UUID):
        file = saved(tmp_path, rows.assign(id=["0", word]), "parquet")
        result = run(file, "--map", mapped(tmp_path, layout), "--dry-run")
        if member != "user_ref":
            line = error_of(result)
            assert line.startswith("row 2, column 'id', cell ")
            assert "must be a value" in line
        else:
            assert result.exit_code == 0, result.output
            unknown = "1 of user_ref say nothing, such as `undefined`"
            assert (unknown in result.stdout) == (word != " UNDEFINED")
    file = saved(tmp_path, rows.assign(id=["0", "ok"]), "csv")
    assert run(file, "--map", mapped(tmp_path, layout)).exit_code == 0
    assert len(stored()) == 2


# u0 is in both arms; its second row is of the other, and u1 has two rows of its own.
BOTH = outcomes([1, 0, 1, 0, 0, 1]).assign(
    who=["u0", "u0", "u1", "u1", "u2", "u3"], arm=["old", "new", "old", "old", "old", "new"]
)
EVENTS_OF_ARMS = """
layout = "event"
unit = "who"
arm = "arm"
[times]
column = "at"
[commits]
old = "aaaaaaa"
new = "bbbbbbb"
[constants]
event = "page_view"
"""
BY_COMMIT = EVENTS_OF_ARMS.replace('arm = "arm"', 'columns.commit = "arm"')
BY_COMMIT = re.sub(r"(?s)\[commits\].*\[con", "[con", BY_COMMIT)


@pytest.mark.parametrize(
    "layout", also_nightly([UNIT_MAP, BY_COMMIT], [EVENTS_OF_ARMS]), ids=["unit", "commit", "event"]
)
@pytest.mark.parametrize(
    ("rule", "control", "treatment"),
    [
        ("first", {"u0", "u1", "u2"}, {"u3"}),
        ("last", {"u1", "u2"}, {"u0", "u3"}),
        ("leave_out", {"u1", "u2"}, {"u3"}),
    ],
)
def test_a_unit_of_both_arms_ends_the_import_unless_the_map_says_which_rows_count(
    *, run, stored, tmp_path, layout, rule, control, treatment
) -> None:
    arms = {"old": "aaaaaaa1", "new": "bbbbbbb"}
    frame = BOTH.replace({"arm": arms}) if layout == BY_COMMIT else BOTH
    file = saved(tmp_path, frame, "csv")
    layout += EXPERIMENT.replace('"order"', '"page_view"') if layout != UNIT_MAP else EXPERIMENT
    line = error_of(run(file, "--map", mapped(tmp_path, layout)))
    assert "1 of 4 units have rows of both arms, such as that of row 1 (line 2)" in line
    assert "both_arms =" in line
    assert stored() == []
    result = run(file, "--map", mapped(tmp_path, f'both_arms = "{rule}"\n{layout}'))
    assert result.exit_code == 0, result.output
    assert "1 of 4 units have rows of both arms" in result.stdout
    assert ("Rows that repeat a unit: 2." in result.stdout) == ("metrics" in layout)
    exposed = [(row.commit_sha, row.session_id) for row in stored() if row.commit_sha]
    assert {unit for commit, unit in exposed if commit[0] == "a"} == control
    assert {unit for commit, unit in exposed if commit[0] == "b"} == treatment
    # Rows of a unit in the same arm add up.
    orders = [row.session_id for row in stored() if row.event == "order"]
    assert layout.find("metrics") < 0 or orders.count("u1") == 1


def test_codes_are_no_yes_until_the_map_says_which_are(run, tmp_path) -> None:
    file = saved(tmp_path, outcomes([1, 2, None, 9, 1, 2]), "parquet")
    line = error_of(run(file, "--map", mapped(tmp_path, UNIT_MAP)))
    assert "column 'hit' holds 1, 2, 9 and nothing that says no" in line
    assert 'yes = ["1"]' in line
    spellings = {
        '["1"]': [1, 2, None, 9, 1, 2],
        "[1]": ["1.0", "2", "", "9", "1", "2"],
        '["Ja"]': ["ja", "nein", "", "?", "JA", "nein"],
    }
    for yes, hits in spellings.items():
        layout = UNIT_MAP.replace('"order"', f'{{ event = "order", yes = {yes} }}')
        file = saved(tmp_path, outcomes(hits), "csv")
        result = run(file, "--map", mapped(tmp_path, layout), "--dry-run", "--json")
        assert result.exit_code == 0, result.output
        names = {"page_view": 6, "order": 2, "order (empty)": 1}
        assert json.loads(result.stdout)["events_by_name"] == names


def test_the_database_of_a_file_reads_and_writes_nothing_else(tmp_path) -> None:
    file = tmp_path / "it's *[a].csv"
    file.write_text("who\nu1\n")
    (tmp_path / "other.csv").write_text("secret\n")
    with opened_table(file) as table:
        assert table.names() == ["who"]
        table.load({"who": "unit"})
        assert table.rows() == 1
        for sql in (
            f"FROM read_text('{tmp_path}/other.csv')",
            f"COPY cells TO '{tmp_path}/copy.csv'",
            "SET enable_external_access = true",
        ):
            with pytest.raises(duckdb.Error, match=r"disabled by|locked"):
                table.query(sql)
