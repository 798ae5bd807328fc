"""A team that ships each change in the place that the service gives it, and acts on its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import numpy as np
from canary_traffic.posting import deploy_body

from benchmarks.repository.change import Author, Build, Change
from benchmarks.repository.private_service import PrivateService
from benchmarks.repository.sessions import Served

# Between two looks of the team at its places.
LOOK_MINUTES = 15
_DAY_MINUTES = 1440


class Fate(StrEnum):
    """What became of a change."""

    KEPT = "kept"
    ROLLED_BACK = "rolled back"
    REVISED = "sent back to be revised"
    MERGED = "merged, a loss excluded"
    DROPPED = "dropped without a verdict"
    RUNNING = "still running at the end"
    WAITING = "still waiting at the end"


_FATES = {
    "keep": Fate.KEPT,
    "rollback": Fate.ROLLED_BACK,
    "iterate": Fate.REVISED,
    "harmless": Fate.MERGED,
    "suspected": Fate.DROPPED,
    "unanswered": Fate.DROPPED,
    "refused": Fate.DROPPED,
}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How the team ships.

    Attributes:
        commits_per_day: Mean commits that are ready a day.
        accepted_harm: The share of the control rate whose loss must be excluded before an
            undecided change is merged.
        patience_hours: Hours after which a change without an answer is dropped.
        hotfixes_per_day: Mean builds a day that go to everybody at once.
    """

    commits_per_day: float
    accepted_harm: float
    patience_hours: float
    hotfixes_per_day: float


@dataclass(kw_only=True)
class Trial:
    """A change and its place.

    Attributes:
        ready: Minute in which it asked for a place.
        share: Of the sessions that it is served to; 0 before it has a place.
        build: The canary's build; of a flag None.
        control: The build that it is compared with; of a flag None.
        shipped: Minute in which it was first served.
        rebases: How often its control was lost.
        rates: Sum over minutes of control's true rate since it was shipped.
        ended: Minute in which its fate was known.
        interval: Its interval at the end, and beside it the true lift; None before a first look.
        mismatched: Units of its arms that are not in the arm which is drawn for them.
    """

    change: Change
    ready: int
    share: float = 0.0
    build: Build | None = None
    control: Build | None = None
    experiment_id: str | None = None
    shipped: int = 0
    rebases: int = 0
    rates: float = 0.0
    ended: int | None = None
    fate: Fate = Fate.WAITING
    interval: tuple[float, float, float] | None = None
    mismatched: int = 0
    _commits: list[str] = field(default_factory=list)

    def sessions(self, count: Mapping[str, int]) -> int:
        """Returns how many sessions had its change, of the counts by commit and flag."""
        names = self._commits if self.build else [self.change.name]
        return sum(count.get(name, 0) for name in names)

    def serve(self, build: Build, control: Build) -> None:
        """Sets the build that is served as its canary, and the build it is compared with."""
        self.build, self.control = build, control
        self._commits.append(build.commit)

    def true_lift(self, minute: int) -> float:
        """Returns the mean true lift, in points of the rate, since it was shipped."""
        return self.rates / max(1, minute - self.shipped) * self.change.effect


