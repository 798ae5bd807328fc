"""Known rows: stored rows of the units that an engine meets, looked up by their keys.

The cost of a computation in the middle of an experiment's life grows with its part of the log, not
with the experiment's history: the engine names the units, PostgreSQL finds their rows by index.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from storage.pipeline.engines.engine import Columns, DayEngine
from storage.pipeline.engines.postgres_engine import (
    epoch_microseconds,
    number_of_arm,
    number_of_kind,
)
from storage.pipeline.experiments import ReadExperiment
from storage.pipeline.moments import block_of
from storage.pipeline.steps import IN_FLIGHT, SIGHTING_KINDS
from storage.pipeline.transfer.copying import (
    copy_from_store,
    copy_into_store,
    plain_field,
    text_field,
)

_EXPOSURES = {
    "experiment": "int",
    "unit": "text",
    "exposed_at": "bigint",
    "block": "bigint",
    "arm": "int",
    "stratum": "text",
    "pseudonym": "text",
}
_SIGHTINGS = {"experiment": "int", "unit": "text", "kind": "int"}
_EXPOSURE = f"""
k.number, p.unit, {epoch_microseconds("p.exposed_at")}, {epoch_microseconds("p.block")},
{number_of_arm("p.arm")}, p.stratum, encode(p.pseudonym, 'hex')
"""


@dataclass(frozen=True, kw_only=True)
class KnownExperiment:
    """An experiment of which rows were stored before the blocks that a computation reads.

    Attributes:
        number: The experiment's number.
        exposed_before: Exposures of earlier blocks are known, in microseconds.
        known_until: Sightings and outcomes of this time and before are known.
    """

    number: int
    experiment_id: str
    exposed_before: int
    known_until: int


def known_experiments(read: Sequence[ReadExperiment]) -> list[KnownExperiment]:
    """Returns the experiments that are not read from their first block on."""
    return [
        KnownExperiment(
            number=scope.experiment.number,
            experiment_id=scope.experiment.experiment_id,
            exposed_before=scope.from_block,
            known_until=scope.from_block + scope.experiment.grace,
        )
        for scope in read
        if scope.from_block > block_of(scope.experiment.starts_at - IN_FLIGHT)
    ]


class KnownRows:
    """Looks up stored rows of units that an engine names.

    Args:
        engine: To which they are copied.
        schema: Of the derived tables, with a dot; empty for the first of the search path.
        experiments: Of other experiments no row is known.
    """

    def __init__(
        self,
        engine: DayEngine,
        connection: Connection,
        *,
        schema: str,
        experiments: Sequence[KnownExperiment],
    ) -> None:
        self._engine = engine
        self._connection = connection
        self._schema = schema
        self._has_experiments = bool(experiments)
        engine.register(
            "known_experiments",
            {
                "number": "int",
                "experiment_id": "text",
                "exposed_before": "bigint",
                "known_until": "bigint",
            },
            (
                (known.number, known.experiment_id, known.exposed_before, known.known_until)
                for known in experiments
            ),
        )

    def exposures(self, name: str, units: str) -> None:
        """Copies the exposures of units; `units` selects their number and unit."""
        self._look_up(
            name,
            _EXPOSURES,
            units,
            f"SELECT {_EXPOSURE} FROM {{keys}} AS k"
            f" JOIN {self._schema}exposures AS p"
            " ON p.experiment_id = k.experiment_id AND p.unit = k.key"
            f" WHERE {epoch_microseconds('p.block')} < k.exposed_before",
        )

    def exposures_of_users(self, name: str, users: str) -> None:
        """Copies the exposures of users; `users` selects their number and pseudonym."""
        self._look_up(
            name,
            _EXPOSURES,
            users,
            f"SELECT {_EXPOSURE} FROM {{keys}} AS k"
            f" JOIN {self._schema}exposures AS p"
            " ON p.experiment_id = k.experiment_id AND p.pseudonym = decode(k.key, 'hex')"
            f" WHERE {epoch_microseconds('p.block')} < k.exposed_before",
        )

    def sightings(self, name: str, units: str) -> None:
        """Copies the sightings of units; `units` selects their number and unit."""
        # The kinds are named since the key of the table has them before the unit.
        kinds = ", ".join(f"'{kind}'" for kind in SIGHTING_KINDS.values())
        self._look_up(
            name,
            _SIGHTINGS,
            units,
            f"SELECT k.number, p.unit, {number_of_kind('p.kind')} FROM {{keys}} AS k"
            f" JOIN {self._schema}sightings AS p"
            f" ON p.experiment_id = k.experiment_id AND p.kind IN ({kinds}) AND p.unit = k.key"
            f" WHERE {epoch_microseconds('p.at')} <= k.known_until",
        )

    def _look_up(self, name: str, columns: Columns, keys: str, sql: str) -> None:
        if not self._has_experiments:
            self._engine.register(name, columns, ())
            return
        keys_table = f"keys_of_{name}"
        self._connection.execute(
            text(
                f"CREATE TEMP TABLE {keys_table} (number integer, experiment_id text, key text,"
                " exposed_before bigint, known_until bigint) ON COMMIT DROP"
            )
        )
        copy_into_store(
            self._engine,
            self._connection,
            keys_table,
            {
                "number": plain_field("k.number"),
                "experiment_id": plain_field("k.experiment_id"),
                "key": text_field("n.key"),
                "exposed_before": plain_field("k.exposed_before"),
                "known_until": plain_field("k.known_until"),
            },
            f"({keys}) AS n (number, key) JOIN known_experiments AS k ON k.number = n.number",
        )
        self._connection.execute(text(f"ANALYZE {keys_table}"))
        stored_rows = sql.format(keys=keys_table)
        copy_from_store(self._engine, self._connection, name, columns, stored_rows)
        self._connection.execute(text(f"DROP TABLE {keys_table}"))
