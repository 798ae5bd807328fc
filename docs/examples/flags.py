"""Flag evaluations and outcomes as log events of OpenTelemetry."""

import os

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from openfeature.hook import Hook

provider = LoggerProvider(Resource.create({"vcs.ref.head.revision": os.environ["GIT_SHA"]}))
exporter = OTLPLogExporter(
    endpoint=os.environ["SERVICE_API_URL"] + "/v1/logs",
    headers={"X-Service-Project-Key": os.environ["SERVICE_WRITE_KEY"]},
)
provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
logger = provider.get_logger("shop")


class Evaluations(Hook):
    """Records each flag that was evaluated, as OpenTelemetry's conventions have it."""

    def after(self, hook_context, details, hints):
        attributes = {
            "feature_flag.key": details.flag_key,
            "feature_flag.result.value": details.value,
            "feature_flag.context.id": hook_context.evaluation_context.targeting_key,
        }
        # The service vouches for the values that it drew.
        if "assignment" in details.flag_metadata:
            attributes["deploy_reward.assignment"] = details.flag_metadata["assignment"]
            attributes["vcs.ref.head.revision"] = details.flag_metadata["commit"]
        logger.emit(event_name="feature_flag.evaluation", attributes=attributes)


def track(event, session, **attributes):
    logger.emit(event_name=event, attributes={"session.id": session, **attributes})
