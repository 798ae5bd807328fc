"""Day engines: which engine computes whole days, as the service's settings say, and its opening."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from storage.lake.duckdb_engine import DuckDBLimits, open_duckdb
from storage.lake.lake import Lake
from storage.lake.spark_engine import PORT, REMOTE, open_spark
from storage.pipeline.engines.engine import DayEngine, EngineError

ENGINE = "SERVICE_ENGINE"
MEMORY, THREADS = "SERVICE_ENGINE_MEMORY_MIB", "SERVICE_ENGINE_THREADS"
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
    """Yields the engine of the settings, with nothing in it.

    Raises:
        EngineError: Spark is asked for, and cannot be used.
    """
    if settings.spark_remote is None:
        with open_duckdb(settings.limits, seconds=settings.seconds) as engine:
            yield engine
    else:
        with open_spark(settings.spark_remote, lake=lake, seconds=settings.seconds) as engine:
            yield engine
