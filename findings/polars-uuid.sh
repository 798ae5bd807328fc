#!/usr/bin/env bash
# Claim: A UUID column of DuckDB or pandas is plain bytes after polars, and joins nothing as text.
# Tools: duckdb 2.0.1, polars 2.1.0, pandas 3.1.1, pyarrow 26.0.1 (PyPI)
# Seen: three ids written by DuckDB and rewritten by polars meet 0 of 3 as text; by pandas 3 of 3.
# Matters: exposures from one tool and outcomes from another have no unit in common, and no error says so.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq duckdb==2.0.1 polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1
cat > ids.py <<'PY'
import duckdb
import pandas as pd
import polars as pl

duckdb.sql("COPY (SELECT uuid() AS unit FROM range(3)) TO 'duckdb.parquet'")
pl.read_parquet("duckdb.parquet").write_parquet("polars.parquet")
pd.read_parquet("duckdb.parquet").to_parquet("pandas.parquet")
for tool in ("polars", "pandas"):
    other = f"'{tool}.parquet'"
    kind = duckdb.sql(f"SELECT typeof(unit) FROM {other} LIMIT 1").fetchall()[0][0]
    joined = duckdb.sql(
        f"SELECT count(*) FROM 'duckdb.parquet' a JOIN {other} b ON a.unit::VARCHAR = b.unit::VARCHAR"
    ).fetchall()[0][0]
    print(tool, kind, joined)
PY
seen=$(env/bin/python ids.py | tr '\n' ' ')
echo "$seen"
[ "$seen" = "polars BLOB 0 pandas UUID 3 " ]
