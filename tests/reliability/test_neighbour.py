"""A heavy project: whatever it does, nothing is read under the log's lock, and all are served."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from places.queue import advance_places
from sqlalchemy import Connection, Engine, event

from cli.main import main
from orchestration.pipeline.batch import FAST
from orchestration.pipeline.steps import (
    close_cells,
    expose,
    freeze_bound,
    note_seen,
    publish,
    stage_due,
)
from orchestration.pipeline.whole_days import LakeDays
from storage.schema.annex_tables import metadata
from storage.schema.clock import LOG_LOCK, claim_derived_tables
from storage.upkeep.forgetting import forget_person
from tests.world import A, K, World

MISTAKE, IMPORTED = "eeeeeee5", ("fffffff6", "bbbbbbb7")
# What appends read, each a row by its key: a name, a webhook, a place and its contract.
READ_BY_APPENDS = {"seen_names", "projects", "places", "verdicts"}
READS = re.compile(rf"\b(?:FROM|JOIN)\s+({'|'.join({*metadata.tables} - READ_BY_APPENDS)})\b")
MEANS = {f"m{number}": {"kind": "mean", "sources": ["pay", f"x{number}"]} for number in range(50)}
WAITING, PLACES = 40, 25
LOCK = str(LOG_LOCK)
# Of what K changes, in a graph that reaches it.
GRAPH = {"routes": [{"path": f"/{number}", "file": "list.ts"} for number in range(100)]}
DIFF = {"base_commit": A, "files": [{"filename": "list.ts", "status": "modified"}]}


@contextmanager
def under_the_log_s_lock() -> Iterator[list[str]]:
    """Yields the statements of this process that take the lock, or that their transaction makes."""
    holders: set[Connection] = set()
    made: list[str] = []

    def execute(connection: Connection, _c: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "pg_advisory" in statement and LOCK in f"{statement} {parameters}":
            holders.add(connection)
        if connection in holders:
            made.append(statement)

    watched = {"before_cursor_execute": execute}
    watched |= dict.fromkeys(("commit", "rollback"), holders.discard)
    for name, listener in watched.items():
        event.listen(Engine, name, listener)
    try:
        yield made
    finally:
        for name, listener in watched.items():
            event.remove(Engine, name, listener)


@contextmanager
def writing(world: World) -> Iterator[list[int]]:
    """Yields the answers to a neighbour who posts an event each 20 ms."""
    answers: list[int] = []
    stopped = threading.Event()

    def write() -> None:
        while not stopped.wait(0.02):
            page_view = {"event": "page_view", "session_id": f"n{len(answers)}", "commit": A}
            answers.append(world.post("/v1/events", page_view).status_code)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield answers
    finally:
        stopped.set()
        writer.join()


def post_history(world: World) -> None:
    """Posts 28 days of payments, of what users had."""
    begin = datetime.now(UTC) - timedelta(days=28)
    for part in range(4):
        events = [
            {
                "event": "pay",
                "value": 1 + number,
                "session_id": f"s{part}-{number}",
                "user_ref": f"u{number}",
                "commit": A,
                "occurred_at": (begin + timedelta(hours=168 * part + number / 2)).isoformat(),
            }
            for number in range(300)
        ]
        answer = world.post("/v1/events?replay=true", {"events": events})
        assert answer.json()["rejected"] == []


@pytest.fixture
def heavy(service) -> World:
    """A project with 28 days of values, of which 40 experiments wait for the deploy of K."""
    service.settings(metrics=MEANS, guardrails=[], locked=[], flag_places=PLACES + 1)
    post_history(service)
    service.deploy(A, graph=GRAPH)
    for number in range(WAITING):
        service.register(treatment_commit=K, target_metric=f"m{number}")
    return service


def import_history(world: World, folder: Path) -> None:
    """Imports minutes of page views of ten days ago, with the experiments of two canaries."""
    begin = datetime.now(UTC) - timedelta(days=10)
    views = [
        {
            "event": event,
            "session_id": f"i{number}",
            "commit": (A, *IMPORTED)[number % 3],
            "environment": "trial",
            "occurred_at": (begin + timedelta(seconds=number + later)).isoformat(),
        }
        for number in range(100)
        for later, event in enumerate(("page_view", "order"))
    ]
    file, toml = folder / "views.ndjson", folder / "experiments.toml"
    file.write_text("\n".join(map(json.dumps, views)))
    named = (
        f'[[experiment]]\ncontrol_commit = "{A}"\ntreatment_commit = "{each}"\n'
        'target_metric = "order"\nguardrails = []'
        for each in IMPORTED
    )
    toml.write_text("\n".join(['environment = "trial"', *named]))
    command = ["import", str(file), "--experiments", str(toml), "--project", world.project.name]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output


def tick(engine: Engine) -> None:
    """Runs the pipeline as a run of the fast schedule does."""
    with engine.begin() as connection:
        claim_derived_tables(connection)
        as_of = note_seen(connection)
    days = LakeDays()
    while freeze_bound(engine.begin, days, as_of=as_of, patience=FAST).waiting:
        # A project has its share of a run's time.
        continue
    first = (partial(expose, days=days), partial(close_cells, days=days))
    for step in (*first, stage_due, publish):
        with engine.begin() as connection:
            claim_derived_tables(connection)
            step(connection, patience=FAST)
    advance_places(engine.begin)


def test_nothing_is_read_under_the_log_s_lock_and_a_neighbour_is_always_served(
    heavy, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", heavy.store.url)
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
    neighbour = World(store=heavy.store, client=heavy.client, project=heavy.new_project("beside"))
    with under_the_log_s_lock() as made, writing(neighbour) as answers:
        heavy.deploy(K, 0.1, diff=DIFF)
        heavy.register(treatment_commit=K, target_metric="order", guardrails=[*MEANS])
        for number in range(PLACES):
            asked = {"flag": {"name": f"f{number}", "treatment": True, "control": False}}
            assert heavy.post("/v1/places", asked).status_code == 201
        tick(heavy.store.engine)
        heavy.deploy(K, 1.0)
        assert heavy.withdraw(heavy.deploy(MISTAKE, 0.1, base=K)).status_code == 200
        heavy.in_store(lambda connection: forget_person(connection, heavy.project_id, "s1-7"))
        import_history(heavy, tmp_path)
        tick(heavy.store.engine)
    assert made
    assert [each for each in made if READS.search(each)] == []
    assert answers
    assert {*answers} == {202}
