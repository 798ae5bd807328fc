"""Sessions of a simulated product: each gets a build and values of the flags."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from cli.repository.change import Build, Change

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
        total: All sessions.
        count: Sessions by each commit that served them, and by each flag that was on.
        conversions: Conversions of all sessions.
    """

    per_day: float
    start: datetime
    generator: np.random.Generator
    total: int = field(default=0, init=False)
    count: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int), init=False)
    conversions: int = field(default=0, init=False)
    _later: defaultdict[int, list[Body]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )

    def events(self, minute: int, served: Served) -> list[Body]:
        """Returns the events of a minute, in the order of their time."""
        number = int(self.generator.poisson(self.per_day / 1440))
        shares = np.array([share for _, share in served.builds])
        builds = self.generator.choice(len(shares), size=number, p=shares / shares.sum())
        flags = self.generator.random((number, len(served.flags))) < 0.5
        factors = np.where(flags, [1 + flag.effect for flag in served.flags], 1.0).prod(axis=1)
        of_builds = np.array([served.factor(build) for build, _ in served.builds])
        rates = served.baseline * of_builds[builds] * factors
        converts = self.generator.random(number) < rates
        fails = self.generator.random(number) < ERRORS
        delays = _DELAY_MEDIAN * np.exp(_DELAY_SPREAD * self.generator.standard_normal(number))
        arrived = minute + np.sort(self.generator.random(number))
        for session in range(number):
            build = served.builds[int(builds[session])][0]
            shown = {
                flag.name: bool(flags[session, place]) for place, flag in enumerate(served.flags)
            }
            base = {
                "session_id": self.generator.bytes(8).hex(),
                "commit": build.commit,
                **({"flags": shown} if shown else {}),
            }
            at = float(arrived[session])
            self.total += 1
            for carried in (build.commit, *(name for name, on in shown.items() if on)):
                self.count[carried] += 1
            self._add("page_view", at, base)
            if fails[session]:
                self._add("error", at + 0.5, base)
            if converts[session]:
                self.conversions += 1
                self._add(METRIC, at + min(float(delays[session]), _DELAY_MOST), base)
        return sorted(self._later.pop(minute, []), key=lambda event: event["occurred_at"])

    def _add(self, event: str, at: float, base: Body) -> None:
        moment = (self.start + timedelta(minutes=at)).isoformat()
        self._later[int(at)].append({"event": event, "occurred_at": moment, **base})
