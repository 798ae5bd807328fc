"""Block ranges: the text over days of experiments' lives, after the rows stored before.

Both halves read earlier rows by the keys of the units that they meet, so that a day costs the same
after ninety days as after one.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from storage.log.reader import Extent, SealedLog
from storage.pipeline.engines.engine import Columns, DayEngine
from storage.pipeline.engines.postgres_engine import epoch_microseconds, number_of_arm
from storage.pipeline.experiments import ReadExperiment, segments_of
from storage.pipeline.inputs import (
    ReadOutcomes,
    read_environments,
    register_assignments,
    register_deploy_times,
    register_metrics,
    register_routes,
    register_scope,
)
from storage.pipeline.moments import block_of, moment_of
from storage.pipeline.steps import (
    AHEAD,
    EXPOSURE_STEPS,
    NEW_AMOUNTS,
    NEW_CELLS,
    NEW_CONVERSIONS,
    OUTCOME_UNITS,
    OUTCOME_USERS,
    OUTCOMES,
    PAID,
    SEEN,
)
from storage.pipeline.transfer.copying import copy_from_store
from storage.pipeline.transfer.known_rows import KnownExperiment, KnownRows, known_experiments
from storage.pipeline.whole_lives import (
    attach_extent,
    count_cells,
    count_exposures,
    distribute_events,
    extent_of,
    register_buried_outcomes,
    register_buried_units,
    split_by_size,
)

# --- Exposures ------------------------------------------------------------------------------------

_READ_UNITS = """
SELECT number, unit FROM seen
UNION SELECT number, unit FROM buried_exposures
UNION SELECT number, unit FROM buried_sightings
"""
_NEW_USERS = """
SELECT DISTINCT number, pseudonym FROM new_exposures WHERE pseudonym IS NOT NULL AND arm <= 1
"""


def compute_exposures(
    engine: DayEngine,
    log: SealedLog,
    connection: Connection,
    read: Sequence[ReadExperiment],
    *,
    schema: str = "",
) -> None:
    """Materializes the steps from the log to the exposures of some blocks.

    It also makes `known_sightings`: the earlier sightings of the units that it meets.

    Args:
        engine: An engine that holds nothing else.
        connection: To the store, in a transaction which may make temporary tables.
        read: The experiments, and which blocks of each are read.
        schema: Of the derived tables, with a dot; empty for the first of the search path.

    Raises:
        TooManyAssignmentsError: One of them has more assignments than can be numbered.
    """
    attach_extent(engine, log, extent_of(read), segments=segments_of(read))
    experiments = [scope.experiment for scope in read]
    split_by_size(engine, experiments)
    environments = read_environments(
        log.connection, {experiment.environment_key for experiment in experiments}
    )
    register_scope(engine, read, environments)
    distribute_events(engine, experiments)
    register_assignments(engine, log.connection, read, environments)
    register_routes(engine, log.connection, experiments)
    register_deploy_times(engine, log.connection, environments.histories)
    register_buried_units(engine, log.connection, read)
    known = KnownRows(engine, connection, schema=schema, experiments=known_experiments(read))
    for _ in engine.each_part():
        engine.run(SEEN)
        known.exposures("exposures_of_units", _READ_UNITS)
        known.sightings("known_sightings", _READ_UNITS)
        engine.define("known_exposures", "SELECT * FROM exposures_of_units")
        engine.define(
            "known_in_flight", "SELECT experiment, unit FROM known_sightings WHERE kind = 1"
        )
        for step in EXPOSURE_STEPS:
            if step is not SEEN:
                engine.run(step)
        engine.drop(EXPOSURE_STEPS)
    known.exposures_of_users("exposures_of_users", _NEW_USERS)
    engine.define("known_exposures", "SELECT * FROM exposures_of_users")
    count_exposures(engine)


# --- Cells ----------------------------------------------------------------------------------------


def compute_cells(
    engine: DayEngine,
    log: SealedLog,
    connection: Connection,
    read: Sequence[ReadOutcomes],
    *,
    schema: str = "",
) -> None:
    """Materializes the steps from the outcomes of exposed units to cells.

    Args:
        engine: An engine that holds nothing else.
        connection: To the store, in a transaction which may make temporary tables; it holds the
            exposures of these blocks.
        read: The experiments, and how far the outcomes of each are read.
        schema: Of the derived tables, with a dot; empty for the first of the search path.
    """
    blocks = [_blocks_of(scope) for scope in read]
    attach_extent(engine, log, _extent(read, blocks))
    experiments = [scope.experiment for scope in read]
    split_by_size(engine, experiments)
    register_metrics(engine, read)
    register_buried_outcomes(engine, log.connection, blocks)
    engine.define("outcome_events", "SELECT e.* FROM log_rows AS e")
    distribute_events(engine, experiments)
    engine.run(PAID)
    known = KnownRows(
        engine,
        connection,
        schema=schema,
        experiments=[
            KnownExperiment(
                number=scope.experiment.number,
                experiment_id=scope.experiment.experiment_id,
                exposed_before=_exposed_to(scope),
                known_until=scope.from_block,
            )
            for scope in read
        ],
    )
    known.exposures_of_users("exposed_users", OUTCOME_USERS)
    _copy_closing(engine, connection, read, schema=schema)
    for _ in engine.each_part():
        known.exposures("exposed_units", OUTCOME_UNITS)
        for step in (OUTCOMES, NEW_CONVERSIONS, NEW_AMOUNTS):
            engine.run(step)
        engine.define("known_conversions", _CONVERSIONS)
        engine.define("known_amounts", _AMOUNTS)
        count_cells(engine)
    engine.run(NEW_CELLS)


def _blocks_of(read: ReadOutcomes) -> ReadExperiment:
    return ReadExperiment(
        experiment=read.experiment, from_block=read.from_block, to_block=read.to_block
    )


def _exposed_to(read: ReadOutcomes) -> int:
    return read.to_block if read.exposed_to is None else read.exposed_to


def _extent(read: Sequence[ReadOutcomes], blocks: Sequence[ReadExperiment]) -> Extent:
    received_from = min(scope.from_block for scope in read) - AHEAD
    metrics = [metric for scope in read for metric in scope.experiment.metrics]
    return Extent(
        named_from=received_from,
        received_from=received_from,
        received_to=max(scope.received_to for scope in blocks),
        environments=frozenset(scope.experiment.environment_key for scope in read),
        # The units of other events were exposed before.
        names=frozenset(source for metric in metrics for source in metric.sources),
    )


_CLOSING = {
    "experiment": "int",
    "unit": "text",
    "block": "bigint",
    "arm": "int",
    "stratum": "text",
}
_KNOWN_CONVERSIONS = {
    "experiment": "int",
    "metric": "text",
    "unit": "text",
    "late": "int",
}
_KNOWN_AMOUNTS = {
    "experiment": "int",
    "metric": "text",
    "unit": "text",
    "event_key": "text",
    "received": "bigint",
    "value": "bigint",
}

# An outcome that is stored already, and is delivered again, is one outcome.
_CONVERSIONS = """
SELECT experiment, metric, unit, min(late) AS late
FROM (
    SELECT * FROM earlier_conversions
    UNION ALL
    SELECT number, metric, unit, late FROM new_conversions
) AS outcomes
GROUP BY experiment, metric, unit
"""
_AMOUNTS = """
SELECT experiment, metric, unit, received, value
FROM (
    SELECT experiment, metric, unit, received, value,
        row_number() OVER (
            PARTITION BY experiment, metric, unit, event_key ORDER BY received, value
        ) AS delivery
    FROM (
        SELECT * FROM earlier_amounts
        UNION ALL
        SELECT number, metric, unit, event_key, received, value FROM new_amounts
    ) AS amounts
) AS deliveries
WHERE delivery = 1
"""

_RANGES = text("""
CREATE TEMP TABLE closing_ranges ON COMMIT DROP AS
SELECT * FROM unnest(
    CAST(:numbers AS integer[]), CAST(:experiments AS text[]), CAST(:metrics AS text[]),
    CAST(:from_blocks AS timestamptz[]), CAST(:to_blocks AS timestamptz[]),
    CAST(:known_until AS timestamptz[])
) AS r (number, experiment_id, metric, from_block, to_block, known_until)
""")
_RANGE_COLUMNS = ("numbers", "experiments", "metrics", "from_blocks", "to_blocks", "known_until")


def _copy_closing(
    engine: DayEngine, connection: Connection, read: Sequence[ReadOutcomes], *, schema: str
) -> None:
    """Copies the units whose outcomes close now, and those of their outcomes that are stored."""
    ranges = [
        (
            scope.experiment.number,
            scope.experiment.experiment_id,
            metric.name,
            moment_of(scope.closed_from[metric.name]),
            moment_of(min(scope.to_block - metric.open_for, _exposed_to(scope))),
            # Of an experiment that is read for the first time no outcome is known.
            moment_of(scope.from_block + scope.experiment.grace)
            if scope.from_block > block_of(scope.experiment.starts_at)
            else None,
        )
        for scope in read
        for metric in scope.experiment.metrics
    ]
    columns = map(list, zip(*ranges, strict=True))
    connection.execute(_RANGES, dict(zip(_RANGE_COLUMNS, columns, strict=True)))
    _distribute_stored(
        engine,
        connection,
        "closing_exposures",
        _CLOSING,
        f"SELECT r.number, p.unit, {epoch_microseconds('p.block')}, {number_of_arm('p.arm')},"
        " p.stratum"
        " FROM (SELECT number, experiment_id, min(from_block) AS from_block,"
        " max(to_block) AS to_block FROM closing_ranges GROUP BY number, experiment_id) AS r"
        f" JOIN {schema}exposures AS p ON p.experiment_id = r.experiment_id"
        " AND p.block >= r.from_block AND p.block < r.to_block",
    )
    stored_outcomes = (
        f"FROM closing_ranges AS r JOIN {schema}exposures AS p"
        " ON p.experiment_id = r.experiment_id AND p.block >= r.from_block AND p.block < r.to_block"
        f" JOIN {schema}{{table}} AS o ON o.experiment_id = r.experiment_id"
        " AND o.metric = r.metric AND o.unit = p.unit AND o.received_at <= r.known_until"
        " WHERE r.known_until IS NOT NULL"
    )
    _distribute_stored(
        engine,
        connection,
        "earlier_conversions",
        _KNOWN_CONVERSIONS,
        "SELECT r.number, o.metric, o.unit, o.late::integer "
        + stored_outcomes.format(table="conversions"),
    )
    _distribute_stored(
        engine,
        connection,
        "earlier_amounts",
        _KNOWN_AMOUNTS,
        f"SELECT r.number, o.metric, o.unit, o.key, {epoch_microseconds('o.received_at')}, o.value "
        + stored_outcomes.format(table="amounts"),
    )
    connection.execute(text("DROP TABLE closing_ranges"))


def _distribute_stored(
    engine: DayEngine, connection: Connection, name: str, columns: Columns, sql: str
) -> None:
    """Copies rows of units of the store, and distributes them to the parts of their units."""
    copy_from_store(engine, connection, f"stored_{name}", columns, sql)
    engine.distribute(name, f"SELECT * FROM stored_{name}", ("unit",))
