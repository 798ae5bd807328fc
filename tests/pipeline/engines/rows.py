"""Rows of the derived tables of three sides: PostgreSQL's, DuckDB's and the oracle's."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from storage.lake.day_engines import DayEngineSettings
from storage.lake.lake import Lake, open_lake
from storage.lake.reader import open_log
from storage.pipeline.experiments import blocks_to_expose, open_experiments
from storage.pipeline.moments import microseconds, moment_of
from storage.pipeline.recompute import every_row, recompute
from storage.schema.encoding import ARMS, SIGHTINGS
from storage.schema.tables import block_units
from storage.upkeep.reading import separate_reading
from tests.conftest import Store
from tests.oracle.answers import attribution_of
from tests.oracle.attribution import BY_BLOCK, Attribution
from tests.oracle.calendar import Calendar
from tests.oracle.frozen import FrozenExperiment, read_frozen
from tests.oracle.raw_reading import SUMS, cells_of, counted_units, exposed_by_name, picked_cells_of

_UNITS = tuple(
    column.name for column in block_units.columns if column.name not in ("experiment_id", "block")
)
_NUMBERS = {"control": 0, "treatment": 1}
# By table, the rows of an experiment, in an order of their own.
Rows = dict[str, list[tuple[Any, ...]]]

_STORED = {
    "exposures": "unit, exposed_at, block, arm, stratum, commit_sha, encode(pseudonym, 'hex'),"
    " as_drawn, event",
    "sightings": "kind, unit, sighted_at, block, arm, stratum, event",
    "block_names": "block, event, units",
    "block_units": ", ".join(("block", *_UNITS)),
    "conversions": "metric, unit, received_at, late",
    "late_outcomes": "metric, unit, block, arm, stratum",
    "amounts": "metric, unit, event_key, received_at, value",
    "cells": "metric, block, stratum, n1, x1, n0, x0, y1, yy1, d1, dd1, yd1, y0, yy0, d0, dd0, yd0",
}


def _sorted(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows), key=repr)


def stored_rows(connection: Connection, experiment_id: str) -> Rows:
    return {
        name: _sorted(
            connection.execute(
                text(
                    f"SELECT {columns} FROM"
                    f" {'conversions' if name == 'late_outcomes' else name}"
                    " WHERE experiment_id = :id"
                    f"{' AND late = 1' if name == 'late_outcomes' else ''}"
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
        "conversions": [row for row in rows["conversions"] if row[3] == 1],
        "amounts": [],
    }


def recomputed_rows(
    store: Store, *, as_of: datetime, settings: DayEngineSettings, lake: Lake | None = None
) -> tuple[dict[str, Rows], dict[str, datetime]]:
    """Returns the rows that another engine computes, by experiment, and up to when each is read."""
    with separate_reading(store.engine) as separate, open_log(separate, lake or open_lake()) as log:
        experiments = open_experiments(separate, only=None)
        recompute(log, separate, experiments, as_of=as_of, settings=settings, wanted=every_row)
        read = blocks_to_expose(experiments, read_to={}, as_of=microseconds(as_of))
        ends = {scope.experiment.experiment_id: moment_of(scope.received_to) for scope in read}
        return {own: stored_rows(separate, own) for own in ends}, ends


# --- The oracle -----------------------------------------------------------------------------------


def oracle_rows(connection: Connection, experiment_id: str, *, until: datetime) -> Rows:
    """Returns the rows that a plain reading of the specification gives."""
    experiment = read_frozen(connection, experiment_id)
    calendar = Calendar.of(experiment, until=microseconds(until))
    attribution = attribution_of(connection, experiment, calendar, until=until)
    exposed = attribution.exposures
    by_block = {
        kind: {unit: calendar.closes(block) for unit, block in attribution.sightings[kind].items()}
        for kind in BY_BLOCK
    }
    return {
        "exposures": _sorted(
            (
                unit,
                exposure.at,
                exposure.block,
                ARMS.index(exposure.arm),
                exposure.standing.stratum,
                exposure.standing.commit,
                None if exposure.pseudonym is None else exposure.pseudonym.hex(),
                None if exposure.as_drawn is None else int(exposure.as_drawn),
                exposure.event,
            )
            for unit, exposure in exposed.items()
        ),
        "sightings": _sorted(
            (
                SIGHTINGS[kind],
                unit,
                at,
                *(
                    (
                        exposed[unit].block,
                        ARMS.index(exposed[unit].arm),
                        exposed[unit].standing.stratum,
                    )
                    if kind == "crossover"
                    else (None, _NUMBERS.get(attribution.served[kind].get(unit, (0, ""))[1]), None)
                ),
                attribution.arrived_by[unit][1] if kind == "unknown_build" else None,
            )
            for kind, units in {**attribution.sightings, **by_block}.items()
            for unit, at in units.items()
        ),
        "block_units": _sorted(_block_units(experiment, attribution)),
        "block_names": _sorted(
            (*key, units) for key, units in exposed_by_name(attribution).items()
        ),
        "conversions": _sorted(
            (
                outcomes.metric.name,
                unit,
                received,
                # Of who was not exposed yet there are histories, which come before any close.
                int(
                    unit in exposed
                    and received > calendar.closes(exposed[unit].block, outcomes.metric.open_for)
                ),
            )
            for outcomes in attribution.outcomes
            for unit, received in outcomes.received.items()
        ),
        "cells": _sorted(
            (
                name,
                *(microseconds(cell.block), cell.stratum, cell.n1, cell.x1, cell.n0, cell.x0),
                *(cell.sums.get(name) for name in SUMS),
            )
            for name, cells in (
                *(
                    (outcomes.metric.name, cells_of(attribution, outcomes, calendar=calendar))
                    for outcomes in attribution.outcomes
                ),
                *picked_cells_of(attribution, calendar=calendar).items(),
            )
            for cell in cells
        ),
        # Without keys, which are the pipeline's own.
        "amounts": _sorted(
            [
                *(
                    (outcomes.metric.name, unit, *value)
                    for outcomes in attribution.outcomes
                    if outcomes.is_kept
                    for unit, values in outcomes.values.items()
                    for value in values.values()
                ),
                *(
                    (picks.name, unit, row.received, row.value)
                    for picks in attribution.picks
                    for unit in picks.units
                    for row in picks.kept(unit)
                ),
            ]
        ),
    }


def _block_units(experiment: FrozenExperiment, attribution: Attribution) -> list[tuple[int, ...]]:
    blocks = counted_units(experiment, attribution)
    return [(block, *(counts[name] for name in _UNITS)) for block, counts in blocks.items()]


def without_keys(amounts: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns amounts as the oracle has them."""
    return sorted(((*row[:2], *row[3:]) for row in amounts), key=repr)
