#!/usr/bin/env bash
# Claim: uvicorn stops gracefully and then ends by the same signal, so nothing that Python runs at its exit runs.
# Tools: uvicorn 0.54.0, opentelemetry-sdk 1.45.1 (PyPI)
# Seen: after SIGTERM the exit code is 143, and of a span that waits for its batch none is exported; with the provider shut down in the lifespan one is.
# Matters: each stop and each step of a canary loses the last seconds of spans, of the build that is replaced.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq uvicorn==0.54.0 opentelemetry-sdk==1.45.1
cat > app.py <<'PY'
import sys

import uvicorn
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(formatter=lambda _: "span\n")))
provider.get_tracer("t").start_span("request").end()


async def app(scope, receive, send):
    while scope["type"] == "lifespan":
        kind = (await receive())["type"]
        if kind == "lifespan.startup":
            print("up", file=sys.stderr, flush=True)
        elif "lifespan" in sys.argv:
            provider.shutdown()
        await send({"type": f"{kind}.complete"})


uvicorn.run(app, port=0, log_level="critical")
PY
stopped() {
  mkfifo "up$1"
  env OTEL_BSP_SCHEDULE_DELAY=60000 env/bin/python app.py "$1" > "spans$1" 2> "up$1" &
  read -r _ < "up$1"
  # uvicorn takes the signal once it serves; a second one would change nothing.
  sleep 2
  kill -TERM $!
  code=0; wait $! || code=$?
  echo "$1: exit code $code, $(grep -c span "spans$1" || true) spans"
}
seen=$(stopped plain; stopped lifespan)
echo "$seen"
[ "$seen" = "plain: exit code 143, 0 spans
lifespan: exit code 143, 1 spans" ]
