#!/usr/bin/env bash
# Claim: FastAPI's own telemetry begins another trace below a mount, where OpenTelemetry's instrumentation made the request's span.
# Tools: fastapi 0.165.0, opentelemetry-instrumentation-fastapi 0.66b2 (PyPI)
# Seen: a request to a mounted application without traceparent makes two SERVER spans, in two traces, neither with a parent.
# Matters: each such request counts twice, and no id tells that it is one: latency, traffic and errors per request are wrong by half.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq fastapi==0.165.0 opentelemetry-instrumentation-fastapi==0.66b2 opentelemetry-sdk httpx
cat > mount.py <<'PY'
import warnings

from fastapi import FastAPI

warnings.simplefilter("ignore")
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
app, below = FastAPI(), FastAPI()
below.get("/deep/{pk}")(lambda pk: pk)
app.mount("/sub", below)
FastAPIInstrumentor.instrument_app(app)
TestClient(app).get("/sub/deep/3")
servers = [span for span in spans.get_finished_spans() if span.kind is trace.SpanKind.SERVER]
traces = {span.context.trace_id for span in servers}
print(len(servers), len(traces), *sorted(span.attributes["http.route"] for span in servers))
PY
seen=$(env/bin/python mount.py)
echo "spans, traces, routes: $seen"
[ "$seen" = "2 2 /deep/{pk} /sub" ]
