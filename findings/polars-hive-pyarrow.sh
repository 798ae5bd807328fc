#!/usr/bin/env bash
# Claim: pyarrow and pandas cannot read a Parquet table that polars partitioned by a text, both with their defaults.
# Tools: polars 2.1.0, pyarrow 26.0.1, pandas 3.1.1, duckdb 2.0.1 (PyPI)
# Seen: polars keeps the column in the files as large_string beside the folder's name; pyarrow raises "incompatible types: large_string vs …"; DuckDB and polars read it.
# Matters: a lake by route or day that one job writes stops every job on pandas.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq polars==2.1.0 pyarrow==26.0.1 pandas==3.1.1 duckdb==2.0.1
cat > lake.py <<'PY'
import duckdb
import pandas
import polars
import pyarrow
import pyarrow.dataset

polars.DataFrame({"route": ["a", "b"], "n": [1, 2]}).write_parquet("lake/", partition_by="route")


def answer(read):
    try:
        return len(read())
    except pyarrow.ArrowTypeError as error:
        return "refused" if "large_string vs" in str(error) else error


print(
    answer(lambda: pyarrow.dataset.dataset("lake", partitioning="hive").to_table()),
    answer(lambda: pandas.read_parquet("lake")),
    answer(lambda: duckdb.sql("SELECT route, n FROM 'lake/*/*.parquet'").fetchall()),
    answer(lambda: polars.read_parquet("lake/")),
)
PY
seen=$(env/bin/python lake.py)
echo "rows by pyarrow, pandas, DuckDB, polars: $seen"
[ "$seen" = "refused refused 2 2" ]
