"""Disk: what a day of a canary takes in the store, by sessions a day.

Run by `python -m benchmarks.disk`. A day of drawn traffic is imported as history, the way
`deploy-reward import` goes, and walked to a verdict; then each table is asked for its size.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

import numpy as np
from canary_traffic.canary import Scenario, Traffic, traffic
from sqlalchemy import Engine, text

from benchmarks.report import options, report
from benchmarks.store import deploy, measured_store
from domain.registration import PRODUCTION, Registration
from storage.experiments.experiments import register
from storage.log.events import RuntimeEvent, append_history
from storage.tenants.projects import create_project
from tests.stores.pipeline_run import run_pipeline

SESSIONS = (5_000, 24_000, 240_000)
PAGES = 4.0
CONTROL, TREATMENT = "c0ffee0" * 5 + "00000", "bada550" * 5 + "00000"
_BATCH = 20_000
# Of every table that has grown: its rows with what is stored out of line, and its indexes.
_SIZES = text("""
SELECT coalesce(p.parent, c.relname) AS name,
    sum(pg_table_size(c.oid))::bigint AS rows, sum(pg_indexes_size(c.oid))::bigint AS indexes
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'deploy_reward'
LEFT JOIN LATERAL (
    SELECT i.inhparent::regclass::text AS parent FROM pg_inherits AS i WHERE i.inhrelid = c.oid
) AS p ON true
WHERE c.relkind = 'r'
GROUP BY 1
""")
_LOG = "runtime_events"


@dataclass(frozen=True, kw_only=True)
class Day:
    """What a day takes, in bytes.

    Attributes:
        sessions: How many began on it.
        events: How many they sent.
        log: The runtime events.
        derived: What is computed from them: exposures, cells, evidence and so on.
    """

    sessions: int
    events: int
    log: int
    log_indexes: int
    derived: int
    derived_indexes: int

    @property
    def whole(self) -> int:
        """All together."""
        return self.log + self.log_indexes + self.derived + self.derived_indexes


def _events(project_id: int, drawn: Traffic) -> Iterator[RuntimeEvent]:
    for delivery in drawn.deliveries():
        body = delivery.body
        yield RuntimeEvent(
            project_id=project_id,
            environment=PRODUCTION,
            event=body["event"],
            session_id=body["session_id"],
            occurred_at=datetime.fromisoformat(body["occurred_at"]),
            commit_sha=body["commit"],
            route=body["route"],
            event_id=body["event_id"],
        )


def _sizes(engine: Engine) -> dict[str, tuple[int, int]]:
    with engine.begin() as connection:
        return {row.name: (row.rows, row.indexes) for row in connection.execute(_SIZES)}


def measure(sessions: int) -> Day:
    """Plays a day of so many sessions into a store of its own, and returns what it takes."""
    with measured_store() as store:
        return _played(store.engine, sessions)


def _played(engine: Engine, sessions: int) -> Day:
    # Long enough ago that every window has closed.
    end = datetime.now(UTC) - timedelta(hours=2)
    drawn = traffic(
        Scenario(
            start=end - timedelta(days=1),
            end=end,
            control=CONTROL,
            treatment=TREATMENT,
            sessions_per_day=sessions,
            pages=PAGES,
            rhythm=0.5,
            routes=("/", "/list", "/item/[id]", "/cart", "/checkout"),
            control_errors=0.01,
            treatment_errors=0.01,
        ),
        np.random.default_rng(0),
    )
    before, count = _sizes(engine), 0
    with engine.begin() as connection:
        project_id = create_project(connection, "shop").project_id
        events = _events(project_id, drawn)
        while batch := list(islice(events, _BATCH)):
            append_history(connection, batch)
            count += len(batch)
        deploy(connection, project_id, CONTROL, drawn.scenario.start - timedelta(days=1))
        canary = deploy(
            connection, project_id, TREATMENT, drawn.scenario.start, base=CONTROL, share=0.5
        )
        register(connection, project_id, Registration(deploy_id=canary, target_metric="activation"))
    run_pipeline(engine)
    grown = {
        name: (rows - before.get(name, (0, 0))[0], indexes - before.get(name, (0, 0))[1])
        for name, (rows, indexes) in _sizes(engine).items()
    }
    log, log_indexes = grown.pop(_LOG)
    return Day(
        sessions=drawn.sessions,
        events=count,
        log=log,
        log_indexes=log_indexes,
        derived=sum(rows for rows, _ in grown.values()),
        derived_indexes=sum(indexes for _, indexes in grown.values()),
    )


_COLUMNS: dict[str, Callable[[Day], str]] = {
    "sessions": lambda day: f"{day.sessions:,}",
    "events": lambda day: f"{day.events:,}",
    "log, MiB": lambda day: f"{day.log / 2**20:,.2f}",
    "its indexes": lambda day: f"{day.log_indexes / 2**20:,.2f}",
    "derived, MiB": lambda day: f"{day.derived / 2**20:,.2f}",
    "indexes of these": lambda day: f"{day.derived_indexes / 2**20:,.2f}",
    "all, MiB a day": lambda day: f"{day.whole / 2**20:,.2f}",
    "bytes a session": lambda day: f"{day.whole / day.sessions:,.0f}",
}


def main() -> None:
    """Measures, and prints it."""
    parser = options(__doc__)
    parser.add_argument("--sessions", type=int, nargs="*", default=list(SESSIONS))
    chosen = parser.parse_args()
    days = [measure(sessions) for sessions in chosen.sessions]
    title = f"Disk of a day, {PAGES:.0f} pages a session"
    report(days, _COLUMNS, lines=chosen.lines, title=title)


if __name__ == "__main__":
    main()
