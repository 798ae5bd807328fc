"""The audit agrees with the pipeline to the byte, and names what was tampered with."""

import json
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict
from sqlalchemy import Connection, Engine, text

from domain.lineage.flag import Flag
from domain.registration import Registration
from orchestration.pipeline.audit import Audit, audit
from orchestration.pipeline.drafts import draft_evidence
from storage.experiments.deploys import DeployRequest, record_deploy
from storage.experiments.experiments import close, register
from storage.log.events import COLUMNS, RuntimeEvent
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.postgres.refusal import Missing
from storage.schema.partitions import create_days
from storage.tenants.projects import create_project
from storage.tenants.settings import apply_settings
from storage.upkeep.raw_events import freeze_reads, read_frozen, read_served
from storage.verdicts.publication import publish_verdicts, stage_evidence
from tests.conftest import Store, filled_model, fresh_store
from tests.oracle.answers import answers_of
from tests.repetition import examples

T = datetime(2026, 10, 1, tzinfo=UTC)
A, K, C, NEVER_DEPLOYED = "aaaaaaa", "bbbbbbb", "ccccccc", "ddddddd"
ROUTES = ["/", "/checkout/[id]", "/about"]
METRICS = {
    "order": {"sources": ["order", "trial_to_paid"]},
    "duration": {"kind": "mean", "window_seconds": 900, "cap": 700.0},
    "spend": {"kind": "mean", "sources": ["trial_to_paid"], "currency": "USD", "cap": 90.0},
    "trial_started": {"window_seconds": 7200},
}
HOURS = 5.0

Delivery = tuple[datetime, RuntimeEvent]


def minutes(number: float) -> timedelta:
    return timedelta(seconds=round(60 * number, 3))


