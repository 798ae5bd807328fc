"""`metrics`: what a dbt project measures already is measured here, or refused with a reason."""

import json
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from orchestration.component import DbtProject, DeployReward
from storage.tenants.keys import KeyKind

pytestmark = pytest.mark.shared_store

# As dbt 1.11 wrote it of the project in benchmarks/outside/test_dbt.py, less what is not read.
MANIFEST = Path(__file__).with_name("dbt_manifest.json")
TEAM = {"plan": ["team", "pro"], "renewed": ["false"]}
LATE = {"window_seconds": 86_400, "grace_seconds": 259_200}
WRITTEN: dict[str, dict[str, Any]] = {
    "deals": {"sources": ["deals"], "kind": "mean"},
    "deal_value": {"sources": ["deal_value"], "kind": "mean"},
    "accounts_with_deals": {"sources": ["accounts_with_deals"], "kind": "conversion"},
    "distinct_deals": {"sources": ["distinct_deals"], "kind": "mean"},
    "renewals": {"sources": ["renewals"], "kind": "mean"},
    "signups": {"sources": ["signups"], "kind": "conversion"},
    "team_deals": {"sources": ["deals"], "kind": "mean", "where": TEAM},
    "team_share": {"sources": ["deals"], "kind": "ratio", "where": TEAM, "per": ["deals"]},
}
_NO_VALUES = "a filter asks for values of properties, and not: {{ Dimension('deal__plan') }} "
REFUSED = {
    "distinct_plans": "distinct values of plan are no sum over units",
    "median_value": "median of rows is no sum over units",
    "open_value": "its rows are states of a time, and do not add up",
    "lifetime_value": "a row of accounts is the account itself, and no event",
    "line_value": "lines has no entity account: its rows are of no unit",
    "large_deals": f"{_NO_VALUES}> 'a'",
    "swiss_deals": "its filter reads account__country, which is none of deals",
    "quoted_deals": f"{_NO_VALUES}= 'team'' or true",
    "value_a_deal": "a ratio counts each event as 1, and deal_value is sum of cents / 100.0",
    "deals_of_team": "the events below a ratio's line have no filter",
    "value_in_cents": "arithmetic of metrics has no test: measure its parts",
    "value_so_far": "a total over time is no outcome of a unit: measure what it sums",
    "signup_to_deal": "its base is an event, and an experiment's is the exposure:"
    " measure what follows",
}


def test_each_metric_is_written_as_settings_or_refused_with_a_reason(command) -> None:
    result = command("metrics", "--dbt", MANIFEST)
    assert result.exit_code == 0, result.output
    assert tomllib.loads(result.stdout)["metrics"] == {
        name: {**each, **LATE} for name, each in WRITTEN.items()
    }
    refused = [line[2:].split(": ", 1) for line in result.stdout.splitlines() if line[:2] == "# "]
    assert dict(refused) == REFUSED
    assert result.stderr == "8 of 21 by account\n"


def test_a_semantic_manifest_goes_before_and_another_unit_can_be_named(command, tmp_path) -> None:
    document = json.loads(MANIFEST.read_text())
    document["metrics"] = document["metrics"][:1]
    semantic = tmp_path / "semantic_manifest.json"
    semantic.write_text(json.dumps(document))
    result = command("metrics", "--dbt", MANIFEST, "--semantic", semantic, "--unit", "deal")
    assert result.stderr == "1 of 1 by deal\n"


def test_a_query_sends_what_a_ratio_s_own_filter_asks_for_and_no_other_value(
    command, tmp_path
) -> None:
    document = json.loads(MANIFEST.read_text())
    metrics = {each["name"]: each for each in document["metrics"]}
    numerator = {"name": "deals", "filter": metrics["team_deals"]["filter"]}
    metrics["team_share"]["type_params"]["numerator"] = numerator
    document["metrics"] = [metrics["deals"], metrics["team_share"]]
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(document))
    query = command("metrics", "--dbt", file, "--query").stdout
    with duckdb.connect() as database:
        database.execute("ATTACH ':memory:' AS dbt")
        database.execute(
            "CREATE TABLE dbt.main.deals AS SELECT *, plan AS account_id, now() AS won_at FROM"
            " (VALUES (1, 'team', false), (2, 'a \"quote\"', false), (3, 'pro', NULL))"
            " AS t (deal_id, plan, is_renewal)"
        )
        rows = database.execute(f"SELECT event_id, properties FROM ({query})").fetchall()
    assert {event: json.loads(properties) for event, properties in rows} == {
        "deals-1": {"plan": "team", "renewed": "false"},
        "deals-2": {"plan": "", "renewed": "false"},
        "deals-3": {"plan": "pro", "renewed": ""},
    }


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("{}", (), "no manifest of dbt with semantic models"),
        ("[]", (), "no manifest of dbt with semantic models"),
        ("x", (), "no manifest of dbt with semantic models"),
        (None, ("--unit", "visitor"), "name the unit: --unit visitor of account, deal, line"),
    ],
)
def test_what_is_no_manifest_and_no_unit_is_said_in_a_line(
    command, tmp_path, text, words, said
) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(MANIFEST.read_text() if text is None else text)
    result = command("metrics", "--dbt", file, *words)
    assert (result.exit_code, result.output.count("\n"), said in result.output) == (1, 1, True)


