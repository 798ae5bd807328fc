"""Picks: the event of each unit with the smallest hash, and its position, for the oracle."""

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tests.oracle.calendar import BLOCK, block_of
from tests.oracle.outcomes import Metric

# From the last place on all events have that place; a class begins at each of these.
LAST_PLACE = 5
CLASSES = (1, 2, 3, 5)
DIGITS = 16


@dataclass(frozen=True, kw_only=True, order=True)
class Delivery:
    """An event as it came: when a reading finds it, when it occurred, and its hash."""

    read_at: int
    occurred: int
    hash: str
    received: int
    value: int


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A row of a pick, as the store has it; `key` orders those of a unit as their hashes do."""

    key: str
    place: int
    received: int
    value: int


@dataclass(frozen=True, kw_only=True)
class Picks:
    """The events of a guardrail with thresholds, ascending, of which each unit has a pick."""

    metric: Metric
    over: tuple[int, ...]
    salt: str
    grace: int
    sent: dict[str, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    buried: dict[str, list[Kept]] = field(default_factory=lambda: defaultdict(list))

    @property
    def name(self) -> str:
        """The name under which the store keeps them."""
        return f"{self.metric.name} picked"

    def note(self, unit: str, *, received: int, occurred: int, key: str, value: int) -> None:
        """Counts a delivery that came by the close of its unit's block."""
        by_receipt = -((self.grace - received) // BLOCK) * BLOCK
        digest = hashlib.sha256(f"{self.salt}:{key}".encode()).hexdigest()
        self.sent[unit].append(
            Delivery(
                read_at=max(block_of(occurred) + BLOCK, by_receipt),
                occurred=occurred,
                hash=digest[:DIGITS],
                received=received,
                value=value,
            )
        )

    def bury(self, unit: str, *, key: str, received: int, value: int) -> None:
        """Notes a row that no event stands behind any more."""
        digest, place = key.rsplit(" ", 1)
        row = Kept(key=digest, place=int(place), received=received, value=value)
        self.buried[unit].append(row)

    def kept(self, unit: str) -> list[Kept]:
        """Returns a unit's rows: its first four events, and each of the smallest hash so far."""
        kept = list(self.buried.get(unit, ()))
        known = {row.key for row in kept}
        first: dict[str, Delivery] = {}
        for each in self.sent.get(unit, ()):
            order = each.read_at, each.received, each.occurred, each.value
            own = first.get(each.hash)
            if own is None or order < (own.read_at, own.received, own.occurred, own.value):
                first[each.hash] = each
        place = len(kept)
        for each in sorted(each for each in first.values() if each.hash not in known):
            place += 1
            if place < LAST_PLACE or each.hash < min(row.key for row in kept):
                row = Kept(
                    key=each.hash,
                    place=min(place, LAST_PLACE),
                    received=each.received,
                    value=each.value,
                )
                kept.append(row)
        return kept

    @property
    def units(self) -> set[str]:
        return {*self.sent, *self.buried}

    def pick(self, unit: str) -> tuple[int, list[bool]]:
        """Returns the class of a unit's pick, and whether it exceeds each threshold."""
        picked = min(self.kept(unit), key=lambda row: row.key)
        own = max(begin for begin in CLASSES if begin <= picked.place)
        return own, [picked.value > over for over in self.over]


def picks_of(policy: Mapping[str, Any], experiment_id: str, secret: str) -> list[Picks]:
    """Returns the picks of each guardrail that has thresholds."""
    salt = hmac.digest(secret.encode(), experiment_id.encode(), hashlib.sha256).hex()
    grace = policy["grace_seconds"]
    rails = [Metric.of(each, grace) for each in policy["guardrails"] if each.get("picked")]
    return [
        Picks(
            metric=own[0],
            over=tuple(each.over or 0 for each in own),
            salt=salt,
            grace=grace * 1_000_000,
        )
        for _, each in groupby(rails, lambda rail: rail.kept_as)
        for own in [list(each)]
    ]
