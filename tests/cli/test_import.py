"""`import`: files of each kind become the same events, all of them or none."""

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from cli.main import main
from storage.projects import create_project

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
def run(store, monkeypatch) -> Callable[..., Result]:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests")
    with store.engine.begin() as connection:
        create_project(connection, "default")

    def command(*words: Any) -> Result:
        return CliRunner().invoke(main, ["import", *map(str, words)])

    return command


@pytest.fixture
def stored(store) -> Callable[[], list[Any]]:
    def rows() -> list[Any]:
        with store.engine.begin() as connection:
            return list(
                connection.execute(
                    text("SELECT * FROM runtime_events ORDER BY occurred_at, event DESC")
                )
            )

    return rows


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


@pytest.mark.parametrize("cell", ["inf", "1e200", "-1e10", "nan", "12 dollars"])
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
    assert "value" in line
    assert stored() == []


@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson"])
def test_a_map_reads_rows_of_events_in_any_format(run, stored, tmp_path, form) -> None:
    frame = pd.DataFrame(
        {"who": ["u1", "u2"], "what": ["page_view", "order"], "at": ["2026-07-01 12:00:00"] * 2}
    )
    file, layout = tmp_path / f"rows.{form}", tmp_path / "map.toml"
    layout.write_text(EVENT_MAP)
    if form == "csv":
        frame.to_csv(file, index=False)
    elif form == "parquet":
        frame.to_parquet(file)
    else:
        frame.to_json(file, orient="records", lines=True)
    result = run(file, "--map", layout)
    assert result.exit_code == 0, result.output
    rows = stored()
    assert [(row.session_id, row.event) for row in rows] == [("u1", "page_view"), ("u2", "order")]
    # Naive times are of the map's zone: summer in Berlin is two hours ahead.
    assert {row.occurred_at.isoformat() for row in rows} == {"2026-07-01T10:00:00+00:00"}
    assert {row.environment for row in rows} == {"staging"}


@pytest.mark.parametrize(
    ("layout", "word"),
    [
        ("layout = 'event'\n[times]\ncolumn = 'at'\nspread_days = 3", "spread_days"),
        ("layout = 'unit'\n[times]\ncolumn = 'at'", "commits"),
        ("layout = 'event'\n[times]\ncolumn = 'at'\n[columns]\ncolour = 'c'", "colour"),
        ("layout = 'event'\ncolour = 3\n[times]\ncolumn = 'at'", "colour"),
        ("layout =", "map.toml"),
    ],
)
def test_a_bad_map_is_told_by_its_member(run, tmp_path, layout, word) -> None:
    file, map_file = tmp_path / "rows.csv", tmp_path / "map.toml"
    file.write_text("at\n")
    map_file.write_text(layout)
    result = run(file, "--map", map_file)
    assert result.exit_code == 1
    assert word in result.output


def test_history_after_the_start_of_a_bound_experiment_is_refused(run, stored, tmp_path) -> None:
    layout, file = tmp_path / "map.toml", tmp_path / "rows.csv"
    layout.write_text(
        "layout = 'unit'\narm = 'arm'\n[times]\ncolumn = 'at'\n"
        "[commits]\na = 'aaaaaaa'\nb = 'bbbbbbb'\n[metrics]\nhit = 'order'\n"
        "[experiment]\ncontrol_commit = 'aaaaaaa'\ntreatment_commit = 'bbbbbbb'\n"
        "target_metric = 'order'\n"
    )
    file.write_text("at,arm,hit\n2026-10-01T00:00:00,a,0\n2026-10-01T00:01:00,b,1\n")
    assert run(file, "--map", layout).exit_code == 0
    before = stored()
    again = run(file, "--map", layout)
    assert again.exit_code == 1
    assert "send history before registering" in again.output
    assert stored() == before
