"""The token by which a router signs an assignment."""

import hashlib
import hmac


def token(key, environment, session, commit, flags):
    parts = ["1", environment, session, commit.lower()]
    for name in sorted(flags):
        value = flags[name]
        parts += [name, value if isinstance(value, str) else str(value).lower()]
    return hmac.new(key.encode(), "\0".join(parts).encode(), hashlib.sha256).hexdigest()
