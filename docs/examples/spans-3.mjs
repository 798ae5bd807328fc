// telemetry.mjs for 3.x of OpenTelemetry: Node.js 22.15 and later.
import { register } from "node:module";

import { getNodeAutoInstrumentations } from "@opentelemetry/auto-instrumentations-node";
import { BaggageSpanProcessor } from "@opentelemetry/baggage-span-processor";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { NodeSDK } from "@opentelemetry/sdk-node";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace";

register("@opentelemetry/instrumentation/hook.mjs", import.meta.url); // for modules that import
export const sdk = new NodeSDK({
  spanProcessors: [
    new BaggageSpanProcessor((name) => name === "session.id"),
    new BatchSpanProcessor({ exporter: new OTLPTraceExporter() }),
  ],
  instrumentations: [getNodeAutoInstrumentations()],
});
sdk.start();
