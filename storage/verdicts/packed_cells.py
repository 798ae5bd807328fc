"""Packed cells: the closed cells of a metric as columns: a tick reads those of all experiments."""

import sys
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import lt
from typing import Any

from sqlalchemy import Connection, Row, text

from storage.postgres.rows import value_of

# Columns by name, an entry a row; blocks in seconds since the epoch.
Columns = Mapping[str, "array[Any]"]

_WHOLE = ("at", "place", "n1", "x1", "n0", "x0")
# Sums of a mean and, all of them, of a ratio; other kinds have empty columns.
_SUMS = ("y1", "yy1", "y0", "yy0", "d1", "dd1", "yd1", "d0", "dd0", "yd0")
_CALLED = {"at": "block", "place": "stratum"}
NO_CELLS: Columns = {_CALLED.get(name, name): array("q") for name in _WHOLE} | {
    name: array("d") for name in _SUMS
}


def in_order(cells: Columns) -> Columns:
    """Returns cells by block and stratum, of some whose blocks ascend already.

    The store may collate strata otherwise than by their bytes, which say their places.
    """
    if not any(cells["stratum"]):
        return cells
    keys = list(zip(cells["block"], cells["stratum"], strict=True))
    if all(map(lt, keys, keys[1:])):
        return cells
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return {
        name: array(column.typecode, map(column.__getitem__, order if column else ()))
        for name, column in cells.items()
    }


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """A stratum of an experiment, its lineage's digest, and a commit that stands for it."""

    name: str
    commit: str
    lineage: str
    flags: Mapping[str, str]


_STRATA = text("""
SELECT experiment_id, stratum, commit_sha, coalesce(lineage, stratum) AS lineage,
    coalesce(flags, '{}') AS flags
FROM strata
WHERE experiment_id = ANY(:ids)
ORDER BY experiment_id, stratum COLLATE "C"
""")


def read_strata(connection: Connection, ids: Sequence[str]) -> Mapping[str, Sequence[Stratum]]:
    """Returns the strata of each experiment, in order of their names."""
    strata: dict[str, list[Stratum]] = defaultdict(list)
    for row in connection.execute(_STRATA, {"ids": list(ids)}):
        strata[row.experiment_id].append(
            value_of(Stratum, row, name=row.stratum, commit=row.commit_sha)
        )
    return strata


def packed(send: str, *names: str, order: str) -> str:
    """Returns SQL for columns as PostgreSQL sends them: eight bytes a value, the highest first.

    Args:
        order: The order of the values; that of an index spares a sort.
    """
    return ", ".join(f"string_agg({send}({name}), '' ORDER BY {order}) AS {name}" for name in names)


# Where a block begins, in seconds since the epoch.
AT = "block / 1000000 AS at"


# In the order of the primary key, in which they are read.
_ORDER = "block, stratum"
# Sums of a conversion are null, which adds nothing.
_CELLS = text(f"""
WITH places AS (
    SELECT experiment_id, stratum,
        row_number() OVER (PARTITION BY experiment_id ORDER BY stratum COLLATE "C") - 1 AS place
    FROM strata
    WHERE experiment_id = ANY(:ids)
)
SELECT experiment_id, metric,
    {packed("int8send", *_WHOLE, order=_ORDER)}, {packed("float8send", *_SUMS, order=_ORDER)}
FROM cells
JOIN places USING (experiment_id, stratum)
CROSS JOIN LATERAL (SELECT {AT}) AS begun
WHERE experiment_id = ANY(:ids)
GROUP BY experiment_id, metric
""")


def read_cells(connection: Connection, ids: Sequence[str]) -> Mapping[tuple[str, str], Columns]:
    """Returns the closed cells of some experiments, by (experiment, metric); those that have any.

    They have a row's `block`, the place of its `stratum` among the experiment's, the units of each
    arm, n1 and n0, their conversions, x1 and x0, and the sums of means and ratios.
    """
    return {
        (row.experiment_id, row.metric): in_order(sent(row, *_WHOLE) | sent(row, *_SUMS, code="d"))
        for row in connection.execute(_CELLS, {"ids": list(ids)})
    }


def sent(row: Row[Any], *names: str, code: str = "q") -> dict[str, "array[Any]"]:
    """Returns columns that PostgreSQL sent as bytes, eight a number, the highest first."""
    columns = {_CALLED.get(name, name): array(code, getattr(row, name) or b"") for name in names}
    if sys.byteorder == "little":
        for column in columns.values():
            column.byteswap()
    return columns
