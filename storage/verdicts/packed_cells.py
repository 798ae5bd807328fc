"""Packed cells: the closed cells of a metric as columns: a tick reads those of all experiments."""

import sys
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from operator import lt
from typing import TypeVar

from sqlalchemy import Connection, text

from storage.postgres.rows import value_of

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Sums and sums of squares of a metric of kind `mean`, an entry a cell."""

    y1: "array[float]"
    yy1: "array[float]"
    y0: "array[float]"
    yy0: "array[float]"


@dataclass(frozen=True, kw_only=True)
class CellColumns:
    """The closed cells of a metric, an entry a cell, by block and stratum.

    Attributes:
        block: Where the block begins, in seconds since the epoch.
        stratum: The place of the stratum among the experiment's.
        n1: Units of treatment.
        x1: Conversions of treatment.
        n0: Units of control.
        x0: Conversions of control.
        sums: Of a metric of kind `mean`; empty columns of others.
    """

    block: "array[int]"
    stratum: "array[int]"
    n1: "array[int]"
    x1: "array[int]"
    n0: "array[int]"
    x0: "array[int]"
    sums: Sums

    def in_order(self) -> "CellColumns":
        """Returns the cells by block and stratum, of some whose blocks ascend already.

        The store may collate strata otherwise than by their bytes, which say their places.
        """
        if not any(self.stratum):
            return self
        keys = list(zip(self.block, self.stratum, strict=True))
        if all(map(lt, keys, keys[1:])):
            return self
        order = sorted(range(len(keys)), key=keys.__getitem__)
        sums = {
            field.name: _picked(getattr(self.sums, field.name), order) for field in fields(Sums)
        }
        counts = {
            name: _picked(getattr(self, name), order)
            for name in ("block", "stratum", "n1", "x1", "n0", "x0")
        }
        return CellColumns(**counts, sums=Sums(**sums))


def _picked(column: "array[Number]", order: Sequence[int]) -> "array[Number]":
    return array(column.typecode, map(column.__getitem__, order if column else ()))


_NO_COUNTS, _NO_SUMS = array("q"), array("d")
NO_CELLS = CellColumns(
    block=_NO_COUNTS,
    stratum=_NO_COUNTS,
    n1=_NO_COUNTS,
    x1=_NO_COUNTS,
    n0=_NO_COUNTS,
    x0=_NO_COUNTS,
    sums=Sums(y1=_NO_SUMS, yy1=_NO_SUMS, y0=_NO_SUMS, yy0=_NO_SUMS),
)


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """A stratum of an experiment, and a commit that stands for it.

    Attributes:
        name: Its digest.
        lineage: The digest of its lineage alone.
        flags: The values of the other flags that experiments test.
    """

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
    {packed("int8send", "at", "place", "n1", "x1", "n0", "x0", order=_ORDER)},
    {packed("float8send", "y1", "yy1", "y0", "yy0", order=_ORDER)}
FROM cells
JOIN places USING (experiment_id, stratum)
CROSS JOIN LATERAL (SELECT {AT}) AS begun
WHERE experiment_id = ANY(:ids)
GROUP BY experiment_id, metric
""")


def read_cells(connection: Connection, ids: Sequence[str]) -> Mapping[tuple[str, str], CellColumns]:
    """Returns the closed cells of some experiments, by (experiment, metric); those that have any.

    Args:
        connection: To the store, or to a separate reading of it.
    """
    return {
        (row.experiment_id, row.metric): CellColumns(
            block=integers_sent(row.at),
            stratum=integers_sent(row.place),
            n1=integers_sent(row.n1),
            x1=integers_sent(row.x1),
            n0=integers_sent(row.n0),
            x0=integers_sent(row.x0),
            sums=Sums(
                y1=_floats(row.y1),
                yy1=_floats(row.yy1),
                y0=_floats(row.y0),
                yy0=_floats(row.yy0),
            ),
        ).in_order()
        for row in connection.execute(_CELLS, {"ids": list(ids)})
    }


def integers_sent(sent: bytes) -> "array[int]":
    """Returns whole numbers that PostgreSQL sent as bytes, eight a number, the highest first."""
    column = array("q", sent)
    if sys.byteorder == "little":
        column.byteswap()
    return column


def _floats(sent: bytes | None) -> "array[float]":
    column = array("d", sent or b"")
    if sys.byteorder == "little":
        column.byteswap()
    return column
