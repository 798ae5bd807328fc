"""`rebuild`: what differs is swapped in at once, whatever else goes on in the store meanwhile."""

import json
import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Connection, Engine, text

from cli.main import main
from cli.operations.rebuild import LEFT_OUT
from domain.registration import Registration
from orchestration.pipeline.day_check import compare_days
from orchestration.pipeline.full_rebuild import rebuild_all
from orchestration.pipeline.steps import close_cells, expose, publish, stage
from orchestration.pipeline.whole_days import LakeDays
from storage.experiments.experiments import register
from storage.schema.clock import DERIVED_LOCK, claim_derived_tables
from storage.upkeep.forgetting import forget_person
from storage.upkeep.gone_events import days_dropped
from storage.upkeep.reading import REBUILD_LOCK, separate_reading
from storage.upkeep.retention import DEFAULT_DAYS, drop_old_days
from storage.views.published import read_set_aside
from tests.orchestration.conftest import TREATMENT
from tests.stores.barrier import await_waiting
from tests.stores.derived import between, derived_of
from tests.stores.pipeline_run import freeze_registered, run_pipeline

_SERVED = text("""
SELECT experiment_id, contract::text, evidence::text, published_at FROM verdicts ORDER BY 1
""")
# All that stands in the catalogue of our schema beside the rows, the tables' own numbers included.
_CATALOGUE = text("""
SELECT oid::text, relname, relkind::text, relacl::text, reloptions::text, reltriggers
FROM (
    SELECT c.oid, c.relname, c.relkind, c.relacl, c.reloptions,
        (SELECT string_agg(pg_get_triggerdef(t.oid), ' ' ORDER BY t.tgname)
         FROM pg_trigger AS t WHERE t.tgrelid = c.oid) AS reltriggers
    FROM pg_class AS c WHERE c.relnamespace = 'deploy_reward'::regnamespace
) AS relations
UNION ALL
SELECT oid::text, conname, contype::text, pg_get_constraintdef(oid), NULL, NULL
FROM pg_constraint WHERE connamespace = 'deploy_reward'::regnamespace
UNION ALL
SELECT indexrelid::text, indexrelid::regclass::text, 'index', pg_get_indexdef(indexrelid), NULL,
    NULL
FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid
WHERE c.relnamespace = 'deploy_reward'::regnamespace
ORDER BY 1, 2
""")


def served(engine: Engine) -> list[tuple[Any, ...]]:
    """Every verdict as it is served, and since when."""
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(_SERVED)]


