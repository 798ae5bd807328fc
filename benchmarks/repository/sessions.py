"""Sessions of a simulated product: each gets a build and values of the flags."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import prod
from typing import Any

import numpy as np

from benchmarks.repository.change import Build, Change
from domain.draw import Offer, drawn, is_drawn
from domain.lineage.flag import flag_change

METRIC = "add_to_cart"
# Of every build: what the guardrail `error` is proven on.
ERRORS = 0.005
# From arrival to conversion: a median of four minutes, and all of it within the metric's window.
_DELAY_MEDIAN, _DELAY_SPREAD, _DELAY_MOST = 4.0, 0.8, 28.0

Body = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Served:
    """The builds and flags that users are served in a minute.

    Attributes:
        baseline: The conversion rate of the standing build with every flag off.
        builds: Each build and its share, the standing build first; the shares add up to 1.
        flags: Flags of every build, each on for half of the sessions, independently.
    """

    baseline: float
    builds: Sequence[tuple[Build, float]]
    flags: Sequence[Change]

    def factor(self, build: Build) -> float:
        """Returns a build's conversion rate over that of the standing build."""
        return build.factor / self.builds[0][0].factor

    def rate(self, build: Build, *, without: Change | None = None) -> float:
        """Returns a build's mean conversion rate; a flag that is left out counts as off."""
        halves = [1 + flag.effect / 2 for flag in self.flags if flag is not without]
        return self.baseline * self.factor(build) * float(np.prod(halves))

    def mean_rate(self, *, without: Change | None = None) -> float:
        """Returns the conversion rate over all builds."""
        return sum(share * self.rate(build, without=without) for build, share in self.builds)


@dataclass(kw_only=True)
class Sessions:
    """Draws the sessions and events of each minute.

    Attributes:
        per_day: Mean sessions a day.
        start: Time of minute 0.
        generator: The only source of randomness.
        evaluate: Asks the service, by OFREP, for a unit's commit and flags.
        evaluated: Share of sessions whose client asks so; the others draw by the published hash.
        total: All sessions.
        asked: Those whose client asked the service.
        count: Sessions by each commit that served them, and by each flag that was on.
        conversions: Conversions of all sessions.
    """

    per_day: float
    start: datetime
    generator: np.random.Generator
    evaluate: Callable[[str], Mapping[str, Any]] | None = None
    evaluated: float = 0.0
    total: int = field(default=0, init=False)
    asked: int = field(default=0, init=False)
    count: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int), init=False)
    conversions: int = field(default=0, init=False)
    _later: defaultdict[int, list[Body]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )

    def events(self, minute: int, served: Served) -> list[Body]:
        """Returns the events of a minute, in the order of their time."""
        number = int(self.generator.poisson(self.per_day / 1440))
        converts, fails = self.generator.random(number), self.generator.random(number) < ERRORS
        delays = _DELAY_MEDIAN * np.exp(_DELAY_SPREAD * self.generator.standard_normal(number))
        arrived = minute + np.sort(self.generator.random(number))
        of_commit = {build.commit: build for build, _ in served.builds}
        for session in range(number):
            unit = self.generator.bytes(8).hex()
            commit, shown = self._arms(unit, served)
            build = of_commit.get(commit, served.builds[0][0])
            on = [flag for flag in served.flags if shown.get(flag.name)]
            rate = served.baseline * served.factor(build) * prod(1 + flag.effect for flag in on)
            base = {
                "session_id": unit,
                "commit": build.commit,
                **({"flags": shown} if shown else {}),
            }
            at = float(arrived[session])
            self.total += 1
            for carried in (build.commit, *(flag.name for flag in on)):
                self.count[carried] += 1
            self._add("page_view", at, base)
            if fails[session]:
                self._add("error", at + 0.5, base)
            if converts[session] < rate:
                self.conversions += 1
                self._add(METRIC, at + min(float(delays[session]), _DELAY_MOST), base)
        return sorted(self._later.pop(minute, []), key=lambda event: event["occurred_at"])

    def _arms(self, unit: str, served: Served) -> tuple[str, dict[str, bool]]:
        """Returns the commit and the flags of a unit, as its client learns them."""
        if self.evaluate is not None and self.generator.random() < self.evaluated:
            self.asked += 1
            arms = self.evaluate(unit)
            # A place whose change is not shipped yet has no code that asks for its flag.
            names = [flag.name for flag in served.flags if flag.name in arms]
            return arms["commit"], {name: arms[name] for name in names}
        (standing, _), *canaries = served.builds
        offer = drawn(unit, [Offer(salt=build.commit, share=share) for build, share in canaries])
        commit = standing.commit if offer is None else offer.salt
        return commit, {flag.name: _is_on(flag, unit) for flag in served.flags}

    def _add(self, event: str, at: float, base: Body) -> None:
        moment = (self.start + timedelta(minutes=at)).isoformat()
        self._later[int(at)].append({"event": event, "occurred_at": moment, **base})


def _is_on(flag: Change, unit: str) -> bool:
    """Tells whether a unit gets a flag, by the hash by which OFREP hands it out."""
    return is_drawn(unit, salt=flag_change(flag.name, "true"), share=0.5)
