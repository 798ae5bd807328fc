"""A day computed anew is the day that ticks made, and whatever differs from it is seen."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict
from sqlalchemy import Connection, Engine, text

from domain.registration import Registration
from orchestration.pipeline.day_rebuild import Comparison, compare_days, rebuild
from orchestration.pipeline.drafts import draft_evidence
from storage.experiments.deploys import DeployRequest, record_deploy
from storage.experiments.experiments import register
from storage.log.events import COLUMNS, RuntimeEvent
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.postgres.engine import open_engine
from storage.schema.partitions import create_days
from storage.tenants.projects import create_project
from storage.tenants.settings import apply_settings
from storage.upkeep.forgetting import forget_user
from storage.upkeep.reading import separate_reading
from storage.verdicts.publication import publish_verdicts, stage_evidence
from tests.conftest import fresh_store

T = datetime(2026, 10, 1, 15, 0, tzinfo=UTC)
A, K = "aaaaaaa", "bbbbbbb"
DAYS = tuple(T.date() + timedelta(days=number) for number in range(4))
HOURS = 80
CHOSEN = {
    "metrics": {
        "order": {"window_seconds": 7200},
        "basket": {"window_seconds": 10_800, "kind": "mean", "sources": ["basket"], "cap": 50.0},
        "trial_started": {"window_seconds": 36_000},
    }
}


def traffic(project_id: int, generator: np.random.Generator) -> Iterator[tuple[datetime, Any]]:
    """Sessions that come back over days, cross over, name users, come late and come twice."""
    for number in range(260):
        commit = str(generator.choice([A, K, "ccccccc"], p=[0.48, 0.48, 0.04]))
        begins = T + timedelta(seconds=float(generator.uniform(-2400, 60 * 3600)))
        visits = [0.0, *(generator.uniform(0, 2 * 86_400, generator.poisson(0.8)))]
        for visit in visits:
            if generator.random() < 0.05:
                commit = K if commit == A else A
            for event, odds in (("page_view", 1.0), ("order", 0.3), ("basket", 0.3)):
                if generator.random() >= odds:
                    continue
                occurred = begins + timedelta(
                    seconds=round(visit + float(generator.uniform(0, 900)), 3)
                )
                told = RuntimeEvent(
                    project_id=project_id,
                    environment="production",
                    event=event,
                    session_id=f"s{number}",
                    occurred_at=occurred,
                    commit_sha=commit,
                    pseudonym=bytes([number % 70]) if generator.random() < 0.5 else None,
                    value=int(generator.integers(1, 80)) * 1_000_000,
                )
                for _ in range(1 + int(generator.random() < 0.1)):
                    late = generator.choice([0.0, 30.0, 400.0, 9000.0], p=[0.8, 0.1, 0.05, 0.05])
                    yield occurred + timedelta(seconds=float(late)), told


def log(connection: Connection, project_id: int, generator: np.random.Generator) -> None:
    """Stores the traffic, and what its users paid."""
    told = list(traffic(project_id, generator))
    create_days(connection, {received.date() for received, _ in told})
    columns = ", ".join(f":{name}" for name in COLUMNS)
    connection.execute(
        text(f"INSERT INTO runtime_events ({', '.join(COLUMNS)}) VALUES ({columns})"),
        [{**asdict(event), "received_at": received} for received, event in told],
    )
    paid = [
        {
            "project_id": project_id,
            "key": f"k{number}",
            "at": T + timedelta(seconds=float(generator.uniform(0, 62 * 3600))),
            "pseudonym": bytes([number % 70]),
            "session": f"s{number}" if number % 3 == 0 else None,
        }
        for number in range(150)
    ]
    connection.execute(
        text(
            "INSERT INTO revenue_events (project_id, idempotency_key, event, occurred_at,"
            " received_at, pseudonym, session_id, digest) VALUES (:project_id, :key,"
            " 'trial_started', :at, :at, :pseudonym, :session, '')"
        ),
        paid,
    )


def registered(connection: Connection, project_id: int) -> list[str]:
    for sha, at, base in ((A, T - timedelta(days=1), None), (K, T, A)):
        request = DeployRequest(
            environment="production",
            commit={"sha": sha},
            deployed_at=at,
            graph=None,
            diff=None if base is None else {"base_commit": base, "files": []},
            allocation=None if base is None else 0.5,
            idempotency_key=None,
        )
        record_deploy(connection, project_id, request)
    return [
        register(
            connection,
            project_id,
            Registration(treatment_commit=K, target_metric=metric, guardrails=guardrails),
        ).experiment_id
        for metric, guardrails in (
            ("order", ["error", "trial_started"]),
            ("basket", []),
            ("trial_started", ["order", "basket"]),
        )
    ]


def walked(engine: Engine, hours: Sequence[float]) -> None:
    """Takes every step at each of these hours after the start."""
    for hour in hours:
        as_of = T + timedelta(hours=float(hour))
        with engine.begin() as connection:
            extend_exposures(connection, as_of=as_of)
            extend_cells(connection)
            drafts = draft_evidence(connection, as_of=as_of)
            stage_evidence(connection, [one.draft for one in drafts])
            publish_verdicts(connection)


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A store whose log has been walked."""

    engine: Engine
    project_id: int
    experiments: Sequence[str]

    def compared(self, first: date, last: date | None = None, *, tampering: str = "") -> Comparison:
        """Compares days, after a change that is taken back afterwards."""
        # The log is read by a connection of its own, which sees what is committed.
        with (
            tampered_log(self.engine, tampering if "runtime_events" in tampering else ""),
            separate_reading(self.engine) as separate,
        ):
            if tampering and "runtime_events" not in tampering:
                separate.execute(text("SET LOCAL session_replication_role = replica"))
                assert separate.execute(text(tampering)).rowcount, tampering
            as_of = T + timedelta(hours=HOURS)
            return compare_days(separate, first, last or first, as_of=as_of)


