"""A verdict is a function of the log: of neither the ticks that read it nor the way it came."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace
from sqlalchemy import Connection, Engine, text

from orchestration.pipeline.drafts import draft_evidence
from orchestration.pipeline.recompute import evaluate_as_of
from orchestration.pipeline.steps import publish, stage_due
from storage.log.events import COLUMNS, RuntimeEvent
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.postgres.engine import open_engine
from storage.schema.partitions import create_days
from storage.tenants.projects import create_project
from storage.tenants.settings import apply_settings
from storage.upkeep.reading import separate_reading
from tests.conftest import Store, fresh_store
from tests.repetition import also_nightly, examples
from tests.world import T, record_deploy, register_experiment

A, K = "aaaaaaa", "bbbbbbb"
# A hotfix, and the change on top of it: a stratum of its own.
B, K_ON_B = "ddddddd", "eeeeeee"
Delivery = tuple[datetime, RuntimeEvent]
Stores = Callable[[], AbstractContextManager[Store]]


@pytest.fixture(scope="module")
def stores(postgres_url: str, migrated_template: str) -> Stores:
    """A store for each example: in one for all of them each would read the log of those before."""
    return lambda: fresh_store(postgres_url, migrated_template)


@dataclass(frozen=True, kw_only=True)
class Log:
    """A canary's traffic over some hours, as it was delivered."""

    project_id: int
    experiment_ids: Sequence[str]
    deliveries: Sequence[Delivery]
    revenue: Sequence[tuple[datetime, datetime, bytes, str]]


def deliveries(
    project_id: int, generator: np.random.Generator, *, lift: float, sessions: int = 400
) -> list[Delivery]:
    """Sessions with delays, duplicates, disorder, users and unknown commits."""
    delivered: list[Delivery] = []
    for number in range(sessions):
        commit = str(generator.choice([A, K, B, K_ON_B, "ccccccc"], p=[0.4, 0.4, 0.08, 0.08, 0.04]))
        exposed = T + timedelta(seconds=float(generator.uniform(-2400, 5 * 3600)))
        rate = 0.3 * (1 + lift) if commit in {K, K_ON_B} else 0.3
        events = [("page_view", 0.0)]
        if generator.random() < rate:
            events.append(("order", float(generator.uniform(0, 2000))))
        if generator.random() < 0.1:
            events.append(("page_view", float(generator.uniform(0, 4000))))
        for event, after in events:
            occurred = exposed + timedelta(seconds=round(after, 3))
            stored = RuntimeEvent(
                project_id=project_id,
                environment="production",
                event=event,
                session_id=f"s{number}",
                occurred_at=occurred,
                commit_sha=commit,
                pseudonym=bytes([number % 90]) if generator.random() < 0.5 else None,
                trusted=bool(generator.random() < 0.3),
            )
            for _ in range(1 + (generator.random() < 0.1)):
                late = generator.choice([0.0, 30.0, 300.0, 3000.0], p=[0.7, 0.1, 0.1, 0.1])
                delivered.append((occurred + timedelta(seconds=float(late)), stored))
    return delivered


def stored(connection: Connection, delivered: Sequence[Delivery]) -> None:
    create_days(connection, {received.date() for received, _ in delivered})
    columns = ", ".join(f":{name}" for name in COLUMNS)
    connection.execute(
        text(f"INSERT INTO runtime_events ({', '.join(COLUMNS)}) VALUES ({columns})"),
        [{**asdict(event), "received_at": received} for received, event in delivered],
    )


def recorded(connection: Connection, project_id: int, *, share: float | None = None) -> list[str]:
    apply_settings(connection, project_id, {"locked": []})
    deploys = (
        (A, T - timedelta(days=1), None, [], None),
        (K, T, A, [], share),
        (B, T, A, [], 0.1),
        (K_ON_B, T, B, [K], 0.1),
    )
    for sha, at, base, changes, allocation in deploys:
        record_deploy(connection, project_id, sha, at, allocation, base=base, changes=changes)
    return [
        register_experiment(
            connection, project_id, treatment_commit=K, target_metric=metric, guardrails=guardrails
        )
        for metric, guardrails in (("order", []), ("trial_started", ["order", "error"]))
    ]


