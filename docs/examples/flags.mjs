// Flag evaluations and outcomes as log events of OpenTelemetry.
import { logs } from "@opentelemetry/api-logs";
import { OTLPLogExporter } from "@opentelemetry/exporter-logs-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchLogRecordProcessor, LoggerProvider } from "@opentelemetry/sdk-logs";
import { EventHook } from "@openfeature/open-telemetry-hooks";
import { OpenFeature } from "@openfeature/server-sdk";

const { SERVICE_API_URL, SERVICE_WRITE_KEY, GIT_SHA } = process.env;
export const provider = new LoggerProvider({
  resource: resourceFromAttributes({ "vcs.ref.head.revision": GIT_SHA }),
  processors: [
    new BatchLogRecordProcessor(
      new OTLPLogExporter({
        url: `${SERVICE_API_URL}/v1/logs`,
        headers: { "X-Service-Project-Key": SERVICE_WRITE_KEY },
      }),
    ),
  ],
});
logs.setGlobalLoggerProvider(provider);

// The service vouches for the values that it drew.
const attributeMapper = (_, { flagMetadata: { assignment, commit } }) =>
  assignment ? { "deploy_reward.assignment": assignment, "vcs.ref.head.revision": commit } : {};
OpenFeature.addHooks(new EventHook({ attributeMapper }));

const logger = logs.getLogger("shop");
export const track = (eventName, session, attributes = {}) =>
  logger.emit({ eventName, attributes: { "session.id": session, ...attributes } });