@contextmanager
def tampered_log(engine: Engine, tampering: str) -> Iterator[None]:
    """Changes the log, or the days that are gone, for as long as this lasts."""
    tables = ("runtime_events", "dropped_days") if tampering else ()
    with engine.begin() as connection:
        for table in tables:
            connection.execute(text(f"CREATE TABLE kept_{table} AS TABLE {table}"))
        if tampering:
            assert connection.execute(text(tampering)).rowcount, tampering
    yield
    with engine.begin() as connection:
        for table in tables:
            connection.execute(text(f"DELETE FROM {table}"))
            connection.execute(text(f"INSERT INTO {table} TABLE kept_{table}"))
            connection.execute(text(f"DROP TABLE kept_{table}"))


def opened(
    engine: Engine, *, seed: int, unit: str = "session", forgotten: Sequence[bytes] = ()
) -> Shop:
    generator = np.random.default_rng(seed)
    with engine.begin() as connection:
        project_id = create_project(connection, secrets.token_hex(8)).project_id
        apply_settings(connection, project_id, {**CHOSEN, "locked": [], "unit": unit})
        log(connection, project_id, generator)
        experiments = registered(connection, project_id)
    hours = [*sorted(generator.uniform(0, HOURS, 6)), HOURS]
    walked(engine, hours[:4])
    for pseudonym in forgotten:
        with engine.begin() as connection:
            forget_user(connection, project_id, pseudonym)
    walked(engine, hours[4:])
    return Shop(engine=engine, project_id=project_id, experiments=experiments)


@pytest.fixture(scope="module")
def shop(postgres_url: str, migrated_template: str) -> Iterator[Shop]:
    """A store of all tests that take back what they change."""
    with fresh_store(postgres_url, migrated_template) as store:
        yield opened(store.engine, seed=3)


