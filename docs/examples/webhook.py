"""Whether a webhook is genuine: its signature and its age."""

import base64, hashlib, hmac, time


def is_genuine(headers, body, secret, tolerance=300):
    key = base64.b64decode(secret.removeprefix("whsec_"))
    sent_at = headers["webhook-timestamp"]
    content = f"{headers['webhook-id']}.{sent_at}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    signatures = headers["webhook-signature"].split(" ")
    fresh = abs(time.time() - int(sent_at)) <= tolerance
    return fresh and any(hmac.compare_digest(expected, signature) for signature in signatures)
