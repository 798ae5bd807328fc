#!/usr/bin/env bash
# Claim: Mixpanel's Python library cuts the offset off a time in an event's properties.
# Tools: mixpanel 5.4.1 (PyPI)
# Seen: 12:00 at -08:00 and 12:00 at UTC are both sent as 2026-11-29T12:00:00.
# Matters: two services in two zones report one moment as two, hours apart, and what is exported again has no way back.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq mixpanel==5.4.1
cat > send.py <<'PY'
import json
from datetime import datetime, timedelta, timezone

from mixpanel import Mixpanel


class Printed:
    def send(self, endpoint, message, *_, **__):
        properties = json.loads(message)["properties"]
        print(properties["here"], properties["there"])


noon = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)
pacific = noon.replace(tzinfo=timezone(timedelta(hours=-8)))
Mixpanel("token", consumer=Printed()).track("u-1", "order", {"here": noon, "there": pacific})
PY
seen=$(env/bin/python send.py)
echo "noon at UTC, noon at -08:00: $seen"
[ "$seen" = "2026-11-29T12:00:00 2026-11-29T12:00:00" ]
