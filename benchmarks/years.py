"""Years: the disk in use while days come and go.

Run by `python -m benchmarks.years`. A tick here is an hour of a small service, 24 make a day:
events on both arms of a canary; four times a day the pipeline runs, and with each day comes the
housekeeping. What Dagster's records of the runs take is in docs/operations/keeping.md.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, Engine, text

from benchmarks.store import deploy, measured_store, register_frozen
from domain.registration import Registration
from orchestration.pipeline.drafts import draft_bound
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.partitions import create_days
from storage.tenants.projects import create_project
from storage.upkeep.retention import (
    DEFAULT_DAYS,
    compact_replays,
    delete_expired_units,
    drop_old_days,
)
from storage.verdicts.publication import publish_verdicts, stage_evidence

WALKS_A_DAY = 4
CANARY_DAYS = 14
SESSIONS = 40

_EVENTS = """
INSERT INTO runtime_events (project_id, environment, event, session_id, occurred_at, received_at,
    commit_sha, route, pseudonym, trusted)
SELECT :project, 'production', event, CAST(:name AS text) || n, at, at + interval '1 second',
    CASE WHEN mod(n, 2) = 0 THEN :treatment ELSE :control END, '/checkout',
    decode(md5(CAST(:name AS text) || n), 'hex'), false
FROM generate_series(1, :sessions) AS n,
    unnest(ARRAY['page_view', 'click', 'scroll', 'activation']) WITH ORDINALITY AS e (event, k),
    LATERAL (SELECT CAST(:begin AS timestamptz) + n * interval '8 seconds'
        + k * interval '1 second' AS at) AS t
WHERE event <> 'activation' OR mod(n, 10) = 0
"""
_SIZES = """
SELECT CASE WHEN c.relname IN ('cells', 'evidence', 'verdicts') THEN 'answers' ELSE 'store' END
        AS part,
    sum(pg_total_relation_size(c.oid))::bigint AS size
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'deploy_reward' AND c.relkind = 'r'
GROUP BY 1
"""
_STALE = """
SELECT relid::regclass::text FROM pg_stat_user_tables
WHERE n_dead_tup > 50 + 0.2 * n_live_tup
"""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The bytes in use after so many ticks.

    Attributes:
        ticks: So many.
        store: Of the log and of units.
        answers: Of cells, evidence and verdicts, which stay for good.
        days: How many days of the log there are.
    """

    ticks: int
    store: int
    answers: int
    days: int


