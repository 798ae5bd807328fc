"""An upgrade announces nothing that was decided before, and keeps the addresses that were set."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, text

from domain.contract import contract, document_text
from storage.postgres.engine import SCHEMA, open_engine
from storage.schema import migrate
from storage.tenants.projects import find_project
from storage.tenants.settings import read_settings
from storage.verdicts.publication import Draft, publish_verdicts, stage_evidence
from tests.conftest import _administer, _database_url

LIFT = {"lift": 0.1, "confidence": 0.999, "ci": (0.05, 0.15)}
CONTRACTS: dict[str, dict[str, Any]] = {
    "exp_keep": {"verdict": "keep", "abstain_reason": None, "decided": True, **LIFT},
    "exp_closed": {"verdict": "abstain", "abstain_reason": "power", "decided": True},
    "exp_breached": {
        "verdict": "abstain",
        "abstain_reason": "interacting",
        "decided": False,
        "guardrail_breaches": ["error", "arrival"],
    },
    "exp_open": {"verdict": "abstain", "abstain_reason": "power", "decided": False},
}
ADDRESSES = [
    "https://ci.shop.example/hook?a=1",
    "https://ci.shop.example/hook?a=1",
    "http://shop.example/plain",
    "https://user@shop.example/",
    "https://169.254.169.254/",
    "https://shop.example:99999/",
    "not an address",
]


@pytest.fixture
def before(postgres_url: str) -> Iterator[tuple[str, Engine]]:
    """A store of the version before announcements, with verdicts in it."""
    name = f"test_{secrets.token_hex(6)}"
    _administer(postgres_url, "CREATE DATABASE {name}", name=name)
    url = _database_url(postgres_url, name)
    engine = open_engine(url)
    config = Config()
    config.set_main_option("script_location", str(migrate._MIGRATIONS))
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        config.attributes["connection"] = connection
        command.upgrade(config, "0005")
        connection.execute(
            text(
                "INSERT INTO projects (name, created_at, settings)"
                " VALUES ('shop', now(), jsonb_build_object('webhooks', CAST(:urls AS text[])))"
            ),
            {"urls": ADDRESSES},
        )
        for experiment_id, told in CONTRACTS.items():
            document = contract(experiment_id, **told)
            connection.execute(
                text(
                    "INSERT INTO experiments (experiment_id, project_id, registered_at, request,"
                    " target_metric, environment)"
                    " VALUES (:id, 1, now(), '{}', 'order', 'production')"
                ),
                {"id": experiment_id},
            )
            connection.execute(
                text(
                    "INSERT INTO verdicts (experiment_id, project_id, contract, evidence, verdict,"
                    " abstain_reason, decided, published_at) VALUES (:id, 1, :contract,"
                    ' \'{"sentence": "So."}\', :verdict, :reason, :decided, now())'
                ),
                {
                    "id": experiment_id,
                    "contract": document_text(document),
                    "verdict": document["verdict"],
                    "reason": document["abstain_reason"],
                    "decided": told["decided"],
                },
            )
    yield url, engine
    engine.dispose()
    _administer(postgres_url, "DROP DATABASE {name} WITH (FORCE)", name=name)


def test_what_was_told_before_an_upgrade_is_announced_neither_by_it_nor_by_a_rebuild_after_it(
    before: tuple[str, Engine],
) -> None:
    url, engine = before
    migrate.upgrade(url)
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text("TRUNCATE verdicts"))
        drafts = [
            Draft(
                experiment_id=experiment_id,
                document='{"sentence": "So."}',
                contract=document_text(contract(experiment_id, **told)),
                as_of=None,
                next_look_at=None,
            )
            for experiment_id, told in CONTRACTS.items()
        ]
        stage_evidence(connection, drafts)
        assert len(publish_verdicts(connection)) == len(drafts)
    with engine.begin() as connection:
        rows = connection.execute(
            text("SELECT experiment_id, kind, subject FROM announcements ORDER BY 1, 2, 3")
        ).all()
        assert [tuple(row) for row in rows] == [
            ("exp_breached", "breached", "arrival"),
            ("exp_breached", "breached", "error"),
            ("exp_breached", "set_up_fault", ""),
            ("exp_closed", "closed", ""),
            ("exp_keep", "decided", ""),
        ]
        assert connection.execute(text("SELECT count(*) FROM deliveries")).scalar_one() == 0


def test_an_upgrade_keeps_the_addresses_that_a_webhook_may_have(
    before: tuple[str, Engine],
) -> None:
    url, engine = before
    migrate.upgrade(url)
    with engine.begin() as connection:
        project_id = find_project(connection, "shop").project_id
        kept = read_settings(connection, project_id).webhooks
    assert [(one.url, one.format) for one in kept] == [(ADDRESSES[0], "raw")]
