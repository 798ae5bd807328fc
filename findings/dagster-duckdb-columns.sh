#!/usr/bin/env bash
# Claim: Dagster's DuckDB I/O manager stores a data frame by the position of its columns, not by their names.
# Tools: dagster 1.13.27, dagster-duckdb-pandas 0.29.27, duckdb 2.0.1, pandas 2.3.3 (PyPI)
# Seen: two partitions with paid=10 and refunded=1, the second with its columns the other way round: stored are paid 10 and paid 1.
# Matters: a change of a SELECT's order swaps two amounts of all later days, with no error and no changed row count.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq dagster==1.13.27 dagster-duckdb-pandas==0.29.27 duckdb==2.0.1 pandas==2.3.3
cat > days.py <<'PY'
import dagster as dg
import duckdb
import pandas as pd
from dagster_duckdb_pandas import DuckDBPandasIOManager

days = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-10-05")
orders_of = {"2026-10-01": ["day", "paid", "refunded"], "2026-10-02": ["day", "refunded", "paid"]}


@dg.asset(partitions_def=days, metadata={"partition_expr": "day"})
def orders(context):
    day = context.partition_key
    frame = pd.DataFrame({"day": pd.to_datetime([day]), "paid": [10], "refunded": [1]})
    return frame[orders_of[day]]


manager = DuckDBPandasIOManager(database="store.duckdb", schema="shop")
for day in orders_of:
    dg.materialize([orders], partition_key=day, resources={"io_manager": manager})
rows = duckdb.connect("store.duckdb").sql("SELECT paid, refunded FROM shop.orders ORDER BY day")
print(rows.fetchall())
PY
seen=$(env/bin/python days.py 2>/dev/null)
echo "paid and refunded of the two days: $seen"
[ "$seen" = "[(10, 1), (1, 10)]" ]
