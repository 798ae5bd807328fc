"""Migrations of the store: from any earlier version, or from nothing, to this one."""

from functools import lru_cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from storage.engine import open_engine
from storage.tables import SCHEMA

_MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 7_246_003


def upgrade(url: str) -> None:
    """Brings the store at `url` to the newest version; harmless when it is there already."""
    engine = open_engine(url, pool_size=1)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    try:
        with engine.begin() as connection:
            # Several processes may start at once on one new store.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def is_newest(connection: Connection) -> bool:
    """Tells whether the store is of this version."""
    return MigrationContext.configure(connection).get_current_revision() == _newest()


@lru_cache(maxsize=1)
def _newest() -> str | None:
    return ScriptDirectory(str(_MIGRATIONS)).get_current_head()
