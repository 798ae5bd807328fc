"""A team that ships changes by the service's verdicts: canaries beside the standing build."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import numpy as np

from cli.repository.change import Author, Build, Change
from cli.repository.private_service import PrivateService
from cli.repository.sessions import METRIC, Served
from domain.measure import excludes_loss

# Between two looks of the team at its verdicts.
LOOK_MINUTES = 15
_DAY_MINUTES = 1440


class Fate(StrEnum):
    """What became of a change."""

    KEPT = "kept"
    ROLLED_BACK = "rolled back"
    REVISED = "sent back to be revised"
    MERGED = "merged, a loss excluded"
    DROPPED = "dropped without a verdict"
    HOTFIX = "shipped to everybody, without a test"
    RUNNING = "still running at the end"
    WAITING = "still waiting at the end"


_FATES = {"keep": Fate.KEPT, "rollback": Fate.ROLLED_BACK, "iterate": Fate.REVISED}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How the team ships.

    Attributes:
        commits_per_day: Mean commits that are ready a day.
        canaries: How many run side by side.
        canary_share: Share of the sessions that each is served to.
        flags: How many changes are tested behind a flag at a time.
        accepted_harm: The share of the control rate whose loss must be excluded before an
            undecided change is merged.
        patience: Minutes after which a change without an answer is dropped.
        hotfixes_per_day: Mean builds a day that go to everybody at once.
        stacked: Share of commits that are based on a running canary.
    """

    commits_per_day: float
    canaries: int
    canary_share: float
    flags: int
    accepted_harm: float
    patience: int
    hotfixes_per_day: float
    stacked: float


@dataclass(kw_only=True)
class Trial:
    """An experiment of the team: a canary's or a flag's.

    Attributes:
        changes: The changes under test; several where commits had to wait and ship together.
        build: The canary's build; of a flag None.
        control: The build that it is compared with; of a flag None.
        experiment_id: Its experiment, which goes on when the change is built on another base.
        shipped: Minute in which it was first served.
        rebases: How often its control was lost.
        rates: Sum over minutes of control's true rate since it was shipped.
        ended: Minute in which its fate was known.
        interval: Its interval at the end, and beside it the true lift; None before a first look.
    """

    changes: tuple[Change, ...]
    build: Build | None = None
    control: Build | None = None
    parent: "Trial | None" = None
    experiment_id: str = ""
    shipped: int = 0
    rebases: int = 0
    rates: float = 0.0
    ended: int | None = None
    fate: Fate = Fate.RUNNING
    interval: tuple[float, float, float] | None = None
    _commits: list[str] = field(default_factory=list)

    @property
    def effect(self) -> float:
        """The true relative effect of its changes together."""
        return float(np.prod([1 + change.effect for change in self.changes])) - 1

    def sessions(self, count: Mapping[str, int]) -> int:
        """Returns how many sessions had its changes, of the counts by commit and flag."""
        names = self._commits if self.build else [change.name for change in self.changes]
        return sum(count.get(name, 0) for name in names)

    def serve(self, build: Build, control: Build) -> None:
        """Sets the build that is served as its canary, and the build it is compared with."""
        self.build, self.control = build, control
        self._commits.append(build.commit)

    def true_lift(self, minute: int) -> float:
        """Returns the mean true lift, in points of the rate, since it was shipped."""
        return self.rates / max(1, minute - self.shipped) * self.effect


