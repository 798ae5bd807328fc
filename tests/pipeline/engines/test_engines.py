"""The same text on every engine: PostgreSQL's, DuckDB's and the oracle's rows of random worlds."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import text

from orchestration.pipeline.audit import audit, frozen_again
from orchestration.pipeline.day_check import compare_days
from orchestration.pipeline.drafts import Drafted, draft_bound
from orchestration.pipeline.recompute import evaluate_as_of
from orchestration.pipeline.steps import publish, stage
from stats.gates.sample_ratio import SampleRatio
from storage.lake.day_engines import DayEngineSettings, past_files
from storage.lake.duckdb_engine import DuckDBEngine, DuckDBLimits
from storage.pipeline.catching_up import catch_up
from storage.pipeline.engines.postgres_engine import AT_ONCE
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.pipeline.moments import microseconds
from storage.upkeep.forgetting import forget_person
from storage.upkeep.reading import separate_reading
from storage.upkeep.rebuild import publish_waiting
from storage.verdicts.set_aside import bound_experiments
from tests.conftest import Store
from tests.oracle.answers import answers_of
from tests.oracle.frozen import read_frozen
from tests.pipeline.engines.rows import (
    Rows,
    evidence_rows,
    oracle_rows,
    recomputed_rows,
    stored_rows,
    without_keys,
)
from tests.pipeline.engines.worlds import HOURS, T, World, build_world

WORLDS_A_STORE = 10
# Of those that the first form of the text, on all of a store's worlds, has been held to.
FEW_WORLDS = 5
LIMITS = DuckDBLimits(memory_mib=256)
SETTINGS = DayEngineSettings(limits=LIMITS)
# As of a day that is read from its files, since it is too large to be copied.
FROM_FILES = DayEngineSettings(limits=replace(LIMITS, few_rows=0))
# As of a day that is too large for the memory: a store's worlds are computed in some ten parts.
IN_PARTS = replace(FROM_FILES.limits, readings_a_mib=5)
# Whatever occurred and closes has closed by then, within the hours that an experiment is read.
END = T + timedelta(hours=HOURS + 4)
# When no block is left of any experiment.
LONG_AFTER = T + timedelta(days=120)
ADDED = ("policy.guardrails:", "policy.companions:")


def deep(firsts: Iterable[int]) -> list[Any]:
    """Returns the first seeds of stores that the long form alone computes."""
    marks = [pytest.mark.deep, pytest.mark.timeout(3600)]
    return [pytest.param(first, marks=marks) for first in firsts]


def built(store: Store, seeds: Iterable[int]) -> list[World]:
    with store.engine.begin() as connection:
        return [build_world(connection, seed) for seed in seeds]


def ticks(draw: Random) -> list[datetime]:
    """Returns when the steps are taken: at some times, for an hour each few minutes, at the end."""
    hours = [draw.uniform(0, HOURS + 4) for _ in range(draw.choice([0, 1, 2]))]
    first = draw.uniform(0, HOURS)
    hours += [first + draw.uniform(0, 1) for _ in range(3)]
    return [*(T + timedelta(hours=each) for each in sorted(hours)), END]


def extended(
    store: Store,
    worlds: Iterable[World],
    draw: Random,
    *,
    decided: Random | None,
    settings: DayEngineSettings,
) -> None:
    """Takes both steps at each tick, in PostgreSQL, in tables or without, or days in an engine.

    After a tick somebody is forgotten in some of the worlds.

    Args:
        decided: Chooses after which tick most experiments are decided, and are followed up from
            then on; None to leave all of them open.
    """
    times = ticks(draw)
    engines = Random(sum(world.seed for world in worlds))
    forgetting = [(world, draw.choice(times)) for world in worlds if draw.random() < 0.4]
    for as_of in times:
        catches_up = engines.random() < 0.6
        with store.engine.begin() as connection:
            if catches_up:
                ids = bound_experiments(connection)
                catch_up(connection, as_of=as_of, only=ids, settings=settings)
            extend_exposures(connection, as_of=as_of, at_once=draw.choice([0, AT_ONCE]))
        with store.engine.begin() as connection:
            extend_cells(connection, at_once=draw.choice([0, AT_ONCE]))
        for world, after in forgetting:
            if after == as_of:
                forget_someone(store, world, draw)
        if decided is not None and (as_of == times[-2] or decided.random() < 0.5):
            follow_up(store, worlds, decided)


def follow_up(store: Store, worlds: Iterable[World], draw: Random) -> None:
    """Decides most of the open experiments; both of their builds are served for a week more."""
    experiments = [(world, each) for world in worlds for each in world.experiments]
    with store.engine.begin() as connection:
        for world, experiment in experiments:
            if draw.random() >= 0.3:
                publish_waiting(connection, experiment, world.project_id)
                connection.execute(_DECIDED, {"id": experiment})
                connection.execute(_FOLLOWED, {"id": experiment, "at": T})


_DECIDED = text("UPDATE verdicts SET decided = true WHERE experiment_id = :id AND NOT decided")
_FOLLOWED = text("""
INSERT INTO follow_ups (experiment_id, begins_at, ends_at, state)
VALUES (:id, :at, CAST(:at AS timestamptz) + interval '7 days', 'running')
ON CONFLICT DO NOTHING
""")


def forget_someone(store: Store, world: World, draw: Random) -> None:
    """Forgets a user or a session, with everybody whom the log ties to them."""
    with store.engine.begin() as connection:
        if draw.random() < 0.5:
            forget_person(connection, world.project_id, bytes([draw.randrange(17)]))
        else:
            forget_person(connection, world.project_id, f"s{draw.randrange(20)}")


def read_by(stored: Rows, end: datetime) -> Rows:
    """Returns stored rows without outcomes of the forgotten that are dated past the reading's end.

    An outcome of somebody who is forgotten is dated to the closing of its cell. A guardrail whose
    window is longer than the target's has cells that never close: no sum ever holds such a row.
    """
    until = microseconds(end)
    return {
        **stored,
        "conversions": [row for row in stored["conversions"] if row[2] <= until],
        "amounts": [row for row in stored["amounts"] if row[3] <= until],
    }


def differences(rows: Rows, others: Rows) -> dict[str, Any]:
    return {
        name: (set(rows[name]) - set(other), set(other) - set(rows[name]))
        for name, other in others.items()
        if rows[name] != other
    }


def whole_differences(stored: Rows, computed: Rows) -> dict[str, Any]:
    """Returns how an experiment's rows differ where no row of each unit is stored.

    Evidence is read from equal rows; any other stored row, of a forgotten unit, is computed too.
    """
    return {
        **differences(evidence_rows(stored), evidence_rows(computed)),
        **{f"stored {k}": more for k in computed if (more := set(stored[k]) - set(computed[k]))},
    }


_IS_WHOLE = text("SELECT EXISTS (SELECT FROM whole_lives WHERE experiment_id = :id)")


def unequal_worlds(
    store: Store,
    seeds: Sequence[int],
    *,
    decided: Random | None = None,
    settings: DayEngineSettings | None = None,
) -> dict[str, Any]:
    """Returns the rows that any two sides hold otherwise, by world and experiment."""
    worlds = built(store, seeds)
    extended(store, worlds, Random(seeds[0]), decided=decided, settings=settings or SETTINGS)
    return {
        **unequal_policies(store, worlds),
        **unequal_rows(store, worlds, settings=settings or FROM_FILES),
        **unequal_answers(store, worlds),
    }


def unequal_policies(store: Store, worlds: Iterable[World]) -> dict[str, Any]:
    """Returns the readings of the past that PostgreSQL and DuckDB answer otherwise."""
    unequal: dict[str, Any] = {}
    with store.engine.begin() as connection, past_files(connection, always=True) as files:
        for world in worlds:
            for number, experiment in enumerate(world.experiments):
                both = [
                    frozen_again(connection, experiment, files=each)[2] for each in (None, files)
                ]
                pairs = zip(*both, strict=True)
                # Under load a reading may not be answered in time.
                if differing := [
                    pair
                    for pair in pairs
                    if pair[0] != pair[1] and not (pair[0].is_default or pair[1].is_default)
                ]:
                    unequal[f"world {world.seed}, policy {number}"] = differing
    return unequal


def unequal_rows(
    store: Store,
    worlds: Iterable[World],
    *,
    as_of: datetime = END,
    settings: DayEngineSettings = SETTINGS,
) -> dict[str, Any]:
    """Returns the rows that any two sides hold otherwise of worlds whose rows are stored."""
    by_duckdb, ends = recomputed_rows(store, as_of=as_of, settings=settings)
    by_world: dict[str, Any] = {}
    with store.engine.begin() as connection:
        for world in worlds:
            for number, experiment in enumerate(world.experiments):
                if experiment not in ends:
                    # It begins after the end of its world, which a world in two thousand does.
                    stored = stored_rows(connection, experiment)
                    if any(stored.values()):
                        by_world[f"world {world.seed}, experiment {number}"] = {"stored": stored}
                    continue
                stored = read_by(stored_rows(connection, experiment), ends[experiment])
                expected = oracle_rows(connection, experiment, until=ends[experiment])
                without = {**stored, "amounts": without_keys(stored["amounts"])}
                whole = connection.execute(_IS_WHOLE, {"id": experiment}).scalar_one()
                differing = whole_differences if whole else differences
                unequal = {
                    **{f"oracle {k}": v for k, v in differing(without, expected).items()},
                    **{
                        f"duckdb {k}": v
                        for k, v in differing(stored, by_duckdb[experiment]).items()
                    },
                }
                if unequal:
                    by_world[f"world {world.seed}, experiment {number}"] = unequal
    return by_world


def unequal_answers(store: Store, worlds: Iterable[World]) -> dict[str, Any]:
    """Returns the open experiments of which three sides give another contract or evidence.

    They are the stored rows, a recomputation of the log at once, and the oracle. The day check
    must find no row that differs.
    """
    with separate_reading(store.engine) as separate:
        days = compare_days(separate, T.date(), END.date(), as_of=END)
    assert not days.hours
    with separate_reading(store.engine) as separate:
        recomputed = documents(evaluate_as_of(separate, as_of=END))
    with store.engine.begin() as connection:
        stored = documents(draft_bound(connection))
        by_oracle = {
            own: answers_of(connection, read_frozen(connection, own), until=END)
            for own in recomputed
        }
    unequal: dict[str, Any] = {}
    for world in worlds:
        for own in stored.keys() & set(world.experiments):
            if stored[own] != recomputed[own]:
                unequal[f"world {world.seed}, stored"] = stored[own], recomputed[own]
            expected = by_oracle[own].contract, without_shares(by_oracle[own].evidence)
            answer = recomputed[own][0], without_shares(recomputed[own][1])
            if answer != expected:
                unequal[f"world {world.seed}, oracle"] = answer, expected
    return unequal


def documents(drafted: Iterable[Drafted]) -> dict[str, tuple[str, str]]:
    """Returns contract and evidence of the experiments that have a look."""
    drafts = [entry.draft for entry in drafted]
    return {
        draft.experiment_id: (draft.contract, draft.document)
        for draft in drafts
        if draft.as_of is not None
    }


def without_shares(document: str) -> dict[str, Any]:
    """Returns evidence without what it says of the declared shares.

    The oracle does not follow the shares of deploys that are recorded late.
    """
    evidence = json.loads(document)
    gates = evidence["gates"]
    del gates["sample_ratio_e"]
    gates["checks"] = [row for row in gates["checks"] if row["name"] != SampleRatio.title]
    evidence["guardrails"] = [row for row in evidence["guardrails"] if row["metric"] != "arrival"]
    return evidence


@pytest.mark.parametrize(
    "first",
    [
        0,
        *(pytest.param(first, marks=pytest.mark.nightly) for first in range(10, 50, 10)),
        *deep(range(1000, 3000, WORLDS_A_STORE)),
    ],
)
def test_each_engine_computes_of_a_world_what_the_specification_says(store, first) -> None:
    assert unequal_worlds(store, range(first, first + WORLDS_A_STORE)) == {}


def test_a_day_that_is_computed_in_parts_of_its_units_has_the_same_rows(store, monkeypatch) -> None:
    parts, each_part = set[int](), DuckDBEngine.each_part

    def counted(engine: DuckDBEngine) -> Iterator[int]:
        for part in each_part(engine):
            parts.add(part)
            yield part

    monkeypatch.setattr(DuckDBEngine, "each_part", counted)
    settings = DayEngineSettings(limits=IN_PARTS)
    assert unequal_worlds(store, range(6000, 6000 + FEW_WORLDS), settings=settings) == {}
    assert len(parts) > 2


@pytest.mark.parametrize("first", [4000, *deep(range(4005, 4500, FEW_WORLDS))])
@pytest.mark.nightly
def test_each_engine_goes_on_alike_with_what_is_followed_up_after_its_decision(
    store, first
) -> None:
    seeds = range(first, first + FEW_WORLDS)
    assert unequal_worlds(store, seeds, decided=Random(first)) == {}


@pytest.mark.nightly
def test_of_experiments_that_are_over_when_they_are_first_read_evidence_has_the_same_rows(
    store,
) -> None:
    worlds = built(store, range(5000, 5000 + FEW_WORLDS))
    draw = Random(5000)
    with store.engine.begin() as connection:
        ids = bound_experiments(connection)
        catch_up(connection, as_of=LONG_AFTER, only=ids, settings=SETTINGS)
        extend_cells(connection)
        whole = set(connection.execute(text("SELECT experiment_id FROM whole_lives")).scalars())
    assert whole == set(ids)
    # The others hold what was read at first.
    for world in worlds[::2]:
        forget_someone(store, world, draw)

    assert unequal_rows(store, worlds, as_of=LONG_AFTER) == {}
    with store.engine.begin() as connection:
        stage(connection)
        publish(connection)
    for world in worlds[:3]:
        for experiment in world.experiments:
            differences = audit(store.engine, experiment).differences
            # No answer gives the metrics that a world adds to its policies.
            assert [each for each in differences if not each.startswith(ADDED)] == []