@pytest.mark.parametrize(
    ("seed", "unit"), [(1, "session"), pytest.param(2, "user", marks=pytest.mark.nightly)]
)
def test_each_day_computed_anew_is_what_ticks_of_any_rhythm_made_of_it(
    store, seed: int, unit: str
) -> None:
    shop = opened(store.engine, seed=seed, unit=unit)

    for days in [(day, day) for day in DAYS] + [(DAYS[1], DAYS[2])]:
        found = shop.compared(*days)
        assert found.equal, found
        assert found.experiments == 3


@pytest.mark.parametrize("unit", [pytest.param("session", marks=pytest.mark.nightly), "user"])
def test_days_whose_people_were_forgotten_are_equal_before_and_after_the_run_that_follows(
    store, unit: str
) -> None:
    # Of these people outcomes were open: they are dated to the closing of their cells, which for
    # the longer window of a guardrail is past all that is read of the target.
    people = [bytes([number]) for number in range(0, 70, 5)]
    shop = opened(store.engine, seed=7, unit=unit, forgotten=people[:7])
    for day in DAYS:
        assert (found := shop.compared(day)).equal, found

    for pseudonym in people[7:]:
        with store.engine.begin() as connection:
            forget_user(connection, shop.project_id, pseudonym)

    for day in DAYS:
        assert (found := shop.compared(day)).equal, found


def test_an_evaluation_as_of_a_time_ignores_what_its_connection_read_before(shop: Shop) -> None:
    as_of = T + timedelta(hours=40)
    served = evidence_as_of(shop.engine, T + timedelta(hours=HOURS))
    fresh = open_engine(shop.engine.url.render_as_string(hide_password=False))
    expected = evidence_as_of(fresh, as_of)
    fresh.dispose()

    # The driver prepares a statement that is repeated, on the tables that it reads at that time.
    for _ in range(10):
        with shop.engine.begin() as connection:
            draft_evidence(connection, as_of=T + timedelta(hours=HOURS))
    assert evidence_as_of(shop.engine, as_of) == expected
    assert expected != served
    assert len(expected) == len(shop.experiments)


def evidence_as_of(engine: Engine, as_of: datetime) -> dict[str, str]:
    with separate_reading(engine) as separate:
        drafts = [drafted.draft for drafted in rebuild(separate, as_of=as_of)]
    return {draft.experiment_id: draft.document for draft in drafts}


ON_THE_DAY = f"block >= '{DAYS[1]}' AND block < '{DAYS[2]}'"
IN_THE_DAY = f"at > timestamptz '{DAYS[1]}' + interval '1 hour' AND at < '{DAYS[2]}'"
UNITS = f"""
(experiment_id, unit) IN (
    SELECT experiment_id, unit FROM deploy_reward.exposures WHERE {ON_THE_DAY}
)
"""
EVENT = "INSERT INTO runtime_events (project_id, environment, event, session_id, occurred_at,"
TAMPERINGS = {
    "an exposure is gone": f"DELETE FROM deploy_reward.exposures WHERE {ON_THE_DAY}",
    "an exposure moved": "UPDATE deploy_reward.exposures"
    f" SET exposed_at = exposed_at + interval '1 ms' WHERE {ON_THE_DAY}",
    "a session has another user": "UPDATE deploy_reward.exposures SET pseudonym = 'x'"
    f" WHERE {ON_THE_DAY}",
    "a sighting is gone": f"DELETE FROM deploy_reward.sightings WHERE {IN_THE_DAY}",
    "a sighting was made up": "INSERT INTO deploy_reward.sightings"
    " SELECT experiment_id, 'crossover', unit, block + interval '1 hour'"
    f" FROM deploy_reward.exposures WHERE {ON_THE_DAY} ON CONFLICT DO NOTHING",
    "users came back who did not": "UPDATE deploy_reward.block_units SET returned = returned + 1"
    f" WHERE {ON_THE_DAY}",
    "an outcome is gone": f"DELETE FROM deploy_reward.conversions WHERE {UNITS}",
    "an outcome is late that was not": "UPDATE deploy_reward.conversions SET late = NOT late"
    f" WHERE {UNITS}",
    "an amount is another": f"UPDATE deploy_reward.amounts SET value = value + 1 WHERE {UNITS}",
    "a cell is gone": f"DELETE FROM deploy_reward.cells WHERE {ON_THE_DAY}",
    "a sum is another": "UPDATE deploy_reward.cells SET yy1 = yy1 + 1"
    f" WHERE y1 IS NOT NULL AND {ON_THE_DAY}",
    "a stratum is another": "UPDATE deploy_reward.strata SET stratum = 'another'",
    "a session came behind the walk's back": f"{EVENT} received_at, commit_sha, trusted)"
    " SELECT project_id, environment, 'page_view', 'new', at, at, treatment_commit, false"
    f" FROM experiments, (SELECT timestamptz '{DAYS[1]}' + interval '9 hours' AS at) AS t LIMIT 1",
    "an outcome came behind the walk's back": f"{EVENT} received_at, trusted)"
    " SELECT x.project_id, x.environment, 'order', p.unit, p.exposed_at, p.exposed_at, false"
    " FROM deploy_reward.exposures AS p JOIN experiments AS x USING (experiment_id)"
    f" WHERE {ON_THE_DAY} AND arm = 'control'",
    "events are gone": f"DELETE FROM runtime_events WHERE received_at >= timestamptz '{DAYS[1]}'"
    f" AND received_at < '{DAYS[2]}' AND commit_sha = '{K}'",
    "a verdict is another": "UPDATE deploy_reward.verdicts"
    " SET contract = replace(contract::text, 'abstain', 'keep')::json",
    "evidence is another": "UPDATE deploy_reward.verdicts"
    " SET evidence = jsonb_set(evidence::jsonb, '{totals,lift}', '0.5')::json",
}
# What another release published: fewer members, other words.
REWORDED = (
    "UPDATE deploy_reward.verdicts SET evidence ="
    " jsonb_set(evidence::jsonb - 'effect' - 'headline', '{sentence}', '\"Other words.\"')::json"
)


