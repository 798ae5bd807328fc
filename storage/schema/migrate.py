"""The version of the store: a revision makes it, and a store of another version is refused."""

from pathlib import Path

from sqlalchemy import Connection, text

from storage.postgres.engine import SCHEMA, open_engine

# A change of the tables takes the next number. Versions are numbers of four digits, so that text
# compares like them. Until a first release no store of an earlier version is upgraded.
VERSION = "0080"

_MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 7_246_003


class StoreVersionError(RuntimeError):
    """The store is of another version than this code; the message says which, and the cure."""


class EmptyStoreError(StoreVersionError):
    """The store has no tables yet."""


def upgrade(url: str) -> None:
    """Makes the tables of the store at `url`; harmless when they are there already.

    Raises:
        StoreVersionError: It has those of another version.
    """
    # A tenth of a second of CPU, which who only asks for the version does without.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    engine = open_engine(url, pool_size=1)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    try:
        with engine.begin() as connection:
            # Several processes may start at once on a new store.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
            refuse_unknown_version(connection)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def is_newest(connection: Connection) -> bool:
    """Tells whether the store is of this version."""
    return _stored(connection) == VERSION


def refuse_unknown_version(connection: Connection) -> None:
    """Refuses a store whose tables are those of another version, and may mean something else.

    Raises:
        StoreVersionError: A later version has made it, or an earlier version.
    """
    stored = _stored(connection)
    if stored is None or stored == VERSION:
        return
    if stored < VERSION:
        raise StoreVersionError(
            f"the store is of version {stored}, older than this deploy-reward, which makes"
            f" {VERSION} and upgrades no store before its first release: start anew with an empty"
            " database, or in another folder by --data-dir"
        )
    raise StoreVersionError(
        f"the store is of version {stored}, newer than this deploy-reward, which makes {VERSION}:"
        " install the version that made it"
    )


def refuse_other_version(connection: Connection) -> None:
    """Refuses a store that is not of this version.

    Raises:
        EmptyStoreError: It has no tables yet.
        StoreVersionError: A later version has made it, or an earlier version.
    """
    refuse_unknown_version(connection)
    if _stored(connection) is None:
        raise EmptyStoreError(
            "the store has no tables of deploy-reward yet: run `deploy-reward migrate`"
        )


def _stored(connection: Connection) -> str | None:
    """Returns the version that Alembic noted."""
    if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar_one() is None:
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
