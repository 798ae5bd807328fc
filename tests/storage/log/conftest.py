"""A store with a day of events in it, a lake beside it, and the log as a reader sees it."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlalchemy import Engine, text

from storage.lake.duckdb_engine import DuckDBLimits, open_duckdb
from storage.lake.lake import FolderLake
from storage.lake.reader import Extent, read_apart
from storage.lake.sealing import SealedRun, Sealer
from storage.log.events import RuntimeEvent, append_history
from storage.pipeline.log_relations import attach_log
from storage.tenants.projects import create_project


class WatchedLake(FolderLake):
    """A lake that tells its test before and after a file is written, read or deleted."""

    def __init__(self, folder: Path, at_step: Callable[[str], None]) -> None:
        super().__init__(folder)
        self.at_step = at_step

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        self.at_step("write")
        with super().writing(name) as path:
            yield path
        self.at_step("written")

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        self.at_step("read")
        with super().reading(name) as path:
            yield path
        self.at_step("checked")

    def delete(self, name: str) -> None:
        self.at_step("delete")
        super().delete(name)
        self.at_step("deleted")


BEGIN = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What a reader of the log gets, from PostgreSQL alone.
AS_STORED = """
SELECT project_id, environment, event, session_id,
    (extract(epoch FROM occurred_at) * 1000000)::bigint,
    (extract(epoch FROM received_at) * 1000000)::bigint, commit_sha, route,
    encode(pseudonym, 'hex'), trusted, signed, event_id, value, flags::text,
    (extract(epoch FROM sent_at) * 1000000)::bigint
FROM runtime_events
"""


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class World:
    engine: Engine
    lake: FolderLake
    project_id: int

    def event(self, session: str, minutes: float, **more: Any) -> RuntimeEvent:
        """An event some minutes after the first midnight."""
        return RuntimeEvent(
            project_id=self.project_id,
            environment="production",
            event=more.pop("event", "page_view"),
            session_id=session,
            occurred_at=BEGIN + timedelta(minutes=minutes),
            **more,
        )

    def append(self, *events: RuntimeEvent) -> None:
        with self.engine.begin() as connection:
            append_history(connection, events)

    def seal(self) -> SealedRun:
        run = Sealer(engine=self.engine, lake=self.lake).seal()
        assert run is not None
        return run

    def stored(self) -> Counter[tuple[Any, ...]]:
        """What PostgreSQL holds, but for properties."""
        with self.engine.begin() as connection:
            return Counter(tuple(row) for row in connection.execute(text(AS_STORED)))

    def extent(self, begin: datetime, end: datetime) -> Extent:
        return Extent(
            named_from=micros(begin),
            received_from=micros(begin),
            received_to=micros(end),
            environments=frozenset({(self.project_id, "production")}),
        )

    def read(self, begin: datetime = BEGIN, end: datetime = BEGIN + timedelta(days=3)) -> Any:
        """What a reader of both tiers gets."""
        with (
            read_apart(self.engine, self.lake) as log,
            open_duckdb(DuckDBLimits()) as engine,
            log.rows(self.extent(begin, end)) as rows,
        ):
            attach_log(engine, rows)
            return Counter(engine.rows("SELECT * FROM events"))

    def in_files(self) -> Counter[tuple[Any, ...]]:
        """What the listed files hold, but for properties."""
        files = [str(path) for path in self.listed()]
        if not files:
            return Counter()
        with duckdb.connect() as database:
            events = database.read_parquet(files).project("* EXCLUDE (properties)")
            return Counter(events.fetchall())

    def listed(self) -> Sequence[Path]:
        with self.engine.begin() as connection:
            rows = connection.execute(
                text("SELECT file FROM sealed_hours WHERE file IS NOT NULL ORDER BY hour, part")
            )
            return [self.lake.folder / name for name in rows.scalars()]

    def files(self) -> list[Path]:
        """Every file of the lake, listed or not."""
        return sorted(self.lake.folder.rglob("*.parquet*"))

    def execute(self, statement: str, **values: Any) -> Any:
        with self.engine.begin() as connection:
            return connection.execute(text(statement), values)


@pytest.fixture
def world(store, tmp_path) -> World:
    with store.engine.begin() as connection:
        project_id = create_project(connection, "shop").project_id
    return World(engine=store.engine, lake=FolderLake(tmp_path / "lake"), project_id=project_id)


@pytest.fixture
def day(world) -> Iterator[World]:
    """A day with events of every kind in three of its hours."""
    world.append(
        *(
            world.event(
                f"s{number % 50}",
                number * 1.1,
                event=("page_view", "click", "order")[number % 3],
                commit_sha=("c0ffee0", None)[number % 7 == 0],
                route=("/list", "/item/[id]", None)[number % 3],
                pseudonym=bytes([number % 50]) * 16 if number % 5 == 0 else None,
                trusted=number % 2 == 0,
                signed=number % 4 == 0,
                event_id=f"e{number}" if number % 9 == 0 else None,
                value=number * 10**6 - 5 if number % 6 == 0 else None,
                flags='{"long-name": "b", "b": true, "ä": "x"}' if number % 8 == 0 else None,
                properties='{"note": "it\'s"}' if number % 11 == 0 else None,
            )
            for number in range(160)
        )
    )
    return world
