"""`outcomes`: late outcomes from files to a running service."""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from click.testing import CliRunner
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from cli.main import main
from domain.absence import WORDS
from storage.tenants.keys import KeyKind
from tests.processes.action import runner_path
from tests.processes.registry import output_of, python_of
from tests.processes.served import Served
from tests.repetition import also_nightly
from tests.stores.pipeline_run import run_pipeline

PAGE = Path(__file__).parents[2] / "docs" / "import.md"
RE_BLOCK = re.DOTALL | re.MULTILINE
TWO_DAYS_AGO = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)


@pytest.fixture
def shop(served, monkeypatch) -> Iterator[Any]:
    """A running service whose orders come up to three days late, and its write key."""
    served.settings(metrics={"order": {"window_seconds": 3600, "grace_seconds": 3 * 86_400}})
    monkeypatch.setenv("SERVICE_PROJECT_KEY", served.project.keys[KeyKind.WRITE])
    return served


@pytest.fixture
def orders() -> pd.DataFrame:
    """The rows of a model in a warehouse."""
    rows = range(1234)
    return pd.DataFrame(
        {
            "event": ["order"] * len(rows),
            "session_id": [f"s{row % 1000}" for row in rows],
            "occurred_at": [TWO_DAYS_AGO + timedelta(seconds=row) for row in rows],
            "event_id": [f"o{row}" for row in rows],
            "value": [row / 4 for row in rows],
        }
    )


def written(orders: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        orders.to_parquet(path)
    elif path.suffix == ".csv":
        orders.to_csv(path, index=False)
    else:
        orders.to_json(path, orient="records", lines=True, date_format="iso")
    return path


def stored(service: Any) -> pd.DataFrame:
    query = "SELECT event_id, session_id, occurred_at, value FROM runtime_events"
    with service.store.engine.begin() as connection:
        return pd.DataFrame(connection.execute(text(query)).mappings().all())


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("word", also_nightly(["undefined"], WORDS[1:]))
def test_a_word_for_nothing_is_refused_by_its_column_or_counted(
    command, orders, tmp_path, word
) -> None:
    row = orders.head(1).to_dict("records")[0] | {"commit": "4f2a9c1d"}
    file = tmp_path / "orders.parquet"
    # Zeros of a length that a commit's id can have are git's for nothing.
    counted = {"route", "user_ref", "commit"} if set(word) == {"0"} else {"route", "user_ref"}
    for column in ("event", "session_id", "event_id", "route", "environment", "commit", "user_ref"):
        pd.DataFrame([{**row, column: word}]).to_parquet(file)
        done = command("outcomes", file)
        if (column, word) == ("user_ref", "nil"):
            # People are called Nil.
            assert (done.exit_code, "Warning" in done.output) == (0, False), done.output
        elif column in counted:
            assert f"Warning: {column} says nothing in 1, stored without it." in done.output
        else:
            assert (done.exit_code, f"row 1, {column}," in done.output) == (1, True), done.output
    pd.DataFrame([{**row, "commit": "0" * 40}]).to_parquet(file)
    assert json.loads(command("outcomes", file, "--json").stdout)["unknown"] == {"commit": 1}


@pytest.mark.parametrize("suffix", [".ndjson", ".csv", ".parquet"])
def test_every_row_of_an_export_is_stored(shop, command, orders, tmp_path, suffix) -> None:
    done = command("outcomes", written(orders, tmp_path / f"orders{suffix}"))
    assert done.exit_code == 0, done.output
    assert "1,234 outcomes read, 1,234 stored." in done.output
    # Two days late, and nothing counts as late: the metric's grace is longer.
    assert "Warning" not in done.output
    rows = stored(shop).sort_values("occurred_at")
    assert rows["event_id"].tolist() == orders["event_id"].tolist()
    assert rows["occurred_at"].tolist() == orders["occurred_at"].tolist()
    by_session = rows.groupby("session_id")["value"].sum() / 1_000_000
    assert by_session.tolist() == orders.groupby("session_id")["value"].sum().tolist()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_ids_that_gaps_made_floating_point_are_the_pages_or_refused(
    shop, command, orders, tmp_path, suffix
) -> None:
    path = tmp_path / f"orders{suffix}"
    orders["session_id"] = [8_511_040.0 + row for row in range(len(orders))]
    done = command("outcomes", written(orders, path))
    assert done.exit_code == 0, done.output
    assert set(stored(shop)["session_id"]) == {str(8_511_040 + row) for row in range(len(orders))}
    orders["session_id"] *= 1e12
    done = command("outcomes", written(orders.assign(event_id=orders["event_id"] + "-b"), path))
    assert done.exit_code == 1
    assert "row 1, session_id, " in done.output
    assert "export and read the column as whole numbers or as text" in done.output
    assert len(stored(shop)) == len(orders)


@pytest.mark.parametrize("suffix", [".ndjson", ".csv", ".parquet"])
@pytest.mark.parametrize("own", [8_511_040, "o"])
def test_a_row_without_an_id_beside_others_that_have_one_is_refused(
    shop, command, orders, tmp_path, suffix, own
) -> None:
    ids = [f"{own}{row}" if own == "o" else own + row for row in orders.index]
    path = tmp_path / f"orders{suffix}"
    for gap in (None, *(["nan", "NaN", '""'] if suffix == ".csv" else [])):
        written(
            orders.assign(event_id=pd.Series(ids).astype(object).where(orders.index != 7)), path
        )
        if gap:
            path.write_text(path.read_text().replace(",,", f",{gap},"))
        done = command("outcomes", path)
        assert (done.exit_code, "row 8, event_id, " in done.output) == (1, True), done.output
    assert stored(shop).empty
    # An event without an id in any row has no gap.
    views = orders.head(9).assign(event="page_view", event_id=None)
    both = pd.concat([orders.assign(event_id=[*map(str, ids)]), views])
    assert command("outcomes", written(both, path)).exit_code == 0
    assert len(stored(shop)) == len(orders) + 9


def test_standard_input_is_read(shop, orders, tmp_path) -> None:
    content = written(orders, tmp_path / "orders.ndjson").read_bytes()
    done = CliRunner().invoke(main, ["outcomes", "-"], input=content)
    assert done.exit_code == 0, done.output
    assert len(stored(shop)) == len(orders)


def test_a_busy_service_is_sent_the_same_rows_again(command, orders, tmp_path, monkeypatch) -> None:
    busy = [429, 503]
    asked: list[list[str]] = []

    async def events(request: Request) -> JSONResponse:
        sent = (await request.json())["events"]
        asked.append([event["event_id"] for event in sent])
        if busy:
            return JSONResponse({}, busy.pop(), headers={"Retry-After": "0"})
        return JSONResponse({"accepted": len(sent)}, 202)

    with Served(app=Starlette(routes=[Route("/v1/events", events, methods=["POST"])])) as served:
        monkeypatch.setenv("SERVICE_API_URL", served.url)
        monkeypatch.setenv("SERVICE_PROJECT_KEY", "wk_1")
        done = command("outcomes", written(orders, tmp_path / "orders.parquet"))
    assert "1,234 outcomes read, 1,234 stored." in done.output
    assert asked[0] == asked[1] == asked[2]
    assert [key for keys in asked[2:] for key in keys] == orders["event_id"].tolist()


def test_the_query_of_the_page_writes_a_file_that_is_read(
    shop, command, tmp_path, monkeypatch
) -> None:
    (query, *_) = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), RE_BLOCK)
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as warehouse:
        warehouse.execute(
            "CREATE TABLE orders AS SELECT n AS order_id, 's' || n AS session_id, 9.5 AS total,"
            " now() - INTERVAL 1 DAY - n * INTERVAL 1 MINUTE AS paid_at FROM range(300) AS t(n)"
        )
        warehouse.execute(query)
    done = command("outcomes", tmp_path / "orders.parquet")
    assert "300 outcomes read, 300 stored." in done.output
    assert set(stored(shop)["event_id"]) == {f"order-{number}" for number in range(300)}


