"""The run lock: held by a run's process while it lives, and free once that is gone."""

import hashlib
import threading
from collections.abc import Collection
from contextlib import suppress

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

_KEY = 7_246_021
_WATCH_SECONDS = 5.0
# The server ends the session of a machine that is gone within a minute, rather than two hours.
_KEEPALIVE = text("""
SELECT set_config('tcp_keepalives_idle', '20', false),
    set_config('tcp_keepalives_interval', '10', false),
    set_config('tcp_keepalives_count', '3', false)
""")
_LOCK = text("SELECT pg_advisory_lock(:key, hashtext(:run_id))")
_FREE = text("""
SELECT run_id FROM unnest(CAST(:run_ids AS text[])) AS run_id
WHERE NOT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND classid = CAST(:key AS bigint)::oid
      AND objid = (hashtext(run_id)::bigint & 4294967295)::oid AND objsubid = 2
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
""")


class RunLock(threading.Thread):
    """Holds the lock of a run in a session of its own, again where that is lost."""

    def __init__(self, engine: Engine, run_id: str) -> None:
        super().__init__(name="run lock", daemon=True)
        self._engine, self._run_id = engine, run_id
        self._held, self._released = threading.Event(), threading.Event()

    def hold(self) -> None:
        """Takes the lock; where the store is away, once that is back."""
        self.start()
        self._held.wait(_WATCH_SECONDS)

    def release(self) -> None:
        """Frees the lock."""
        self._released.set()
        self.join()

    def run(self) -> None:
        """Holds the lock until it is released."""
        while not self._released.is_set():
            with suppress(DBAPIError), self._engine.connect() as connection:
                connection.execution_options(isolation_level="AUTOCOMMIT")
                # It is closed at the end rather than used again: the lock ends with the session.
                connection.detach()
                self._watch(connection)
            self._released.wait(1.0)

    def _watch(self, connection: Connection) -> None:
        connection.execute(_KEEPALIVE)
        connection.execute(_LOCK, {"key": _KEY, "run_id": self._run_id})
        self._held.set()
        while not self._released.wait(_WATCH_SECONDS):
            connection.execute(text("SELECT 1"))


def free_runs(connection: Connection, run_ids: Collection[str]) -> set[str]:
    """Returns the runs whose lock nobody holds."""
    bound = {"key": _KEY, "run_ids": list(run_ids)}
    return set(connection.execute(_FREE, bound).scalars())


def place_of(engine: Engine) -> str:
    """Returns a digest of a store's address, which no other store has."""
    url = engine.url
    address = f"{url.host or url.query.get('host')}:{url.port}/{url.database}"
    return hashlib.sha256(address.encode()).hexdigest()[:12]
