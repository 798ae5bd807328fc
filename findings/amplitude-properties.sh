#!/usr/bin/env bash
# Claim: Amplitude's Python library drops all properties of an event of which one is a numpy integer, a Decimal, a UUID or a datetime, and sends the event.
# Tools: amplitude-analytics 1.3.0, numpy 2.4.6 (PyPI)
# Seen: with plan beside count=numpy.int64(3) the event has no event_properties; with numpy.float64(3) it has both.
# Matters: an event from a data frame arrives without the properties by which it is filtered or summed, so a metric is empty and no error says why.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq amplitude-analytics==1.3.0 numpy==2.4.6
cat > send.py <<'PY'
from decimal import Decimal
from uuid import uuid4

import numpy
from amplitude import BaseEvent

for value in (numpy.int64(3), Decimal(3), uuid4(), numpy.float64(3), 3):
    event = BaseEvent("order", user_id="user-1", event_properties={"plan": "a", "count": value})
    print(len(event.get_event_body().get("event_properties") or {}), end=" ")
PY
seen=$(env/bin/python send.py 2>/dev/null)
echo "properties sent with int64, Decimal, UUID, float64, int: $seen"
[ "$seen" = "0 0 0 2 2 " ]
