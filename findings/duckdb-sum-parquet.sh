#!/usr/bin/env bash
# Claim: DuckDB writes the sum of an integer column to Parquet as a double.
# Tools: duckdb 2.0.1, pyarrow 26.0.1 (PyPI)
# Seen: sum(cents) is a HUGEINT of 9007199254740993 in DuckDB and the double 9007199254740992 in its Parquet file.
# Matters: an outcome a user in whole cents reaches every reader as a float, and large sums or ids lose digits.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq duckdb==2.0.1 pyarrow==26.0.1
cat > sums.py <<'PY'
import duckdb
import pyarrow.parquet as pq

rows = "SELECT sum(cents) AS s, sum(cents)::BIGINT AS b FROM (VALUES (9007199254740992), (1)) v(cents)"
print(*duckdb.sql(f"SELECT typeof(s), s FROM ({rows})").fetchall()[0], end=" ")
duckdb.sql(f"COPY ({rows}) TO 'sums.parquet'")
table = pq.read_table("sums.parquet")
print(*(f"{field.type} {int(table[field.name][0].as_py())}" for field in table.schema))
PY
seen=$(env/bin/python sums.py)
echo "$seen"
[ "$seen" = "HUGEINT 9007199254740993 double 9007199254740992 int64 9007199254740993" ]
