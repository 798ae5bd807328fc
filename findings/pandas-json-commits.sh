#!/usr/bin/env bash
# Claim: pandas.read_json makes numbers of commits that stand as text in the file, and of some infinity; DuckDB and polars keep them.
# Tools: pandas 3.1.1, duckdb 2.0.1, polars 2.1.0 (PyPI)
# Seen: {"commit": "12e4567"} and {"commit": "0012345"} are inf and 12345.0; DuckDB and polars have the two texts.
# Matters: an export of one or two builds joins no deploy; abbreviated commits look like numbers once in 16.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq pandas==3.1.1 duckdb==2.0.1 polars==2.1.0
cat > commits.py <<'PY'
import duckdb
import pandas
import polars

open("events.json", "w").write('{"commit": "12e4567"}\n{"commit": "0012345"}\n')
print(
    *pandas.read_json("events.json", lines=True)["commit"],
    *duckdb.sql("SELECT commit FROM 'events.json'").fetchnumpy()["commit"],
    *polars.read_ndjson("events.json")["commit"],
)
PY
seen=$(env/bin/python commits.py)
echo "pandas, DuckDB, polars: $seen"
[ "$seen" = "inf 12345.0 12e4567 0012345 12e4567 0012345" ]
