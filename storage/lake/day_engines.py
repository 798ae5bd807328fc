"""Day engines: which engine computes whole days, as the service's settings say, and its opening.

Of the past log DuckDB answers single readings as well.
"""

import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, text

from storage.experiments.readings import HISTORY_DAYS
from storage.lake.duckdb_engine import DuckDBEngine, DuckDBLimits, open_duckdb
from storage.lake.lake import Lake, store_lake
from storage.lake.reader import Extent, SealedLog, read_apart
from storage.lake.sealed_hours import moved_to
from storage.pipeline.engines.day_engine import DayEngine
from storage.pipeline.engines.engine import EngineError
from storage.pipeline.log_relations import attach_log
from storage.pipeline.moments import microseconds
from storage.schema.encoding import MICROSECOND, SKEW
from storage.schema.past_log import PastFiles, UnansweredError, written

ENGINE = "SERVICE_ENGINE"
MEMORY, THREADS = "SERVICE_ENGINE_MEMORY_MIB", "SERVICE_ENGINE_THREADS"
REMOTE, PORT = "SERVICE_SPARK_REMOTE", 15002
DUCKDB, SPARK = "duckdb", "spark"


@dataclass(frozen=True, kw_only=True)
class DayEngineSettings:
    """Which engine computes whole days.

    Attributes:
        seconds: How long a step may take; None for as long as it needs.
        spark_remote: The Spark Connect server that computes in its place, if any. It may hold a
            token.
    """

    limits: DuckDBLimits = field(default_factory=DuckDBLimits)
    seconds: float | None = None
    spark_remote: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The engine's name, as SERVICE_ENGINE says it."""
        return DUCKDB if self.spark_remote is None else SPARK


def day_engine_settings(environment: Mapping[str, str] = os.environ) -> DayEngineSettings:
    """Returns the settings that the environment names.

    Raises:
        EngineError: An engine cannot be used; the message names the variable and what to do.
    """
    default = DuckDBLimits()
    return DayEngineSettings(
        limits=DuckDBLimits(
            memory_mib=_positive(environment, MEMORY, default.memory_mib),
            threads=_positive(environment, THREADS, default.threads),
        ),
        spark_remote=_spark_remote(environment),
    )