def bought(connection: Connection, project_id: int, generator: np.random.Generator) -> None:
    """Revenue events of users, which join by session where they name one."""
    for number in range(120):
        occurred = T + timedelta(seconds=float(generator.uniform(0, 6 * 3600)))
        connection.execute(
            text(
                "INSERT INTO revenue_events (project_id, idempotency_key, event, occurred_at,"
                " received_at, pseudonym, session_id, digest) VALUES (:project_id, :key,"
                " 'trial_started', :occurred, :received, :pseudonym, :session, '')"
            ),
            {
                "project_id": project_id,
                "key": f"k{number}",
                "occurred": occurred,
                "received": occurred + timedelta(seconds=float(generator.choice([0, 60, 6000]))),
                "pseudonym": bytes([number % 90]),
                "session": f"s{number}" if number % 3 == 0 else None,
            },
        )


def documents(drafted: Sequence[Any], ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    return {
        entry.draft.experiment_id: (entry.draft.contract, entry.draft.document)
        for entry in drafted
        if entry.draft.experiment_id in ids
    }


def served(connection: Connection, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    rows = connection.execute(
        text(
            "SELECT experiment_id, contract::text, evidence::text FROM verdicts"
            " WHERE experiment_id = ANY(:ids)"
        ),
        {"ids": list(ids)},
    )
    return {row[0]: (row[1], row[2]) for row in rows}


@examples(gate=2, deep=300)
@given(
    seed=st.integers(0, 2**32 - 1),
    lift=st.sampled_from([0.0, -0.9, 1.5]),
    ticks=st.lists(st.integers(1, 700), min_size=1, max_size=8, unique=True).map(sorted),
    steps=st.lists(st.sampled_from(["exposures", "cells", "publish"]), max_size=6),
    share=st.sampled_from([None, 0.5]),
)
def test_ticks_of_any_rhythm_end_where_one_reading_of_the_log_ends(
    stores: Stores,
    seed: int,
    lift: float,
    ticks: list[int],
    steps: list[str],
    share: float | None,
) -> None:
    with stores() as store:
        _ticked(store, seed, lift, ticks, steps, share)


def _ticked(
    store: Store,
    seed: int,
    lift: float,
    ticks: list[int],
    steps: list[str],
    share: float | None,
) -> None:
    generator = np.random.default_rng(seed)
    with store.engine.begin() as connection:
        project_id = create_project(connection, secrets.token_hex(8)).project_id
        delivered = deliveries(project_id, generator, lift=lift)
        stored(connection, delivered)
        bought(connection, project_id, generator)
        ids = recorded(connection, project_id, share=share)

    def step(name: str, as_of: datetime) -> None:
        with store.engine.begin() as connection:
            if name == "exposures":
                extend_exposures(connection, as_of=as_of)
            elif name == "cells":
                extend_cells(connection)
            else:
                stage_due(connection, as_of=as_of)
                publish(connection)

    for minutes in ticks:
        as_of = T + timedelta(minutes=minutes)
        for name in (*steps, "exposures", "cells", "publish"):
            step(name, as_of)
        with store.engine.begin() as connection:
            by_ticks = served(connection, ids)
        with separate_reading(store.engine) as connection:
            at_once = documents(evaluate_as_of(connection, as_of=as_of), ids)
        assert by_ticks == at_once


def _of(project_id: int, event: RuntimeEvent) -> RuntimeEvent:
    return replace(event, project_id=project_id)


def verdicts_of(engine: Engine, pieces: Sequence[Sequence[Delivery]]) -> tuple[Any, ...]:
    """Contracts and cells of a project that got events piece by piece; nothing of it stays."""
    with separate_reading(engine) as connection:
        project_id = create_project(connection, secrets.token_hex(8)).project_id
        for piece in pieces:
            stored(connection, [(at, _of(project_id, event)) for at, event in piece])
        ids = recorded(connection, project_id)
        answers = documents(evaluate_as_of(connection, as_of=T + timedelta(hours=9)), ids)
        cells = connection.execute(
            text(
                "SELECT experiment_id = :first, metric, block, stratum, n1, x1, n0, x0, y1, y0"
                " FROM cells WHERE experiment_id = ANY(:ids) ORDER BY 1, 2, 3, 4"
            ),
            {"first": ids[0], "ids": ids},
        )
        contracts = [answers[own][0].replace(own, "exp") for own in ids]
        return contracts, [tuple(row) for row in cells]


def delivered_again(delivered: Sequence[Delivery], order: Random) -> list[list[Delivery]]:
    """The same deliveries, in another order, some twice, each later by less than the grace."""
    again = [*delivered, *order.sample(delivered, len(delivered) // 5)]
    order.shuffle(again)
    # What was late stays so, what was not does not become it.
    delayed = [
        (at + timedelta(seconds=order.uniform(0, 25)) * (at == event.occurred_at), event)
        for at, event in again
    ]
    cuts = sorted(order.sample(range(1, len(delayed)), order.randint(0, 6)))
    return [delayed[begin:end] for begin, end in pairwise([0, *cuts, len(delayed)])]


def _the_way_it_came(store: Any, seed: int, order: Random, lift: float) -> None:
    delivered = deliveries(0, np.random.default_rng(seed), lift=lift, sessions=80)
    with store.engine.begin() as connection:
        create_days(connection, {(at + timedelta(minutes=1)).date() for at, _ in delivered})
    assert verdicts_of(store.engine, [delivered]) == verdicts_of(
        store.engine, delivered_again(delivered, order)
    )


_any_way = given(seed=st.integers(0, 2**32 - 1), order=st.randoms(use_true_random=False))
# A harm, nothing and a help: each a test, so that they run side by side.
_LIFTS = (-1.0, 0.0, 2.0)
_any_lift = pytest.mark.parametrize("lift", _LIFTS)
_EXAMPLES = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    database=None,
)


@pytest.mark.parametrize("lift", also_nightly(_LIFTS[2:], _LIFTS[:2]))
@settings(_EXAMPLES, max_examples=4)
@_any_way
def test_order_repetition_delay_and_splitting_of_deliveries_change_no_verdict(
    store, seed: int, order: Random, lift: float
) -> None:
    _the_way_it_came(store, seed, order, lift)


@pytest.mark.deep
@pytest.mark.timeout(7200)
@_any_lift
@settings(_EXAMPLES, max_examples=667)
@_any_way
def test_no_way_of_delivery_changes_a_verdict(store, seed: int, order: Random, lift: float) -> None:
    _the_way_it_came(store, seed, order, lift)


@pytest.mark.parametrize("lift", also_nightly([2.0], [-0.9]))
def test_a_decided_verdict_is_the_same_however_much_later_it_is_recomputed(
    store, lift: float
) -> None:
    generator = np.random.default_rng(7)
    with store.engine.begin() as connection:
        project_id = create_project(connection, "p").project_id
        stored(connection, deliveries(project_id, generator, lift=lift))
        ids = recorded(connection, project_id)
    answers = []
    for hours in (7, 8, 48, 24 * 40):
        with separate_reading(store.engine) as connection:
            drafted = evaluate_as_of(connection, as_of=T + timedelta(hours=hours))
            answers.append(documents(drafted, ids)[ids[0]])
            decided = {entry.draft.experiment_id: entry.contract for entry in drafted}[ids[0]]
            assert (decided.power_state.clock, decided.decided) == ("decided", True)
            assert decided.verdict == ("keep" if lift > 0 else "rollback")
    assert len(set(answers)) == 1


def test_an_evaluation_as_of_a_time_ignores_what_its_connection_read_before(store) -> None:
    generator = np.random.default_rng(7)
    with store.engine.begin() as connection:
        project_id = create_project(connection, "p").project_id
        stored(connection, deliveries(project_id, generator, lift=0.0))
        ids = recorded(connection, project_id)
        extend_exposures(connection, as_of=T + timedelta(hours=7))
        extend_cells(connection)

    def as_of(engine: Engine) -> dict[str, tuple[str, str]]:
        with separate_reading(engine) as separate:
            return documents(evaluate_as_of(separate, as_of=T + timedelta(hours=4)), ids)

    fresh = open_engine(store.url)
    expected = as_of(fresh)
    fresh.dispose()
    # The driver prepares a statement that is repeated, on the tables that it reads at that time.
    with store.engine.begin() as connection:
        drafted = [draft_evidence(connection, as_of=T + timedelta(hours=7)) for _ in range(10)]
    assert as_of(store.engine) == expected
    assert documents(drafted[-1], ids) != expected
