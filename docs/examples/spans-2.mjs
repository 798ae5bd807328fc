// telemetry.mjs for 2.x of OpenTelemetry, where the exporter stands alone.
import { register } from "node:module";

import { getNodeAutoInstrumentations } from "@opentelemetry/auto-instrumentations-node";
import { BaggageSpanProcessor } from "@opentelemetry/baggage-span-processor";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { NodeSDK } from "@opentelemetry/sdk-node";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-node";

register("@opentelemetry/instrumentation/hook.mjs", import.meta.url);
export const sdk = new NodeSDK({
  spanProcessors: [
    new BaggageSpanProcessor((name) => name === "session.id"),
    new BatchSpanProcessor(new OTLPTraceExporter()),
  ],
  instrumentations: [getNodeAutoInstrumentations()],
});
sdk.start();
