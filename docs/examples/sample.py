"""Whether the service stores the events of a session."""

import hashlib


def in_sample(salt, unit, rate):
    """Whether the service stores the events of this session."""
    digest = hashlib.sha256(f"{salt}:{unit}".encode()).hexdigest()
    return int(digest[:8], 16) < round(rate * 2**32)
