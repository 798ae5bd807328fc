#!/usr/bin/env bash
# Claim: Dagster's DuckDB I/O manager deletes rows of one zoned daily partition while it stores the next.
# Tools: dagster 1.13.27, dagster-duckdb-pandas 0.29.27, duckdb 2.0.1, pandas 2.3.3 (PyPI)
# Seen: of two days in Los Angeles' zone, two rows each, three rows are left; the first day loads one.
# Matters: outcomes of a team's own assets vanish without a word, most often the evening's.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq dagster==1.13.27 dagster-duckdb-pandas==0.29.27 duckdb==2.0.1 pandas==2.3.3
cat > days.py <<'PY'
import dagster as dg
import pandas as pd
from dagster_duckdb_pandas import DuckDBPandasIOManager

days = dg.DailyPartitionsDefinition(
    "2026-10-01", end_date="2026-10-05", timezone="America/Los_Angeles"
)


@dg.asset(partitions_def=days, metadata={"partition_expr": "ts"})
def orders(context):
    window = context.partition_time_window
    first, last = window.start, window.end.timestamp() - 60
    times = pd.to_datetime([first.timestamp(), last], unit="s", utc=True)
    return pd.DataFrame({"day": context.partition_key, "ts": times.tz_convert(str(days.timezone))})


rows = {}


@dg.asset(partitions_def=days, io_manager_key="memory")
def counted(context, orders):
    rows[context.partition_key] = len(orders)


resources = {
    "io_manager": DuckDBPandasIOManager(database="store.duckdb", schema="s"),
    "memory": dg.mem_io_manager,
}
for asset in (orders, counted):
    for day in ("2026-10-01", "2026-10-02"):
        chosen = dg.AssetSelection.assets(asset)
        dg.materialize([orders, counted], partition_key=day, resources=resources, selection=chosen)
import duckdb

print(duckdb.connect("store.duckdb").sql("SELECT count(*) FROM s.orders").fetchall()[0][0], rows)
PY
seen=$(env/bin/python days.py 2>/dev/null)
echo "rows stored, rows loaded: $seen"
[ "$seen" = "3 {'2026-10-01': 1, '2026-10-02': 1}" ]
