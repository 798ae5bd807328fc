"""The published draw: whether a unit gets the treatment."""

from hashlib import sha256


def is_drawn(salt: str, unit: str, share: float) -> bool:
    """Tells whether a unit gets the treatment."""
    digits = sha256(f"{salt}:{unit}".encode()).hexdigest()[:8]
    return digits < f"{round(share * 16**8):08x}"
