"""Whether the store's word that something is committed can be believed after a power failure."""

from collections.abc import Sequence

import psycopg

from storage.postgres.engine import connection_string, session_options

# Each alone is enough to lose, or to garble, what was acknowledged.
_PROMISES = ("fsync", "full_page_writes", "synchronous_commit")


class WeakStoreError(RuntimeError):
    """The store may lose committed transactions; the message says which settings to turn on."""


def weak_settings(url: str) -> Sequence[str]:
    """Returns which settings of the store are off that its promise to keep data rests on.

    Roles and databases can have settings of their own, so the question is put by a session like
    those that write.
    """
    with psycopg.connect(
        connection_string(url), options=session_options(), connect_timeout=5
    ) as connection:
        rows = connection.execute(
            "SELECT name FROM pg_settings WHERE name = ANY(%s) AND setting = 'off' ORDER BY name",
            [list(_PROMISES)],
        ).fetchall()
    return [name for (name,) in rows]


def refuse_weak_store(url: str) -> None:
    """Refuse a store that may lose committed transactions.

    Raises:
        WeakStoreError: Such a setting is off.
        psycopg.OperationalError: The store cannot be reached.
    """
    if weak := weak_settings(url):
        raise WeakStoreError(
            f"the store has {' and '.join(weak)} off and may lose what it has acknowledged:"
            f" turn {'it' if len(weak) == 1 else 'them'} on in PostgreSQL"
        )