# A warehouse that dbt fills: the model `orders`, which that of the page reads.
WAREHOUSE = {
    "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\n",
    "profiles.yml": "shop: {target: dev, outputs: {dev: {type: duckdb, path: warehouse.duckdb}}}\n",
    "models/orders.sql": "SELECT n AS order_id, 's' || n AS session_id, 9.5 AS total,"
    " now() - INTERVAL 1 DAY - (20 * n + 10) * INTERVAL 1 MINUTE AS paid_at"
    " FROM range(300) AS t(n)\n",
}
DUCKDB = "import sys, duckdb; duckdb.connect(sys.argv[1]).execute(sys.argv[2])"


@pytest.mark.nightly
def test_the_dbt_model_of_the_page_and_the_step_after_it_send_what_it_made(shop, tmp_path) -> None:
    python = python_of(tmp_path / "python", ["dbt-core<1.12", "dbt-duckdb<1.11"])
    (model,) = re.findall(r"^-- models/outcomes.sql\n(.*?)^```$", PAGE.read_text(), RE_BLOCK)
    (step,) = re.findall(r"^```sh\n(dbt run .*?)^```$", PAGE.read_text(), RE_BLOCK)
    for name, content in {**WAREHOUSE, "models/outcomes.sql": model}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    scripts = {
        "dbt": f'exec {python.parent}/dbt "$@"',
        "duckdb": f"exec {python} -c '{DUCKDB}' \"$@\"",
        "deploy-reward": f'PYTHONPATH="$OURS" exec {sys.executable} -m cli "$@"',
    }
    environment = {
        "PATH": runner_path(tmp_path / "bin", **scripts),
        "OURS": os.pathsep.join(sys.path),
        "SERVICE_API_URL": os.environ["SERVICE_API_URL"],
        "WRITE_KEY": shop.project.keys[KeyKind.WRITE],
    }
    for typed in ("dbt run --select orders", step):
        bash = ["bash", "-e", "-c", typed]
        printed = output_of(bash, folder=tmp_path, **environment)
    # Three days of the warehouse's orders: an order each twenty minutes, the first a day ago.
    assert "144 outcomes read, 144 stored." in printed
    assert set(stored(shop)["event_id"]) == {f"order-{number}" for number in range(144)}