def rebuild(*words: str) -> Result:
    return CliRunner().invoke(main, ["rebuild", *words])


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A rebuild that waits for whoever holds its lock, and threads for more work beside it."""

    holder: Connection
    threads: ThreadPoolExecutor
    rebuild: Future[Result]


@contextmanager
def swapped_and_waiting(engine: Engine) -> Generator[Waiting]:
    """A rebuild that waits to add what came meanwhile, for as long as this lasts."""
    # The lock is let go before the threads are waited for, whatever happens.
    with ThreadPoolExecutor(2) as threads, engine.begin() as holder:
        claim_derived_tables(holder)
        rebuilding = threads.submit(rebuild)
        await_waiting(engine, DERIVED_LOCK)
        yield Waiting(holder=holder, threads=threads, rebuild=rebuilding)


@pytest.fixture
def shop(walked) -> Any:
    assert walked.contract("click")["verdict"] == "keep"
    return walked


def test_what_was_lost_or_wrong_comes_back_and_the_catalogue_is_left_alone(shop) -> None:
    whole, verdicts = derived_of(shop.engine), served(shop.engine)
    shop.tamper(
        "GRANT SELECT ON cells TO pg_monitor",
        "DELETE FROM exposures WHERE unit LIKE 's1%'",
        "UPDATE cells SET n1 = n1 + 1, n0 = n0 + 2",
        "DELETE FROM sightings",
        "UPDATE block_units SET control = control + 1",
        "INSERT INTO conversions SELECT experiment_id, metric, 'nobody', received_at, late"
        " FROM conversions LIMIT 1",
        "DELETE FROM cursors WHERE stage = 'exposures'",
        "DELETE FROM next_looks",
        "DELETE FROM evidence",
    )
    assert derived_of(shop.engine) != whole
    with shop.engine.connect() as connection:
        catalogue = connection.execute(_CATALOGUE).all()

    result = rebuild("--json")

    assert (result.exit_code, result.stderr) == (0, "")
    contracts = json.loads(result.stdout)
    assert {each["experiment_id"] for each in contracts} == set(shop.experiments.values())
    assert derived_of(shop.engine) == whole
    assert served(shop.engine) == verdicts
    with shop.engine.connect() as connection:
        assert connection.execute(_CATALOGUE).all() == catalogue


@pytest.mark.nightly
def test_what_is_served_of_an_experiment_whose_data_breaks_a_stage_stays_as_it_is(shop) -> None:
    view = shop.experiments["view"]
    whole, verdicts = derived_of(shop.engine), served(shop.engine)
    shop.tamper("UPDATE cells SET n0 = n0 + 2 WHERE experiment_id <> '{view}'")
    policy = "SELECT policy::text FROM experiments WHERE experiment_id = :view"
    with shop.engine.begin() as connection:
        frozen = connection.execute(text(policy), {"view": view}).scalar_one()
    shop.tamper(
        'UPDATE experiments SET policy = policy || \'{{"block_min_units": "many"}}\''
        " WHERE experiment_id = '{view}'"
    )

    assert rebuild().exit_code == LEFT_OUT

    # As after any tick, its evidence warns that it is set aside.
    assert between(whole, derived_of(shop.engine)).keys() == {"evidence", "verdicts"}
    contracts = [(row[1], row[3]) for row in verdicts]
    assert [(row[1], row[3]) for row in served(shop.engine)] == contracts
    assert set_aside(shop.engine) == [view]
    with shop.engine.begin() as connection:
        connection.execute(
            text("UPDATE experiments SET policy = :frozen WHERE experiment_id = :view"),
            {"frozen": frozen, "view": view},
        )
    assert rebuild().exit_code == 0
    assert set_aside(shop.engine) == []
    assert derived_of(shop.engine) == whole


@pytest.mark.nightly
def test_a_server_that_ends_idle_transactions_lets_a_rebuild_end(shop) -> None:
    whole = derived_of(shop.engine)
    shop.tamper(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I"
        " SET idle_in_transaction_session_timeout = 1', current_database()); END $$",
        "DELETE FROM exposures",
    )

    assert rebuild().exit_code == 0

    assert derived_of(shop.engine) == whole


@pytest.mark.nightly
def test_sessions_of_any_characters_are_rebuilt_to_the_byte(canary) -> None:
    canary.tamper(
        "UPDATE runtime_events SET session_id = E's\\t\\\\.\\r\\n' WHERE session_id = 's41'",
        "UPDATE runtime_events SET session_id = E'\\\\N' WHERE session_id = 's43'",
        "UPDATE runtime_events SET session_id = 'Ünïcode 🛒' WHERE session_id = 's45'",
        "UPDATE runtime_events SET session_id = E'\"\n\\\\.\n,' WHERE session_id = 's47'",
    )
    run_pipeline(canary.engine)
    whole = derived_of(canary.engine)
    assert any("Ünïcode" in row for row in whole["exposures"])
    canary.tamper("DELETE FROM exposures", "DELETE FROM conversions")

    assert rebuild().exit_code == 0

    assert derived_of(canary.engine) == whole


def set_aside(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [failure.experiment_id for failure in read_set_aside(connection)]


def test_a_decided_verdict_that_the_log_gives_otherwise_is_named_and_stays(shop) -> None:
    click = shop.experiments["click"]
    shop.tamper(
        "UPDATE verdicts SET verdict = 'rollback',"
        " contract = replace(contract::text, '\"keep\"', '\"rollback\"')::json"
        " WHERE experiment_id = '{click}'"
    )
    before = served(shop.engine)

    result = rebuild()

    assert result.exit_code == 4
    assert f"{click} is decided rollback with a lift of " in result.stderr
    assert "but the log gives keep with a lift of " in result.stderr
    assert f"deploy-reward audit {click}" in result.stderr
    assert served(shop.engine) == before


def test_other_facts_of_the_same_verdict_are_said_and_are_no_failure(shop) -> None:
    shop.tamper(
        'UPDATE verdicts SET evidence = \'{{"as_of": null, "sentence": "Otherwise."}}\''
        " WHERE experiment_id = '{click}'"
    )
    before = served(shop.engine)

    result = rebuild()

    assert result.exit_code == 0
    assert f"{shop.experiments['click']}: the log gives the same verdict with" in result.stderr
    assert served(shop.engine) == before


def test_what_ticks_add_while_a_rebuild_computes_is_neither_lost_nor_doubled(walked) -> None:
    canary = walked
    with swapped_and_waiting(canary.engine) as waiting:
        holder = waiting.holder
        asked = Registration(treatment_commit=TREATMENT, target_metric="page_view")
        meanwhile = register(holder, canary.project_id, asked).experiment_id
        freeze_registered(holder)
        for step in (partial(expose, days=LakeDays()), partial(close_cells, days=LakeDays())):
            step(holder)
        stage(holder)
        publish(holder)
        holder.commit()
        ticked, before = served(canary.engine), derived_of(canary.engine)
    assert waiting.rebuild.result().exit_code == 0

    assert served(canary.engine) == ticked
    assert meanwhile in {row[0] for row in ticked}
    assert derived_of(canary.engine) == before
    run_pipeline(canary.engine)
    assert derived_of(canary.engine) == before
    assert differences(canary) == []


def test_rows_that_a_tick_writes_before_they_are_swapped_in_are_computed_once_more(shop) -> None:
    whole, damage = derived_of(shop.engine), "UPDATE cells SET n1 = n1 + 1"
    shop.tamper(damage)

    with swapped_and_waiting(shop.engine) as waiting:
        waiting.holder.execute(text(damage))
        waiting.holder.commit()
    assert waiting.rebuild.result().exit_code == 0

    assert derived_of(shop.engine) == whole


def differences(canary: Any) -> list[str]:
    """What the daily check finds of the canary's days."""
    first, last = canary.first_day.date(), (canary.first_day + timedelta(days=3)).date()
    with canary.engine.connect() as connection:
        as_of = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    with separate_reading(canary.engine) as separate:
        comparison = compare_days(separate, first, last, as_of=as_of)
    assert comparison.lives
    return [*(hour.sentence for hour in comparison.hours), *comparison.verdicts]


