"""The draw: the arm of a unit, by the hash that docs/routing.md publishes and engines verify."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

# Hexadecimal digits of the digest that a draw reads: a share is exact to 1 in 2^32.
DIGITS = 8
POSITIONS = 16**DIGITS
# Each thousandth unit may be off the draw, as clients with an older answer are; two always may.
ONE_OFF_IN, FEW_OFF = 1000, 2
# A flag has no declared share; a half needs the fewest days.
FLAG_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Offer:
    """An arm that some units get.

    Attributes:
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
        unit: The session as events name it, or the user's pseudonym in hexadecimal.
        offers: In an order that no step of a ramp changes.
    """
    taken: list[float] = []
    for offer in offers:
        if is_drawn(unit, salt=offer.salt, share=share_of_rest(offer.share, taken)):
            return offer
        taken.append(offer.share)
    return None


def share_of_rest(share: float, taken: Sequence[float]) -> float:
    """Returns the share of the units that earlier offers left, 0 where they left none."""
    rest = 1.0 - sum(taken)
    return min(1.0, share / rest) if rest > 0 else 0.0


def is_drawn(unit: str, *, salt: str, share: float) -> bool:
    """Tells whether a unit is among a share of all units."""
    bound = bound_of(share)
    return bound is None or position_of(unit, salt=salt) < bound


def position_of(unit: str, *, salt: str) -> str:
    """Returns where a unit stands, from 00000000 to ffffffff, alike for all units.

    It is the beginning of SHA-256, which each engine and most languages have without an extension.
    """
    return hashlib.sha256(f"{salt}:{unit}".encode()).hexdigest()[:DIGITS]


def bound_of(share: float) -> str | None:
    """Returns the first position outside a share of the units, None where every unit is in it."""
    positions = round(share * POSITIONS)
    return None if positions >= POSITIONS else f"{positions:0{DIGITS}x}"
