"""Agents that end their changes once the effect pleases them, through the service.

Each change is a canary in an environment of its own: events are posted, the pipeline takes its
steps, and the agent reads each hour what `GET /v1/reward/{id}/effect` serves. At the first hour at
which that reaches a threshold the agent ends the change: it closes the experiment, promotes the
canary, sends it no more traffic, or cuts its traffic to a tenth; it says nothing of the latter two.
Then each change is measured to its horizon. Prints what is served and what is trainable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.report import options, report
from benchmarks.repository.private_service import PrivateService, private_service

BASE, RATE, ERRORS = "a" * 40, 0.6, 0.02
STEP = timedelta(minutes=5)
DAYS, AN_HOUR = 2, 60


@dataclass
class Acting:
    """A change in an environment of its own.

    Attributes:
        truth: Its true effect, relative.
        ending: What the agent does to it.
        share: Of its sessions that it serves now.
        ended: The effect at which the agent ended it; None of others.
        served: The effect that is served of it.
        counts: By arm its sessions, and those that order.
    """

    truth: float
    ending: str
    place: str
    commit: str
    experiment: str = ""
    share: float = 0.5
    ended: float | None = None
    served: dict[str, Any] = field(default_factory=dict)
    counts: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros((2, 2), dtype=int))


@dataclass
class Fleet:
    """Changes that are served side by side, each to so many sessions an hour."""

    service: PrivateService
    now: datetime
    generator: np.random.Generator
    changes: list[Acting] = field(default_factory=list)
    an_hour: int = AN_HOUR
    rate: float = RATE

    def ship(self, truth: float, ending: str) -> None:
        number = len(self.changes)
        change = Acting(
            truth=truth, ending=ending, place=f"shop-{number}", commit=f"{number + 1:040x}"
        )
        self._deploy(BASE, change, self.now - timedelta(hours=1))
        # A share that is silently cut was not declared: a declared one is held by its own gate.
        declared = {"allocation": 0.5} if ending in {"close", "promote"} else {}
        deploy = self._deploy(change.commit, change, self.now, **declared)
        body = {"deploy_id": deploy["deploy_id"], "target_metric": "order"}
        change.experiment = self.service.reward("POST", "/register", body)["experiment_id"]
        self.changes.append(change)

    def _deploy(self, commit: str, change: Acting, at: datetime, **members: Any) -> dict[str, Any]:
        base = {} if commit == BASE else {"diff": {"base_commit": BASE, "files": []}}
        body = {"commit": {"sha": commit}, "environment": change.place, **base, **members}
        return self.service.deploy({"deployed_at": at.isoformat(), **body})

    def pass_hour(self, *, reads: bool = True) -> None:
        """Lets an hour's sessions come; takes a look, and reads what is served."""
        for _ in range(12):
            events = [event for change in self.changes for event in self._visits(change)]
            ping = {"session_id": "ping", "event": "ping", "commit": BASE, "environment": "ping"}
            ping["occurred_at"] = self.now.isoformat()
            self.now += STEP
            self.service.clock.move(self.now)
            # The API knows the store's time from its last commit.
            self.service.post_events([ping])
            self.service.post_events(events)
        if not reads:
            return
        self.service.look()
        for change in self.changes:
            evidence = self.service.evidence(change.experiment)
            if evidence is not None and evidence.effect is not None:
                change.served = self.service.reward("GET", f"/{change.experiment}/effect")

    def _visits(self, change: Acting) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        for second in np.sort(
            self.generator.uniform(0, 300, self.generator.poisson(self.an_hour / 12))
        ):
            treated = self.generator.random() < change.share
            seen = {
                "session_id": self.generator.bytes(8).hex(),
                "commit": change.commit if treated else BASE,
                "environment": change.place,
                "occurred_at": (self.now + timedelta(seconds=float(second))).isoformat(),
            }
            orders = self.generator.random() < self.rate * (1 + change.truth * treated)
            change.counts[int(treated)] += 1, orders
            # The event that exposes a unit may be its conversion too.
            events.append({**seen, "event": "order" if orders else "page_view"})
            if self.generator.random() < ERRORS:
                events.append({**seen, "event": "error"})
        return events

    def end(self, change: Acting) -> None:
        """Ends a change as its agent does."""
        change.ended = change.served["relative"]
        match change.ending:
            case "close":
                self.service.reward("POST", f"/{change.experiment}/close")
            case "promote":
                change.share = 1.0
                self._deploy(change.commit, change, self.now, allocation=1.0)
            case "starve":
                change.share = 0.0
            case _:
                change.share = 0.05


ENDINGS = ("close", "promote", "starve", "cut")


def acted(truth: float, count: int, *, threshold: float, seed: int) -> list[Acting]:
    """Returns some changes of one truth once all are over."""
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=DAYS + 1)
    settings = {
        "reward_days": DAYS,
        "horizon_days": DAYS,
        "guardrails": ["error"],
        "rate_limits": {"per_key": 10**9, "registrations_per_key": 10**6},
    }
    with private_service(begin, **settings) as service:
        fleet = Fleet(service=service, now=begin, generator=np.random.default_rng(seed))
        for number in range(count):
            fleet.ship(truth, ENDINGS[number % len(ENDINGS)])
        for _ in range(24 * DAYS + 3):
            fleet.pass_hour()
            for change in fleet.changes:
                is_open = change.ended is None and not change.served.get("final", True)
                if is_open and (change.served["relative"] or 0.0) >= threshold:
                    fleet.end(change)
        return fleet.changes


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of the changes of one truth that one ending was meant for."""

    truth: float
    ending: str
    changes: Sequence[Acting]

    def mean(self, *, trainable: bool) -> str:
        effects = [
            change.served["relative"]
            for change in self.changes
            if change.served.get("relative") is not None
            and (not trainable or change.served["trainable"])
        ]
        if not effects:
            return "–"
        error = np.std(effects) / np.sqrt(len(effects))
        return f"{100 * np.mean(effects):+.2f} ± {100 * error:.2f} % of {len(effects)}"


def main() -> None:
    chosen = options(__doc__)
    chosen.add_argument("--changes", type=int, default=60, help="of each truth")
    chosen.add_argument("--threshold", type=float, default=0.01, help="the effect that pleases")
    asked = chosen.parse_args()
    rows: list[Row] = []
    for number, truth in enumerate((0.0, -0.08)):
        changes = acted(truth, asked.changes, threshold=asked.threshold, seed=35 + number)
        rows += [
            Row(truth=truth, ending=name, changes=[c for c in changes if name in {c.ending, "all"}])
            for name in ("all", *ENDINGS)
        ]
    shown: dict[str, Callable[[Row], str]] = {
        "truth": lambda row: f"{row.truth:+.0%}",
        "ending": lambda row: row.ending,
        "changes": lambda row: str(len(row.changes)),
        "ended": lambda row: str(sum(change.ended is not None for change in row.changes)),
        "mean of what is served": lambda row: row.mean(trainable=False),
        "of what is trainable": lambda row: row.mean(trainable=True),
        "trainable": lambda row: str(sum(c.served.get("trainable", False) for c in row.changes)),
    }
    report(rows, shown, lines=asked.lines, caption="what agents are given for changes they end")


if __name__ == "__main__":
    main()
