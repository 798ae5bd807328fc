#!/usr/bin/env bash
# Claim: A duration column of pandas or polars is a bare integer to DuckDB, in whatever unit its writer had.
# Tools: duckdb 2.0.1, pandas 3.1.1, polars 2.1.0, pyarrow 26.0.1 (PyPI)
# Seen: 250 ms are 250000 from pandas and 250 from polars in milliseconds, both BIGINT; pyarrow reads the unit.
# Matters: latencies of two services differ a thousandfold, so a threshold in milliseconds is always or never exceeded.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq duckdb==2.0.1 pandas==3.1.1 polars==2.1.0 pyarrow==26.0.1
cat > durations.py <<'PY'
import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq

pd.DataFrame({"took": pd.to_timedelta([250], unit="ms")}).to_parquet("pandas.parquet")
pl.DataFrame({"took": [250]}, schema={"took": pl.Duration("ms")}).write_parquet("polars.parquet")
for name in ("pandas", "polars"):
    value, kind = duckdb.sql(f"SELECT took, typeof(took) FROM '{name}.parquet'").fetchall()[0]
    print(value, kind, pq.read_schema(f"{name}.parquet").field("took").type, end=" ")
PY
seen=$(env/bin/python durations.py)
echo "$seen"
[ "$seen" = "250000 BIGINT duration[us] 250 BIGINT duration[ms] " ]
