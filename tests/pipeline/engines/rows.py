"""Rows of the derived tables as three sides tell them: PostgreSQL's, DuckDB's and the oracle's."""

from collections import Counter, defaultdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from storage.pipeline.moments import microseconds
from storage.pipeline.steps import ARMS, SIGHTING_KINDS
from storage.pipeline.sums import ArmSums
from storage.pipeline.whole_lives import WholeLives
from storage.upkeep.raw_events import FrozenExperiment, read_frozen
from tests.oracle.answers import attribution_of
from tests.oracle.attribution import BY_BLOCK, Attribution
from tests.oracle.calendar import Calendar
from tests.oracle.raw_reading import cells_of

# By table, the rows of an experiment, in an order of their own.
Rows = dict[str, list[tuple[Any, ...]]]

_STORED = {
    "exposures": "unit, exposed_at, block, arm, stratum, commit_sha, encode(pseudonym, 'hex')",
    "sightings": "kind, unit, at, block, arm, stratum",
    "block_units": "block, treatment, control, partial, in_flight, excluded, warming, own,"
    " returned, strayed",
    "conversions": "metric, unit, received_at, late",
    "late_outcomes": "metric, unit, block, arm, stratum",
    "amounts": "metric, unit, key, received_at, value",
    "cells": "metric, block, stratum, n1, x1, n0, x0, y1, yy1, y0, yy0",
}


def _sorted(rows: Any) -> list[tuple[Any, ...]]:
    told = (
        tuple(microseconds(value) if isinstance(value, datetime) else value for value in row)
        for row in rows
    )
    return sorted(told, key=repr)


def stored_rows(connection: Connection, experiment_id: str) -> Rows:
    """Returns the derived tables' rows."""
    return {
        name: _sorted(
            connection.execute(
                text(
                    f"SELECT {columns} FROM"
                    f" {'conversions' if name == 'late_outcomes' else name}"
                    " WHERE experiment_id = :id"
                    f"{' AND late' if name == 'late_outcomes' else ''}"
                ),
                {"id": experiment_id},
            )
        )
        for name, columns in _STORED.items()
    }


def evidence_rows(rows: Rows) -> Rows:
    """Returns those rows that evidence is read from: of a whole life no others need be stored."""
    sighted = {unit for _, unit, *_ in rows["sightings"]}
    return {
        **rows,
        "exposures": [row for row in rows["exposures"] if row[0] in sighted],
        "conversions": [row for row in rows["conversions"] if row[3]],
        "amounts": [],
    }


def computed_rows(lives: WholeLives) -> dict[str, Rows]:
    """Returns the rows that DuckDB computed, by experiment."""
    ids = {one.experiment.number: one.experiment.experiment_id for one in lives.read}
    found: dict[str, Rows] = {own: {name: [] for name in _STORED} for own in ids.values()}

    def put(name: str, sql: str, shape: Any = lambda row: row) -> None:
        for number, *row in lives.engine.rows(sql):
            found[ids[number]][name].append(tuple(shape(tuple(row))))

    put(
        "exposures",
        "SELECT number, unit, exposed_at, block, arm, stratum, commit_sha, pseudonym"
        " FROM new_exposures",
        lambda row: (*row[:3], ARMS[row[3]], *row[4:]),
    )
    put(
        "sightings",
        "SELECT number, kind, unit, sighted_at, block, arm, stratum FROM new_sightings",
        lambda row: (
            SIGHTING_KINDS[row[0]],
            *row[1:4],
            None if row[4] is None else ARMS[row[4]],
            row[5],
        ),
    )
    put("block_units", f"SELECT number, {_STORED['block_units']} FROM new_block_units")
    put(
        "conversions",
        "SELECT number, metric, unit, received, late = 1 FROM new_conversions",
    )
    put(
        "late_outcomes",
        "SELECT number, metric, unit, block, arm, stratum FROM new_conversions WHERE late = 1",
        lambda row: (*row[:3], ARMS[row[3]], row[4]),
    )
    put("amounts", "SELECT number, metric, unit, event_key, received, value FROM new_amounts")
    put(
        "cells",
        "SELECT number, metric, block, stratum, n1, x1, n0, x0, is_mean, y1, hh1, hl1, ll1,"
        " y0, hh0, hl0, ll0 FROM new_cells",
        _cell,
    )
    return {own: {name: _sorted(rows) for name, rows in of.items()} for own, of in found.items()}


