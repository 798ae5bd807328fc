#!/usr/bin/env bash
# Claim: OpenTelemetry for Python reads a plus sign in baggage as a space, the one for Node.js as a plus sign.
# Tools: opentelemetry-api 1.45.2 (PyPI), @opentelemetry/core 2.12.1 (npm)
# Seen: of the header `session.id=ab+c=` Python has "ab c=" and Node.js "ab+c="; Python writes "a b" as `a+b`, which Node.js reads as "a+b".
# Matters: a base64 session id that a proxy puts into baggage is one visitor in a Node.js service and another in a Python service behind it.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq opentelemetry-api==1.45.2
npm install --silent --no-save @opentelemetry/core@2.12.1 @opentelemetry/api@1.9.1 >/dev/null
cat > read.py <<'PY'
from opentelemetry import baggage
from opentelemetry.baggage.propagation import W3CBaggagePropagator

propagator = W3CBaggagePropagator()
print(baggage.get_baggage("session.id", propagator.extract({"baggage": "session.id=ab+c="})))
carrier = {}
propagator.inject(carrier, baggage.set_baggage("session.id", "a b"))
print(carrier["baggage"])
PY
cat > read.cjs <<'JS'
const { W3CBaggagePropagator } = require("@opentelemetry/core");
const { defaultTextMapGetter, propagation, ROOT_CONTEXT } = require("@opentelemetry/api");
for (const header of ["session.id=ab+c=", process.argv[2]]) {
  const context = new W3CBaggagePropagator().extract(ROOT_CONTEXT, { baggage: header }, defaultTextMapGetter);
  console.log(propagation.getBaggage(context).getEntry("session.id").value);
}
JS
env/bin/python read.py > python.txt
node read.cjs "$(tail -n 1 python.txt)" > javascript.txt
echo "Python: $(paste -sd'|' python.txt), Node.js: $(paste -sd'|' javascript.txt)"
[ "$(paste -sd'|' python.txt)" = "ab c=|session.id=a+b" ] && [ "$(paste -sd'|' javascript.txt)" = "ab+c=|a+b" ]
