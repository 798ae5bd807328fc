"""The draw: the arm of a unit, by the hash that docs/routing.md publishes."""

from collections.abc import Sequence
from dataclasses import dataclass

_HUNDREDTHS = 10_000
_M, _MASK = 0x5BD1E995, 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Offer:
    """An arm that some units get.

    Attributes:
        salt: The commit as events name it, or the change of a flag.
        share: Of all units, in (0, 1).
    """

    salt: str
    share: float


def drawn(unit: str, offers: Sequence[Offer]) -> Offer | None:
    """Returns the arm that a unit gets; None for the rest of the units.

    The first offer takes the units below its share of the hash. Each further offer draws among the
    units that the earlier ones left, for a share of those which makes up its own share of all: arms
    stay disjoint, and each has its declared size.

    Args:
        unit: The session or user, as events name it.
        offers: In an order that no step of a ramp changes.
    """
    left = 1.0
    for offer in offers:
        if left <= 0:
            return None
        if is_drawn(unit, salt=offer.salt, share=min(1.0, offer.share / left)):
            return offer
        left -= offer.share
    return None


def is_drawn(unit: str, *, salt: str, share: float) -> bool:
    """Tells whether a unit is among a share of all units, kept to a hundredth of a percent."""
    return murmur2(f"{salt}:{unit}") < round(share * _HUNDREDTHS) * _MASK // _HUNDREDTHS


def murmur2(text: str) -> int:
    """Returns MurmurHash2 of 32 bits with seed 0, as nginx's `split_clients` computes it."""
    data = text.encode()
    whole, h = len(data) // 4 * 4, len(data)
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
