"""A verdict is a function of the log: of neither the way it came nor the time of its reading.

That ticks of any rhythm end where a single reading ends is held by `tests/pipeline/engines/`.
"""

import secrets
from collections.abc import Sequence
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

from orchestration.pipeline.drafts import draft_bound
from orchestration.pipeline.recompute import evaluate_as_of
from storage.log.events import COLUMNS, RuntimeEvent, note_history
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.postgres.engine import open_engine
from storage.schema.partitions import create_days
from storage.tenants.projects import create_project
from storage.tenants.setting_changes import apply_settings
from storage.upkeep.reading import separate_reading
from tests.repetition import also_nightly, examples
from tests.world import T, record_deploy, register_experiment

A, K = "aaaaaaa", "bbbbbbb"
# A hotfix, and the change on top of it: a stratum of its own.
B, K_ON_B = "ddddddd", "eeeeeee"
Delivery = tuple[datetime, RuntimeEvent]


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
    moments = [(event.environment, event.occurred_at) for _, event in delivered]
    note_history(connection, delivered[0][1].project_id, moments)


def recorded(connection: Connection, project_id: int) -> list[str]:
    apply_settings(connection, project_id, {"locked": []})
    deploys = (
        (A, T - timedelta(days=1), None, [], None),
        (K, T, A, [], None),
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


def documents(drafted: Sequence[Any], ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    return {
        entry.draft.experiment_id: (entry.draft.contract, entry.draft.document)
        for entry in drafted
        if entry.draft.experiment_id in ids
    }


def verdicts_of(engine: Engine, pieces: Sequence[Sequence[Delivery]]) -> tuple[Any, ...]:
    """Contracts and cells of a project that got events piece by piece; nothing of it stays."""
    with separate_reading(engine) as connection:
        project_id = create_project(connection, secrets.token_hex(8)).project_id
        for piece in pieces:
            stored(connection, [(at, replace(event, project_id=project_id)) for at, event in piece])
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
    # An event that was late stays late, and no other becomes late.
    delayed = [
        (at + timedelta(seconds=order.uniform(0, 25)) * (at == event.occurred_at), event)
        for at, event in again
    ]
    cuts = sorted(order.sample(range(1, len(delayed)), order.randint(0, 6)))
    return [delayed[begin:end] for begin, end in pairwise([0, *cuts, len(delayed)])]


@pytest.mark.parametrize("lift", also_nightly([2.0], [-1.0, 0.0]))
@settings(
    examples(gate=4, deep=667),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    database=None,
)
@given(seed=st.integers(0, 2**32 - 1), order=st.randoms(use_true_random=False))
def test_order_repetition_delay_and_splitting_of_deliveries_change_no_verdict(
    store, seed, order, lift
) -> None:
    delivered = deliveries(0, np.random.default_rng(seed), lift=lift, sessions=80)
    with store.engine.begin() as connection:
        create_days(connection, {(at + timedelta(minutes=1)).date() for at, _ in delivered})
    assert verdicts_of(store.engine, [delivered]) == verdicts_of(
        store.engine, delivered_again(delivered, order)
    )


@pytest.mark.parametrize("lift", also_nightly([2.0], [-0.9]))
def test_a_decided_verdict_is_the_same_however_much_later_it_is_recomputed(store, lift) -> None:
    generator = np.random.default_rng(7)
    with store.engine.begin() as connection:
        project_id = create_project(connection, "p").project_id
        stored(connection, deliveries(project_id, generator, lift=lift))
        ids = recorded(connection, project_id)
    answers = []
    for hours in (7, 24 * 40):
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
        drafted = [draft_bound(connection) for _ in range(10)]
    assert as_of(store.engine) == expected
    assert documents(drafted[-1], ids) != expected