def test_a_broken_row_is_named_and_nothing_is_sent(shop, command, orders, tmp_path) -> None:
    orders.loc[700, "event_id"] = "x" * 65
    done = command("outcomes", written(orders, tmp_path / "orders.csv"))
    assert done.exit_code == 1
    assert "row 701, event_id, 'xxx" in done.output
    assert stored(shop).empty


def test_a_column_that_is_missing_is_named_and_a_query_may_name_it(shop, command, tmp_path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(f"event,session,occurred_at\norder,s1,{TWO_DAYS_AGO.isoformat()}\n")
    done = command("outcomes", path)
    assert done.exit_code == 1
    assert "no column session_id: it has event, session, occurred_at" in done.output
    (tmp_path / "orders.sql").write_text(
        "SELECT event, session AS session_id, occurred_at, NULL AS event_id FROM 'orders.csv'"
    )
    done = command("outcomes", tmp_path / "orders.sql")
    assert "1 outcomes read, 1 stored." in done.output
    assert set(stored(shop)["session_id"]) == {"s1"}


@pytest.mark.usefixtures("shop")
def test_what_no_verdict_can_count_is_warned_of(command, orders, tmp_path) -> None:
    orders["occurred_at"] -= timedelta(days=40)
    done = command("outcomes", written(orders, tmp_path / "orders.parquet"))
    assert "Warning: 1,234 came after the longest window and grace" in done.output


START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
STABLE, CANARY = "a" * 40, "b" * 40


@pytest.fixture
def units() -> pd.DataFrame:
    """Sessions of two builds, a session each three seconds."""
    rows = range(8000)
    return pd.DataFrame(
        {
            "event": "page_view",
            "session_id": [f"u{row}" for row in rows],
            "commit": [(STABLE, CANARY)[row % 2] for row in rows],
            "occurred_at": [START + timedelta(seconds=3 * row) for row in rows],
        }
    )


@pytest.fixture
def conversions(units) -> pd.DataFrame:
    """Orders of 10 % of control and 14 % of treatment, as a dbt model has them: a row each."""
    places = units.index // 2 % 50
    orders = units[places < units["commit"].map({STABLE: 5, CANARY: 7})].copy()
    orders["occurred_at"] += timedelta(minutes=20)
    return orders.assign(event="order", event_id=[f"o{row}" for row in orders.index])


def canaried(shop: Any, history: pd.DataFrame) -> str:
    """Records a canary of two days ago and its history, and returns its experiment."""
    shop.settings(metrics={"order": {"window_seconds": 3600, "grace_seconds": 259_200}}, locked=[])
    shop.begin = START
    shop.deploy(STABLE, minutes=-1440)
    shop.deploy(CANARY, 0.5, minutes=0, base=STABLE)
    history = history.assign(occurred_at=[at.isoformat() for at in history["occurred_at"]])
    shop.events = [
        {name: value for name, value in event.items() if isinstance(value, str)}
        for event in history.to_dict("records")
    ]
    shop.send()
    return shop.register(treatment_commit=CANARY, target_metric="order", guardrails=[])


def answered(shop: Any, experiment: str) -> tuple[Any, Any]:
    """Returns contract and arms once the last block closed: three days and an hour after it."""
    run_pipeline(shop.store.engine, as_of=START + timedelta(days=4))
    contract = shop.get(f"/v1/reward/{experiment}").json()
    assert contract.pop("experiment_id") == experiment
    return contract, shop.get(f"/v1/reward/{experiment}/evidence").json()["arms"]


@pytest.mark.nightly
def test_an_export_two_days_late_gets_the_verdict_of_the_same_outcomes_sent_live(
    shop, command, units, conversions, tmp_path, monkeypatch
) -> None:
    live = answered(shop, canaried(shop, pd.concat([units, conversions])))
    other = replace(shop, project=shop.new_project("warehouse"))
    monkeypatch.setenv("SERVICE_PROJECT_KEY", other.project.keys[KeyKind.WRITE])
    experiment = canaried(other, units)
    columns = ["event", "session_id", "occurred_at", "event_id"]
    done = command("outcomes", written(conversions[columns], tmp_path / "orders.parquet"))
    assert f"{len(conversions):,} outcomes read, {len(conversions):,} stored." in done.output

    late = answered(other, experiment)
    assert late == live
    assert late[0]["verdict"] == "keep"
    # The verdict stands on the first of them; all are counted.
    query = "SELECT sum(x0), sum(x1) FROM cells WHERE experiment_id = :id AND metric = 'order'"
    with shop.store.engine.connect() as connection:
        counted = connection.execute(text(query), {"id": experiment}).one()
    by_commit = conversions.groupby("commit").size()
    assert tuple(counted) == tuple(by_commit[[STABLE, CANARY]].tolist())


# A project of `dg` that has a model of its own, on the table that an export fills.
DG_PROJECT = {
    "pyproject.toml": '[tool.dg]\ndirectory_type = "project"\n'
    '[tool.dg.project]\nroot_module = "shop"\n',
    "shop/__init__.py": "",
    "shop/definitions.py": """
from pathlib import Path

import dagster as dg

defs = dg.load_from_defs_folder(project_root=Path(__file__).parents[1])
""",
    "shop/defs/__init__.py": "",
    "shop/defs/models.py": """
import os
import sqlalchemy as sa
import dagster as dg

@dg.asset(key=["marts", "outcomes"])
def outcomes():
    with sa.create_engine(os.environ["WAREHOUSE_URL"]).begin() as warehouse:
        warehouse.execute(sa.text("CREATE TABLE outcomes AS SELECT *, NULL AS value FROM export"))
""",
}


@pytest.mark.nightly
def test_a_model_in_a_teams_dagster_is_sent_by_the_component_and_counts(
    shop, units, conversions, tmp_path
) -> None:
    (component,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), RE_BLOCK)
    # SQLite has no intervals.
    component = re.sub(r" +WHERE .*\n", "", component)
    for name, content in {**DG_PROJECT, "shop/defs/deploy_reward/defs.yaml": component}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    environment = {
        "SERVICE_DATABASE_URL": shop.store.url,
        "SERVICE_API_URL": os.environ["SERVICE_API_URL"],
        "SERVICE_PROJECT_KEY": os.environ["SERVICE_PROJECT_KEY"],
        "WAREHOUSE_URL": f"sqlite:///{tmp_path}/warehouse.db",
        "DAGSTER_HOME": str(tmp_path),
    }
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    conversions[["event", "session_id", "occurred_at", "event_id"]].to_sql(
        "export", environment["WAREHOUSE_URL"], index=False
    )
    experiment = canaried(shop, units)

    dagster = [sys.executable, "-m", "dagster", "asset"]
    project = ["--module-name", "shop.definitions", "--select"]
    lineage = output_of(
        [*dagster, "list", *project, '+key:"deploy_reward/verdicts"'], folder=tmp_path
    )
    assert {"marts/outcomes", "deploy_reward/outcomes"} <= set(lineage.split())
    chosen = 'key:"marts/outcomes" or key:"deploy_reward/outcomes"'
    output_of([*dagster, "materialize", *project, chosen], folder=tmp_path, **environment)
    assert answered(shop, experiment)[0]["verdict"] == "keep"


