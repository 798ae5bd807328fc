#!/usr/bin/env bash
# Claim: DuckDB takes the second of two equal hours in autumn, where Python takes the first, and pandas and polars refuse.
# Tools: duckdb 2.0.1, pandas 3.1.1, polars 2.1.0 (PyPI)
# Seen: 1 November 2026, 01:30 in New York is 06:30 UTC in DuckDB and 05:30 UTC in Python; pandas and polars raise an error.
# Matters: local times of a warehouse move by an hour once a year in silence, past exposures and out of windows.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq duckdb==2.0.1 pandas==3.1.1 polars==2.1.0 tzdata pytz
cat > fold.py <<'PY'
from datetime import datetime
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import polars as pl

name, at = "America/New_York", datetime(2026, 11, 1, 1, 30)
sql = f"SELECT epoch(TIMESTAMP '{at}' AT TIME ZONE '{name}')"
for seconds in (duckdb.sql(sql).fetchall()[0][0], at.replace(tzinfo=ZoneInfo(name)).timestamp()):
    print(datetime.fromtimestamp(seconds, ZoneInfo("UTC")).strftime("%H:%M"))
for localize in (
    lambda: pd.Series([at]).dt.tz_localize(name),
    lambda: pl.Series([at]).dt.replace_time_zone(name),
):
    try:
        print(localize())
    except (ValueError, pl.exceptions.ComputeError):
        print("refused")
PY
seen=$(env/bin/python fold.py | xargs)
echo "DuckDB, Python, pandas, polars: $seen"
[ "$seen" = "06:30 05:30 refused refused" ]