@dataclass(kw_only=True)
class Service:
    """A small service whose clock is the tick.

    Attributes:
        begins: Its first hour.
        project: Its only project.
        a_day: How many ticks make a day.
        ticks: How many went by.
        canary: The commit under test.
        standing: The commit beside it.
    """

    engine: Engine
    begins: datetime
    project: int
    a_day: int
    ticks: int = 0
    canary: str = f"{1:040x}"
    standing: str = f"{0:040x}"

    @property
    def now(self) -> datetime:
        return self.begins + timedelta(days=1) / self.a_day * self.ticks

    def advance(self) -> None:
        """Lets a tick go by."""
        if self.ticks % (self.a_day * CANARY_DAYS) == 0:
            self._release()
        with self.engine.begin() as connection:
            self._receive(connection)
        self.ticks += 1
        if self.ticks % max(1, self.a_day // WALKS_A_DAY) == 0:
            self._walk()
        if self.ticks % self.a_day == 0:
            self._keep_house()

    def _release(self) -> None:
        """Promotes the commit under test, and puts the next commit beside it."""
        number = self.ticks // (self.a_day * CANARY_DAYS) + 2
        self.standing, self.canary = self.canary, f"{number:040x}"
        with self.engine.begin() as connection:
            connection.execute(
                text("UPDATE experiments SET closed_at = :now WHERE closed_at IS NULL"),
                {"now": self.now},
            )
            deploy(connection, self.project, self.standing, self.now, share=1.0)
            canary, base = self.canary, self.standing
            deploy(connection, self.project, canary, self.now, base=base, share=0.5)
            for table in ("deploys", "commits", "commit_ids"):
                late = f"UPDATE {table} SET recorded_at = :now WHERE recorded_at > :now"
                connection.execute(text(late), {"now": self.now})
            asked = Registration(treatment_commit=self.canary, target_metric="activation")
            register_frozen(connection, self.project, asked)
            connection.execute(
                text("UPDATE experiments SET bound_at = :now WHERE bound_at > :now"),
                {"now": self.now},
            )

    def _receive(self, connection: Connection) -> None:
        create_days(connection, [self.now.date()])
        asked = {
            "project": self.project,
            "name": f"s{self.ticks}-",
            "treatment": self.canary,
            "control": self.standing,
            "begin": self.now,
            "sessions": SESSIONS,
        }
        connection.execute(text(_EVENTS), asked)

    def _walk(self) -> None:
        with self.engine.begin() as connection:
            extend_exposures(connection, as_of=self.now)
            extend_cells(connection)
            stage_evidence(connection, [each.draft for each in draft_bound(connection)])
            publish_verdicts(connection)

    def _keep_house(self) -> None:
        with self.engine.begin() as connection:
            # Published at the clock's time, which the guard of what is decided would keep.
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(
                text("UPDATE verdicts SET published_at = :now WHERE published_at > :now"),
                {"now": self.now},
            )
        drop_old_days(self.engine, as_of=self.now, retention_days=DEFAULT_DAYS)
        with self.engine.begin() as connection:
            compact_replays(connection)
        delete_expired_units(self.engine, as_of=self.now)
        self._vacuum()

    def _vacuum(self) -> None:
        """Does what autovacuum does in a day, by its own rule: here a day is a second."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in connection.execute(text(_STALE)).scalars().all():
                connection.execute(text(f"VACUUM (ANALYZE) {table}"))

    def reading(self) -> Reading:
        """Returns what is in use now."""
        with self.engine.begin() as connection:
            sizes = {row.part: row.size for row in connection.execute(text(_SIZES))}
            days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'runtime_events'::regclass"
            return Reading(
                ticks=self.ticks, **sizes, days=connection.execute(text(days)).scalar_one()
            )


@contextmanager
def service(ticks: int, *, a_day: int) -> Iterator[Service]:
    """Yields a service that began so many ticks ago."""
    with measured_store() as store:
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        with store.engine.begin() as connection:
            project = create_project(connection, "shop").project_id
        yield Service(
            engine=store.engine,
            begins=today - timedelta(days=ticks / a_day + 1),
            a_day=a_day,
            project=project,
        )


def shown(readings: list[Reading], *, a_day: int) -> Table:
    """Returns the readings as a table, in MiB."""
    table = Table("ticks", "days", "store", "answers", "days stored")
    for one in readings:
        sizes = (one.store, one.answers)
        table.add_row(
            f"{one.ticks:,}",
            f"{one.ticks / a_day:,.0f}",
            *(f"{size / 2**20:,.1f}" for size in sizes),
            f"{one.days:,}",
        )
    return table


def plateau(readings: list[Reading]) -> dict[str, Any]:
    """Returns how much the last third takes beside the third before, at its largest."""
    third = len(readings) // 3
    if not third:
        return {}
    before, last = readings[-2 * third : -third], readings[-third:]
    return {
        name: round(
            max(getattr(one, name) for one in last) / max(getattr(one, name) for one in before), 3
        )
        for name in ("store", "answers")
    }


def main() -> None:
    """Lets the ticks go by, and prints what is in use every so many of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--a-day", type=int, default=24, help="how many ticks make a day")
    asked = parser.parse_args()
    console = Console()
    readings: list[Reading] = []
    with service(asked.ticks, a_day=asked.a_day) as one:
        while one.ticks < asked.ticks:
            one.advance()
            if one.ticks % asked.every == 0:
                readings.append(one.reading())
                console.print(json.dumps(asdict(readings[-1])), soft_wrap=True)
    console.print(shown(readings, a_day=asked.a_day))
    found = plateau(readings)
    line = {"ratio": found, "readings": [asdict(one) for one in readings]}
    console.print(json.dumps(line), soft_wrap=True)


if __name__ == "__main__":
    main()