def test_without_a_service_it_says_what_to_set(command, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SERVICE_API_URL", raising=False)
    path = tmp_path / "orders.ndjson"
    path.write_text("{}")
    done = command("outcomes", path)
    assert "SERVICE_API_URL is not set" in done.output


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("cut", ["to the day", "to a date"])
def test_outcomes_that_have_a_day_and_no_time_are_warned_of(command, orders, tmp_path, cut) -> None:
    days = orders["occurred_at"].dt.floor("D")
    orders["occurred_at"] = days if cut == "to the day" else days.dt.date
    done = command("outcomes", written(orders, tmp_path / "orders.parquet"))
    assert done.exit_code == 0, done.output
    assert "Warning: all are dated 00:00:00 of their day." in done.output


def test_a_time_is_read_in_each_unit_and_zone_that_pandas_writes(
    shop, command, orders, tmp_path
) -> None:
    orders = orders.head(3)
    times = {*orders["occurred_at"]}
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "America/New_York"):
            there = orders["occurred_at"].dt.tz_convert(zone).dt.as_unit(unit)
            named = orders.assign(
                occurred_at=there, event_id=[f"{unit}{zone}{row}" for row in range(3)]
            )
            done = command("outcomes", written(named, tmp_path / "orders.parquet"))
            assert "3 outcomes read, 3 stored." in done.output, (unit, zone, done.output)
    assert {*stored(shop)["occurred_at"]} == times
