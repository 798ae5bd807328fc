#!/usr/bin/env bash
# Claim: polars takes the nearest value for a quantile, where pandas, numpy and DuckDB interpolate.
# Tools: polars 2.1.0, pandas 3.1.1, duckdb 2.0.1 (PyPI)
# Seen: the 95th percentile of the whole numbers from 1 to 10 is 10.0 in polars and 9.55 in pandas and DuckDB.
# Matters: a latency guardrail set from one tool's p95 and read by the other's fires at another point, most of all in small samples.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq polars==2.1.0 pandas==3.1.1 duckdb==2.0.1
cat > p95.py <<'PY'
import duckdb
import pandas as pd
import polars as pl

values = list(range(1, 11))
sql = duckdb.sql("SELECT quantile_cont(x, 0.95) FROM range(1, 11) AS t(x)").fetchall()[0][0]
print(pl.Series(values).quantile(0.95), *(round(p, 2) for p in (pd.Series(values).quantile(0.95), sql)))
PY
seen=$(env/bin/python p95.py)
echo "polars, pandas, DuckDB: $seen"
[ "$seen" = "10.0 9.55 9.55" ]