class World:
    """A canary's traffic over some hours, with everything that goes wrong on the way."""

    def __init__(self, project_id: int, seed: int, *, lift: float, units: int) -> None:
        self.project_id = project_id
        self.draw = np.random.default_rng(seed)
        self.lift = lift
        self.units = units

    def chance(self, share: float) -> bool:
        return bool(self.draw.random() < share)

    def one_of(self, choices: Sequence[Any], shares: Sequence[float]) -> Any:
        return choices[int(self.draw.choice(len(choices), p=shares))]

    def events(self, number: int) -> Iterator[RuntimeEvent]:
        """One session's events: what it saw first, what came of it, what it saw again."""
        commit = self.one_of([A, K, C, NEVER_DEPLOYED], [0.44, 0.44, 0.08, 0.04])
        flag = self.one_of(["on", "off", True, None], [0.45, 0.45, 0.05, 0.05])
        exposed = T + minutes(float(self.draw.uniform(-40, 60 * HOURS)))
        rate = 0.3 * (1 + self.lift * (commit == K))
        seen = [("page_view", 0.0, None)]
        if self.chance(rate):
            seen.append(("order", float(self.draw.uniform(0, 33)), None))
        if self.chance(0.1):
            seen.append(("error", float(self.draw.uniform(0, 6)), None))
        seen += [
            ("duration", float(self.draw.uniform(0, 17)), round(1e6 * self.draw.normal(500, 300)))
            for _ in range(int(self.draw.integers(0, 4)))
        ]
        if self.chance(0.15):
            seen.append(("page_view", float(self.draw.uniform(0, 70)), None))
        for event, after, value in seen:
            strayed = self.chance(0.04)
            yield RuntimeEvent(
                project_id=self.project_id,
                environment="staging" if self.chance(0.02) else "production",
                event=event,
                session_id=f"s{number}",
                occurred_at=exposed + minutes(after),
                commit_sha=None if self.chance(0.02) else self.strayed(commit, strayed),
                route=self.one_of(
                    ["/checkout/7", "/checkout/[id]", "/about", "/lost/1", None],
                    [0.6, 0.2, 0.1, 0.05, 0.05],
                ),
                pseudonym=bytes([number % 90]) if self.chance(0.5) else None,
                trusted=self.chance(0.3),
                event_id=f"e{number}" if self.chance(0.3) else None,
                value=value,
                flags=None if flag is None else json.dumps({"new_page": flag}),
                signed=(number + len(event)) % 3 > 0,
            )

    @staticmethod
    def strayed(commit: str, strayed: bool) -> str:
        return {A: K, K: A}.get(commit, commit) if strayed else commit

    def deliveries(self) -> list[Delivery]:
        """Each event delivered once or more, at once or late, in no order."""
        told: list[Delivery] = []
        for number in range(self.units):
            for event in self.events(number):
                for _ in range(1 + self.chance(0.1)):
                    late = self.one_of([-1.5, 0.0, 0.5, 5.0, 50.0], [0.05, 0.65, 0.1, 0.1, 0.1])
                    told.append((event.occurred_at + minutes(late), event))
        self.draw.shuffle(told)  # type: ignore[arg-type] - a list is shuffled in place
        return told

    def revenue(self) -> Iterator[dict[str, Any]]:
        for number in range(self.units // 3):
            occurred = T + minutes(float(self.draw.uniform(0, 60 * HOURS + 60)))
            yield {
                "project_id": self.project_id,
                "key": f"k{number}",
                "event": self.one_of(["trial_started", "trial_to_paid"], [0.5, 0.5]),
                "occurred": occurred,
                "received": occurred + minutes(self.one_of([0, 1, 100], [0.7, 0.2, 0.1])),
                "amount": int(self.draw.integers(0, 200)),
                "currency": self.one_of(["USD", "EUR"], [0.8, 0.2]),
                "pseudonym": bytes([number % 90]),
                "session": f"s{number}" if number % 3 == 0 else None,
                "environment": self.one_of([None, "production", "staging"], [0.5, 0.4, 0.1]),
            }


def store_events(connection: Connection, told: Sequence[Delivery]) -> None:
    create_days(connection, {received.date() for received, _ in told})
    columns = ", ".join(
        f"CAST(:{name} AS jsonb)" if name == "flags" else f":{name}" for name in COLUMNS
    )
    connection.execute(
        text(f"INSERT INTO runtime_events ({', '.join(COLUMNS)}) VALUES ({columns})"),
        [{**asdict(event), "received_at": received} for received, event in told],
    )


def store_revenue(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    connection.execute(
        text(
            "INSERT INTO revenue_events (project_id, idempotency_key, event, occurred_at,"
            " received_at, amount_value, amount_currency, pseudonym, session_id, environment,"
            " digest) VALUES (:project_id, :key, :event, :occurred, :received, :amount, :currency,"
            " :pseudonym, :session, :environment, '')"
        ),
        rows,
    )


def store_deploy(
    connection: Connection,
    project_id: int,
    sha: str,
    at: datetime,
    *,
    base: str | None = None,
    allocation: float | None = None,
) -> None:
    record_deploy(
        connection,
        project_id,
        DeployRequest(
            environment="production",
            commit={"sha": sha},
            deployed_at=at,
            graph={"schema_version": 1, "routes": [{"path": path} for path in ROUTES]},
            diff=None if base is None else {"base_commit": base, "files": []},
            allocation=allocation,
            idempotency_key=None,
        ),
    )


def told_world(
    engine: Engine, seed: int, *, lift: float, units: int = 250, **chosen: Any
) -> list[str]:
    """Stores a world and registers what is asked of it; returns the experiments."""
    with engine.begin() as connection:
        project_id = create_project(connection, secrets.token_hex(8)).project_id
        apply_settings(connection, project_id, {"metrics": METRICS, "locked": [], **chosen})
        world = World(project_id, seed, lift=lift, units=units)
        store_deploy(connection, project_id, A, T - timedelta(days=1))
        store_deploy(connection, project_id, K, T, base=A, allocation=0.5)
        store_deploy(connection, project_id, C, T + minutes(45), base=A, allocation=0.1)
        store_deploy(connection, project_id, K, T + minutes(150), allocation=0.3)
        store_events(connection, world.deliveries())
        store_revenue(connection, list(world.revenue()))
        flag = Flag(
            name="new_page", treatment="on", control=world.one_of([None, "off"], [0.5, 0.5])
        )
        asked = (
            Registration(
                treatment_commit=K, target_metric="order", guardrails=["error", "duration"]
            ),
            Registration(treatment_commit=K, target_metric="spend", routes=["/checkout/[id]"]),
            Registration(treatment_commit=K, target_metric="trial_started", guardrails=["spend"]),
            Registration(treatment_flag=flag, target_metric="order", guardrails=[]),
        )
        ids = [register(connection, project_id, one).experiment_id for one in asked]
        _record_as_it_happened(connection, project_id, world)
    return ids


def _record_as_it_happened(connection: Connection, project_id: int, world: World) -> None:
    """Moves the records back to where they would be had the world not been told at once."""
    moved = {
        "late": T + minutes(float(world.draw.uniform(30, 200))),
        "bound": T + minutes(float(world.draw.uniform(0, 60))),
        "project_id": project_id,
        "commit": C,
    }
    for statement in (
        "UPDATE deploys SET recorded_at = deployed_at WHERE project_id = :project_id",
        (
            "UPDATE deploys SET recorded_at = :late"
            " WHERE project_id = :project_id AND commit_sha = :commit"
        ),
        (
            "UPDATE commits SET recorded_at = timestamptz '2026-09-30', base_recorded_at ="
            " timestamptz '2026-09-30' WHERE project_id = :project_id"
        ),
        (
            "UPDATE commits SET recorded_at = :late, base_recorded_at = :late"
            " WHERE project_id = :project_id AND commit_sha = :commit"
        ),
        (
            "UPDATE commit_ids AS k SET recorded_at = c.recorded_at FROM commits AS c"
            " WHERE k.project_id = :project_id AND c.project_id = :project_id"
            " AND c.commit_sha = k.commit_sha"
        ),
        (
            "UPDATE experiments SET bound_at = :bound,"
            " starts_at = CASE WHEN policy -> 'flag' = 'null' THEN starts_at ELSE :bound END,"
            " policy = jsonb_set(policy, '{horizon_seconds}', '14400')"
            " WHERE project_id = :project_id"
        ),
    ):
        names = {name: value for name, value in moved.items() if f":{name}" in statement}
        connection.execute(text(statement), names)


def walk(engine: Engine, as_of: datetime) -> None:
    def step(work: Any) -> None:
        with engine.begin() as connection:
            work(connection)

    step(lambda c: extend_exposures(c, as_of=as_of))
    step(extend_cells)
    step(lambda c: stage_evidence(c, [d.draft for d in draft_evidence(c, as_of=as_of)]))
    step(publish_verdicts)


def audited(engine: Engine, experiment_id: str) -> Audit:
    with engine.connect() as connection, connection.begin():
        freeze_reads(connection)
        return audit(connection, experiment_id)


def told_by_oracle(engine: Engine, experiment_id: str) -> bool:
    """Whether a plain reading of the specification tells the served documents, to the byte."""
    with engine.connect() as connection, connection.begin():
        freeze_reads(connection)
        served = read_served(connection, experiment_id)
        if served.evidence is None:
            return True
        experiment = read_frozen(connection, experiment_id)
        answers = answers_of(connection, experiment, until=served.as_of or experiment.starts_at)
        return (answers.contract, answers.evidence) == (served.contract, served.evidence)


@settings(
    examples(gate=2, deep=100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 2**32 - 1),
    lift=st.sampled_from([0.0, -0.9, 1.5]),
    unit=st.sampled_from(["session", "session", "user"]),
    trusted=st.booleans(),
    signed=st.booleans(),
    grace=st.sampled_from([0, 90, 120]),
    ticks=st.lists(st.integers(1, 700), min_size=1, max_size=5, unique=True).map(sorted),
)
def test_what_is_served_is_what_the_raw_events_say(
    store,
    seed: int,
    lift: float,
    unit: str,
    trusted: bool,
    signed: bool,
    grace: int,
    ticks: list[int],
) -> None:
    ids = told_world(
        store.engine,
        seed,
        lift=lift,
        unit=unit,
        trusted_identity=trusted,
        signed_assignments=signed and unit == "session",
        grace_seconds=grace,
    )
    for tick in ticks:
        walk(store.engine, T + timedelta(minutes=tick))
        for experiment_id in ids:
            found = audited(store.engine, experiment_id)
            assert found.differences == []
            assert found.equal
            assert told_by_oracle(store.engine, experiment_id)


def _walked_world(store: Store) -> list[str]:
    ids = told_world(store.engine, 7, lift=0.0)
    walk(store.engine, T + timedelta(minutes=200))
    assert all(audited(store.engine, experiment_id).equal for experiment_id in ids)
    return ids


@pytest.fixture(scope="module")
def _world_model(postgres_url: str, migrated_template: str) -> Iterator[tuple[str, list[str]]]:
    with filled_model(postgres_url, migrated_template, _walked_world) as model:
        yield model


@pytest.fixture
def served_world(postgres_url: str, _world_model: tuple[str, list[str]]) -> Iterator[Any]:
    """A walked world whose audits find no difference, and its experiments."""
    name, ids = _world_model
    with fresh_store(postgres_url, name) as store:
        yield store.engine, ids


def tampered(engine: Engine, statement: str, **names: Any) -> None:
    """Changes what no code of ours ever would."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        assert connection.execute(text(statement), names).rowcount == 1


# The first: of those that close after the served look nothing is compared.
ONE_CELL = (
    "(SELECT ctid FROM cells WHERE experiment_id = :id AND metric = 'order' AND n1 > x1"
    " ORDER BY block, stratum LIMIT 1)"
)
ONE_EXPOSURE = "(SELECT min(unit) FROM exposures WHERE experiment_id = :id AND arm = 'control')"
ONE_OUTCOME = "(SELECT min(unit) FROM conversions WHERE experiment_id = :id AND metric = 'order')"
ONE_AMOUNT = "(SELECT ctid FROM amounts WHERE experiment_id = :id AND metric = 'duration'"


# Each changes one row of a stage; the audit names it so.
TAMPERINGS = [
    (f"UPDATE cells SET x1 = x1 + 1 WHERE ctid = {ONE_CELL}", "cell order 2026-10-01"),
    (f"DELETE FROM cells WHERE ctid = {ONE_CELL}", "cell order 2026-10-01"),
    (
        (
            "UPDATE exposures SET arm = 'treatment' WHERE experiment_id = :id"
            f" AND unit = {ONE_EXPOSURE}"
        ),
        "exposure s",
    ),
    (
        f"DELETE FROM exposures WHERE experiment_id = :id AND unit = {ONE_EXPOSURE}",
        "exposure s",
    ),
    (
        (
            "INSERT INTO sightings (experiment_id, kind, unit, at)"
            " VALUES (:id, 'late', 'stranger', '2026-10-01T00:30:00Z')"
        ),
        "sighting late stranger",
    ),
    (
        (
            "DELETE FROM conversions WHERE experiment_id = :id AND metric = 'order'"
            f" AND unit = {ONE_OUTCOME}"
        ),
        "conversion order s",
    ),
    (
        (
            "UPDATE conversions SET received_at = received_at + interval '1 microsecond'"
            f" WHERE experiment_id = :id AND metric = 'order' AND unit = {ONE_OUTCOME}"
        ),
        "conversion order s",
    ),
    (
        (
            f"UPDATE amounts SET value = value + 1 WHERE ctid = {ONE_AMOUNT}"
            " AND received_at < '2026-10-01T01:00:00Z' ORDER BY unit LIMIT 1)"
        ),
        "amounts duration s",
    ),
    (
        (
            "UPDATE verdicts SET evidence = jsonb_set(evidence::jsonb, '{totals,W}', '1')::json"
            " WHERE experiment_id = :id"
        ),
        "evidence.totals.W: served 1, raw ",
    ),
    (
        ("UPDATE verdicts SET contract = (contract::text || ' ')::json WHERE experiment_id = :id"),
        "contract, byte ",
    ),
]


@pytest.mark.parametrize(("statement", "named"), TAMPERINGS)
def test_a_tampered_row_of_each_stage_is_named(served_world, statement: str, named: str) -> None:
    engine, (experiment_id, *_) = served_world
    tampered(engine, statement, id=experiment_id)
    found = audited(engine, experiment_id)
    assert not found.equal
    (difference,) = found.differences
    assert difference.startswith(named)


def test_whatever_was_tampered_with_in_one_experiment_is_no_difference_of_another(
    served_world,
) -> None:
    engine, (experiment_id, *others) = served_world
    for statement, _ in TAMPERINGS:
        tampered(engine, statement, id=experiment_id)
    assert all(audited(engine, other).equal for other in others)


def first_exposing_event(engine: Engine, experiment_id: str) -> str:
    """The session whose exposure no other event can replace without a trace."""
    with engine.connect() as connection:
        return connection.execute(
            text(
                "SELECT p.unit FROM exposures AS p"
                " WHERE p.experiment_id = :id AND p.arm = 'control'"
                " AND (SELECT count(*) FROM runtime_events AS e WHERE e.session_id = p.unit) = 1"
                " ORDER BY p.block, p.unit LIMIT 1"
            ),
            {"id": experiment_id},
        ).scalar_one()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM runtime_events WHERE session_id = :unit",
        "UPDATE runtime_events SET commit_sha = 'bbbbbbb' WHERE session_id = :unit",
        (
            "UPDATE runtime_events SET occurred_at = occurred_at + interval '1 microsecond'"
            " WHERE session_id = :unit"
        ),
    ],
)
def test_a_tampered_event_is_named_by_its_unit(served_world, statement: str) -> None:
    engine, (experiment_id, *_) = served_world
    unit = first_exposing_event(engine, experiment_id)
    tampered(engine, statement, unit=unit)
    differences = audited(engine, experiment_id).differences
    assert any(difference.startswith(f"exposure {unit}: ") for difference in differences)


def test_a_lost_revenue_event_is_named_by_the_unit_that_it_counted_for(served_world) -> None:
    engine, (_, _, experiment_id, _) = served_world
    with engine.connect() as connection:
        unit, key = connection.execute(
            text(
                "SELECT c.unit, r.idempotency_key FROM conversions AS c"
                " JOIN exposures AS p USING (experiment_id, unit)"
                " JOIN revenue_events AS r ON r.received_at = c.received_at"
                " AND (r.session_id = c.unit OR r.pseudonym = p.pseudonym)"
                " WHERE c.experiment_id = :id AND c.metric = 'trial_started'"
                " ORDER BY c.received_at LIMIT 1"
            ),
            {"id": experiment_id},
        ).one()
    tampered(engine, "DELETE FROM revenue_events WHERE idempotency_key = :key", key=key)
    differences = audited(engine, experiment_id).differences
    assert any(one.startswith(f"conversion trial_started {unit}: ") for one in differences)


def test_an_experiment_closed_by_hand_is_audited_to_its_closing(store) -> None:
    ids = told_world(store.engine, 3, lift=0.0)
    with store.engine.begin() as connection:
        project_id = connection.execute(
            text("SELECT project_id FROM experiments WHERE experiment_id = :id"), {"id": ids[0]}
        ).scalar_one()
        close(connection, project_id, ids[0])
        connection.execute(
            text("UPDATE experiments SET closed_at = :at WHERE experiment_id = :id"),
            {"at": T + minutes(123), "id": ids[0]},
        )
    walk(store.engine, T + minutes(600))
    with store.engine.connect() as connection:
        evidence = connection.execute(
            text("SELECT evidence FROM verdicts WHERE experiment_id = :id"), {"id": ids[0]}
        ).scalar_one()
    assert evidence["ended_because"] == "closed"
    assert audited(store.engine, ids[0]).differences == []


def test_of_a_thousand_rows_and_more_the_first_are_named_and_all_are_counted(served_world) -> None:
    """A few differences are brought out of DuckDB, however many there are."""
    engine, (experiment_id, *_) = served_world
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO sightings (experiment_id, kind, unit, at)"
                " SELECT :id, 'late', 'stranger' || to_char(n, 'FM0000'), '2026-10-01T00:30:00Z'"
                " FROM generate_series(1, 1005) AS n"
            ),
            {"id": experiment_id},
        )
    found = audited(engine, experiment_id)
    assert (len(found.differences), found.count) == (1000, 1005)
    assert found.differences[-1] == (
        "sighting late stranger1000: served 2026-10-01T00:30:00+00:00, raw none"
    )


def test_an_experiment_before_its_deploy_or_its_first_look_has_nothing_to_differ_in(store) -> None:
    with store.engine.begin() as connection:
        project_id = create_project(connection, "new").project_id
        waiting = register(connection, project_id, Registration(target_metric="order"))
    (bound, *_) = told_world(store.engine, 5, lift=0.0)
    for experiment_id in (waiting.experiment_id, bound):
        found = audited(store.engine, experiment_id)
        assert found.equal
        assert found.as_of is None


def test_raw_events_that_are_gone_are_told_rather_than_compared(served_world) -> None:
    engine, (experiment_id, *_) = served_world
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE runtime_events_20261001"))
    found = audited(engine, experiment_id)
    assert found.gone == ["runtime_events_20261001"]
    assert not found.equal
    assert found.differences == ()


def test_an_unknown_experiment_is_refused(store) -> None:
    with pytest.raises(Missing, match="no experiment exp_nobody"):
        audited(store.engine, "exp_nobody")
