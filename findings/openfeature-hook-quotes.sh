#!/usr/bin/env bash
# Claim: OpenFeature's telemetry hook for Python writes a flag's text with quotation marks, the one for JavaScript without.
# Tools: openfeature-hooks-opentelemetry 0.3.1 (PyPI), @openfeature/open-telemetry-hooks 1.0.0 (npm)
# Seen: `feature_flag.result.value` of the text blue is `"blue"` from Python and `blue` from Node.js.
# Matters: one arm arrives under two values, so a flag of two values has four.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq openfeature-hooks-opentelemetry==0.3.1 openfeature-sdk==0.10.0 opentelemetry-sdk
npm install --silent --no-save @openfeature/server-sdk@1.23.0 @openfeature/core@1.12.0 \
  @openfeature/open-telemetry-hooks@1.0.0 @opentelemetry/api@1.9.0 @opentelemetry/api-logs@0.205.0 \
  @opentelemetry/sdk-trace-node@2.1.0 >/dev/null
cat > flag.py <<'PY'
from openfeature import api
from openfeature.contrib.hook.opentelemetry import TracingHook
from openfeature.flag_evaluation import FlagEvaluationOptions
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
api.set_provider(InMemoryProvider({"colour": InMemoryFlag("x", {"x": "blue"})}))
with trace.get_tracer("t").start_as_current_span("s"):
    options = FlagEvaluationOptions(hooks=[TracingHook()])
    api.get_client().get_string_value("colour", "", flag_evaluation_options=options)
print(spans.get_finished_spans()[0].events[0].attributes["feature_flag.result.value"])
PY
cat > flag.mjs <<'JS'
import { OpenFeature, InMemoryProvider } from "@openfeature/server-sdk";
import { SpanEventHook } from "@openfeature/open-telemetry-hooks";
import { trace } from "@opentelemetry/api";
import sdk from "@opentelemetry/sdk-trace-node";
const spans = new sdk.InMemorySpanExporter();
const processor = new sdk.SimpleSpanProcessor(spans);
new sdk.NodeTracerProvider({ spanProcessors: [processor] }).register();
const colour = { variants: { x: "blue" }, defaultVariant: "x", disabled: false };
await OpenFeature.setProviderAndWait(new InMemoryProvider({ colour }));
await trace.getTracer("t").startActiveSpan("s", async (span) => {
  await OpenFeature.getClient().getStringValue("colour", "", {}, { hooks: [new SpanEventHook()] });
  span.end();
});
console.log(spans.getFinishedSpans()[0].events[0].attributes["feature_flag.result.value"]);
JS
python=$(env/bin/python flag.py) javascript=$(node flag.mjs)
echo "Python: $python  JavaScript: $javascript"
[ "$python" = '"blue"' ] && [ "$javascript" = blue ]
