"""A binding reads no event under the lock that every writer of the log waits for."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from domain.lineage.flag import Flag
from orchestration.pipeline.steps import advance_places
from storage.experiments import deploys
from storage.experiments.readings import PastEvents
from storage.places.queue import PlaceRequest, ask
from storage.schema.clock import LOG_LOCK
from storage.schema.past_log import PastLog
from storage.tenants.projects import create_project
from storage.tenants.settings import apply_settings
from tests.conftest import Store
from tests.processes.api_process import eventually
from tests.world import World, record_deploy, register_experiment

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
MEANS = {f"m{number}": {"kind": "mean", "sources": ["pay", f"x{number}"]} for number in range(49)}
MANY = {"metrics": {"spent": {"kind": "mean"}, **MEANS}, "guardrails": [*MEANS]}
USERS = {"unit": "user", "metrics": {"spent": {"kind": "mean", "cap": 100}}}
# What a binding reads of events, by words of its statement.
CAP, QUANTILES, UNIT = "ORDER BY abs(value)", "firsts AS", "WITH sessions"
HISTORY, REQUESTS, ROUTES = "sum(earlier * later)", "LIMIT 1", "GROUPING SETS"
LATE, FLAGGED = "seen_commits", "min(occurred_at) AS occurred_at"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The statements that read events, in a transaction that binds."""

    locked: list[str] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    bindings: list[str] = field(default_factory=list)


class Watch:
    """Listens to the statements of a store, and to whether the log's lock is held."""

    def __init__(self) -> None:
        self.asked, self.is_locked = Asked(), False

    def ended(self, _connection: Any) -> None:
        self.is_locked = False

    def before(
        self, _c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: Any
    ) -> None:
        if statement.startswith("ROLLBACK TO SAVEPOINT"):
            self.is_locked = False
        elif "pg_advisory_xact_lock(" in statement and LOG_LOCK in parameters.values():
            self.is_locked = True
        elif "runtime_events" in statement or "revenue_events" in statement:
            (self.asked.locked if self.is_locked else self.asked.free).append(statement)
        elif "UPDATE experiments SET" in statement and self.is_locked:
            self.asked.bindings.append(statement)


@contextmanager
def watched(store: Store) -> Iterator[Asked]:
    watch = Watch()
    listeners = [
        ("before_cursor_execute", watch.before),
        ("commit", watch.ended),
        ("rollback", watch.ended),
    ]
    for name, listener in listeners:
        event.listen(store.engine, name, listener)
    try:
        yield watch.asked
    finally:
        for name, listener in listeners:
            event.remove(store.engine, name, listener)


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
PLACE = PlaceRequest(
    change="cart",
    environment="production",
    flag=None,
    commit=None,
    metric="spent",
    actor=None,
    accept_harm=0.1,
    patience_hours=24,
)
FLAG = Flag(name="f", treatment="on", control="off")


def three_wait(connection: Connection, project_id: int) -> None:
    for metric in ("spent", "m0", "m1"):
        register_experiment(connection, project_id, target_metric=metric, treatment_commit=NEW)


OF_COMMIT, OF_FLAG = registration(treatment_commit=NEW), registration(treatment_flag=FLAG)


@pytest.mark.parametrize(
    ("settings", "earlier", "binding", "read"),
    [
        (SESSIONS, canary(DAYS_AGO), OF_COMMIT, [CAP, QUANTILES, UNIT, ROUTES, LATE]),
        (SESSIONS, canary(DAYS_AGO), OF_FLAG, [CAP, FLAGGED]),
        (SESSIONS, OF_COMMIT, canary(None), [CAP, QUANTILES, UNIT, ROUTES, LATE]),
        (USERS, canary(DAYS_AGO), OF_COMMIT, [HISTORY, REQUESTS]),
        (USERS, OF_COMMIT, canary(None), [HISTORY, REQUESTS]),
        (MANY, canary(DAYS_AGO), OF_COMMIT, [CAP]),
        (MANY, three_wait, canary(None), [CAP]),
    ],
    ids=[
        *("a registration", "a flag", "a deploy that is waited for"),
        *("a registration of users", "a deploy that is waited for of users"),
        *("50 metrics", "50 metrics of each that waits for a deploy"),
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


def test_places_are_registered_one_by_one(store) -> None:
    with store.engine.begin() as connection:
        project_id = create_project(connection, "shop").project_id
        apply_settings(connection, project_id, {**SESSIONS, "flag_places": 0})
        record_deploy(connection, project_id, OLD, DAYS_AGO)
        for name in ("cart", "search", "footer"):
            flag = Flag(name=name, treatment="on", control="off")
            ask(connection, project_id, replace(PLACE, change=name, flag=flag))
        apply_settings(connection, project_id, {"flag_places": 25})
    with watched(store) as asked:
        advance_places(store.engine.begin)
    assert (len(asked.bindings), asked.locked) == (3, [])


@pytest.mark.parametrize(
    "path",
    ["/v1/reward/register", "/v1/places", "/v1/deploys"],
    ids=["register", "places", "deploys"],
)
def test_a_neighbour_is_answered_while_a_project_reads_its_past(service, path) -> None:
    service.settings(default_metric="spent", **SESSIONS)
    service.deploy(OLD, minutes=-60)
    waiting = path == "/v1/deploys"
    if waiting:
        service.register(treatment_commit=NEW)
    else:
        service.deploy(NEW, 0.1, base=OLD)
    bodies = {
        "/v1/reward/register": {"treatment_commit": NEW},
        "/v1/places": {"flag": {"name": "cart", "treatment": True}},
        "/v1/deploys": {"commit": {"sha": NEW}, "allocation": 0.1},
    }
    neighbour = World.new(service.store, service.client, "neighbour")
    with ThreadPoolExecutor(1) as pool, service.store.engine.begin() as connection:
        # Whoever reads the past reads payments.
        connection.execute(text("LOCK TABLE revenue_events IN ACCESS EXCLUSIVE MODE"))
        answer = pool.submit(service.post, path, bodies[path])
        eventually(lambda: connection.execute(WAITS).scalar_one())
        event = {"event": "page_view", "session_id": "s"}
        assert neighbour.post("/v1/events", event).status_code == 202
        connection.rollback()
        assert answer.result().status_code == 201


WAITS = text("""
SELECT EXISTS (
    SELECT FROM pg_locks WHERE relation = 'revenue_events'::regclass AND NOT granted
)
""")


def test_a_member_whose_past_cannot_be_read_in_time_has_its_default_and_is_named(store) -> None:
    with store.engine.begin() as connection:
        past = PastLog(connection, seconds=0.05)
        events = PastEvents(past=past, project_id=1, environment="production")
        asleep = text("SELECT pg_sleep(10)")
        rows = events.answered("routes", lambda: events.rows(asleep), default=[])
        assert rows == []
        assert events.unread == ["routes"]
        # The transaction goes on, and has its own limit again.
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "0"
