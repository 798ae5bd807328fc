"""The recipes of docs/import.md, each run as it stands on real data of a known truth.

The data stands beside the checkout, not in it; where it is absent these tests say so and skip.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from cli.main import main
from storage.tenants.projects import create_project
from storage.tenants.setting_changes import apply_settings
from tests.repetition import also_nightly

DATA = Path(__file__).parents[4] / "shared" / "data"
PAGE = (Path(__file__).parents[3] / "docs" / "import.md").read_text()
RECIPES = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))
VISITORS, EMAILS = "A row a visitor, with arm and outcome", "Three arms, without times and ids"

needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"no real data at {DATA}")

# Visitors of the landing page whom it showed their group's page, and customers of two e-mails.
TABLES = f"""
CREATE TABLE landed AS FROM read_csv('{DATA}/ab_data.csv.gz', types = {{'user_id': 'VARCHAR'}});
CREATE TABLE visitor AS SELECT user_id AS id, "timestamp" AS seen, converted = 1 AS converted,
    CASE "group" WHEN 'control' THEN 'old' ELSE 'new' END AS arm
FROM landed WHERE ("group" = 'control') = (landing_page = 'old_page') LIMIT 20000;
CREATE TABLE customer AS SELECT *, row_number() OVER () AS id FROM '{DATA}/hillstrom.csv.gz';
"""
# The columns of each form, of these tables: what a shop's tools would have exported.
FORMS = {
    "Exposures and orders in two files": {
        "exposures.parquet": "SELECT id AS visitor, seen AS seen_at, arm AS variant FROM visitor",
        "orders.csv": "SELECT id AS visitor, seen + INTERVAL 2 DAY AS ordered_at FROM visitor"
        " WHERE converted",
    },
    "A log of events in a local clock": {
        "log.csv": """
            SELECT what, id AS session, (seen + delay) AT TIME ZONE 'UTC' AT TIME ZONE
                'Europe/Berlin' AS "at", CASE WHEN what = 'view' THEN CASE arm WHEN 'old' THEN
                '4f2a9c1d' ELSE '9e107d9d' END END AS build, '/cart' AS page, id AS customer
            FROM visitor,
                (VALUES ('view', INTERVAL 0 DAY), ('order', INTERVAL 2 DAY)) AS v(what, delay)
            WHERE what = 'view' OR converted
        """
    },
    "A log of actions with its arms by words": {
        "actions.csv": """
            SELECT action, id, seen + delay AS "timestamp",
                CASE arm WHEN 'old' THEN 'control' ELSE 'experiment' END AS "group"
            FROM visitor,
                (VALUES ('view', INTERVAL 0 DAY), ('click', INTERVAL 5 MINUTE)) AS v(action, delay)
            WHERE action = 'view' OR converted
            UNION ALL SELECT 'click', '0', TIMESTAMP '2017-01-20', 'control'
        """
    },
    "NDJSON with members below the first level": {
        "posthog.ndjson": """
            SELECT event, strftime(seen, '%Y-%m-%dT%H:%M:%S.%fZ') AS "timestamp", {
                distinct_id: CAST(id AS BIGINT),
                '$feature/checkout': CASE arm WHEN 'old' THEN 'control' ELSE 'test' END
            } AS properties
            FROM visitor, (VALUES ('$pageview'), ('purchase')) AS v(event)
            WHERE event <> 'purchase' OR converted
        """
    },
    "Lists of parameters, and microseconds": {
        "ga4.parquet": """
            SELECT event AS event_name, id AS user_pseudo_id, epoch_us(seen) AS event_timestamp, [
                {key: 'page_location', value: {string_value: '/cart', int_value: NULL}},
                {key: 'variant', value: {
                    string_value: CASE arm WHEN 'old' THEN 'control' ELSE 'treatment' END,
                    int_value: NULL}}
            ] AS event_params
            FROM visitor, (VALUES ('page_view'), ('purchase')) AS v(event)
            WHERE event <> 'purchase' OR converted
        """
    },
    "Codes, and outcomes that are not known": {
        "survey.csv": """
            SELECT id, seen AS seen_at, arm,
                CASE WHEN CAST(id AS INT) % 10 = 0 AND NOT converted THEN NULL
                WHEN converted THEN 1 ELSE 2 END AS answer
            FROM visitor
        """
    },
}


def written(recipe: str, folder: Path) -> list[str]:
    """Writes a recipe as the page shows it, and returns the words of its import."""
    (query,) = re.findall(r"```sql\n(.*?)```", RECIPES[recipe], re.DOTALL)
    (toml,) = re.findall(r"```toml\n(.*?)```", RECIPES[recipe], re.DOTALL)
    (folder / "query.sql").write_text(query)
    (folder / "experiments.toml").write_text(toml)
    return ["import", f"{folder}/query.sql", "--experiments", f"{folder}/experiments.toml"]


def copied(database: duckdb.DuckDBPyConnection, select: str, file: Path, options: str = "") -> None:
    kind = {".csv": "csv", ".parquet": "parquet", ".ndjson": "json"}[file.suffix]
    database.execute(f"COPY ({select}) TO '{file}' (FORMAT {kind}{options})")


@pytest.fixture(scope="module")
def data() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(TABLES)
        yield database


@pytest.fixture
def run(store, monkeypatch) -> Callable[..., Any]:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
    with store.engine.begin() as connection:
        project = create_project(connection, "default")
        # Every unit is counted to the end: small differences end nothing before.
        apply_settings(connection, project.project_id, {"futility_margin": None})

    def command(*words: str) -> Any:
        result = CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return command


def arms(experiment: dict[str, Any]) -> dict[str, tuple[int, int]]:
    counted = experiment["arms"].items()
    return {arm: (count["units"], count["converting"]) for arm, count in counted}


# Rows of the landing page's file from its begin on, in which visitors stand in no order.
SOME = (60_000, (29_594, 3_604), (29_583, 3_526))
ALL = (1_000_000, (145_274, 17_489), (145_310, 17_264))


@needs_data
@pytest.mark.parametrize(("rows", "control", "treatment"), also_nightly([SOME], [ALL]))
def test_a_landing_page_without_effect_abstains_for_power(
    *, run, data, tmp_path, rows, control, treatment
) -> None:
    copied(data, f"FROM landed LIMIT {rows}", tmp_path / "ab_data.csv")
    (experiment,) = run(*written(VISITORS, tmp_path))["experiments"]
    assert arms(experiment) == {"control": control, "treatment": treatment}
    (contract,) = run("evaluate")
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "power")
    evidence = run("explain", experiment["experiment_id"])
    counts = evidence["counts"]
    assert counts["in_cells"] == control[0] + treatment[0]
    # 28 days of exposure are over: every block has closed.
    assert counts["open"] == counts["in_flight"] == 0
    for arm, count in arms(experiment).items():
        counted = evidence["arms"][arm]
        assert (counted["units"], counted["conversions"]) == count


@needs_data
def test_two_e_mails_with_large_effects_are_both_kept_against_one_control(run, tmp_path) -> None:
    (tmp_path / "hillstrom.csv.gz").write_bytes((DATA / "hillstrom.csv.gz").read_bytes())
    mens, womens = run(*written(EMAILS, tmp_path))["experiments"]
    assert arms(mens) == {"control": (21_306, 2_262), "treatment": (21_307, 3_894)}
    assert arms(womens) == {"control": (21_306, 2_262), "treatment": (21_387, 3_238)}
    contracts = {contract["experiment_id"]: contract for contract in run("evaluate")}
    # The truth, over all customers: 18.276 % and 15.140 % against 10.617 %.
    for experiment, lift in ((mens, 0.18276 - 0.10617), (womens, 0.15140 - 0.10617)):
        contract = contracts[experiment["experiment_id"]]
        assert contract["verdict"] == "keep"
        low, high = contract["ci"]
        assert low <= lift <= high


@needs_data
@pytest.mark.parametrize("recipe", FORMS)
def test_the_landing_page_in_each_form_has_the_same_counts(run, data, tmp_path, recipe) -> None:
    for name, select in FORMS[recipe].items():
        copied(data, select, tmp_path / name)
    report = run(*written(recipe, tmp_path), "--dry-run")
    (experiment,) = report["experiments"]
    truth = data.execute(
        "SELECT count(DISTINCT id), count(DISTINCT id) FILTER (converted) FROM visitor"
        " GROUP BY arm ORDER BY arm DESC"
    ).fetchall()
    assert list(arms(experiment).values()) == truth
    first = data.execute("SELECT CAST(min(seen) AS VARCHAR) FROM visitor").fetchall()
    assert report["first"].startswith(first[0][0])
    unknown = "empty" in {each["reason"] for each in experiment["left_out"]}
    assert unknown == ("not known" in recipe)


@needs_data
def test_revenue_of_the_e_mails_is_its_mean_in_cents(run, data, tmp_path) -> None:
    select = """
        SELECT id, CASE segment WHEN 'No E-Mail' THEN 'old' ELSE 'new' END AS variant,
            strftime(DATE '2026-11-01' + CAST(hash(id) % 9 AS INT), '%d.%m.%Y') AS day,
            replace(CAST(spend AS VARCHAR), '.', ',') AS amount
        FROM customer WHERE segment <> 'Womens E-Mail'
    """
    copied(data, select, tmp_path / "units.csv", ", DELIMITER ';'")
    (experiment,) = run(*written("Revenue of each unit", tmp_path), "--dry-run")["experiments"]
    truth = data.execute(
        "SELECT count(*), sum(round(spend * 100)) FROM customer WHERE segment <> 'Womens E-Mail'"
        " GROUP BY segment ORDER BY segment DESC"
    ).fetchall()
    counted = [(arm["units"], arm["total"]) for arm in experiment["arms"].values()]
    assert counted == [(units, pytest.approx(total)) for units, total in truth]


@needs_data
def test_visitors_of_both_groups_count_in_the_first_the_last_or_neither(
    run, data, tmp_path
) -> None:
    copied(data, "FROM landed LIMIT 60000", tmp_path / "ab_data.csv")
    words = written("Units of both arms", tmp_path)
    query = (tmp_path / "query.sql").read_text()
    first = 'QUALIFY "group" = first("group") OVER (PARTITION BY user_id ORDER BY "timestamp")'
    (neither,) = re.findall(r"`(QUALIFY min.*?)`", RECIPES["Units of both arms"])
    last = first.replace('"timestamp"', '"timestamp" DESC')
    group = {
        first: 'arg_min("group", "timestamp")',
        last: 'arg_max("group", "timestamp")',
        neither: 'CASE WHEN min("group") = max("group") THEN min("group") END',
    }
    for clause, counted in group.items():
        assert first in query
        (tmp_path / "query.sql").write_text(query.replace(first, clause))
        (experiment,) = run(*words, "--dry-run")["experiments"]
        truth = data.execute(
            f"SELECT count(*) FROM (SELECT {counted} AS arm FROM (FROM landed LIMIT 60000)"
            " GROUP BY user_id) WHERE arm IS NOT NULL GROUP BY arm ORDER BY arm"
        ).fetchall()
        assert [(units,) for units, _ in arms(experiment).values()] == truth


ROWS = re.findall(r"^\| [^|]+ \| `(.+)` \| `(.+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("written_as", "meant"), ROWS)
def test_the_page_says_what_duckdb_makes_of_each_form(written_as, meant) -> None:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        ((made,),) = database.execute(f"SELECT {written_as}").fetchall()
    is_time = hasattr(made, "strftime")
    shown = f"{made:%Y-%m-%dT%H:%M:%SZ}" if is_time else str(made).lower().removesuffix(".0")
    assert shown == meant


@pytest.mark.parametrize(
    ("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]
)
def test_a_duration_of_parquet_is_a_whole_number_in_its_writers_unit(
    tmp_path, unit, per_second
) -> None:
    cells = pa.array([90 * per_second], pa.duration(unit))
    parquet.write_table(pa.table({"delay": cells}), tmp_path / "delays.parquet")
    read = duckdb.sql(f"SELECT delay FROM '{tmp_path}/delays.parquet'").fetchall()
    assert read == [(90 * per_second,)]
