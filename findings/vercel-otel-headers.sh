#!/usr/bin/env bash
# Claim: @vercel/otel's attributesFromHeaders sets no attribute where Next.js runs on a server of one's own.
# Tools: next 16.4.3, @vercel/otel 2.1.3 (npm), next start
# Seen: with { "session.id": "session" } and the header `session: s-1` the request's span comes with http.target and without session.id.
# Matters: the one documented way to put a visitor on Next.js spans works at Vercel alone: elsewhere all requests are nobody's, with no warning.
set -euo pipefail
cd "$(mktemp -d)"
mkdir app
echo '{"private": true}' > package.json
cat > instrumentation.js <<'JS'
import { registerOTel } from "@vercel/otel";

export function register() {
  registerOTel({ serviceName: "shop", attributesFromHeaders: { "session.id": "session" } });
}
JS
cat > app/layout.js <<'JS'
export default function Layout({ children }) {
  return <html><body>{children}</body></html>;
}
JS
cat > app/page.js <<'JS'
import { headers } from "next/headers";

export default async function Page() {
  await headers();
  return <p>Books</p>;
}
JS
npm install --silent next@16.4.3 react@19.3.0 react-dom@19.3.0 @vercel/otel@2.1.3 @opentelemetry/api@1.9.1 \
  @opentelemetry/api-logs@0.223.0 @opentelemetry/sdk-logs@0.223.0 @opentelemetry/instrumentation@0.223.0 >/dev/null
export NEXT_TELEMETRY_DISABLED=1
npx next build >/dev/null 2>&1
cat > watch.cjs <<'JS'
const http = require("node:http");
const { spawn } = require("node:child_process");
let next;
const collector = http.createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  response.end("{}");
  if (!body.includes("http.target")) return;
  console.log("http.target", body.includes("session.id") ? "session.id" : "alone");
  next.kill();
  process.exit();
});
collector.listen(0, "127.0.0.1", () => {
  const OTEL_EXPORTER_OTLP_ENDPOINT = `http://127.0.0.1:${collector.address().port}`;
  const env = { ...process.env, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL: "http/json", PORT: "0" };
  next = spawn(process.execPath, ["node_modules/next/dist/bin/next", "start", "-H", "127.0.0.1"], { env });
  next.stdout.on("data", (text) => {
    const address = /http:\/\/127\.0\.0\.1:\d+/.exec(text);
    if (address) setTimeout(() => fetch(address[0], { headers: { session: "s-1" } }), 3000);
  });
});
JS
seen=$(node watch.cjs)
echo "attributes of the request's span: $seen"
[ "$seen" = "http.target alone" ]