@dataclass(kw_only=True)
class Team:
    """The team, its builds and its changes.

    Attributes:
        service: The service that answers it.
        author: Who draws the changes.
        rules: How it ships.
        generator: The only source of randomness.
        baseline: The conversion rate of the standing build. It stays the same, whatever is
            promoted: else days of gains would end where every session converts, and the figures
            would show another rate than was asked for.
    """

    service: PrivateService
    author: Author
    rules: Rules
    generator: np.random.Generator
    baseline: float
    by_place: dict[str, Trial] = field(default_factory=dict, init=False)
    hotfixes: int = field(default=0, init=False)
    standing: Build = field(init=False)
    _deployed_at: datetime = field(default=datetime.min.replace(tzinfo=UTC), init=False)

    def begin(self, now: datetime) -> None:
        """Ships the first build to everybody."""
        self.standing = Build(commit=self.author.commit(), lineage=())
        self._deploy(self.standing, now, base=None)

    @property
    def trials(self) -> list[Trial]:
        """All changes that ever were ready."""
        return list(self.by_place.values())

    @property
    def running(self) -> list[Trial]:
        """The canaries and flags whose fate is open."""
        return [trial for trial in self.by_place.values() if trial.fate is Fate.RUNNING]

    @property
    def canaries(self) -> list[tuple[Trial, Build]]:
        """The canaries whose fate is open, with their builds."""
        return [(trial, trial.build) for trial in self.running if trial.build is not None]

    def served(self) -> Served:
        """Returns the builds and flags that users are served now."""
        builds = [(build, trial.share) for trial, build in self.canaries]
        rest = 1 - sum(share for _, share in builds)
        flags = [trial.change for trial in self.running if trial.build is None]
        return Served(baseline=self.baseline, builds=[(self.standing, rest), *builds], flags=flags)

    def pass_minute(self, minute: int, served: Served) -> None:
        """Lets a minute pass: commits become ready, and the true rates are noted."""
        for trial in self.running:
            if trial.control is not None:
                trial.rates += served.rate(trial.control)
            else:
                trial.rates += served.mean_rate(without=trial.change)
        for _ in range(self.generator.poisson(self.rules.commits_per_day / _DAY_MINUTES)):
            change = self.author.change()
            place = self.service.ask_place(
                {
                    "commit": change.name,
                    "flag": {"name": change.name, "treatment": True, "control": False},
                    "accept_harm": self.rules.accepted_harm,
                    "patience_hours": self.rules.patience_hours,
                }
            )
            self.by_place[place["place_id"]] = Trial(change=change, ready=minute)

    def act(self, minute: int, now: datetime) -> None:
        """Serves, promotes and withdraws changes as their places say."""
        for place in reversed(self.service.places("ended")):
            trial = self.by_place[place["place_id"]]
            if trial.ended is None:
                trial.experiment_id = place["experiment_id"]
                self._end(trial, _FATES[place["outcome"]], minute, now)
        if self.generator.random() < self.rules.hotfixes_per_day * LOOK_MINUTES / _DAY_MINUTES:
            self._hotfix(now)
        for place in reversed(self.service.places("placed")):
            trial = self.by_place[place["place_id"]]
            trial.experiment_id = place["experiment_id"]
            if trial.fate is Fate.WAITING:
                trial.fate, trial.shipped, trial.share = Fate.RUNNING, minute, place["share"]
                if place["kind"] == "canary":
                    self._serve(trial, now)

    def finish(self, minute: int) -> None:
        """Notes the intervals of the trials that run at the end."""
        for trial in self.running:
            self._note_interval(trial, minute)

    def _end(self, trial: Trial, fate: Fate, minute: int, now: datetime) -> None:
        self._note_interval(trial, minute)
        trial.fate, trial.ended = fate, minute
        if trial.build is None:
            return
        if fate in {Fate.KEPT, Fate.MERGED}:
            self._stand(trial.build, now)
        else:
            self._deploy(trial.build, now, base=trial.control, allocation=0.0)

    def _stand(self, build: Build, now: datetime, *, base: Build | None = None) -> None:
        """Gives everybody a build; every canary has lost its control, and is built on it."""
        self.standing = build
        self._deploy(build, now, base=base, allocation=1.0)
        for trial, canary in self.canaries:
            self._deploy(canary, now, base=trial.control, allocation=0.0)
            trial.rebases += 1
            self._serve(trial, now)

    def _hotfix(self, now: datetime) -> None:
        change = Change(name=self.author.commit(), effect=0.0)
        self.hotfixes += 1
        self._stand(self._build(change), now, base=self.standing)

    def _serve(self, trial: Trial, now: datetime) -> None:
        """Serves a change on the standing build; its experiment goes on."""
        build, base = self._build(trial.change), self.standing
        trial.serve(build, base)
        self._deploy(build, now, base=base, allocation=trial.share)

    def _build(self, change: Change) -> Build:
        return Build(commit=self.author.commit(), lineage=(*self.standing.lineage, change))

    def _deploy(
        self, build: Build, now: datetime, *, base: Build | None, allocation: float | None = None
    ) -> None:
        """Records a deploy, as a workflow does it."""
        # In turn: a build may be rebased and withdrawn at the same look.
        self._deployed_at = max(now, self._deployed_at + timedelta(seconds=1))
        self.service.deploy(
            deploy_body(
                build.commit,
                self._deployed_at,
                base=base and base.commit,
                allocation=allocation,
                changes=None if base is None else [build.lineage[-1].name],
            )
        )

    def _note_interval(self, trial: Trial, minute: int) -> None:
        if trial.experiment_id is None:
            return
        evidence = self.service.evidence(trial.experiment_id)
        if evidence is not None and evidence.totals.ci is not None:
            low, high = evidence.totals.ci
            trial.interval = (low, high, trial.true_lift(minute))
        if evidence is not None and evidence.draw is not None:
            trial.mismatched = evidence.draw.mismatched
