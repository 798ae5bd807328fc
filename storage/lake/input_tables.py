"""Input tables: the rows of a small input as Arrow, which Spark takes."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from storage.lake.parquet import Table
from storage.pipeline.engines.engine import Columns

_TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "text": pa.string(),
    "json": pa.string(),
    "experiment": pa.int32(),
    "bool": pa.bool_(),
}


def input_table(columns: Columns, rows: Iterable[Sequence[Any]]) -> Table:
    """Returns rows as a table of these columns."""
    schema = pa.schema([(column, _TYPES[kind]) for column, kind in columns.items()])
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [
        pa.array(values, type=field.type) for values, field in zip(by_column, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