def test_whoever_is_forgotten_during_a_rebuild_does_not_come_back_by_it(shop) -> None:
    before = served(shop.engine)

    def forget() -> Any:
        with shop.engine.begin() as connection:
            return forget_person(connection, shop.project_id, "s42")

    with swapped_and_waiting(shop.engine) as waiting:
        forgetting = waiting.threads.submit(forget)
        await_waiting(shop.engine, REBUILD_LOCK)
    assert waiting.rebuild.result().exit_code == 0
    assert forgetting.result().exposures == len(shop.experiments)

    for table in ("runtime_events", "exposures", "conversions", "sightings", "amounts"):
        with shop.engine.connect() as connection:
            rows = connection.execute(text(f"SELECT t::text FROM {table} AS t")).scalars().all()
        assert not [row for row in rows if "s42," in row]
    assert served(shop.engine) == before
    erased = derived_of(shop.engine)
    assert rebuild().exit_code == 0
    assert derived_of(shop.engine) == erased
    assert differences(shop) == []


def test_a_day_that_is_gone_has_the_rebuild_refused(shop) -> None:
    before = derived_of(shop.engine)
    later = shop.first_day + timedelta(days=DEFAULT_DAYS + 60)
    # The days of an open or followed-up experiment stay.
    shop.tamper("UPDATE verdicts SET decided = true", "UPDATE follow_ups SET state = 'stopped'")
    assert drop_old_days(shop.engine, as_of=later, retention_days=DEFAULT_DAYS).dropped

    result = rebuild()
    assert result.exit_code == 3
    assert f"{shop.experiments['click']} (gone: " in result.stderr
    with shop.engine.connect() as connection:
        assert set(days_dropped(connection)) == set(shop.experiments.values())
    after = derived_of(shop.engine)
    assert {name: rows for name, rows in after.items() if name != "verdicts"} == {
        name: rows for name, rows in before.items() if name != "verdicts"
    }


@pytest.mark.nightly
def test_a_second_rebuild_says_that_it_waits_for_the_first(shop) -> None:
    whole, waited = derived_of(shop.engine), threading.Event()
    with swapped_and_waiting(shop.engine) as waiting:
        second = waiting.threads.submit(lambda: rebuild_all(shop.engine, waiting=waited.set))
        await_waiting(shop.engine, REBUILD_LOCK)
        assert waited.is_set()
    assert (waiting.rebuild.result().exit_code, second.result().differences) == (0, [])
    assert derived_of(shop.engine) == whole