def _positive(environment: Mapping[str, str], variable: str, default: int) -> int:
    text = environment.get(variable, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise EngineError(f"{variable} is {text!r}: it must be a positive whole number")
    return int(text)


def _spark_remote(environment: Mapping[str, str]) -> str | None:
    name = environment.get(ENGINE, "").strip() or DUCKDB
    if name not in {DUCKDB, SPARK}:
        raise EngineError(f"{ENGINE} is {name!r}: it must be {DUCKDB} or {SPARK}")
    if name == DUCKDB:
        return None
    remote = environment.get(REMOTE, "").strip()
    example = f"such as sc://spark.example:{PORT}"
    if not remote:
        raise EngineError(
            f"{ENGINE} is {SPARK!r}, and {REMOTE} is not set: name a Spark Connect server,"
            f" {example}"
        )
    if not _is_remote(remote):
        # Not shown: it may hold a token.
        raise EngineError(f"{REMOTE} is no address of a Spark Connect server, {example}")
    return remote


def _is_remote(text: str) -> bool:
    try:
        address = urlsplit(text)
        return address.scheme == "sc" and bool(address.hostname) and address.port != 0
    except ValueError:
        return False


@contextmanager
def open_day_engine(settings: DayEngineSettings, *, lake: Lake) -> Generator[DayEngine]:
    """Yields the engine of the settings, with nothing in it."""
    if settings.spark_remote is None:
        with open_duckdb(settings.limits, seconds=settings.seconds) as engine:
            yield engine
    else:
        # An engine beside this process is a plugin of the core: pyproject.toml names it.
        (plugin,) = entry_points(group="deploy_reward.engines", name=SPARK)
        opened = plugin.load()(settings.spark_remote, lake=lake, seconds=settings.seconds)
        with opened as engine:
            yield engine


# --- The past log ---------------------------------------------------------------------------------

_OF_PLACE = "project_id = :project_id AND received >= :{since} AND received < :{before}"
_IN_FILES = {
    "events": f"""(
    SELECT event, session_id, occurred + CASE
            WHEN received - sent NOT BETWEEN {-SKEW} AND {SKEW} THEN received - sent ELSE 0
        END AS occurred,
        received, commit_sha, route, pseudonym, trusted, signed, value, flags, properties
    FROM events WHERE environment = :environment AND {_OF_PLACE}
)""",
    "revenue": f"""(
    SELECT * FROM revenue_events
    WHERE coalesce(environment, :environment) = :environment AND {_OF_PLACE}
)""",
}
_FLAG = DuckDBEngine.dialect.flag.replace("e.flags", "flags").replace("s.flag", ":flag")
_PROPERTY = "json_extract_string({column}, '$.\"{name}\"')"
_PARAMETER = re.compile(r":(\w+)")


@dataclass(kw_only=True)
class _ReadFiles:
    """The past log, opened where a reading needs it."""

    connection: Connection
    lake: Lake | None
    log: SealedLog | None
    always: bool
    stack: ExitStack
    _moved_to: int | None = None
    _engine: DuckDBEngine | None = None
    _extent: Extent | None = None

    def rows(
        self, reading: str, parameters: Mapping[str, object], *, seconds: float
    ) -> Sequence[Any] | None:
        values: Any = parameters
        if not self.always and values["since"] >= self._moved():
            return None
        import duckdb  # noqa: PLC0415 - it takes long to load, as its engine says

        place = (values["project_id"], values["environment"])
        engine = self._reading(place, values["since"], values["before"])
        sql = written(reading, _IN_FILES, flag=_FLAG, value=_PROPERTY)
        named = {name: values[name] for name in _PARAMETER.findall(sql)}
        try:
            return engine.answer(_PARAMETER.sub(r"$\1", sql), named, seconds=seconds)
        except duckdb.InterruptException as error:
            raise UnansweredError from error

    def _moved(self) -> int:
        """Returns up to when PostgreSQL may lack events."""
        if self._moved_to is None:
            # No day is moved from here on, until the transaction ends.
            self.connection.execute(text("LOCK TABLE runtime_events IN ACCESS SHARE MODE"))
            moved = moved_to(self.connection)
            self._moved_to = 0 if moved is None else microseconds(moved)
        return self._moved_to

    def _reading(self, place: tuple[int, str], since: int, before: int) -> DuckDBEngine:
        """Returns an engine in which the events and the revenue of some days are relations."""
        if self.log is None:
            store = self.connection.engine
            lake = store_lake(store) if self.lake is None else self.lake
            self.log = self.stack.enter_context(read_apart(store, lake))
        if self._engine is None:
            limits = day_engine_settings().limits
            self._engine = self.stack.enter_context(open_duckdb(limits))
        held = self._extent
        if (
            held is None
            or place not in held.environments
            or not held.received_from <= since <= before <= held.received_to
        ):
            # Most readings are of these days.
            begins = min(since, before - HISTORY_DAYS // MICROSECOND)
            self._extent = Extent(
                named_from=begins,
                received_from=begins,
                received_to=before,
                environments=frozenset({place}),
                with_properties=True,
            )
            with self.log.rows(self._extent) as rows:
                attach_log(self._engine, rows)
        return self._engine


@contextmanager
def past_files(
    connection: Connection,
    *,
    lake: Lake | None = None,
    log: SealedLog | None = None,
    always: bool = False,
) -> Generator[PastFiles]:
    """Yields the past log in its files, read by DuckDB in this process; nothing is opened before.

    Args:
        connection: In a transaction.
        lake: None for that of the store.
        log: Where a transaction has opened it already.
        always: Whether PostgreSQL is read by no reading, also where it has all events.
    """
    with ExitStack() as stack:
        yield _ReadFiles(connection=connection, lake=lake, log=log, always=always, stack=stack)
