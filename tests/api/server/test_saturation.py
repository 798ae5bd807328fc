"""More than the server or its store can take: each request is answered as ever, or with 503."""

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from storage.postgres.engine import connection_string, opened_engine, session_options
from storage.schema.migrate import upgrade
from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject, create_project
from storage.tenants.setting_changes import apply_settings
from tests.clients.shop import Shop, open_shop
from tests.clients.wire import Answer, Wire, get, post
from tests.processes.api_process import ApiProcess, eventually

pytestmark = pytest.mark.process

# Connections of a worker for requests.
POOL = 10
CROWD = 3 * POOL


@pytest.fixture(scope="module")
def api(safe_postgres, tmp_path_factory) -> Iterator[ApiProcess]:
    log = tmp_path_factory.mktemp("api") / "api.log"
    with ApiProcess(log=log, database_url=safe_postgres.url) as api:
        api.start()
        yield api


@pytest.fixture(scope="module")
def shop(safe_postgres) -> Iterator[Shop]:
    """A shop with experiments, beside the others of its store."""
    shop = open_shop(safe_postgres.url)
    yield shop
    shop.engine.dispose()


def deploy(project: CreatedProject, commit: str, **members: Any) -> bytes:
    body = json.dumps({"commit": {"sha": commit}, **members}).encode()
    return post("/v1/deploys", body, f"X-Service-Project-Key: {project.keys[KeyKind.WRITE]}")


def graph(project: CreatedProject) -> bytes:
    """A graph that is large, new, and cannot be stored in less."""
    body = {"schema_version": 1, "routes": [], "noise": secrets.token_hex(2**17)}
    key = f"X-Service-Project-Key: {project.keys[KeyKind.WRITE]}"
    return post("/v1/static-graphs", json.dumps(body).encode(), key)


def event(project: CreatedProject) -> bytes:
    key = f"X-Service-Project-Key: {project.keys[KeyKind.PUBLIC]}"
    return post("/v1/events", b'{"event": "a", "session_id": "s"}', key)


def verdict(shop: Shop) -> bytes:
    key = f"X-Service-Project-Key: {shop.keys[KeyKind.PROJECT]}"
    return get(f"/v1/reward/{shop.orders}", key).encode()


@contextmanager
def locked(url: str, table: str) -> Iterator[None]:
    """The table locked against everybody by a session of somebody else."""
    with psycopg.connect(connection_string(url), options=session_options()) as connection:
        connection.execute(sql.SQL("LOCK TABLE {}").format(sql.Identifier(table)))
        yield


def waiting_for_locks(url: str) -> int:
    with psycopg.connect(connection_string(url)) as connection:
        rows = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        ).fetchone()
    return 0 if rows is None else rows[0]


def all_asked(stack: ExitStack, port: int, requests: Sequence[bytes]) -> list[Wire]:
    return [stack.enter_context(Wire(port)).send(request) for request in requests]


def refused(answers: Sequence[Answer]) -> list[Answer]:
    """Those with 503, which must say when to come again."""
    result = [answer for answer in answers if answer.status == 503]
    assert all(answer.is_problem(503, "store_unavailable") for answer in result)
    assert all(int(answer.headers["retry-after"]) > 0 for answer in result)
    return result


def test_a_pool_without_a_free_connection_is_answered_503_and_events_are_taken(
    api, safe_postgres, safe_project
) -> None:
    # Deploys of a project wait in turn, without a connection.
    with opened_engine(safe_postgres.url) as engine, engine.begin() as connection:
        crowd = [create_project(connection, secrets.token_hex(6)) for _ in range(CROWD)]
    with ExitStack() as stack:
        with locked(safe_postgres.url, "deploys"):
            asked = [deploy(project, "a000000", environment="e") for project in crowd]
            wires = all_asked(stack, api.port, asked)
            eventually(lambda: waiting_for_locks(safe_postgres.url) >= POOL)
            with Wire(api.port) as other:
                assert other.send(event(safe_project)).answer().status == 202
            # Some wait for the table, and all others for these.
            answered = eventually(lambda: [wire for wire in wires if wire.hears(seconds=0)])
            early = [wire.answer() for wire in answered]
            assert refused(early) == early
        late = [wire.answer() for wire in wires if wire not in answered]
        refused(late)
        assert {answer.status for answer in late} <= {201, 503}
        assert 201 in {answer.status for answer in late}
    with Wire(api.port) as again:
        assert (
            again.send(deploy(safe_project, f"a{CROWD:06x}", environment="e")).answer().status
            == 201
        )


