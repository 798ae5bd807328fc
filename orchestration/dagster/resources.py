"""The resources: the store, and the engine that computes whole days."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field, PrivateAttr

from orchestration.dagster.keys import PREFIX, STORE_TAG
from storage.postgres.data_dir import default_data_dir, running_url

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy import Engine as Pool

    from storage.lake.day_engines import DayEngineSettings
    from storage.postgres.run_lock import RunLock

# The retries take a minute in all, longer than a managed PostgreSQL takes to fail over.
RETRIES = dg.RetryPolicy(
    max_retries=6, delay=1, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)


class StoreNotFoundError(RuntimeError):
    """No database was named, and none runs on the data directory; the message says what to do."""


def store_url() -> str:
    """Returns the address of the store that the environment names, or that runs here.

    Raises:
        StoreNotFoundError: There is neither.
    """
    if named := os.environ.get("SERVICE_DATABASE_URL"):
        return named
    data_dir = default_data_dir()
    if running := running_url(data_dir):
        return running
    raise StoreNotFoundError(
        f"no store: SERVICE_DATABASE_URL is not set, and no `deploy-reward up` runs on {data_dir};"
        " start it, or name its data directory in SERVICE_DATA_DIR"
    )


class Store(dg.ConfigurableResource[Any]):
    """The service's PostgreSQL; each step is a single transaction on it.

    Where its connection is lost below an asset or a check, that op is asked to be tried again. No
    retry policy stands on the ops themselves: it would repeat errors that are no better next time.
    """

    database_url: str | None = Field(
        default=None,
        description="By default SERVICE_DATABASE_URL, else the running embedded PostgreSQL.",
    )
    runs_are_processes: bool = Field(
        default=False,
        description="Whether each run of the code location is a single process, as those of our own"
        " jobs are. Where steps are processes, nobody holds a run's lock between two of them.",
    )
    _engine: "Pool | None" = PrivateAttr(default=None)
    _lock: "RunLock | None" = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Opens the pool of connections that a run's steps share, and holds the lock of the run.

        Raises:
            storage.migrate.StoreVersionError: The store is of another version.
        """
        from sqlalchemy.exc import OperationalError

        from storage.postgres.engine import open_engine
        from storage.postgres.run_lock import RunLock, place_of
        from storage.schema.migrate import StoreVersionError, refuse_other_version

        engine = open_engine(self.database_url or store_url(), pool_size=2)
        try:
            # A store that is away is met again by the steps, which wait for it.
            with suppress(OperationalError), engine.connect() as connection:
                refuse_other_version(connection)
        except StoreVersionError:
            engine.dispose()
            raise
        self._engine = engine
        run = context.run
        if run is None or context.instance is None:
            return
        if self.runs_are_processes or run.job_name.startswith(PREFIX):
            self._lock = RunLock(engine, run.run_id)
            self._lock.hold()
            # A run with the tag has held the lock.
            context.instance.add_run_tags(run.run_id, {STORE_TAG: place_of(engine)})

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002
        """Frees the lock and closes the pool."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    @property
    def engine(self) -> "Pool":
        """The pool of connections.

        Raises:
            StoreNotFoundError: Asked outside of a run or a tick.
        """
        if self._engine is None:
            raise StoreNotFoundError("the store is open only while a run or a tick lasts")
        return self._engine

    @contextmanager
    def reading(self) -> "Generator[Connection]":
        """Yields a connection in a transaction that writes no derived table."""
        with _tried_again_when_lost(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def step(self, stage: str) -> "Generator[Connection]":
        """Yields a connection in a step's transaction, which is the only writer of derived tables.

        Args:
            stage: The step, of `PIPELINE`: when it last ended and how often it failed is kept.
        """
        from orchestration.pipeline.failed_tick import failures_counted
        from storage.schema.clock import claim_derived_tables
        from storage.upkeep.gauges import note_step

        begun = time.monotonic()
        with (
            _tried_again_when_lost(),
            failures_counted(self.engine, stage),
            self.engine.begin() as connection,
        ):
            claim_derived_tables(connection)
            yield connection
            note_step(connection, stage=stage, seconds=time.monotonic() - begun)

    @contextmanager
    def separate_reading(self, *, swaps: bool = False) -> "Generator[Connection]":
        """Yields a connection on which the derived tables are empty and its own."""
        from storage.upkeep.reading import separate_reading

        with _tried_again_when_lost(), separate_reading(self.engine, swaps=swaps) as connection:
            yield connection


class Engine(dg.ConfigurableResource[Any]):
    """The engine of whole days: DuckDB in the run's own process, or Spark on a cluster."""

    name: str | None = Field(default=None, description="By default SERVICE_ENGINE, else duckdb.")
    spark_remote: str | None = Field(
        default=None,
        description="By default SERVICE_SPARK_REMOTE. Use an `EnvVar` where it holds a token.",
    )
    memory_mib: int | None = Field(
        default=None, description="By default SERVICE_ENGINE_MEMORY_MIB, else 1024."
    )
    threads: int | None = Field(
        default=None, description="By default SERVICE_ENGINE_THREADS, else 1."
    )

    @property
    def settings(self) -> "DayEngineSettings":
        """The settings.

        Raises:
            storage.pipeline.engines.engine.EngineError: An engine cannot be used.
        """
        from storage.lake.day_engines import ENGINE, MEMORY, REMOTE, THREADS, day_engine_settings

        chosen = {
            ENGINE: self.name,
            REMOTE: self.spark_remote,
            MEMORY: self.memory_mib,
            THREADS: self.threads,
        }
        named = {name: str(value) for name, value in chosen.items() if value is not None}
        return day_engine_settings({**os.environ, **named})


@contextmanager
def _tried_again_when_lost() -> Generator[None]:
    """Asks Dagster to try the op again that lost its connection; in a tick, the next heals."""
    from storage.upkeep.passing_error import is_passing

    try:
        yield
    except Exception as error:
        attempt = _attempt()
        if attempt is None or not is_passing(error):
            raise
        raise dg.RetryRequested(
            max_retries=RETRIES.max_retries, seconds_to_wait=RETRIES.calculate_delay(attempt)
        ) from error


def _attempt() -> int | None:
    """Returns which attempt of an op this is, from 1; None outside of any."""
    try:
        return dg.OpExecutionContext.get().retry_number + 1
    except dg.DagsterInvariantViolationError:
        return None
