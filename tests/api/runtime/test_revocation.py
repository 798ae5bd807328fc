"""A revoked key ends on every worker within a second, and a key costs no look-up a request."""

import http.client
import json
import math
import re
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, text

from cli.main import main
from storage.postgres.engine import open_engine
from storage.tenants.keys import KeyKind
from tests.processes.api_process import ApiProcess, eventually

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

WORKERS = 2
# Enough that each worker has some: the kernel hands new connections to whoever accepts first.
CONNECTIONS = 8
# docs/operations/keeping.md: within a second of the command's end.
REVOKED_SECONDS = 1.0
# How long a worker remembers a key; the count below rests on it.
REMEMBERED_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Sent:
    """When a request went out, and what was answered."""

    at: float
    status: int


class Talk:
    """A connection that is kept open, so that the same worker answers all of it."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def send(self, key: str) -> Sent:
        headers = {"X-Service-Project-Key": key, "Content-Type": "application/json"}
        body = json.dumps({"event": "a", "session_id": "s-1"})
        at = time.monotonic()
        self._http.request("POST", "/v1/events", body, headers)
        answer = self._http.getresponse()
        answer.read()
        return Sent(at=at, status=answer.status)

    @property
    def own_port(self) -> int:
        return self._http.sock.getsockname()[1]

    def close(self) -> None:
        self._http.close()


@dataclass(frozen=True, kw_only=True)
class Api:
    """The API with two workers, its store, and the command line beside it."""

    served: ApiProcess
    engine: Engine
    project: str

    def command(self, *words: str) -> Any:
        environment = {"SERVICE_DATABASE_URL": self.served.database_url}
        words = (*words, "--json")
        result = CliRunner().invoke(main, words, env=environment, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def create_key(self, kind: KeyKind = KeyKind.PUBLIC) -> str:
        return self.command("keys", "create", kind.value, "-p", self.project)["key"]

    def last_use(self, key: str) -> str | None:
        listed = self.command("keys", "list", "-p", self.project)
        (result,) = (row for row in listed if row["key"] == f"{key[:8]}…")
        return result["last_used_at"]

    def worker_of(self, talk: Talk) -> int | None:
        """The worker that has accepted a connection, by the owner of the server's end of it."""
        ends = re.compile(rf":{self.served.port:04X} \w+:{talk.own_port:04X} .*")
        (end,) = ends.findall(Path("/proc/net/tcp").read_text())
        name = f"socket:[{end.split()[8]}]"
        for worker in self.served.worker_pids():
            for file in Path(f"/proc/{worker}/fd").iterdir():
                try:
                    if str(file.readlink()) == name:
                        return worker
                except FileNotFoundError:
                    continue
        return None

    def talks(self, stack: ExitStack, key: str) -> list[Talk]:
        """Connections to all workers, each let in with a key."""
        talks: list[Talk] = []

        def everybody_is_met() -> bool:
            talk = Talk(self.served.port)
            stack.callback(talk.close)
            assert talk.send(key).status == 202
            talks.append(talk)
            met = {self.worker_of(talk) for talk in talks}
            return len(talks) >= CONNECTIONS and len(met) == WORKERS

        eventually(everybody_is_met)
        return talks


@pytest.fixture
def api(safe_postgres, tmp_path) -> Iterator[Api]:
    engine = open_engine(safe_postgres.url, pool_size=1)
    served = ApiProcess(log=tmp_path / "api.log", database_url=safe_postgres.url, workers=WORKERS)
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        stack.enter_context(served)
        api = Api(served=served, engine=engine, project=secrets.token_hex(6))
        api.command("project", "create", api.project)
        served.start()
        yield api


@pytest.mark.requirement("key.management")
def test_a_revoked_key_is_refused_by_every_worker_within_a_second(api, capsys) -> None:
    key, other = api.create_key(), api.create_key()
    with ExitStack() as stack:
        talks = api.talks(stack, key)
        eventually(lambda: api.last_use(key))
        assert api.last_use(other) is None
        api.command("keys", "revoke", key, "-p", api.project)
        revoked, sent = time.monotonic(), list[Sent]()
        # By the last request's beginning: however long each takes, some begin after the second.
        while not sent or sent[-1].at < revoked + 1.5 * REVOKED_SECONDS:
            sent += [talk.send(key) for talk in talks]
        last = max((each.at - revoked for each in sent if each.status == 202), default=-math.inf)
        with capsys.disabled():
            answer = f"last let in {1e3 * last:.0f} ms after `keys revoke`, of {len(sent)} requests"
            sys.stdout.write(f"\n{answer}\n")
        assert {each.status for each in sent} <= {202, 401}
        assert {each.status for each in sent if each.at >= revoked + REVOKED_SECONDS} == {401}
        assert {talk.send(other).status for talk in talks} == {202}
        eventually(lambda: api.last_use(other))


@pytest.mark.nightly
def test_a_key_is_looked_up_by_the_clock_and_not_by_the_request(api) -> None:
    key = api.create_key()
    before, began = scans_of_keys(api.engine), time.monotonic()
    with ExitStack() as stack:
        talks = api.talks(stack, key)
        for _ in range(75):
            assert {talk.send(key).status for talk in talks} == {202}
    passed = time.monotonic() - began
    api.served.stopped(api.served.ask_to_stop())
    # Backends tell their statistics when they end.
    eventually(lambda: alone(api.engine))
    looked_up = scans_of_keys(api.engine) - before
    # A look-up scans the keys once; so does the note of a use, once a minute.
    assert 0 < looked_up <= WORKERS * (2 + math.ceil(passed / REMEMBERED_SECONDS + passed / 60))


def scans_of_keys(engine: Engine) -> int:
    with engine.begin() as connection:
        return connection.execute(
            text(
                "SELECT seq_scan + coalesce(idx_scan, 0) FROM pg_stat_user_tables"
                " WHERE relname = 'keys'"
            )
        ).scalar_one()


def alone(engine: Engine) -> bool:
    with engine.begin() as connection:
        others = text(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return connection.execute(others).scalar_one() == 0
