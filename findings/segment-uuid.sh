#!/usr/bin/env bash
# Claim: Segment's Python library leaves a UUID out of an event's properties, and sends the event.
# Tools: segment-analytics-python 2.4.0 (PyPI)
# Seen: of session_id (uuid.UUID), amount (Decimal) and plan (Enum) the body has amount and plan; one warning in the log.
# Matters: a Django key or a uuid4() as session or order id is lost, so the event belongs to no unit.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq segment-analytics-python==2.4.0
cat > track.py <<'PY'
import enum
import json
import threading
import uuid
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer

from segment.analytics.client import Client

bodies = []


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self):
        bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


class Plan(enum.Enum):
    TEAM = "team"


server = HTTPServer(("127.0.0.1", 0), Endpoint)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = Client("key", host=f"http://127.0.0.1:{server.server_port}", sync_mode=True)
properties = {"session_id": uuid.UUID(int=7), "amount": Decimal("19.99"), "plan": Plan.TEAM}
client.track("u-1", "order_placed", properties)
print(json.dumps(bodies[0]["batch"][0]["properties"], sort_keys=True))
PY
seen=$(env/bin/python track.py 2>/dev/null)
echo "properties sent: $seen"
[ "$seen" = '{"amount": 19.99, "plan": "team"}' ]
