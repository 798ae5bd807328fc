#!/usr/bin/env bash
# Claim: Apache's Avro library for Python stores an amount with fewer decimals than its schema ten or a hundred times too small.
# Tools: avro 1.12.2, fastavro 1.13.1 (PyPI)
# Seen: of Decimal("49.90"), Decimal("49.9") and Decimal("49") in a field of scale 2 avro keeps 49.90, 4.99 and 0.49; fastavro keeps 49.90, 49.90 and 49.00.
# Matters: whether an order's value is right hangs on its trailing zeros, and nothing fails, so revenue per visitor is wrong in one producer alone.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq avro==1.12.2 fastavro==1.13.1
cat > amounts.py <<'PY'
import io
import json
from decimal import Decimal

import avro.io
import avro.schema
import fastavro

amount = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
schema = {"type": "record", "name": "Order", "fields": [{"name": "value", "type": amount}]}
parsed = fastavro.parse_schema(schema)


def read(written):
    written.seek(0)
    return fastavro.schemaless_reader(written, parsed)["value"]


def by_avro(value):
    written = io.BytesIO()
    writer = avro.io.DatumWriter(avro.schema.parse(json.dumps(schema)))
    writer.write({"value": value}, avro.io.BinaryEncoder(written))
    return read(written)


def by_fastavro(value):
    written = io.BytesIO()
    fastavro.schemaless_writer(written, parsed, {"value": value})
    return read(written)


for write in by_avro, by_fastavro:
    print(*(write(Decimal(text)) for text in ("49.90", "49.9", "49")))
PY
seen=$(env/bin/python amounts.py)
echo "avro, then fastavro:"
echo "$seen"
[ "$seen" = "$(printf '49.90 4.99 0.49\n49.90 49.90 49.00')" ]
