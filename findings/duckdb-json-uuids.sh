#!/usr/bin/env bash
# Claim: DuckDB gives UUIDs of a JSON file another case than the file has, of a CSV file the same.
# Tools: duckdb 2.0.1, polars 2.1.0 (PyPI)
# Seen: 5B8EFFF7-… is a UUID and in text 5b8efff7-… by read_json, and stays as it is by read_csv and in polars.
# Matters: iOS writes UUIDs in capitals: sessions of one app join in CSV and not in JSON, with nothing but an empty result to say so.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq duckdb==2.0.1 polars==2.1.0
cat > ids.py <<'PY'
import json

import duckdb
import polars

ids = [f"5B8EFFF7-9803-8103-D269-B633813FC6{n:02d}" for n in range(20)]
open("events.json", "w").writelines(json.dumps({"session_id": text}) + "\n" for text in ids)
open("events.csv", "w").write("session_id\n" + "\n".join(ids))
for file in ("events.json", "events.csv"):
    rows = duckdb.sql(f"SELECT session_id::text FROM '{file}'").fetchall()
    print(sum(text in ids for (text,) in rows), end=" ")
print(sum(polars.read_ndjson("events.json")["session_id"].is_in(ids)))
PY
seen=$(env/bin/python ids.py)
echo "of 20 ids as the file has them: DuckDB from JSON and CSV, polars from JSON: $seen"
[ "$seen" = "0 20 20" ]
