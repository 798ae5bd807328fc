"""A simulated product before a real service: users of its builds, and a clock that it moves."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.repository.private_service import PrivateService

BASE = "0" * 40
METRIC, RATE = "order_placed", 0.3
MINUTES, SESSIONS_A_MINUTE = 5, 40
# What a change of each kind multiplies the rate by.
KINDS = {"nagging": 0.5, "wording": 1.0, "speed": 1.6}


@dataclass
class Product:
    """A product with users: what the agent's changes do to them, and the time that passes."""

    service: PrivateService
    now: datetime
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    factors: dict[str, float] = field(default_factory=lambda: {BASE: 1.0})
    base: str = BASE
    canary: tuple[str, float] | None = None
    asked: int = 0

    def make(self, kind: str) -> str:
        commit = f"{len(self.factors):040x}"
        self.factors[commit] = self.factors[self.base] * KINDS[kind]
        return commit

    def serve(self, commit: str, share: float) -> None:
        if share == 1:
            self.base = commit
        self.canary = (commit, share) if 0 < share < 1 else None

    def pass_time(self, seconds: float) -> None:
        """Lets users come, until a next look can have been taken."""
        self.asked += 1
        for _ in range(max(1, round(seconds / 60 / MINUTES))):
            self._live()

    def seconds(self) -> float:
        return self.now.timestamp()

    def _live(self) -> None:
        for _ in range(MINUTES):
            events = self._minute()
            self.now += timedelta(minutes=1)
            self.service.clock.move(self.now)
            self.service.post_events(events)
        self.service.look()

    def _minute(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        for number in range(SESSIONS_A_MINUTE):
            at = (self.now + timedelta(seconds=60 * number / SESSIONS_A_MINUTE)).isoformat()
            chosen = self.canary is not None and self.generator.random() < self.canary[1]
            commit = self.canary[0] if chosen and self.canary is not None else self.base
            event = {"session_id": self.generator.bytes(8).hex(), "commit": commit}
            events.append({**event, "event": "page_view", "occurred_at": at})
            if self.generator.random() < RATE * self.factors[commit]:
                events.append({**event, "event": METRIC, "occurred_at": at})
        return events
