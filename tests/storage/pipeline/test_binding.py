"""A binding reads no event under the lock that every writer of the log waits for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event

from domain.lineage.flag import Flag
from storage.experiments import deploys
from storage.schema.clock import LOG_LOCK
from storage.tenants.projects import create_project
from storage.tenants.settings import apply_settings
from tests.conftest import Store
from tests.world import record_deploy, register_experiment

OLD, NEW = "aaaaaaa1", "ccccccc3"
GRAPH = {
    "schema_version": 1,
    "routes": [{"route": "/list", "file": "list.ts", "files": ["list.ts"]}],
}
SLOW_PAGE = {"sources": ["page_view"], "over": ["p90"], "better": "lower"}
SESSIONS = {
    "unit": "auto",
    "metrics": {"spent": {"kind": "mean"}, "slow_page": SLOW_PAGE},
    "guardrails": ["slow_page"],
}
USERS = {"unit": "user", "metrics": {"spent": {"kind": "mean", "cap": 100}}}
# What a binding reads of events, by words of its statement.
CAP, QUANTILES, UNIT = "ORDER BY abs(value)", "firsts AS", "WITH sessions"
HISTORY, REQUESTS, ROUTES = "sum(earlier * later)", "LIMIT 1", "GROUPING SETS"
LATE, FLAGGED = "seen_commits", "min(occurred_at) AS occurred_at"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The statements that read events, in a transaction that binds.

    Attributes:
        locked: Those for which all writers of the log waited.
        free: All others.
        bindings: How often a policy was frozen.
    """

    locked: list[str] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    bindings: list[str] = field(default_factory=list)


@contextmanager
def watched(store: Store) -> Iterator[Asked]:
    asked, is_locked = Asked(), False

    def before(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        nonlocal is_locked
        if statement.startswith("ROLLBACK TO SAVEPOINT"):
            is_locked = False
        elif "pg_advisory_xact_lock(" in statement and LOG_LOCK in parameters.values():
            is_locked = True
        elif "runtime_events" in statement or "revenue_events" in statement:
            (asked.locked if is_locked else asked.free).append(statement)
        elif "UPDATE experiments SET" in statement and is_locked:
            asked.bindings.append(statement)

    event.listen(store.engine, "before_cursor_execute", before)
    try:
        yield asked
    finally:
        event.remove(store.engine, "before_cursor_execute", before)


def canary(deployed_at: datetime | None) -> Callable[[Connection, int], Any]:
    """A canary that changes a file which a route reaches."""
    changed = {"filename": "list.ts", "status": "modified"}
    request = deploys.DeployRequest(
        environment="production",
        commit={"sha": NEW},
        deployed_at=deployed_at,
        graph=GRAPH,
        diff={"base_commit": OLD, "files": [changed]},
        allocation=0.1,
        idempotency_key=None,
    )
    return lambda connection, project_id: deploys.record_deploy(connection, project_id, request)


def registration(**members: Any) -> Callable[[Connection, int], Any]:
    return lambda connection, project_id: register_experiment(
        connection, project_id, target_metric="spent", **members
    )


DAYS_AGO = datetime.now(UTC) - timedelta(days=2)
FLAG = Flag(name="f", treatment="on", control="off")
OF_COMMIT, OF_FLAG = registration(treatment_commit=NEW), registration(treatment_flag=FLAG)


@pytest.mark.parametrize(
    ("settings", "earlier", "binding", "read"),
    [
        (SESSIONS, canary(DAYS_AGO), OF_COMMIT, [CAP, QUANTILES, UNIT, ROUTES, LATE]),
        (SESSIONS, canary(DAYS_AGO), OF_FLAG, [CAP, FLAGGED]),
        (SESSIONS, OF_COMMIT, canary(None), [CAP, QUANTILES, UNIT, ROUTES, LATE]),
        (USERS, canary(DAYS_AGO), OF_COMMIT, [HISTORY, REQUESTS]),
        (USERS, OF_COMMIT, canary(None), [HISTORY, REQUESTS]),
    ],
    ids=[
        *("a registration", "a flag", "a deploy that is waited for"),
        *("a registration of users", "a deploy that is waited for of users"),
    ],
)
def test_it_reads_events_before_it_takes_the_lock(store, settings, earlier, binding, read) -> None:
    with store.engine.begin() as connection:
        project_id = create_project(connection, "shop").project_id
        apply_settings(connection, project_id, settings)
        record_deploy(connection, project_id, OLD, DAYS_AGO - timedelta(days=1), graph=GRAPH)
        earlier(connection, project_id)
    with watched(store) as asked, store.engine.begin() as connection:
        binding(connection, project_id)
    assert asked.bindings, "nothing was bound"
    assert asked.locked == []
    assert {words for words in read if not any(words in each for each in asked.free)} == set()
