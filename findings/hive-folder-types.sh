#!/usr/bin/env bash
# Claim: DuckDB and pyarrow give the folders of one partitioned Parquet table different types, and neither keeps the text.
# Tools: duckdb 2.0.1, pyarrow 26.0.1 (PyPI)
# Seen: of day=2026-11-28/hour=05 DuckDB reads a date and the text 05, pyarrow a text and the integer 5.
# Matters: a lake by day and hour joined or filtered by the same words is empty in one of two tools.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq duckdb==2.0.1 pyarrow==26.0.1
cat > folders.py <<'PY'
import duckdb
import pyarrow.dataset as ds

rows = "SELECT 1 AS n, '2026-11-28' AS day, '05' AS hour"
duckdb.sql(f"COPY ({rows}) TO 'events' (FORMAT parquet, PARTITION_BY (day, hour))")
read = "FROM read_parquet('events/*/*/*.parquet', hive_partitioning = true)"
print(*duckdb.sql(f"SELECT typeof(day), typeof(hour) {read}").fetchall()[0], end=" ")
schema = ds.dataset("events", partitioning="hive").schema
print(schema.field("day").type, schema.field("hour").type)
PY
seen=$(env/bin/python folders.py)
echo "$seen"
[ "$seen" = "DATE VARCHAR string int32" ]
