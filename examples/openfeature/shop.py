"""A shop whose checkout is behind a flag: an OpenFeature client asks, and the events say the arm.

The project's setting ofrep is `server`. First pip install openfeature-sdk
openfeature-provider-ofrep; then:
    SERVICE_API_URL=… SERVICE_WRITE_KEY=wk_… python shop.py
"""

import os
import sys

import requests
from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext

SERVICE = os.environ["SERVICE_API_URL"]
KEY = {"X-Service-Project-Key": os.environ["SERVICE_WRITE_KEY"]}

api.set_provider(OFREPProvider(SERVICE, headers_factory=lambda: KEY))
features = api.get_client()


def checkout(session: str) -> str:
    """Returns the page of a session, and reports what it was served."""
    asked = EvaluationContext(targeting_key=session)
    found = features.get_boolean_details(
        "one-step-checkout", default_value=False, evaluation_context=asked
    )
    event = {"event": "page_view", "route": "/checkout", "session_id": session}
    # Where the service can't be asked nobody drew: the default counts for no arm.
    if found.variant is not None:
        event["flags"] = {"one-step-checkout": found.value}
        event["commit"] = found.flag_metadata["commit"]
        event["assignment"] = found.flag_metadata["assignment"]
    requests.post(f"{SERVICE}/v1/events", json=event, headers=KEY, timeout=2)
    return "one step" if found.value else "three steps"


if __name__ == "__main__":
    for number in range(int(os.environ.get("SESSIONS", "200"))):
        sys.stdout.write(f"s-{number} {checkout(f's-{number}')}\n")