@pytest.mark.parametrize(
    "seconds", [2, pytest.param(10, marks=pytest.mark.deep)], ids=["2 s", "10 s"]
)
@pytest.mark.parametrize("table", ["runtime_events", "verdicts"])
def test_a_locked_table_holds_up_nobody_else(api, safe_postgres, shop, table, seconds) -> None:
    asked = {"runtime_events": event(shop.project), "verdicts": verdict(shop)}
    held = asked.pop(table)
    (free,) = asked.values()
    with Wire(api.port) as before:
        normal = {request: before.send(request).answer().status for request in (held, free)}
    with ExitStack() as stack:
        with locked(safe_postgres.url, table):
            wires = all_asked(stack, api.port, [held] * CROWD)
            with Wire(api.port) as other:
                assert other.send(free).answer().status == normal[free]
                assert other.send(get("/readyz")).answer().status == 200
                # Nothing more comes here: a wait of that length, while nobody sleeps elsewhere.
                assert not other.hears(seconds=seconds)
        answers = [wire.answer() for wire in wires]
    refused(answers)
    assert {answer.status for answer in answers} <= {normal[held], 503}
    with Wire(api.port) as again:
        assert again.send(held).answer().status == normal[held]


@pytest.mark.parametrize("last", ["registration", "deploy"])
def test_a_binding_waits_for_nobody_who_holds_the_past_and_holds_up_no_event(
    api, safe_postgres, safe_project, last
) -> None:
    # The cap of a mean is read of the events and of the revenue of four weeks, by the pipeline.
    with opened_engine(safe_postgres.url) as engine, engine.begin() as connection:
        metrics = {"spent": {"kind": "mean"}}
        apply_settings(connection, safe_project.project_id, {"metrics": metrics})
    commit, key = secrets.token_hex(20), f"X-Service-Project-Key: {safe_project.keys['project']}"
    wanted = json.dumps({"treatment_commit": commit, "target_metric": "spent"}).encode()
    first, second = deploy(safe_project, commit), post("/v1/reward/register", wanted, key)
    if last == "deploy":
        first, second = second, first
    with Wire(api.port) as wire, Wire(api.port) as other:
        assert wire.send(first).answer().status == 201
        with locked(safe_postgres.url, "revenue_events"):
            assert wire.send(second).answer().status == 201
            assert other.send(event(safe_project)).answer().status == 202
        listed = json.loads(wire.send(get("/v1/reward", key).encode()).answer().body)
    (experiment,) = [each for each in listed["experiments"] if each["treatment_commit"] == commit]
    assert experiment["deploy_id"] is not None


@pytest.fixture
def small_disk(safe_postgres) -> Iterator[tuple[str, Path]]:
    """A migrated store on a disk of its own, and the disk's folder."""
    folder = Path(tempfile.mkdtemp(prefix="deploy-reward-"))
    folder.chmod(0o711)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("only root, where it may mount a tmpfs, can make a disk that fills up")
    place = folder / "tables"
    place.mkdir()
    shutil.chown(place, "nobody")
    name = "small_disk"
    url = make_url(safe_postgres.url).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(connection_string(safe_postgres.url), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE TABLESPACE small_disk LOCATION {}").format(sql.Literal(str(place)))
        )
        try:
            connection.execute("CREATE DATABASE small_disk TABLESPACE small_disk")
            upgrade(url)
            yield url, folder
        finally:
            connection.execute("DROP DATABASE IF EXISTS small_disk WITH (FORCE)")
            connection.execute("DROP TABLESPACE small_disk")
            subprocess.run(["umount", str(folder)], check=True)
            folder.rmdir()


def test_a_full_disk_is_answered_503_until_there_is_room(small_disk, tmp_path) -> None:
    url, folder = small_disk
    shop = open_shop(url)
    shop.engine.dispose()
    ballast = folder / "ballast"
    each = {"event": "a", "session_id": "s", "route": "/r" * 200}
    large = json.dumps({"events": [each] * 100}).encode()
    key = f"X-Service-Project-Key: {shop.keys[KeyKind.PUBLIC]}"
    statuses: set[int] = set()
    with ApiProcess(log=tmp_path / "api.log", database_url=url) as api:
        api.start()
        with Wire(api.port) as wire:
            assert wire.send(event(shop.project)).answer().status == 202
            _fill(ballast)

            def is_full() -> bool:
                answers = [wire.send(post("/v1/events", large, key)).answer()]
                answers.append(wire.send(graph(shop.project)).answer())
                statuses.update(answer.status for answer in answers)
                return refused(answers) == answers

            def says_so(written: bytes) -> bool:
                result = wire.send(written).answer()
                assert result.is_problem(503, "store_unavailable")
                # A PostgreSQL that has no room for its log restarts, and cannot be reached so long.
                return "cannot be written: its disk is full" in result.document["detail"]

            eventually(is_full)
            for written in (post("/v1/events", large, key), graph(shop.project)):
                eventually(partial(says_so, written))
            eventually(partial(says_so, get("/readyz").encode()))
            assert wire.send(get("/healthz")).answer().status == 200
            assert statuses <= {200, 201, 202, 503}
            eventually(lambda: wire.send(verdict(shop)).answer().status in {200, 404})
            ballast.unlink()
            eventually(lambda: wire.send(event(shop.project)).answer().status == 202)
            eventually(lambda: wire.send(get("/readyz")).answer().status == 200)
            assert wire.send(deploy(shop.project, "0000003")).answer().status == 201


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 2**16):
                pass
        except OSError:
            return
