"""Evidence rows: the few rows of a computation that evidence is read from, put into the store."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, cast

import psycopg
from sqlalchemy import Connection

from storage.log.reader import SealedLog
from storage.pipeline.engines.day_engines import DayEngineSettings, open_day_engine
from storage.pipeline.experiments import open_experiments
from storage.pipeline.moments import microseconds, moment_of
from storage.pipeline.steps import ARMS, SIGHTING_KINDS
from storage.pipeline.sums import ArmSums
from storage.pipeline.whole_lives import WholeLives, compute_whole_lives

# Of the exposures those alone of units that were sighted: whether such a unit is exposed as well is
# all that evidence asks of one. Of the outcomes those that are late.
_EXPOSURES = """
SELECT x.number, x.unit, x.exposed_at, x.block, x.arm, x.stratum, x.commit_sha
FROM new_exposures AS x
WHERE EXISTS (
    SELECT 1 FROM new_sightings AS s WHERE s.number = x.number AND s.unit = x.unit
)
"""
_STRATA = "SELECT number, stratum, commit_sha FROM new_strata"
_SIGHTINGS = "SELECT number, kind, unit, sighted_at, block, arm, stratum FROM new_sightings"
_BLOCK_UNITS = """
SELECT number, block, treatment, control, partial, in_flight, excluded, own, returned, strayed
FROM new_block_units
"""
_LATE = """
SELECT number, metric, unit, received, block, arm, stratum FROM new_conversions WHERE late = 1
"""
_CELLS = """
SELECT number, metric, block, stratum, n1, x1, n0, x0, is_mean, y1, hh1, hl1, ll1, y0, hh0, hl0,
    ll0
FROM new_cells
"""


def compute_evidence_rows(
    log: SealedLog, *, as_of: datetime, only: Sequence[str], settings: DayEngineSettings
) -> int:
    """Computes whole lives, and stores what evidence is read from.

    Args:
        log: As a separate reading of the store sees it, whose derived tables are empty and its own.
        as_of: How far the log is read.
        only: The experiments.
        settings: Which engine computes.

    Returns:
        How many events were read.

    Raises:
        UnreadablePolicyError: The policy of one of them is of another version, or broken.
        TooManyAssignmentsError: One of them has more assignments than can be numbered.
        EngineError: The engine cannot be used, or is away.
    """
    experiments = open_experiments(log.connection, only=only)
    with open_day_engine(settings, lake=log.lake) as engine:
        lives = compute_whole_lives(engine, log, experiments, as_of=microseconds(as_of))
        if lives.read:
            store_evidence_rows(log.connection, lives)
        return lives.events


def store_evidence_rows(connection: Connection, lives: WholeLives) -> None:
    """Stores what evidence is read from.

    Args:
        connection: A separate reading of the store, whose derived tables are empty and its own.
        lives: What was computed.
    """
    ids = {one.experiment.number: one.experiment.experiment_id for one in lives.read}

    def named(sql: str) -> Iterator[tuple[Any, ...]]:
        for number, *row in lives.engine.rows(sql):
            yield (ids[number], *row)

    copies: dict[str, Iterable[tuple[Any, ...]]] = {
        "exposures (experiment_id, unit, exposed_at, block, arm, stratum, commit_sha)": (
            (own, unit, moment_of(at), moment_of(block), ARMS[arm], *others)
            for own, unit, at, block, arm, *others in named(_EXPOSURES)
        ),
        "strata (experiment_id, stratum, commit_sha)": named(_STRATA),
        "sightings (experiment_id, kind, unit, at, block, arm, stratum)": (
            (own, SIGHTING_KINDS[kind], unit, moment_of(at), *_exposure(exposure))
            for own, kind, unit, at, *exposure in named(_SIGHTINGS)
        ),
        "block_units (experiment_id, block, treatment, control, partial, in_flight, excluded, own,"
        " returned, strayed)": (
            (own, moment_of(block), *(int(count) for count in counts))
            for own, block, *counts in named(_BLOCK_UNITS)
        ),
        "conversions (experiment_id, metric, unit, received_at, late, block, arm, stratum)": (
            (own, metric, unit, moment_of(at), True, *_exposure(exposure))
            for own, metric, unit, at, *exposure in named(_LATE)
        ),
        "cells (experiment_id, metric, block, stratum, n1, x1, n0, x0, y1, yy1, y0, yy0)": (
            _cell(row) for row in named(_CELLS)
        ),
        "cursors (stage, experiment_id, at)": _cursors(lives),
    }
    for target, rows in copies.items():
        _copy(connection, target, rows)


def _exposure(members: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the block, arm and stratum of a unit's exposure as the store holds them, if any."""
    block, arm, stratum = members
    if block is None:
        return None, None, None
    return moment_of(block), ARMS[arm], stratum


def _cell(row: Sequence[Any]) -> tuple[Any, ...]:
    own, metric, block, stratum, *counts = row
    treatment, control = (ArmSums(*(int(part) for part in counts[at : at + 4])) for at in (5, 9))
    sums = (treatment.y, treatment.yy, control.y, control.yy) if counts[4] else (None,) * 4
    return (own, metric, moment_of(block), stratum, *(int(count) for count in counts[:4]), *sums)


def _cursors(lives: WholeLives) -> Iterator[tuple[Any, ...]]:
    for one in lives.read:
        own, end = one.experiment.experiment_id, one.to_block
        yield "exposures", own, moment_of(end)
        yield "conversions", own, moment_of(end)
        for metric in one.experiment.metrics:
            yield f"cells/{metric.name}", own, moment_of(end - metric.window)


def _copy(connection: Connection, target: str, rows: Iterable[tuple[Any, ...]]) -> None:
    # The proxy knows its cursor also where the connection has left its pool.
    cursor = cast("psycopg.Cursor[Any]", connection.connection.cursor())
    with cursor.copy(f"COPY {target} FROM STDIN".encode()) as copying:
        for row in rows:
            copying.write_row(row)
