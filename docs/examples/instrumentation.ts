// instrumentation.ts of a Next.js app: the session of the request's baggage, on the app's spans.
import { BaggageSpanProcessor } from "@opentelemetry/baggage-span-processor";
import { registerOTel } from "@vercel/otel";

export function register() {
  registerOTel({
    serviceName: "shop",
    spanProcessors: [new BaggageSpanProcessor((name) => name === "session.id"), "auto"],
  });
}
