#!/usr/bin/env bash
# Claim: dlt puts amounts with decimals into a second column where the first amount that it saw was a whole number.
# Tools: dlt 1.31.0, duckdb 2.0.1 (PyPI)
# Seen: of the values 20, 49.9 and 30 the column value has 20, null and 30, and value__v_double has 49.9; their sum is 50.
# Matters: SUM(value) of an outcome leaves out every order with cents, in silence, and which orders those are hangs on the first one.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq dlt==1.31.0 duckdb==2.0.1
cat > load.py <<'PY'
import dlt
import duckdb

target = dlt.destinations.duckdb("orders.duckdb")
pipeline = dlt.pipeline("orders", destination=target, dataset_name="shop", pipelines_dir="pipelines")
pipeline.run([{"value": 20}, {"value": 49.9}, {"value": 30}], table_name="orders")
table = duckdb.connect("orders.duckdb")
print(table.sql("SELECT sum(value), sum(value__v_double) FROM shop.orders").fetchall())
PY
seen=$(RUNTIME__DLTHUB_TELEMETRY=false env/bin/python load.py 2>/dev/null)
echo "sum(value), sum(value__v_double): $seen"
[ "$seen" = "[(50, 49.9)]" ]
