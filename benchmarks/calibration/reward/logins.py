"""A build in which more visitors log in, or fewer, and that sells 10 % more: what the service says.

Six visitors in ten come back within the window, in a session that is drawn anew. Of visits that
begin in control 40 % name their visitor, and of those in treatment a share of each row. Events are
posted every five minutes, half and half, at a rate of 60 %, for two days; sessions are the units.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.calibration.reward.acting import BASE, DAYS, ERRORS, RATE, STEP, Acting, Fleet
from benchmarks.report import options, report
from benchmarks.repository.private_service import private_service

NAMED, BACK, LIFT = 0.4, 0.6, 0.1
_BACK_AFTER = timedelta(minutes=10)


@dataclass
class Visited(Fleet):
    """Changes whose visitors come back.

    Attributes:
        named: By change, the share of treatment's sessions that name their visitor.
        coming: By change, who comes back when.
    """

    named: dict[str, float] = field(default_factory=dict)
    coming: dict[str, list[tuple[datetime, str]]] = field(default_factory=lambda: defaultdict(list))

    def _visits(self, change: Acting) -> list[dict[str, Any]]:
        end = self.now + STEP
        back = [each for each in self.coming[change.place] if each[0] < end]
        self.coming[change.place] = [each for each in self.coming[change.place] if each[0] >= end]
        seconds = self.generator.uniform(0, 300, self.generator.poisson(self.an_hour / 12))
        first = [(self.now + timedelta(seconds=float(each)), None) for each in np.sort(seconds)]
        events: list[dict[str, Any]] = []
        for at, user in [*back, *first]:
            treated = self.generator.random() < change.share
            named = self.generator.random() < (self.named[change.place] if treated else NAMED)
            who = f"visitor {self.generator.bytes(8).hex()}" if named else ""
            who = who if user is None else user
            seen: dict[str, Any] = {
                "session_id": self.generator.bytes(8).hex(),
                "commit": change.commit if treated else BASE,
                "environment": change.place,
                "occurred_at": at.isoformat(),
                **({"user_ref": who} if who else {}),
            }
            orders = self.generator.random() < RATE * (1 + change.truth * treated)
            events.append({**seen, "event": "order" if orders else "page_view"})
            if self.generator.random() < ERRORS:
                events.append({**seen, "event": "error"})
            if user is None and self.generator.random() < BACK:
                self.coming[change.place].append((at + _BACK_AFTER, who))
        return events


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of the changes of a share; held: by `turnover` at the end."""

    named: float
    changes: int
    kept: int
    held: int
    sessions: float


def main() -> None:
    chosen = options(__doc__)
    chosen.add_argument("--changes", type=int, default=12, help="of each share")
    chosen.add_argument("--an-hour", type=int, default=100, help="first visits to a change")
    chosen.add_argument("--shares", type=float, nargs="*", default=[0.4, 0.5, 0.3])
    chosen.add_argument("--seed", type=int, default=36)
    asked = chosen.parse_args()
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=DAYS + 1)
    settings = {
        "unit": "session",
        "reward_days": DAYS,
        "horizon_days": DAYS,
        "guardrails": ["error"],
        "rate_limits": {"per_key": 10**9, "registrations_per_key": 10**6},
    }
    with private_service(begin, **settings) as service:
        fleet = Visited(
            service=service,
            now=begin,
            generator=np.random.default_rng(asked.seed),
            an_hour=asked.an_hour,
        )
        for share in asked.shares * asked.changes:
            fleet.named[f"shop-{len(fleet.changes)}"] = share
            fleet.ship(LIFT, "close")
        for hour in range(1, 24 * DAYS + 4):
            fleet.pass_hour(reads=hour % 24 == 0 or hour == 24 * DAYS + 3)
        rows: list[Row] = []
        for share in asked.shares:
            own = [each for each in fleet.changes if fleet.named[each.place] == share]
            seen = [service.evidence(each.experiment) for each in own]
            verdicts = [service.reward("GET", f"/{each.experiment}")["verdict"] for each in own]
            kept = [verdict == "keep" for verdict in verdicts]
            at = [e.sessions.accumulated for e, keep in zip(seen, kept, strict=True) if keep and e]
            held = sum("turnover" in e.gates.interacting_because for e in seen if e)
            rows.append(
                Row(
                    named=share,
                    changes=len(own),
                    kept=sum(kept),
                    held=held,
                    sessions=float(np.median(at)) if at else float("nan"),
                )
            )
    shown = {
        "treatment's sessions that name a visitor": lambda row: f"{row.named:.0%}",
        "changes": lambda row: str(row.changes),
        "kept": lambda row: str(row.kept),
        "held by turnover at the end": lambda row: str(row.held),
        "median sessions of a keep": lambda row: f"{row.sessions:,.0f}",
    }
    report(rows, shown, lines=asked.lines, caption="true +10 %, control's 40 %")


if __name__ == "__main__":
    main()
