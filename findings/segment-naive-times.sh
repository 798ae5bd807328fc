#!/usr/bin/env bash
# Claim: Segment's Python library takes a time without a zone for local time when it is fresh, and for UTC when it is older than five seconds.
# Tools: segment-analytics-python 2.4.0 (PyPI)
# Seen: in Los Angeles' zone datetime.now() becomes local time with its offset, the same clock ten seconds earlier becomes UTC, eight or seven hours off.
# Matters: events that a queue or a retry held back move by hours, out of windows and past exposures, and tests with fresh times never show it.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq segment-analytics-python==2.4.0
cat > times.py <<'PY'
from datetime import datetime, timedelta, timezone

from segment.analytics.client import Client

client = Client("key", send=False)
for age in (0, 10):
    true = datetime.now(timezone.utc) - timedelta(seconds=age)
    _, body = client.track("u-1", "order", timestamp=datetime.now() - timedelta(seconds=age))
    sent = body["timestamp"]
    sent = datetime.fromisoformat(sent) if isinstance(sent, str) else sent
    print(round(abs((sent - true).total_seconds()) / 3600))
PY
seen=$(TZ=America/Los_Angeles env/bin/python times.py 2>/dev/null | paste -sd' ')
echo "hours off, sent at once and ten seconds later: $seen"
[ "$seen" = "0 8" ] || [ "$seen" = "0 7" ]
