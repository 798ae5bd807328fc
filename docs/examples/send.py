"""A server's client: sends events until they are answered for good."""

import gzip
import json
import random
import time
import urllib.error
import urllib.request

PASSING = {408, 429, 502, 503, 504}


def send(events, *, url, key, patience=300.0):
    """Send 1 to 500 events, the same body again and again until it is answered for good."""
    body = gzip.compress(json.dumps({"events": events}).encode())
    headers = {
        "X-Service-Project-Key": key,
        "Content-Type": "application/json",
        "Content-Encoding": "gzip",
    }
    request = urllib.request.Request(f"{url}/v1/events", body, headers)
    until, pause = time.monotonic() + patience, 0.5
    while True:
        retry_after = None
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            retry_after = error.headers.get("Retry-After")
            error.close()
            if error.code not in PASSING:
                raise
        except OSError:
            pass  # refused, reset or timed out: nobody knows whether it was stored
        wait = float(retry_after) if retry_after and retry_after.isdigit() else pause
        wait *= 1 + random.random() / 2
        if time.monotonic() + wait > until:
            raise TimeoutError("the service stayed busy; keep these events, or count them as lost")
        time.sleep(wait)
        pause = min(2 * pause, 30.0)