@dataclass(kw_only=True)
class Team:
    """The team, its builds and its experiments.

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
    trials: list[Trial] = field(default_factory=list, init=False)
    waiting: list[Change] = field(default_factory=list, init=False)
    hotfixes: list[Change] = field(default_factory=list, init=False)
    standing: Build = field(init=False)
    _deployed_at: datetime = field(default=datetime.min.replace(tzinfo=UTC), init=False)

    def begin(self, now: datetime) -> None:
        """Ships the first build to everybody, and begins the flags' experiments."""
        self.standing = Build(commit=self.author.commit(), lineage=())
        self._deploy(self.standing, now, base=None)

    @property
    def running(self) -> list[Trial]:
        """The canaries and flags whose fate is open."""
        return [trial for trial in self.trials if trial.fate is Fate.RUNNING]

    @property
    def canaries(self) -> list[Trial]:
        """The canaries whose fate is open."""
        return [trial for trial in self.running if trial.build is not None]

    def served(self) -> Served:
        """Returns the builds and flags that users are served now."""
        share = self.rules.canary_share
        builds = [(trial.build, share) for trial in self.canaries if trial.build is not None]
        flags = [trial.changes[0] for trial in self.running if trial.build is None]
        rest = 1 - share * len(builds)
        builds = [(self.standing, rest), *builds]
        return Served(baseline=self.baseline, builds=builds, flags=flags)

    def pass_minute(self, served: Served) -> None:
        """Lets a minute pass: commits become ready, and the true rates are noted."""
        ready = self.generator.poisson(self.rules.commits_per_day / _DAY_MINUTES)
        self.waiting += [self.author.change() for _ in range(ready)]
        for trial in self.running:
            if trial.control is not None:
                trial.rates += served.rate(trial.control)
            else:
                trial.rates += served.mean_rate(without=trial.changes[0])

    def act(self, minute: int, now: datetime) -> None:
        """Follows the verdicts, and ships waiting changes."""
        for trial in self.running:
            # What ended before it in this look may have rebased or dropped it.
            if trial.fate is Fate.RUNNING:
                self._judge(trial, minute, now)
        if self.generator.random() < self.rules.hotfixes_per_day * LOOK_MINUTES / _DAY_MINUTES:
            self._hotfix(now)
        self._start_flags(minute)
        self._start_canaries(minute, now)

    def finish(self, minute: int) -> None:
        """Notes the intervals of the trials that run at the end."""
        for trial in self.running:
            self._note_interval(trial, minute)

    def _judge(self, trial: Trial, minute: int, now: datetime) -> None:
        contract = self.service.reward("GET", f"/{trial.experiment_id}")
        fate = _FATES.get(contract["verdict"])
        if fate is None and self._is_harmless(trial, contract):
            fate = Fate.MERGED
        is_over = minute - trial.shipped >= self.rules.patience
        if fate is None and (is_over or contract["power_state"]["decided"]):
            fate = Fate.DROPPED
        if fate is not None:
            self._end(trial, fate, minute, now)

    def _is_harmless(self, trial: Trial, contract: Mapping[str, Any]) -> bool:
        """Whether a loss beyond the accepted loss is excluded, as `wait --accept-harm` asks."""
        evidence = self.service.evidence(trial.experiment_id)
        if evidence is None or contract["guardrail_breaches"]:
            return False
        if contract["abstain_reason"] != "power":
            return False
        return excludes_loss(evidence, self.rules.accepted_harm)

    def _end(self, trial: Trial, fate: Fate, minute: int, now: datetime) -> None:
        self._note_interval(trial, minute)
        trial.fate, trial.ended = fate, minute
        if trial.build is None:
            if fate in {Fate.MERGED, Fate.DROPPED}:
                self.service.reward("POST", f"/{trial.experiment_id}/close")
            return
        if fate in {Fate.KEPT, Fate.MERGED}:
            self._promote(trial.build, now)
            return
        self._deploy(trial.build, now, base=trial.control, allocation=0.0)
        for child in self.canaries:
            if child.parent is trial:
                self._rebase(child, now)

    def _promote(self, build: Build, now: datetime) -> None:
        """Makes a build the standing build; every other canary has lost its control."""
        self.standing = build
        self._deploy(build, now, base=None, allocation=1.0)
        for other in self.canaries:
            if other.control is not build:
                self._rebase(other, now)
            else:
                other.parent = None

    def _rebase(self, trial: Trial, now: datetime) -> None:
        """Builds a canary's changes on the standing build; its experiment goes on."""
        if trial.build is None:
            return
        self._deploy(trial.build, now, base=trial.control, allocation=0.0)
        trial.rebases += 1
        trial.parent = None
        self._serve(trial, self.standing, now)

    def _hotfix(self, now: datetime) -> None:
        """Ships a build to everybody at once; every canary has lost its control."""
        change = Change(name=self.author.commit(), effect=0.0)
        self.hotfixes.append(change)
        build = self._build(self.standing, (change,))
        self._deploy(build, now, base=self.standing, changes=(change,))
        self.standing = build
        for trial in self.canaries:
            self._rebase(trial, now)

    def _start_canaries(self, minute: int, now: datetime) -> None:
        """Ships waiting commits in free places; where there are more, the last place takes all."""
        while self.waiting and (free := self.rules.canaries - len(self.canaries)):
            size = len(self.waiting) if free == 1 else 1
            changes, self.waiting = tuple(self.waiting[:size]), self.waiting[size:]
            parent = self._parent()
            base = self.standing if parent is None or parent.build is None else parent.build
            trial = Trial(changes=changes, parent=parent, shipped=minute)
            self.trials.append(trial)
            self._serve(trial, base, now)

    def _parent(self) -> Trial | None:
        candidates = [trial for trial in self.canaries if trial.parent is None]
        if not candidates or self.generator.random() >= self.rules.stacked:
            return None
        return candidates[int(self.generator.integers(len(candidates)))]

    def _serve(self, trial: Trial, base: Build, now: datetime) -> None:
        build = self._build(base, trial.changes)
        trial.serve(build, base)
        share = self.rules.canary_share
        # That of a canary that was built on another base goes on.
        trial.experiment_id = self._deploy(
            build, now, base=base, allocation=share, changes=trial.changes
        )

    def _start_flags(self, minute: int) -> None:
        """Ships waiting commits in every build, each behind a flag, as far as places are free."""
        free = self.rules.flags - sum(trial.build is None for trial in self.running)
        behind, self.waiting = self.waiting[:free], self.waiting[free:]
        for change in behind:
            trial = Trial(changes=(change,), shipped=minute)
            self.trials.append(trial)
            flag = {"name": change.name, "treatment": True, "control": False}
            trial.experiment_id = self._register({"treatment_flag": flag})

    def _register(self, change: Mapping[str, Any]) -> str:
        body = {"target_metric": METRIC, **change}
        return self.service.reward("POST", "/register", body)["experiment_id"]

    def _build(self, base: Build, changes: Sequence[Change]) -> Build:
        return Build(commit=self.author.commit(), lineage=(*base.lineage, *changes))

    def _deploy(
        self,
        build: Build,
        now: datetime,
        *,
        base: Build | None,
        allocation: float | None = None,
        changes: Sequence[Change] = (),
    ) -> str:
        """Records a deploy and registers it, as a workflow does; returns its experiment.

        A build for everybody has nothing to be compared with, and is a base like any other; a
        withdrawal is not registered.
        """
        commit: dict[str, Any] = {"sha": build.commit}
        if changes:
            commit["changes"] = [change.name for change in changes]
        # In turn: a build may be rebased and withdrawn at the same look.
        self._deployed_at = max(now, self._deployed_at + timedelta(seconds=1))
        body: dict[str, Any] = {"commit": commit, "deployed_at": self._deployed_at.isoformat()}
        if base is not None:
            body["diff"] = {"base_commit": base.commit, "files": []}
        if allocation is not None:
            body["allocation"] = allocation
        self.service.deploy(body)
        return "" if allocation == 0 else self._register({"treatment_commit": build.commit})

    def _note_interval(self, trial: Trial, minute: int) -> None:
        evidence = self.service.evidence(trial.experiment_id)
        if evidence is not None and evidence.totals.ci is not None:
            low, high = evidence.totals.ci
            trial.interval = (low, high, trial.true_lift(minute))
