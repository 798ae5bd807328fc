"""A factory of agents: each change has a place, and its likelihood teaches the next choice.

The team of `benchmarks.repository` ships its changes in the places that the service gives. Of which
kind the next change is, `examples/agent` chooses by its beliefs, and it learns from `likelihood` of
`GET /v1/reward/{id}/effect`. Prints of each kind what it believes beside the truth.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.report import options, report
from benchmarks.repository.change import Author, Change
from benchmarks.repository.private_service import PrivateService, private_service
from benchmarks.repository.sessions import METRIC, Sessions
from benchmarks.repository.team import LOOK_MINUTES, Fate, Rules, Team, Trial
from tests.pipeline.agents.example import loaded_agent

# The mean relative effect of a kind of change. Changes of one kind differ by SPREAD.
KINDS = {"speed": 0.08, "wording": 0.0, "nagging": -0.15}
SPREAD, RATE, SESSIONS_A_DAY = 0.03, 0.2, 50_000
_DAY = 1440


@dataclass(kw_only=True)
class Learner(Author):
    """Chooses the kind of each change by what it has learned.

    Attributes:
        agent: The agent of the examples.
        kinds: The kind of each change, by its name.
        new: The changes whose end it has not seen yet.
    """

    agent: Any
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    new: set[str] = field(default_factory=set[str])

    def change(self) -> Change:
        beliefs = self.agent.beliefs
        kind = max(beliefs, key=lambda kind: beliefs[kind].drawn(self.agent.chance))
        change = Change(
            name=self.commit(), effect=float(self.generator.normal(KINDS[kind], SPREAD))
        )
        self.kinds[change.name] = kind
        self.new.add(change.name)
        return change


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of the changes of a kind.

    Attributes:
        trials: Its changes that had a place, each with the effect that is served of it.
        belief: What the agent believes of their mean, relative to the rate.
    """

    kind: str
    trials: list[tuple[Trial, dict[str, Any]]]
    belief: str

    def mean(self, read: Callable[[Trial, dict[str, Any]], float]) -> str:
        """The mean of a number of those that can be trained on."""
        values = [100 * read(trial, effect) for trial, effect in self.trials if effect["trainable"]]
        if not values:
            return "–"
        error = np.std(values) / np.sqrt(len(values))
        return f"{np.mean(values):+.1f} ± {error:.1f} % of {len(values)}"

    def count(self, fate: Fate) -> int:
        return sum(trial.fate is fate for trial, _ in self.trials)


def relative(lift: float) -> float:
    """Returns a lift relative to control's rate, of one relative to that of both halves."""
    return lift / (1 - lift / 2)


def shipped(
    commits: int, *, commits_per_day: float, places: int, seed: int
) -> tuple[Learner, list[tuple[Trial, dict[str, Any]]]]:
    """Lets the team ship until so many changes were ready, and until their effects are final."""
    module, generator = loaded_agent(), np.random.default_rng(seed)
    module.PRIOR_SPREAD = SPREAD
    days = commits / commits_per_day + 1.5
    start = datetime.now(UTC).replace(second=0, microsecond=0, minute=0) - timedelta(days=days)
    settings: dict[str, object] = {
        "flag_places": places,
        "default_metric": METRIC,
        "verified_draws": True,
        "reward_days": 1,
    }
    with private_service(start, **settings) as service:
        agent = module.Agent(
            service=_Effects(service),
            workshop=None,
            base="",
            metric=METRIC,
            beliefs={kind: module.Belief(precision=0.1**-2) for kind in KINDS},
        )
        agent.chance.seed(seed)
        author = Learner(generator=generator, harmful=0.0, agent=agent)
        rules = Rules(
            commits_per_day=commits_per_day,
            accepted_harm=0.2,
            patience_hours=24,
            hotfixes_per_day=0.0,
        )
        team = Team(service=service, author=author, rules=rules, generator=generator, baseline=RATE)
        sessions = Sessions(per_day=SESSIONS_A_DAY, start=start, generator=generator)
        team.begin(start)
        for minute in range(round(days * _DAY)):
            _pass_minute(team, sessions, minute, asks=len(team.trials) < commits)
            if minute % LOOK_MINUTES == 0:
                _learn(team, author)
        trials = [trial for trial in team.trials if trial.experiment_id is not None]
        effects = [service.reward("GET", f"/{trial.experiment_id}/effect") for trial in trials]
        return author, list(zip(trials, effects, strict=True))


@dataclass(frozen=True)
class _Effects:
    """What the agent of the examples asks the service for, of changes that others ship."""

    service: PrivateService

    def effect(self, experiment: str) -> dict[str, Any]:
        return self.service.reward("GET", f"/{experiment}/effect")


def _pass_minute(team: Team, sessions: Sessions, minute: int, *, asks: bool) -> None:
    served = team.served()
    end = sessions.start + timedelta(minutes=minute + 1)
    team.service.clock.move(end)
    team.service.post_events(sessions.events(minute, served))
    if asks:
        team.pass_minute(minute, served)
    if (minute + 1) % LOOK_MINUTES == 0:
        team.service.look()
        team.act(minute + 1, end)


def _learn(team: Team, author: Learner) -> None:
    for trial in team.trials:
        name = trial.change.name
        if trial.ended is not None and trial.experiment_id is not None and name in author.new:
            author.new.remove(name)
            author.agent.unlearned[trial.experiment_id] = author.kinds[name]
    author.agent.learn()


def main() -> None:
    chosen = options(__doc__)
    chosen.add_argument("--changes", type=int, default=100)
    chosen.add_argument("--commits-per-day", type=float, default=20.0)
    chosen.add_argument("--places", type=int, default=25)
    chosen.add_argument("--seed", type=int, default=38)
    asked = chosen.parse_args()
    author, all_trials = shipped(
        asked.changes, commits_per_day=asked.commits_per_day, places=asked.places, seed=asked.seed
    )
    rows = [
        Row(
            kind=kind,
            trials=[pair for pair in all_trials if author.kinds[pair[0].change.name] == kind],
            belief=f"{100 * relative(belief.mean):+.1f} ± {100 * belief.precision**-0.5:.1f} %",
        )
        for kind, belief in author.agent.beliefs.items()
    ]
    shown: dict[str, Callable[[Row], str]] = {
        "kind": lambda row: row.kind,
        "true mean": lambda row: f"{KINDS[row.kind]:+.0%}",
        "believed": lambda row: row.belief,
        "changes": lambda row: str(len(row.trials)),
        "kept": lambda row: str(row.count(Fate.KEPT)),
        "rolled back": lambda row: str(row.count(Fate.ROLLED_BACK)),
        "merged": lambda row: str(row.count(Fate.MERGED)),
        "truth": lambda row: row.mean(lambda trial, _: trial.change.effect),
        "effect": lambda row: row.mean(lambda _, effect: effect["relative"]),
        "plain": lambda row: row.mean(lambda _, effect: relative(effect["likelihood"]["estimate"])),
    }
    report(rows, shown, lines=asked.lines, caption="what agents learn of changes in places")


if __name__ == "__main__":
    main()
