#!/usr/bin/env bash
# Claim: fastavro writes a whole number as a double where a union names double before long, Apache's library as a long.
# Tools: fastavro 1.13.1, avro 1.12.2 (PyPI)
# Seen: of 1445000000000000001 in a field ["null", "double", "long"] fastavro keeps 1445000000000000000.0 and avro the number itself.
# Matters: ids of 64 bits in a union, as converters of JSON schemas write it, are rounded by one producer, and visitors become one.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq fastavro==1.13.1 avro==1.12.2
cat > ids.py <<'PY'
import io
import json

import avro.io
import avro.schema
import fastavro

field = {"name": "session_id", "type": ["null", "double", "long"]}
schema = {"type": "record", "name": "Event", "fields": [field]}
parsed = fastavro.parse_schema(schema)
event = {"session_id": 1445000000000000001}
fast, apache = io.BytesIO(), io.BytesIO()
fastavro.schemaless_writer(fast, parsed, event)
writer = avro.io.DatumWriter(avro.schema.parse(json.dumps(schema)))
writer.write(event, avro.io.BinaryEncoder(apache))
for written in fast, apache:
    written.seek(0)
    kept = fastavro.schemaless_reader(written, parsed)["session_id"]
    print(type(kept).__name__, int(kept))
PY
seen=$(env/bin/python ids.py)
echo "fastavro, then avro:"
echo "$seen"
[ "$seen" = "$(printf 'float 1445000000000000000\nint 1445000000000000001')" ]
