#!/usr/bin/env bash
# Claim: OpenTelemetry for Node.js leaves a BigInt out of a span's attributes, and says nothing.
# Tools: @opentelemetry/sdk-trace-base 2.12.1 (npm)
# Seen: of user.id=1445000000000000001n nothing is left; as a number it is 1445000000000000000, as text it is whole.
# Matters: ids of 64 bits come as BigInt from Prisma and others: their requests belong to nobody.
set -euo pipefail
cd "$(mktemp -d)"
npm install --silent --no-save @opentelemetry/sdk-trace-base@2.12.1 @opentelemetry/api@1.9.1 >/dev/null
cat > span.cjs <<'JS'
const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = require("@opentelemetry/sdk-trace-base");
const memory = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(memory)] });
const span = provider.getTracer("shop").startSpan("request");
span.setAttribute("user.id", 1445000000000000001n);
span.setAttribute("number", Number(1445000000000000001n));
span.setAttribute("text", String(1445000000000000001n));
span.end();
console.log(JSON.stringify(memory.getFinishedSpans()[0].attributes));
JS
seen=$(node span.cjs 2>&1)
echo "attributes: $seen"
[ "$seen" = '{"number":1445000000000000000,"text":"1445000000000000001"}' ]
