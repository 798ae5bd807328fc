"""`import`: the rows of a query over files of each kind become events, all of them or none."""

import gzip
import json
import re
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from cli.main import main
from domain.absence import ZERO_UUID
from storage.tenants.secret import Pseudonyms
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
AT = "2026-10-01T00:00:00Z"
# A row a unit, as experiments are usually published; `rows` is the file of the test.
UNITS = """
WITH unit AS (FROM 'rows')
SELECT 'page_view' AS event, who AS session_id, "at" AS occurred_at, arm FROM unit
UNION ALL
SELECT 'order', who, "at", arm FROM unit WHERE hit > 0
"""
EVENTS = """
SELECT what AS event, who AS session_id, "at" AS occurred_at, build AS commit FROM 'rows'
"""
COMMITS = '[commits]\nold = "aaaaaaa"\nnew = "bbbbbbb"\n'
EXPERIMENT = """
[experiment]
control_commit = "aaaaaaa"
treatment_commit = "bbbbbbb"
target_metric = "order"
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
def load(run, tmp_path) -> Callable[..., Result]:
    """Imports the rows of a query over a table, or over a file that is written already."""

    def command(
        table: pd.DataFrame | Path,
        query: str,
        toml: str = "",
        words: Sequence[str] = (),
        form: str = "parquet",
    ) -> Result:
        file = table if isinstance(table, Path) else saved(tmp_path, table, form)
        (tmp_path / "query.sql").write_text(query.replace("'rows'", f"'{file.name}'"))
        (tmp_path / "experiments.toml").write_text(toml)
        named = ["--experiments", tmp_path / "experiments.toml"] if toml else []
        return run(tmp_path / "query.sql", *named, *words)

    return command


@pytest.fixture
def stored(tenant) -> Callable[[], list[Any]]:
    rows = text(
        "SELECT * FROM runtime_events WHERE project_id = :id ORDER BY occurred_at, event DESC"
    )
    return lambda: list(
        tenant.in_store(lambda connection: connection.execute(rows, {"id": tenant.project_id}))
    )


@pytest.fixture
def judged_evidence(tenant) -> Callable[[], dict[str, Any]]:
    """The evidence of the experiment that was imported, some weeks later."""

    def judged() -> dict[str, Any]:
        words = ["--as-of", "2026-11-24T00:00:00Z", "--project", tenant.project.name]
        answer = CliRunner().invoke(main, ["evaluate", *words, "--evidence", "--json"])
        return json.loads(answer.stdout)[0]["evidence"]

    return judged


def units(hits: Any) -> pd.DataFrame:
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


def error_of(result: Result) -> str:
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0].removeprefix("Error: ")


def test_lines_of_runtime_events_need_no_query(run, stored, tmp_path) -> None:
    file = tmp_path / "it's *[a].ndjson"
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
        ({**LINES[0], "occurred_at": None}, "occurred_at"),
        ({"event": "page_view", "session_id": "s"}, "occurred_at"),
        ({**LINES[0], "session_id": "1.445E+18"}, "session_id, '1.445E+18'"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_stored(run, stored, tmp_path, broken, word) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text("\n".join(json.dumps(line) for line in [*LINES, broken]))
    line = error_of(run(file))
    assert line.startswith("row 3, ")
    assert word in line
    assert stored() == []


@pytest.mark.parametrize("worth", ["inf", "nan", "1e200", "-1e10", "12 dollars"])
def test_a_value_that_the_store_cannot_add_up_is_refused_in_one_line(
    *, run, stored, tmp_path, worth
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f"event,session_id,occurred_at,value\na,u,{AT},2.5\na,u,{AT},{worth}\n")
    line = error_of(run(file))
    assert line.startswith("row 2, value, ")
    assert stored() == []


@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson"])
def test_rows_of_events_are_read_in_every_format_and_an_empty_member_is_absent(
    load, stored, form
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
    query = EVENTS.replace(
        '"at"', "CAST(\"at\" AS TIMESTAMP) AT TIME ZONE 'Europe/Berlin'"
    ).replace(
        "commit",
        "commit, worth AS value, page AS route, customer AS user_ref, key AS event_id,"
        " 'staging' AS environment, {plan: 'pro'} AS properties",
    )
    result = load(frame, query, form=form)
    assert result.exit_code == 0, result.output
    view, order = sorted(stored(), key=lambda row: row.session_id)
    absent = (view.value, view.route, view.pseudonym)
    assert (view.commit_sha, *absent) == ("abcdef1", None, None, None)
    assert (order.commit_sha, order.value, order.route) == (None, 2_500_000, "/cart")
    assert order.pseudonym is not None
    assert (view.event_id, order.event_id, order.properties) == (None, "e1", {"plan": "pro"})
    # Summer in Berlin is two hours ahead.
    assert {row.occurred_at.isoformat() for row in (view, order)} == {"2026-07-01T10:00:00+00:00"}
    assert {row.environment for row in (view, order)} == {"staging"}


def test_history_after_the_start_of_a_bound_experiment_is_refused(load, stored) -> None:
    assert load(units([0, 1]), UNITS, COMMITS + EXPERIMENT).exit_code == 0
    before = stored()
    again = load(units([0, 1]), UNITS, COMMITS + EXPERIMENT)
    assert again.exit_code == 1
    assert "already registered" in again.output
    without = load(units([0, 1]), UNITS, COMMITS)
    assert without.exit_code == 1
    assert "send history before registering" in without.output
    assert stored() == before


def sql(old: str, new: str) -> tuple[str, str]:
    return UNITS.replace(old, new), COMMITS


MISTAKES = {
    "unknown member": (*sql("AS session_id", "AS sesion_id"), "'sesion_id'", "'session_id'"),
    "no time": ("SELECT 'a' AS event, who AS session_id FROM 'rows'", "", "no column occurred_at"),
    "no such column": (*sql("who", "whoo"), '"whoo" not found', '"who"'),
    "no SELECT": ("COPY (FROM 'rows') TO 'other.csv'", "", "must be a single SELECT"),
    "two statements": ("SELECT 1; SELECT 2", "", "must be a single SELECT"),
    "no SQL": ("SELEC 1", "", "syntax error"),
    "text that is no time": (*sql('"at"', "'10/25/2026 01:00'"), "row 1, occurred_at", "seconds"),
    "number that is no time": (*sql('"at"', "1790000000"), "occurred_at, '1790000000'", "seconds"),
    "empty time": (*sql('"at"', "CAST(NULL AS TIMESTAMP)"), "row 1, occurred_at, NULL"),
    "empty unit": (*sql("who", "''"), "row 1, session_id, NULL", "1 to 128 characters"),
    "long unit": (*sql("who", "repeat('x', 300)"), "session_id, 'xxx", "1 to 128 characters"),
    "future": (*sql('"at"', "TIMESTAMP '2097-01-01'"), "2097-01-01", "in the future"),
    "structure as unit": (
        "SELECT 'a' AS event, {a: who} AS session_id, \"at\" AS occurred_at FROM 'rows'",
        "",
        "STRUCT",
        "name a member",
    ),
    "flags": (UNITS.replace("arm FROM", "arm, 'on' AS flags FROM"), COMMITS, "row 1, flags, 'on'"),
    "arm of no row": (UNITS, COMMITS.replace("new", "newer"), "'newer'", "'new'"),
    "arm without commits": (UNITS, "", "[commits]"),
    "commits without arm": (*sql("arm FROM", "hit AS value FROM"), "[commits]"),
    "no commit": (UNITS, COMMITS.replace("aaaaaaa", "m000000a"), "commits", "hexadecimal"),
    "no TOML": (UNITS, "commits =", "experiments.toml: is not TOML"),
    "member of the file": (UNITS, f"colour = 3\n{COMMITS}", "'colour'", "known are"),
    "member of the experiment": (
        UNITS,
        f"{COMMITS}{EXPERIMENT}windw = '3d'",
        "did you mean 'window'",
    ),
    "length of time": (UNITS, f"{COMMITS}{EXPERIMENT}window = '3 weeks'", "'3 weeks'", "14d"),
    "same commit": (UNITS, COMMITS + EXPERIMENT.replace("bbbbbbb", "aaaaaaa"), "are the same"),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_ends_in_one_line_that_names_it(load, stored, tmp_path, mistake) -> None:
    query, toml, *words = mistake
    line = error_of(load(units([0, 1]), query, toml))
    for word in words:
        assert word in line
    assert len(line) < 600
    assert not (tmp_path / "other.csv").exists()
    assert stored() == []


TYPING_ERRORS = {
    "treatment_commit": ("treatment_commit = 'bbbbbbc'", "'bbbbbbb'"),
    "control_commit": ("control_commit = 'aaaaaac'", "'aaaaaaa'"),
    "target_metric": ("target_metric = 'ordr'", "'order'"),
    "guardrails": ("guardrails = ['eror']", "page_view"),
}


@pytest.mark.parametrize("query", also_nightly([UNITS], [EVENTS]), ids=["arms", "commits"])
@pytest.mark.parametrize("member", TYPING_ERRORS)
def test_what_an_experiment_names_must_stand_in_the_rows(load, stored, member, query) -> None:
    wrong, known = TYPING_ERRORS[member]
    kept = [line for line in EXPERIMENT.splitlines() if not line.startswith(member)]
    rows = units([0, 1]).assign(what=["page_view", "order"], build=["aaaaaaa", "bbbbbbb"])
    toml = "\n".join([COMMITS if query == UNITS else "", *kept, wrong])
    line = error_of(load(rows, query, toml))
    assert f"experiment.{member}" in line
    assert known in line
    assert stored() == []


def test_a_commit_of_an_experiment_means_whatever_of_its_id_the_rows_write_unless_that_is_two(
    load, stored
) -> None:
    build = ["aaaaaaa", "aaaaaaa1", "bbbbbbb1"]
    rows = units([0, 0, 0]).assign(
        who=["u1", "u1", "u2"], what=["page_view", "order", "page_view"], build=build
    )
    line = error_of(load(rows.assign(build=["aaaaaaa2", *build[1:]]), EVENTS, EXPERIMENT))
    assert "control_commit: in the file, aaaaaaa begins 2 commits: aaaaaaa1, aaaaaaa2" in line
    assert stored() == []
    done = load(rows, EVENTS, EXPERIMENT)
    assert done.exit_code == 0, done.output
    assert re.search(r"control +aaaaaaa +1 of 1 units", done.output)
    assert re.search(r"treatment +bbbbbbb +1 of 1 units", done.output)


def test_a_users_name_is_never_shown(load) -> None:
    frame = units([0, 0]).assign(customer=["ann", "mary" * 100], what="page_view", build=None)
    line = error_of(load(frame, EVENTS.replace("commit", "commit, customer AS user_ref")))
    assert "row 2, user_ref, value not shown" in line
    assert "mary" not in line


LISTED = EXPERIMENT.replace("[experiment]", "[[experiment]]")
THREE_ARMS = f'[commits]\nnone = "aaaaaaa"\nred = "bbbbbbb"\nblue = "ccccccc"\n{LISTED}'
THREE_ARMS += LISTED.replace("bbbbbbb", "ccccccc")


def test_rows_of_three_arms_become_two_experiments_with_one_control(load, stored) -> None:
    arms = ["none", "red", "blue", "none", "red", "blue ", "green"]
    frame = units([0, 1, 1, 0, 1, 0, 1]).assign(arm=arms)
    rehearsed = load(frame, UNITS, THREE_ARMS, ["--json", "--dry-run"])
    assert stored() == []
    result = load(frame, UNITS, THREE_ARMS, ["--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["skipped_rows"] == {"green": 2}
    red, blue = report["experiments"]
    assert red["experiment_id"] != blue["experiment_id"]
    assert red["arms"]["control"] == blue["arms"]["control"]
    assert red["arms"]["control"]["units"] == 2
    treated = [each["arms"]["treatment"]["converting"] for each in (red, blue)]
    assert treated == [2, 1]
    assert [each["units"]["compared_with_none"] for each in (red, blue)] == [2, 2]
    # A rehearsal counts the same, and has no experiment to name.
    for experiment in report["experiments"]:
        experiment["experiment_id"] = None
    assert json.loads(rehearsed.stdout) == {**report, "dry_run": True}


def test_an_import_into_a_sampled_project_stores_all_and_says_what_is_counted(
    load, tenant, stored
) -> None:
    tenant.settings(sample_rate=0.25)
    result = load(units([0, 1, 0, 1]), UNITS, COMMITS)
    assert result.exit_code == 0, result.output
    assert "sample_rate is 0.25" in result.output
    assert len({event.session_id for event in stored()}) == 4


@pytest.mark.nightly
def test_conversions_hours_later_are_counted_by_the_window_of_the_experiment(load, stored) -> None:
    later = pd.Timestamp(AT) + pd.Timedelta(hours=20)
    frame = units([0, 1] * 2).assign(ordered=later)
    query = UNITS.replace("SELECT 'order', who, \"at\"", "SELECT 'order', who, ordered")
    narrow = load(frame, query, COMMITS + EXPERIMENT, ["--dry-run"])
    assert "2 of 2 `order` events fall outside the window of 30 minutes" in narrow.stdout
    assert 'window = "1d"' in narrow.stdout
    result = load(frame, query, f'{COMMITS}{EXPERIMENT}window = "1d"\n', ["--json"])
    assert result.exit_code == 0, result.output
    (experiment,) = json.loads(result.stdout)["experiments"]
    assert experiment["arms"]["treatment"]["converting"] == 2
    assert experiment["outcomes"] == 2
    assert not any("window" in warning for warning in experiment["warnings"])
    orders = [row.occurred_at for row in stored() if row.event == "order"]
    assert orders == [later.to_pydatetime()] * 2


def test_settings_that_contradict_an_experiment_are_named_beside_it(load, tenant, stored) -> None:
    tenant.settings(metrics={"order": {"window_seconds": 3600}})
    line = error_of(load(units([0, 1]), UNITS, f'{COMMITS}{EXPERIMENT}window = "3d"\n'))
    assert "experiment.window is '3d'" in line
    assert "metrics.order.window_seconds = 3600" in line
    assert stored() == []


@pytest.mark.nightly
def test_units_after_the_horizon_are_counted_by_arm_and_the_experiment_may_move_it(
    load, judged_evidence
) -> None:
    at = pd.Timestamp(AT) - pd.Timedelta(days=200) + pd.to_timedelta(range(116), unit="D")
    frame = units([0, 1] * 58).assign(at=at)
    cut = load(frame, UNITS, COMMITS + EXPERIMENT, ["--dry-run"])
    assert "counted 28 of 116 units in the file: 44 of control and 44 of treatment" in cut.stdout
    assert "set horizon_days in [experiment]" in cut.stdout
    report = load(frame, UNITS, f"{COMMITS}{EXPERIMENT}horizon_days = 366\n")
    assert len(re.findall(" 58 units", report.stdout)) == 2, report.output
    arms = judged_evidence()["arms"]
    assert [arms[arm]["units"] for arm in ("control", "treatment")] == [58, 58]


def test_a_guardrail_that_no_row_has_holds_no_keep_back_and_the_crossing_is_said(
    load, stored, judged_evidence
) -> None:
    # The arms are alike at first; then treatment sells more: it crosses at 70 % of the rows.
    hits = [
        int(i % 10 in (0, 1, 2, 3)) if i < 1250 else int(i % 2 or i % 10 == 0) for i in range(2000)
    ]
    rehearsed = load(units(hits), UNITS, COMMITS + EXPERIMENT, ["--dry-run"]).stdout
    assert stored() == []
    assert "no row has an event of guardrail 'error', so this experiment goes" in rehearsed
    report = load(units(hits), UNITS, COMMITS + EXPERIMENT).stdout
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
    load, judged_evidence
) -> None:
    frame = units([0, 1, 0, 1]).assign(worth=[None, 5, None, None])
    early = frame[:1].assign(at=pd.Timestamp(AT) - pd.Timedelta(minutes=10))
    assert load(early, UNITS, COMMITS.replace('new = "bbbbbbb"', "")).exit_code == 0
    query = UNITS.replace("arm FROM", "arm, worth AS value FROM")
    report = load(frame, query, f"{COMMITS}{EXPERIMENT}kind = 'mean'\n")
    assert report.exit_code == 0, report.output
    # Ten minutes before, the log has seen a unit of control; and an order has no value.
    assert re.search(r"control +aaaaaaa +1 of 2 units +0 with order", report.stdout)
    assert re.search(r"treatment +bbbbbbb +2 of 2 units +2 with order", report.stdout)
    assert "do not count: 1 seen before the start" in report.stdout
    left_out = "Left out: 1 event of treatment and no events of control, without a value."
    assert left_out in report.stdout
    evidence = judged_evidence()
    assert [evidence["arms"][arm]["units"] for arm in ("control", "treatment")] == [1, 2]
    assert evidence["counts"]["in_flight"] == 1


@pytest.mark.parametrize(("unit", "member"), [("user", "user_ref"), ("account", "account")])
def test_rows_without_what_a_project_counts_are_said_to_lack_it(tenant, load, unit, member) -> None:
    tenant.settings(unit=unit)
    report = load(units([0, 1, 0, 1]), UNITS, COMMITS + EXPERIMENT, ["--dry-run"]).stdout
    for arm in ("control", "treatment"):
        assert f"no unit of {arm}: no first event of a `{member}`, which the setting" in report


def test_of_accounts_of_a_file_pseudonyms_alone_are_stored(tenant, load) -> None:
    tenant.settings(unit="account")
    query = UNITS.replace("arm FROM", "arm, {'account': 'acme ' || who} AS properties FROM")
    result = load(units([0, 1] * 2), query, COMMITS + EXPERIMENT, ["--json"])
    assert result.exit_code == 0, result.output
    stored = text(
        "SELECT encode(pseudonym, 'hex'), e::text FROM runtime_events AS e WHERE project_id = :id"
    )
    rows = tenant.in_store(
        lambda connection: connection.execute(stored, {"id": tenant.project_id}).all()
    )
    known = Pseudonyms(b"a secret of the tests, long enough")
    assert {row[0] for row in rows} == {
        known.of(tenant.project_id, f"acme u{number}", unit="account").hex() for number in range(4)
    }
    assert not [row for row in rows if "acme" in row[1]]


def test_totals_of_days_are_refused_unless_the_experiments_say_that_they_are_units(
    load, stored, tmp_path
) -> None:
    rows = [
        f"Old;{day}.08.2026;{300 + 20 * day}\nNew;{day}.08.2026;{310 + 19 * day}"
        for day in range(1, 31)
    ]
    file = tmp_path / "campaign.csv"
    file.write_text("\n".join(["Campaign Name;Date;Purchases", *rows]) + "\n")
    query = """
        WITH day AS (SELECT *, row_number() OVER () AS n, strptime("Date", '%d.%m.%Y') AS seen
            FROM read_csv('rows', delim = ';', all_varchar = true))
        SELECT 'page_view' AS event, n AS session_id, seen AS occurred_at, "Campaign Name" AS arm
        FROM day
        UNION ALL
        SELECT 'order', n, seen, "Campaign Name" FROM day WHERE CAST(Purchases AS INT) > 0
    """
    toml = COMMITS.replace("old", "Old").replace("new", "New")
    line = error_of(load(file, query, toml))
    assert line.startswith("these are totals, not units: 60 rows are sums by arm and day")
    assert stored() == []
    taken = load(file, query, f"totals = true\n{toml}")
    assert taken.exit_code == 0, taken.output
    assert len(stored()) == 60 + 60


def test_a_fault_in_the_last_row_leaves_nothing_in_the_store(load, stored, tmp_path) -> None:
    rows = "".join(f"u{i},{AT},{'old' if i % 2 else 'new'},1\n" for i in range(12_000))
    file = tmp_path / "rows.csv.gz"
    file.write_bytes(gzip.compress(f"who,at,arm,hit\n{rows}{'u' * 129},{AT},new,0\n".encode()))
    line = error_of(load(file, UNITS, COMMITS + EXPERIMENT))
    assert line.startswith("row 12001, session_id")
    assert stored() == []


@pytest.mark.nightly
def test_outcomes_that_are_empty_more_often_in_an_arm_hold_the_answer_back(
    load, judged_evidence
) -> None:
    # Of either arm 30 % have an outcome; a third of treatment's are not known.
    hits = [None if i % 2 and i % 20 < 4 else int(i % 20 < 6) for i in range(4000)]
    query = (
        f"{UNITS} UNION ALL SELECT 'order (empty)', who, \"at\", arm FROM unit WHERE hit IS NULL"
    )
    report = load(units(hits), query, COMMITS + EXPERIMENT)
    assert report.exit_code == 0, report.output
    assert "Warning: Empty outcomes count as none: fill these cells of the file" in report.stdout
    evidence = judged_evidence()
    assert evidence["totals"]["e_value"] > 20
    assert evidence["gates"]["interacting_because"] == ["empty"]
    assert "400 outcomes of" in evidence["sentence"]


def test_a_filter_of_the_target_holds_in_the_counts_of_the_file_too(load, tenant) -> None:
    tenant.settings(metrics={"order": {"where": {"plan": ["pro", "team"]}}})
    plans = ({"plan": "pro"}, {"plan": "free"}, {}, {"plan": "team", "x": 1})
    rows = [
        {"at": AT, "what": what, "who": f"u{unit}", "build": "ab"[unit % 2] * 7, "more": plan}
        for unit, plan in enumerate(plans)
        for what in ("page_view", "order")
    ]
    query = EVENTS.replace("commit", "commit, more AS properties")
    report = load(pd.DataFrame(rows), query, EXPERIMENT, ["--dry-run", "--json"], "ndjson")
    assert report.exit_code == 0, report.output
    (judged,) = json.loads(report.stdout)["experiments"]
    assert judged["outcomes"] == sum(arm["converting"] for arm in judged["arms"].values()) == 2


IDS = 1_445_000_000_000_000_000
# What tools make of such ids where a column is to hold numbers with gaps, of each identifier.
ROUNDED = {
    "session_id": lambda ids: ids.astype("float64"),
    "event_id": lambda ids: (ids - IDS + 2**24).astype("float32"),
    "user_ref": lambda ids: ids.map("{:.5E}".format),
    "text": lambda ids: ids.map("{:.5E}".format).str.replace(".", ","),
}


@pytest.mark.parametrize("member", ROUNDED)
@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson"])
def test_ids_that_have_lost_their_digits_end_the_import_by_their_column(
    load, stored, form, member
) -> None:
    ids = ROUNDED[member](IDS + pd.Series(range(40)))
    if form != "parquet" and ids.dtype == "float32":
        ids = ids.astype("float64") * 1e12  # As float32, pandas writes them in full.
    named = "session_id" if member == "text" else member
    query = f"SELECT 'page_view' AS event, id AS {named}, \"at\" AS occurred_at"
    query += " FROM 'rows'" if named == "session_id" else ", who AS session_id FROM 'rows'"
    line = error_of(load(units([0, 1] * 20).assign(id=ids), query, form=form))
    assert line.startswith(f"row 1, {named}, ")
    assert ("not shown" in line) == (member == "user_ref")
    assert "export and read the column as whole numbers or as text" in line
    assert stored() == []


@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson"])
@pytest.mark.parametrize(
    ("ids", "units_stored"),
    [
        ([IDS, IDS + 1], {str(IDS), str(IDS + 1)}),
        ([851104.0, 851105.0], {"851104", "851105"}),
        (["851104.0", "v1.0"], {"851104.0", "v1.0"}),
        (["12345e10", "007e2"], {"12345e10", "007e2"}),
    ],
)
def test_an_id_is_what_it_was_before_its_column_became_floating_point(
    *, load, stored, form, ids, units_stored
) -> None:
    query = UNITS
    if form == "csv":
        query = UNITS.replace("FROM 'rows'", "FROM read_csv('rows', types = {'who': 'VARCHAR'})")
    result = load(units([0, 1]).assign(who=ids), query, COMMITS, form=form)
    assert result.exit_code == 0, result.output
    assert {row.session_id for row in stored()} == units_stored


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("851104::DECIMAL(38, 18)", "851104"),
        ("1445000000000000001::DECIMAL(38, 2)", "1445000000000000001"),
        ("18446744073709551615::UBIGINT", "18446744073709551615"),
        ("'s-1 '::ENUM('s-1 ')", "s-1"),
        ("false", None),
    ],
)
def test_an_id_is_a_whole_number_or_text_in_any_type(load, stored, written, meant) -> None:
    result = load(
        units([0]), f"SELECT 'a' AS event, {written} AS session_id, '{AT}' AS occurred_at"
    )
    assert (result.exit_code, [row.session_id for row in stored()]) == (
        (0, [meant]) if meant else (1, [])
    )


@pytest.mark.parametrize("ids", [["12e3", "12000"], ["0x1F", "31"], ["10:30", "07:05"]])
def test_ids_of_a_file_of_events_are_read_as_they_are_written(run, stored, tmp_path, ids) -> None:
    lines = [f"page_view,{each},{AT}" for each in ids]
    (tmp_path / "events.csv").write_text("\n".join(["event,session_id,occurred_at", *lines]))
    result = run(tmp_path / "events.csv")
    assert result.exit_code == 0, result.output
    assert {row.session_id for row in stored()} == {*ids}


@pytest.mark.parametrize(
    "written",
    [
        "'2026-10-01 01:00:00.000 -0700'",
        "'2026-10-01 08:00:00.000 Z'",
        "'2026-10-01 08:00:00 UTC'",
        """'"2026-10-01T01:00:00-07:00"'::JSON""",
        "'2026-10-01 01:00:00-07'::ENUM('2026-10-01 01:00:00-07')",
    ],
)
def test_a_time_keeps_its_zone_in_any_type(load, stored, written) -> None:
    query = f"SELECT 'a' AS event, 's-1' AS session_id, {written} AS occurred_at"
    result = load(units([0]), query)
    assert result.exit_code == 0, result.output
    assert [row.occurred_at for row in stored()] == [datetime(2026, 10, 1, 8, tzinfo=UTC)]


def test_members_of_a_member_have_names_and_their_rounded_numbers_are_no_ids(
    load, stored, tmp_path
) -> None:
    file = tmp_path / "rows.ndjson"
    query = (
        "SELECT 'page_view' AS event, json ->> '$.who.id' AS session_id,"
        f" '{AT}' AS occurred_at FROM read_ndjson_objects('rows')"
    )
    for number in ("1.445E+18", "1.445E+25", '"1.445E+18"'):
        file.write_text(f'{{"who": {{"id": {number}}}}}')
        assert "row 1, session_id, '1" in error_of(load(file, query))
    file.write_text('{"who": {"id": 851104.0}}\n{"who": {"id": 851105}}')
    assert load(file, query).exit_code == 0
    assert {row.session_id for row in stored()} == {"851104", "851105"}


def test_bytes_of_a_uuid_are_its_text_and_other_bytes_are_text_or_refused(load, stored) -> None:
    ids = [uuid.uuid4() for _ in range(2)]
    frame = units([0, 1]).assign(who=[{"own": each.bytes} for each in ids])
    result = load(frame, UNITS.replace("who AS", "who.own AS").replace("who,", "who.own,"), COMMITS)
    assert result.exit_code == 0, result.output
    assert {row.session_id for row in stored()} == set(map(str, ids))
    line = error_of(load(frame.assign(who=[b"\0" * 15 + b"1"] * 2), UNITS, COMMITS))
    assert "column 'session_id' holds bytes" in line


@pytest.mark.parametrize("member", ["session_id", "event_id", "user_ref"])
def test_words_for_nothing_are_no_ids_and_name_nobody(load, stored, member) -> None:
    query = f"SELECT 'a' AS event, id AS {member}, \"at\" AS occurred_at"
    query += " FROM 'rows'" if member == "session_id" else ", who AS session_id FROM 'rows'"
    for word in ("undefined", "[object Object]", ZERO_UUID):
        result = load(units([0, 0]).assign(id=["0", word]), query, words=["--dry-run"])
        if member != "user_ref":
            line = error_of(result)
            assert line.startswith(f"row 2, {member}, ")
            assert "must be a value" in line
        else:
            assert result.exit_code == 0, result.output
            assert "1 of user_ref say nothing, such as `undefined`" in result.stdout
    assert load(units([0, 0]).assign(id=["0", "ok"]), query).exit_code == 0
    assert len(stored()) == 2


@pytest.mark.parametrize("query", [UNITS, EVENTS], ids=["arms", "commits"])
def test_a_unit_of_both_arms_ends_the_import(load, stored, query) -> None:
    frame = units([1, 0, 1, 0]).assign(who=["u0", "u0", "u1", "u2"], what="order")
    frame = frame.assign(build=frame["arm"].map({"old": "aaaaaaa1", "new": "BBBBBBB"}))
    toml = COMMITS + EXPERIMENT if query == UNITS else EXPERIMENT
    line = error_of(load(frame, query, toml))
    assert "1 of 3 units have rows of both arms, such as that of row 1" in line
    assert stored() == []


def test_a_query_reads_nothing_outside_its_folder_and_writes_nothing(
    run, stored, tmp_path, monkeypatch
) -> None:
    outside, folder = tmp_path / "other.csv", tmp_path / "folder"
    outside.write_text("secret\n")
    folder.mkdir()
    (folder / "link.csv").symlink_to(outside)
    monkeypatch.setenv("SECRET_OF_THE_TEST", "secret")
    monkeypatch.chdir(tmp_path)
    hostile = {
        f"FROM read_text('{outside}')": "disabled by",
        "FROM read_text('../other.csv')": "disabled by",
        f"FROM '{folder}/../other.csv'": "disabled by",
        "FROM read_text('link.csv')": "disabled by",
        f"FROM glob('{tmp_path}/*')": "disabled by",
        "FROM 'https://example.invalid/a.csv'": "disabled by",
        "SELECT getenv('SECRET_OF_THE_TEST')": "does not exist",
        "FROM outside": "does not exist",
        "INSTALL spatial": "single SELECT",
        "ATTACH '../other.db'": "single SELECT",
        "SET enable_external_access = true": "single SELECT",
        "COPY (SELECT 1) TO 'copy.csv'": "single SELECT",
        "SELECT 1; COPY (SELECT 1) TO 'copy.csv'": "single SELECT",
    }
    for number, (query, refusal) in enumerate(hostile.items()):
        file = folder / f"{number}.sql"
        file.write_text(query)
        assert refusal in run(file).output, query
    assert not (folder / "copy.csv").exists()
    assert stored() == []
