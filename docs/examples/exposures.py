"""OpenFeature's hook without OpenTelemetry: events for POST /v1/events."""

from openfeature.hook import Hook


class Exposures(Hook):
    """Hands on each flag that was evaluated, as an event for POST /v1/events."""

    def __init__(self, send, commit):
        self.send, self.commit = send, commit

    def after(self, hook_context, details, hints):
        drawn = details.flag_metadata
        event = {
            "event": "feature_flag.evaluation",
            "session_id": hook_context.evaluation_context.targeting_key,
            "commit": drawn.get("commit", self.commit),
            "flags": {details.flag_key: details.value},
        }
        self.send(event | ({"assignment": drawn["assignment"]} if "assignment" in drawn else {}))
