"""The resources: the store, and what the definitions hand to the assets beside it."""

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg
from pydantic import Field, PrivateAttr

from orchestration.dagster.keys import PREFIX, STORE_TAG
from storage.postgres.data_dir import default_data_dir, running_url

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy import Engine as Pool

    from orchestration.pipeline.steps import WholeDays
    from storage.pipeline.moments import Days
    from storage.postgres.run_lock import RunLock

# The retries take a minute in all, longer than a managed PostgreSQL takes to fail over.
RETRIES = dg.RetryPolicy(
    max_retries=6, delay=1, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)


class StoreNotFoundError(RuntimeError):
    """No database was named, and none runs on the data directory; the message says what to do."""


def store_url() -> str:
    """Returns the address of the store that the environment names, or that runs here."""
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
        """Opens the pool of connections that a run's steps share, and holds the lock of the run."""
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
        """The pool of connections; there is none outside of a run or a tick."""
        if self._engine is None:
            raise StoreNotFoundError("the store is open only while a run or a tick lasts")
        return self._engine

    @contextmanager
    def reading(self) -> "Generator[Connection]":
        """Yields a connection in a transaction that writes no derived table."""
        with tried_again_when_lost(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def step(self, stage: str) -> "Generator[Connection]":
        """Yields a connection in a step's transaction, which is the only writer of derived tables.

        Args:
            stage: The step, of `PIPELINE`: when it last ended and how often it failed is kept.
        """
        from orchestration.pipeline.failed_tick import failures_counted
        from storage.schema.clock import claim_derived_tables
        from storage.upkeep.ticks import note_step

        begun = time.monotonic()
        with (
            tried_again_when_lost(),
            failures_counted(self.engine, stage),
            self.engine.begin() as connection,
        ):
            claim_derived_tables(connection)
            yield connection
            note_step(connection, stage=stage, seconds=time.monotonic() - begun)


@dataclass(frozen=True, kw_only=True)
class DayResult:
    """A day that was computed anew from the log, and how it compared with the served rows.

    Attributes:
        is_cured: Whether the served rows are those of the log now, and their verdicts those served.
        unequal: The experiments whose rows, or whose decided verdicts, are not.
    """

    differing_hours: int
    is_cured: bool
    unequal: frozenset[str]


class Engine(Protocol):
    """Computes whole days for the assets, and checks them."""

    @property
    def days(self) -> "WholeDays":
        """The reader of whole days for the steps."""
        ...

    def check(
        self, context: dg.AssetExecutionContext, store: Store, days: "Days", *, swap: bool
    ) -> Mapping[date, DayResult]:
        """Computes days anew from the log, and reports the differences of each."""
        ...


class Answers(Protocol):
    """Shows the answers of a run, and frees the places of those that are answered."""

    def frozen(self, connection: "Connection") -> Mapping[str, dg.MetadataValue]:
        """Shows the policies that were frozen last, each with what it was read from."""
        ...

    def nearest(self, connection: "Connection") -> Mapping[str, dg.MetadataValue]:
        """Shows the open experiments nearest to an answer, by the change's title."""
        ...

    def decided(self, connection: "Connection") -> Mapping[str, dg.MetadataValue]:
        """Shows the experiments that were decided last, by the change's title."""
        ...

    def advance_places(self, begin: "Callable[[], AbstractContextManager[Connection]]") -> None:
        """Ends the places that were answered, and gives them to the changes that wait."""
        ...


@contextmanager
def tried_again_when_lost() -> Generator[None]:
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
