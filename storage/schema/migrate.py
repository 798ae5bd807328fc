"""Migrations of the store: from nothing, or from any version since 0029, to this one."""

from functools import lru_cache
from pathlib import Path

from sqlalchemy import Connection, text

from storage.postgres.engine import SCHEMA, open_engine

_MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 7_246_003


class StoreVersionError(RuntimeError):
    """The store is of another version than this code; the message says which is newer."""


class OlderStoreError(StoreVersionError):
    """The store was not migrated to the version of this code."""


class NewerStoreError(StoreVersionError):
    """The store was migrated by a later version than this code."""


class PrereleaseStoreError(StoreVersionError):
    """The store is older than the first version that this code can upgrade."""


def upgrade(url: str) -> None:
    """Brings the store at `url` to the newest version; harmless when it is there already.

    Raises:
        NewerStoreError: A later version has migrated it.
        PrereleaseStoreError: Its version is too old to be upgraded.
    """
    # A tenth of a second of CPU, which who only asks for the version does without.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    engine = open_engine(url, pool_size=1)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    try:
        with engine.begin() as connection:
            # Several processes may start at once on one new store.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
            refuse_unknown_version(connection)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def is_newest(connection: Connection) -> bool:
    """Tells whether the store is of this version."""
    return _stored(connection) == _known()[0]


def refuse_unknown_version(connection: Connection) -> None:
    """Refuse a store of a version that no migration of this code leads from.

    Raises:
        NewerStoreError: A later version has migrated it; its tables may mean something else.
        PrereleaseStoreError: Its version is too old to be upgraded.
    """
    stored, known = _stored(connection), _known()
    if stored is None or stored in known:
        return
    # Versions are numbers of four digits, so that text compares like them.
    if stored < known[-1]:
        raise PrereleaseStoreError(
            f"the store is of version {stored}, too old to be upgraded, which goes from {known[-1]}"
            " on: back it up and stay with the deploy-reward that made it, or start anew with an"
            " empty database or data directory"
        )
    raise NewerStoreError(
        f"the store is of version {stored}, newer than this deploy-reward, which knows it up"
        f" to {known[0]}: install the version that migrated it"
    )


def refuse_other_version(connection: Connection) -> None:
    """Refuse a store that is not of this version.

    Raises:
        NewerStoreError: A later version has migrated it.
        OlderStoreError: It was not migrated to this one.
        PrereleaseStoreError: Its version is too old to be upgraded.
    """
    refuse_unknown_version(connection)
    stored, newest = _stored(connection), _known()[0]
    if stored is None:
        raise OlderStoreError(
            "the store has no tables of deploy-reward yet: run `deploy-reward migrate`"
        )
    if stored != newest:
        raise OlderStoreError(
            f"the store is of version {stored}, older than this deploy-reward, which needs"
            f" {newest}: run `deploy-reward migrate`"
        )


def _stored(connection: Connection) -> str | None:
    """Returns the version that Alembic noted."""
    if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar_one() is None:
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


@lru_cache(maxsize=1)
def _known() -> tuple[str, ...]:
    """Returns every version from the newest to the first: their files' names begin with them."""
    files = (_MIGRATIONS / "versions").glob("[0-9]*.py")
    return tuple(sorted((file.name[:4] for file in files), reverse=True))
