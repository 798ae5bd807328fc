#!/usr/bin/env bash
# Claim: OpenTelemetry for Node.js cuts a span's start to milliseconds and measures its length finer, so an inner span ends after its outer.
# Tools: @opentelemetry/sdk-trace-base 2.12.1 (npm)
# Seen: of 200 pairs of nested spans, ended innermost first, dozens of inner ones seem to end later; each start has whole milliseconds.
# Matters: who finds the spans of one request by their times counts it twice, and a trace view shows children outside of their parents.
set -euo pipefail
cd "$(mktemp -d)"
npm install --silent --no-save @opentelemetry/sdk-trace-base@2.12.1 @opentelemetry/api@1.9.1 >/dev/null
cat > spans.mjs <<'JS'
import { ROOT_CONTEXT, trace } from "@opentelemetry/api";
import { BasicTracerProvider } from "@opentelemetry/sdk-trace-base";
const tracer = new BasicTracerProvider().getTracer("t");
const wait = (ms) => { const end = performance.now() + ms; while (performance.now() < end); };
const ns = ([seconds, rest]) => BigInt(seconds) * 1_000_000_000n + BigInt(rest);
let later = 0, whole = 0;
for (let number = 0; number < 200; number += 1) {
  const outer = tracer.startSpan("outer", {}, ROOT_CONTEXT);
  wait(0.4);
  const inner = tracer.startSpan("inner", {}, trace.setSpan(ROOT_CONTEXT, outer));
  inner.end();
  outer.end();
  if (ns(inner.endTime) > ns(outer.endTime)) later += 1;
  if (inner.startTime[1] % 1_000_000 === 0) whole += 1;
}
console.log(later > 20 && later < 200 && whole === 200 ? "as before" : `changed: ${later}, ${whole}`);
JS
seen=$(node spans.mjs)
echo "$seen"
[ "$seen" = "as before" ]
