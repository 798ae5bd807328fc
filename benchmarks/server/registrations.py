"""Registrations: the CPU and the statements of a registration, beside an event, through REST.

Run by `python -m benchmarks.server.registrations`: first in a project without experiments, then in
the same project with thousands of them. Requests follow each other on a single connection.
"""

import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from sqlalchemy import Engine, event, text
from starlette.testclient import TestClient

from api.app import create_app
from api.runtime.settings import ApiSettings
from benchmarks.report import options, report
from benchmarks.server.ingestion import cpu_seconds
from benchmarks.server.stage import TREE, Server, Stage, serving, staged
from benchmarks.store import deploy
from storage.postgres.engine import opened_engine
from storage.tenants.keys import KeyKind

_NUMBERS = itertools.count()
BASE, CANARY = "b0a5e000", "ca4a4100"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a request costs.

    Attributes:
        experiments: How many the project had.
        milliseconds: CPU of the server and of PostgreSQL.
        store_milliseconds: Of PostgreSQL alone.
        statements: Of the request's transaction, that of its key included; None of an event.
        ratio: To an event of the same run.
    """

    what: str
    experiments: int
    milliseconds: float
    store_milliseconds: float
    statements: int | None = None
    ratio: float = 1.0


def page_view() -> tuple[str, dict[str, Any]]:
    """Returns a request with a single event."""
    return "/v1/events", {"event": "page_view", "session_id": f"s{next(_NUMBERS)}"}


def of_flag() -> tuple[str, dict[str, Any]]:
    """Returns a registration of another flag."""
    flag = {"name": f"f{next(_NUMBERS)}", "treatment": True, "control": False}
    return "/v1/reward/register", {"treatment_flag": flag, "target_metric": "order"}


def of_commit() -> tuple[str, dict[str, Any]]:
    """Returns a registration of the canary for another metric."""
    metric = f"m{next(_NUMBERS)}"
    return "/v1/reward/register", {"treatment_commit": CANARY, "target_metric": metric}


KINDS: dict[str, Callable[[], tuple[str, dict[str, Any]]]] = {
    "event": page_view,
    "registration of a flag": of_flag,
    "registration of a commit": of_commit,
}


def _key(stage: Stage, path: str) -> dict[str, str]:
    kind = KeyKind.PROJECT if path.startswith("/v1/reward") else KeyKind.WRITE
    return {"X-Service-Project-Key": stage.project.keys[kind]}


def measured(stage: Stage, server: Server, *, requests: int, experiments: int) -> list[Cost]:
    """Returns the costs of each kind of request."""
    costs: list[Cost] = []
    with httpx2.Client(base_url=server.url) as client:
        for what, make in KINDS.items():
            for number in range(requests + 20):
                if number == 20:
                    before = cpu_seconds(server.process), cpu_seconds(stage.postgres)
                path, body = make()
                answer = client.post(path, json=body, headers=_key(stage, path))
                answer.raise_for_status()
            after = cpu_seconds(server.process), cpu_seconds(stage.postgres)
            store = (after[1] - before[1]) / requests * 1e3
            own = (after[0] - before[0]) / requests * 1e3
            costs.append(
                Cost(
                    what=what,
                    experiments=experiments,
                    milliseconds=own + store,
                    store_milliseconds=store,
                )
            )
    return [replace(each, ratio=each.milliseconds / costs[0].milliseconds) for each in costs]


@contextmanager
def counted() -> Generator[list[str]]:
    """Yields the statements that this process makes."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def statements_of(stage: Stage) -> dict[str, list[str]]:
    """Returns the statements of a request of each kind, the second of its kind in a process."""
    settings = ApiSettings(
        database_url=stage.url, secret=b"a secret of the benchmarks, long enough"
    )
    made: dict[str, list[str]] = {}
    with TestClient(create_app(settings)) as client:
        for what, make in KINDS.items():
            for _ in range(2):
                path, body = make()
                with counted() as statements:
                    answer = client.post(path, json=body, headers=_key(stage, path))
                    answer.raise_for_status()
            made[what] = statements
    return made


def release(stage: Stage) -> None:
    """Records a build that users have, and a canary on it."""
    begin = datetime.now(UTC)
    with opened_engine(stage.url) as engine, engine.begin() as connection:
        place = stage.project.project_id
        deploy(connection, place, BASE, begin - timedelta(days=1))
        deploy(connection, place, CANARY, begin, base=BASE, share=0.1)


# Copies of the experiments that there are, each of a flag of its own.
_MORE = """
INSERT INTO experiments SELECT (jsonb_populate_record(x, jsonb_build_object(
    'experiment_id', 'exp_' || lpad(to_hex(n), 20, '0'), 'change', jsonb_build_array('g' || n),
    'request', jsonb_set(x.request, '{treatment_flag,name}', to_jsonb('g' || n))
))).* FROM experiments AS x, generate_series(1, :many) AS n
WHERE x.experiment_id = (
    SELECT min(experiment_id) FROM experiments WHERE request -> 'treatment_flag' IS NOT NULL
)
"""
_FORGOTTEN = """
DELETE FROM {} WHERE experiment_id IN (
    SELECT experiment_id FROM experiments WHERE request -> 'treatment_flag' IS NULL
)
"""
_VERDICTS = """
INSERT INTO verdicts SELECT (jsonb_populate_record(v, jsonb_build_object(
    'experiment_id', x.experiment_id
))).* FROM experiments AS x, verdicts AS v
WHERE v.experiment_id = (SELECT min(experiment_id) FROM verdicts)
  AND NOT EXISTS (SELECT FROM verdicts AS o WHERE o.experiment_id = x.experiment_id)
"""


def fill(stage: Stage, *, experiments: int) -> None:
    """Gives the project thousands of bound, undecided experiments of others.

    Those of the canary go: each further registration of it would find twice as many tries.
    """
    with opened_engine(stage.url) as engine, engine.begin() as connection:
        for table in ("verdicts", "experiments"):
            connection.execute(text(_FORGOTTEN.format(table)))
        connection.execute(text(_MORE), {"many": experiments})
        connection.execute(text(_VERDICTS))
    with (
        opened_engine(stage.url) as engine,
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        connection.execute(text("VACUUM ANALYZE"))


_COLUMNS: dict[str, Callable[[Cost], str]] = {
    "request": lambda cost: cost.what,
    "experiments": lambda cost: f"{cost.experiments:,}",
    "CPU, ms": lambda cost: f"{cost.milliseconds:.2f}",
    "of the store": lambda cost: f"{cost.store_milliseconds:.2f}",
    "statements": lambda cost: "" if cost.statements is None else str(cost.statements),
    "to an event": lambda cost: f"{cost.ratio:.2f}",
}


def main() -> None:
    """Measures, and prints it."""
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--statements", action="store_true", help="print those of a flag's")
    chosen = parser.parse_args()
    costs: list[Cost] = []
    with staged() as stage:
        release(stage)
        for experiments in (0, chosen.experiments):
            if experiments:
                fill(stage, experiments=experiments)
            with serving(stage, tree=TREE, label="now", workers=1, stored=True) as server:
                of_size = measured(stage, server, requests=chosen.requests, experiments=experiments)
            made = statements_of(stage)
            costs += [replace(each, statements=len(made[each.what]) or None) for each in of_size]
    report(costs, _COLUMNS, lines=chosen.lines, title="Registrations")
    if chosen.statements:
        print(*made["registration of a commit"], sep="\n---\n")  # noqa: T201 - as asked


if __name__ == "__main__":
    main()