def test_a_metric_of_a_warehouse_gets_its_verdict(served, command, tmp_path, monkeypatch) -> None:
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
    settings = tomllib.loads(command("metrics", "--dbt", MANIFEST).stdout)
    served.settings(unit="user", locked=[], **settings)
    monkeypatch.setenv("SERVICE_PROJECT_KEY", served.project.keys[KeyKind.WRITE])
    base, canary = "a" * 40, "c" * 40
    served.begin = start
    served.deploy(base, minutes=-1440)
    served.deploy(canary, 0.5, minutes=0, base=base)
    accounts = range(2000)
    for number in accounts:
        served.events.append(
            {
                "event": "page_view",
                "session_id": f"s{number}",
                "user_ref": f"a{number}",
                "commit": canary if number % 2 else base,
                "occurred_at": served.at(number * 0.1),
            }
        )
    served.send()
    with duckdb.connect(str(tmp_path / "dbt.duckdb")) as database:
        # Every second account of control's buys, and every of treatment's.
        database.execute(
            "CREATE TABLE deals AS SELECT i AS deal_id, 'a' || i AS account_id,"
            f" TIMESTAMP '{start:%Y-%m-%d %H:%M:%S}' + to_seconds(i * 6 + 60) AS won_at,"
            " 'team' AS plan, false AS is_renewal, 1000 AS cents"
            " FROM range(2000) AS t (i) WHERE i % 2 = 1 OR i % 4 = 0"
        )
        database.execute(
            "CREATE TABLE accounts AS SELECT 'a0' AS account_id, now() AS signed_up_at LIMIT 0"
        )
        query = command("metrics", "--dbt", MANIFEST, "--query").stdout
        database.execute(f"COPY ({query}) TO '{tmp_path / 'rows.parquet'}' (FORMAT parquet)")
    experiment = served.register(treatment_commit=canary, target_metric="team_deals", guardrails=[])
    sent = command("outcomes", tmp_path / "rows.parquet")
    assert sent.exit_code == 0, sent.output
    # The window, and the days in which its orders may come, are over.
    served.tick(minutes=6 * 1440)
    evidence = served.evidence(experiment)
    arms = evidence["arms"]
    # A block of 50 has 12 or 13 orders of control.
    means = [arms[arm]["mean"] for arm in ("control", "treatment")]
    assert means == [pytest.approx(0.5, abs=0.02), 1.0]
    assert served.contract(experiment)["verdict"] == "keep"


@pytest.mark.filterwarnings("ignore:.*map_.*asset_specs")
def test_a_test_of_the_model_that_fails_holds_what_reads_it() -> None:
    dbt = DbtProject(manifest=str(MANIFEST), key_prefix=["marts"], database_env="WAREHOUSE_URL")
    ours = DeployReward(dbt=dbt).build_defs(dg.ComponentTree.for_test().load_context)
    passes = iter((False, True))

    @dg.asset(key=["marts", "deals"], check_specs=[_CHECK])
    def deals() -> Any:
        yield dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=next(passes))])

    defs = dg.Definitions.merge(ours, dg.Definitions(assets=[deals]))
    sender = dg.AssetKey(["deploy_reward", "deals"])
    graph = defs.resolve_asset_graph()
    assert graph.get(sender).parent_keys == {dg.AssetKey(["marts", "deals"])}
    assert sender in graph.get(dg.AssetKey(["deploy_reward", "runtime_events"])).parent_keys
    with dg.DagsterInstance.ephemeral() as instance:
        cursor, requested = None, list[int]()
        # The first look learns what there is; nothing is new to it.
        for materialized in (False, True, True):
            if materialized:
                dg.materialize([deals], instance=instance, raise_on_error=False)
            looked = dg.evaluate_automation_conditions(
                defs, instance, asset_selection=dg.AssetSelection.assets(sender), cursor=cursor
            )
            cursor = looked.cursor
            requested.append(looked.get_num_requested(sender))
    assert requested == [0, 0, 1]


_CHECK = dg.AssetCheckSpec("not_null", asset=dg.AssetKey(["marts", "deals"]), blocking=True)
