#!/usr/bin/env bash
# Claim: pyarrow and DuckDB read the same Parquet time as different instants, where the zone is not UTC.
# Tools: hyparquet-writer 0.17.0 (npm), duckdb 2.0.1, pyarrow 26.0.1 (PyPI)
# Seen: a JavaScript Date of 08:00 UTC is 08:00 UTC to pyarrow, and 08:00 in Los Angeles to DuckDB there.
# Matters: events exported by Node.js move by hours past exposures and windows, in silence.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq duckdb==2.0.1 pyarrow==26.0.1 pytz
npm install --silent --no-save hyparquet-writer@0.17.0 >/dev/null
cat > write.mjs <<'JS'
import { writeFileSync } from "fs";
import { parquetWriteBuffer } from "hyparquet-writer";
const data = [new Date("2026-10-01T08:00:00Z")];
writeFileSync("at.parquet", Buffer.from(parquetWriteBuffer({ columnData: [{ name: "ts", data }] })));
JS
node write.mjs
cat > read.py <<'PY'
import datetime

import duckdb
import pyarrow.parquet

arrow = pyarrow.parquet.read_table("at.parquet")["ts"]
duckdb.execute("SET TimeZone = 'America/Los_Angeles'")
row = duckdb.sql("SELECT typeof(ts), epoch(ts::TIMESTAMPTZ) FROM 'at.parquet'").fetchall()[0]
shift = (row[1] - arrow[0].as_py().replace(tzinfo=datetime.UTC).timestamp()) / 3600
print(arrow.type, "|", row[0], "|", shift, "hours apart")
PY
seen=$(env/bin/python read.py)
echo "$seen"
[ "$seen" = "timestamp[ms, tz=UTC] | TIMESTAMP | 7.0 hours apart" ]