def _cell(row: tuple[Any, ...]) -> tuple[Any, ...]:
    treatment, control = (ArmSums(*(int(part) for part in row[at : at + 4])) for at in (8, 12))
    sums = (treatment.y, treatment.yy, control.y, control.yy) if row[7] else (None,) * 4
    return (*row[:3], *(int(count) for count in row[3:7]), *sums)


# --- The oracle -----------------------------------------------------------------------------------


def told_rows(connection: Connection, experiment_id: str, *, until: datetime) -> Rows:
    """Returns the rows that a plain reading of the specification tells."""
    experiment = read_frozen(connection, experiment_id)
    calendar = Calendar.of(experiment, until=microseconds(until))
    told = attribution_of(connection, experiment, calendar, until=until)
    exposed = told.exposures
    by_block = {
        kind: {unit: calendar.closes(block) for unit, block in told.sightings[kind].items()}
        for kind in BY_BLOCK
    }
    return {
        "exposures": _sorted(
            (
                unit,
                one.at,
                one.block,
                one.arm,
                one.standing.stratum,
                one.standing.commit,
                None if one.pseudonym is None else one.pseudonym.hex(),
            )
            for unit, one in exposed.items()
        ),
        "sightings": _sorted(
            (
                kind,
                unit,
                at,
                *(
                    (exposed[unit].block, exposed[unit].arm, exposed[unit].standing.stratum)
                    if kind == "crossover"
                    else (None, None, None)
                ),
            )
            for kind, units in {**told.sightings, **by_block}.items()
            for unit, at in units.items()
        ),
        "block_units": _sorted(_block_units(experiment, told)),
        "conversions": _sorted(
            (
                outcomes.metric.name,
                unit,
                received,
                received > calendar.closes(exposed[unit].block, outcomes.metric.open_for),
            )
            for outcomes in told.outcomes
            for unit, received in outcomes.received.items()
        ),
        "cells": _sorted(
            (
                outcomes.metric.name,
                *(cell.block, cell.stratum, cell.n1, cell.x1, cell.n0, cell.x0),
                *(cell.y1, cell.yy1, cell.y0, cell.yy0),
            )
            for outcomes in told.outcomes
            for cell in cells_of(told, outcomes, calendar=calendar)
        ),
        # Without keys, which are the pipeline's own.
        "amounts": _sorted(
            (outcomes.metric.name, unit, *value)
            for outcomes in told.outcomes
            for unit, values in outcomes.values.items()
            for value in values.values()
        ),
    }


def _block_units(experiment: FrozenExperiment, told: Attribution) -> list[tuple[int, ...]]:
    blocks: dict[int, Counter[str]] = defaultdict(Counter)
    users: dict[bytes, list[Any]] = defaultdict(list)
    for one in told.exposures.values():
        blocks[one.block][one.arm] += 1
        own = one.standing.commit == experiment.treatment_commit
        blocks[one.block]["own"] += own and one.arm not in ("in_flight", "excluded")
        if one.counts and one.pseudonym is not None:
            users[one.pseudonym].append(one)
    for sessions in users.values():
        if len(sessions) > 1:
            blocks[sorted(one.block for one in sessions)[1]]["returned"] += 1
        first = {
            arm: min((one.block for one in sessions if one.arm == arm), default=None)
            for arm in ARMS[:2]
        }
        if None not in first.values():
            blocks[max(block for block in first.values() if block is not None)]["strayed"] += 1
    names = ("treatment", "control", *ARMS[2:], "own", "returned", "strayed")
    return [(block, *(counts[name] for name in names)) for block, counts in blocks.items()]


def without_keys(amounts: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns amounts as the oracle tells them."""
    return sorted(((*row[:2], *row[3:]) for row in amounts), key=repr)
