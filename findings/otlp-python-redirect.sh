#!/usr/bin/env bash
# Claim: OpenTelemetry's OTLP exporter for Python counts a redirect as sent, the one for Node.js as failed.
# Tools: opentelemetry-exporter-otlp-proto-http 1.45.2 (PyPI), @opentelemetry/exporter-trace-otlp-http 0.223.1 (npm)
# Seen: a proxy that answers 301 to https gets one POST: Python's export returns SUCCESS and logs nothing, Node.js reports "Moved Permanently".
# Matters: behind an ingress that forces https all spans of Python services are lost, and nothing in them says so.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq opentelemetry-exporter-otlp-proto-http==1.45.2 opentelemetry-sdk==1.45.2
npm install --silent --no-save @opentelemetry/exporter-trace-otlp-http@0.223.1 @opentelemetry/sdk-trace-base@2.12.1 @opentelemetry/api@1.9.1 >/dev/null
cat > send.cjs <<'JS'
const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-http");
const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = require("@opentelemetry/sdk-trace-base");
const memory = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(memory)] });
provider.getTracer("shop").startSpan("request").end();
new OTLPTraceExporter({ url: process.argv[2] }).export(memory.getFinishedSpans(), ({ code }) => {
  console.log(code === 0 ? "SUCCESS" : "FAILED");
  process.exit();
});
JS
cat > send.py <<'PY'
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

requests = []


class Proxy(BaseHTTPRequestHandler):
    def do_POST(self):
        requests.append(self.command)
        self.send_response(301)
        self.send_header("Location", "https://localhost/v1/traces")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_):
        pass


proxy = HTTPServer(("127.0.0.1", 0), Proxy)
threading.Thread(target=proxy.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{proxy.server_port}/v1/traces"
memory = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
provider.get_tracer("shop").start_span("request").end()
print(OTLPSpanExporter(endpoint=url).export(memory.get_finished_spans()).name, *requests, end=" ")
print(subprocess.run(["node", "send.cjs", url], capture_output=True, text=True).stdout.strip())
PY
seen=$(env/bin/python send.py 2>/dev/null)
echo "Python, its requests, Node.js: $seen"
[ "$seen" = "SUCCESS POST FAILED" ]
