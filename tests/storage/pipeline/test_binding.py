"""A binding reads no event, and no reader of the log holds up a writer."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from domain.lineage.flag import Flag
from domain.registration import Registration
from storage.experiments import deploys, experiments
from storage.experiments.readings import Reading
from storage.schema.clock import LOG_LOCK, closed_instant, receipt_time, store_time
from storage.schema.past_log import PastLog
from storage.tenants.projects import create_project
from storage.tenants.setting_changes import apply_settings
from storage.verdicts.set_aside import experiments_to_freeze
from tests.conftest import Store
from tests.stores.pipeline_run import freeze_registered
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
MEANS = {f"m{number}": {"kind": "mean", "sources": ["pay", f"x{number}"]} for number in range(49)}
MANY = {"metrics": {"spent": {"kind": "mean"}, **MEANS}, "guardrails": [*MEANS]}
USERS = {"unit": "user", "metrics": {"spent": {"kind": "mean", "cap": 100}}}
# What a freeze reads of events, by words of its statement.
CAP, QUANTILES, UNIT = "ORDER BY abs(value)", "AS firsts", "WITH sessions"
HISTORY, REQUESTS, ROUTES = "GROUP BY earlier, later", "AS request", "GROUPING SETS"
LATE, FLAGGED = "SELECT 1 AS event", "flags ->>"


@contextmanager
def watched(store: Store) -> Iterator[list[str]]:
    """Yields the statements of a store that read events, or hold the log's lock alone."""
    read: list[str] = []

    def before(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        alone = "pg_advisory" in statement and "shared" not in statement
        if "_events" in statement or (alone and LOG_LOCK in parameters.values()):
            read.append(statement)

    event.listen(store.engine, "before_cursor_execute", before)
    try:
        yield read
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
    asked = Registration(target_metric="spent", **members)
    return lambda connection, project_id: experiments.register(connection, project_id, asked)


DAYS_AGO = datetime.now(UTC) - timedelta(days=2)
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
        (SESSIONS, OF_COMMIT, canary(None), [CAP, QUANTILES, UNIT, ROUTES]),
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
def test_a_request_binds_without_the_log_that_the_pipeline_freezes_from(
    store, settings, earlier, binding, read
) -> None:
    with store.engine.begin() as connection:
        project_id = create_project(connection, "shop").project_id
        apply_settings(connection, project_id, settings)
        record_deploy(connection, project_id, OLD, DAYS_AGO - timedelta(days=1), graph=GRAPH)
        earlier(connection, project_id)
    with watched(store) as bound, store.engine.begin() as connection:
        binding(connection, project_id)
    with watched(store) as frozen, store.engine.begin() as connection:
        assert experiments_to_freeze(connection, as_of=store_time(connection))
        freeze_registered(connection)
    assert bound == []
    assert {words for words in read if not any(words in each for each in frozen)} == set()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/reward/register", {"treatment_commit": NEW}),
        ("/v1/places", {"flag": {"name": "cart", "treatment": True}}),
        ("/v1/deploys", {"commit": {"sha": NEW}, "allocation": 0.1}),
    ],
    ids=["register", "places", "deploys"],
)
def test_a_project_is_answered_while_nobody_can_read_the_log(service, path, body) -> None:
    service.settings(default_metric="spent", **SESSIONS)
    service.deploy(OLD, minutes=-60)
    if path == "/v1/deploys":
        service.register(treatment_commit=NEW)
    else:
        service.deploy(NEW, 0.1, base=OLD)
    with service.store.engine.begin() as connection:
        connection.execute(text("LOCK runtime_events, revenue_events IN ACCESS EXCLUSIVE MODE"))
        assert service.post(path, body).status_code == 201


def test_a_reader_of_the_log_waits_for_writers_and_no_writer_for_a_reader(service) -> None:
    page_view = {"event": "page_view", "session_id": "s"}
    with ThreadPoolExecutor(1) as pool, service.store.engine.begin() as writer:
        received_at = receipt_time(writer)
        instant = pool.submit(service.in_store, closed_instant)
        assert service.post("/v1/events", page_view).status_code == 202
        assert not instant.done()
        writer.rollback()
        assert instant.result() > received_at


def test_a_reading_that_takes_too_long_is_ended_and_the_transaction_goes_on(store) -> None:
    with store.engine.begin() as connection:
        until = store_time(connection)
        past = PastLog(
            connection=connection, project_id=1, environment="production", until=until, seconds=0.05
        )
        reading = Reading(
            question="routes",
            read=lambda events: events.rows("SELECT pg_sleep(10)"),
            default=[],
            kind=list,
        )
        assert reading.answer(past) is None
        assert (reading.unanswered.answer, reading.unanswered.is_default) == ([], True)
        # The transaction goes on, and has its own limit again.
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "0"
