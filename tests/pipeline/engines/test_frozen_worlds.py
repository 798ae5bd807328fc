"""Policies of random worlds: frozen again from kept answers, and read again by each engine."""

import json
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection, text

from domain.policy import Policy
from orchestration.pipeline.audit import frozen_again
from storage.experiments.freezing import freeze_whole
from storage.lake.day_engines import past_files
from tests.conftest import Store
from tests.pipeline.engines.test_engines import built, deep
from tests.pipeline.engines.worlds import World

WORLDS_A_STORE = 20
QUANTILES = {
    "slow_order": {"sources": ["order", "basket"], "over": ["p50", "p95"], "better": "lower"},
    "slow_page": {"sources": ["page_view"], "over": "p90", "better": "lower"},
}
AFFECTED = text("""
UPDATE deploys SET affected_routes = ARRAY['/list', '/item/[id]', '/about'], graph_id = (
    SELECT graph_id FROM graphs WHERE project_id = :project LIMIT 1
) WHERE project_id = :project
""")
SIGNED = text("""
SELECT coalesce(settings ->> 'signed_assignments', 'false') = 'true' FROM projects
WHERE project_id = :project
""")
UNFROZEN = text("""
UPDATE experiments
SET bound_at = bound_at + make_interval(mins => :minutes),
    policy = NULL, frozen_at = NULL, starts_at = NULL, declared_at = NULL,
    binding = jsonb_set(binding || CAST(:members AS jsonb), '{settings}',
        (binding -> 'settings') || CAST(:settings AS jsonb) || jsonb_build_object(
            'metrics', binding #> '{settings,metrics}' || CAST(:metrics AS jsonb)
        )),
    request = request || jsonb_build_object('guardrails',
        coalesce(nullif(request -> 'guardrails', 'null'), '[]') || CAST(:guardrails AS jsonb))
WHERE project_id = :project
""")
FROZEN = text("SELECT policy IS NOT NULL FROM experiments WHERE experiment_id = :id")


def bind_otherwise(connection: Connection, world: World) -> None:
    """Binds a world's experiments at another time, and with more to read of its log."""
    draw, project = Random(f"freeze {world.seed}"), {"project": world.project_id}
    members: dict[str, Any] = {"served_before": draw.random() < 0.3}
    if draw.random() < 0.7:
        members["history_until"] = None
    unit = {"unit": draw.choice(["auto", "user"])} if draw.random() < 0.6 else {}
    minutes = draw.choice([0, 60, 240, 450])
    if draw.random() < 0.6:
        connection.execute(AFFECTED, project)
    if connection.execute(SIGNED, project).scalar_one():
        unit = {}
    asked = {"members": members, "settings": unit, "metrics": QUANTILES, "guardrails": [*QUANTILES]}
    asked = {name: json.dumps(value) for name, value in asked.items()}
    connection.execute(UNFROZEN, {**project, **asked, "minutes": minutes})


def unequal_freezes(store: Store, worlds: Iterable[World]) -> dict[str, Any]:
    """Returns the policies that kept answers give otherwise, and answers that an engine does."""
    unequal: dict[str, Any] = {}
    with store.engine.begin() as connection, past_files(connection, always=True) as files:
        for world in worlds:
            bind_otherwise(connection, world)
            for number, experiment in enumerate(world.experiments):
                freeze_whole(connection, experiment)
                if not connection.execute(FROZEN, {"id": experiment}).scalar_one():
                    continue
                for engine in (None, files):
                    stored, by_kept, by_log = frozen_again(connection, experiment, files=engine)
                    kept = Policy.of(stored).frozen_from
                    pairs = zip(kept, by_log, strict=True)
                    # Under load a reading may not be answered in time.
                    differing: list[Any] = [
                        (before, now)
                        for before, now in pairs
                        if before != now and not (before.is_default or now.is_default)
                    ]
                    if differing or stored != by_kept:
                        unequal[f"world {world.seed}, {number}"] = differing or (stored, by_kept)
    return unequal


@pytest.mark.parametrize(
    "first",
    [pytest.param(3000, marks=pytest.mark.nightly), *deep(range(1000, 3000, WORLDS_A_STORE))],
)
def test_a_policy_is_frozen_again_from_its_answers_and_each_engine_reads_them(
    store: Store, first: int
) -> None:
    worlds = built(store, range(first, first + (5 if first == 3000 else WORLDS_A_STORE)))
    assert unequal_freezes(store, worlds) == {}