# Each is compared with a day computed anew.
@pytest.mark.parametrize("of", [4, pytest.param(1, marks=pytest.mark.nightly)])
def test_what_a_day_holds_otherwise_than_its_log_is_seen(shop: Shop, of: int) -> None:
    assert shop.compared(DAYS[1]).equal

    unseen = [
        name
        for name, tampering in list(TAMPERINGS.items())[::of]
        if shop.compared(DAYS[1], tampering=tampering).equal
    ]

    assert unseen == []
    assert shop.compared(DAYS[1], tampering=REWORDED).equal


def dropped(day: date, *, before_binding: bool) -> str:
    """Notes that a day's events went, and takes them."""
    at = "bound_at - interval '1 second'" if before_binding else "clock_timestamp()"
    return f"""
    WITH gone AS (
        DELETE FROM runtime_events
        WHERE received_at >= timestamptz '{day}' AND received_at < timestamptz '{day}' + '1 day'
    )
    INSERT INTO dropped_days (day, dropped_at) SELECT '{day}', {at} FROM experiments LIMIT 1
    """


def test_whoever_read_a_dropped_day_is_named_and_left_out(shop: Shop) -> None:
    found = shop.compared(DAYS[1], tampering=dropped(DAYS[1], before_binding=False))
    assert (found.gone, found.experiments) == (sorted(shop.experiments), 0)
    assert found.equal


def test_a_day_that_was_dropped_before_an_experiment_was_bound_was_never_read(shop: Shop) -> None:
    found = shop.compared(DAYS[1], tampering=dropped(DAYS[1], before_binding=True))
    assert (found.gone, found.experiments) == ([], 3)
    assert not found.equal


def test_an_experiment_that_cannot_be_computed_is_named_and_the_others_are_checked(
    shop: Shop,
) -> None:
    broken = shop.experiments[0]

    found = shop.compared(
        DAYS[1],
        tampering="UPDATE deploy_reward.experiments SET policy = policy - 'grace_seconds'"
        f" WHERE experiment_id = '{broken}'",
    )

    assert (found.not_computed, found.experiments) == ([broken], 2)
    assert found.equal
