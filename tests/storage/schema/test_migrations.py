"""The store is made whole by a single revision; a store of another version is left as it is."""

import hashlib

import pytest
from sqlalchemy import create_mock_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.base import Executable

from domain.contract import waiting_contract
from domain.document import document_text
from storage.schema.annex_tables import metadata
from storage.schema.migrate import VERSION, StoreVersionError, upgrade


def test_tables_that_changed_take_the_next_version() -> None:
    statements = []

    def note(statement: Executable, *_: object, **__: object) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)))

    engine = create_mock_engine("postgresql+psycopg://", note)
    metadata.create_all(engine, checkfirst=False)
    digest = hashlib.sha256("\n".join(sorted(statements)).encode()).hexdigest()
    assert (VERSION, digest[:16]) == ("0080", "12ac7dd909312e97"), "see storage/schema/migrate.py"


@pytest.mark.parametrize("version", [f"{int(VERSION) + step:04}" for step in (-1, 1)])
def test_a_store_of_another_version_is_left_as_it_is(store, version) -> None:
    with store.engine.begin() as connection:
        insert_verdict(connection, decided=True)
        connection.execute(text("DROP TABLE freezes"))
        connection.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": version})
    with pytest.raises(StoreVersionError, match=f"the store is of version {version}"):
        upgrade(store.url)
    with store.engine.begin() as connection:
        assert connection.execute(text("SELECT to_regclass('freezes')")).scalar_one() is None
        assert connection.execute(text("SELECT decided FROM verdicts")).scalar_one()
        stands = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
    assert stands == version


def test_making_the_store_again_changes_nothing(store) -> None:
    with store.engine.begin() as connection:
        insert_verdict(connection, decided=True)
    upgrade(store.url)
    with store.engine.begin() as connection:
        assert connection.execute(text("SELECT decided FROM verdicts")).scalar_one()


def insert_verdict(connection, *, decided: bool) -> None:
    contract = document_text(waiting_contract("exp_1", decided=decided))
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
def test_the_database_refuses_to_rewrite_a_decided_verdict(store, statement) -> None:
    with store.engine.begin() as connection:
        insert_verdict(connection, decided=True)
    with pytest.raises(IntegrityError, match="never rewritten"), store.engine.begin() as other:
        other.execute(text(statement))


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
