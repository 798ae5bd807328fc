"""Ratios of two counts of a unit: errors over requests, where the change moves requests too."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.calibration.proportion import Proportion
from benchmarks.calibration.scenario import AT_ONCE, of_one_stratum
from benchmarks.calibration.sections.section import Run, Section
from benchmarks.calibration.traffic import (
    BLOCK,
    Floats,
    Ints,
    Share,
    constant,
    constant_share,
    ramp_of,
)
from stats.counts.closed_cells import Pairs
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Guardrail, Series

ALPHA = 0.05
LOOKS = 288
TEXT = """
Errors over requests of each unit, 24,000 units for a day; requests are Poisson about a log-normal
mean of 3 (σ = 0.8), errors binomial at 20 %, unless something else is said. Where it *swings*, the
ratio goes up and down by half every four hours. 'Requests ×2' is what treatment does to requests. A
miss is an interval of any look that lacks the true difference.
"""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Requests of units in two arms, and the errors among them.

    Attributes:
        ratio: Control's errors over requests.
        lift: What treatment adds to it.
        requests: A unit's requests on average, and by what treatment multiplies them.
        swing: How far ratio and requests go up and down.
        trend: How far the logarithm of the ratio rises over the day.
        silent: The share of units that send no request.
        spread: How far units differ in their ratio: the standard deviation of its logarithm.
        heavy: Likewise in their requests.
        units: Those of a block, both arms.
    """

    ratio: float = 0.2
    lift: float = 0.0
    requests: float = 3.0
    times: float = 1.0
    swing: float = 0.0
    trend: float = 0.0
    silent: float = 0.0
    spread: float = 0.0
    heavy: float = 0.8
    units: int = 83
    share: Share = constant_share

    def series(self, rng: np.random.Generator, *, as_guardrail: bool = False) -> Series:
        day = (np.arange(LOOKS) + 0.5) / LOOKS
        arrived = rng.poisson(self.units, LOOKS)
        n1 = rng.binomial(arrived, self.share(day))
        n0 = arrived - n1
        sums = {}
        for arm, n in ((1, n1), (0, n0)):
            y, d = self._counts(rng, day, n, arm=arm)
            block = np.repeat(np.arange(LOOKS), n)
            products = {"y": y, "yy": y * y, "d": d, "dd": d * d, "yd": y * d}
            for name, values in products.items():
                sums[f"{name}{arm}"] = np.bincount(block, weights=values, minlength=LOOKS)
        x1, x0 = (np.minimum(sums[f"y{arm}"], n).astype(np.int64) for arm, n in ((1, n1), (0, n0)))
        whole = of_one_stratum(n1, x1, n0, x0, values=Pairs(**sums))
        if not as_guardrail:
            return whole
        rail = Guardrail(name="errors", better="lower", window_seconds=BLOCK, cells=whole.target)
        return replace(of_one_stratum(n1, 0 * n1, n0, 0 * n0), guardrails=(rail,))

    def _counts(
        self, rng: np.random.Generator, day: Floats, n: Ints, *, arm: int
    ) -> tuple[Floats, Floats]:
        wave, turn = np.sin(2 * np.pi * 6 * day), np.cos(2 * np.pi * 6 * day)
        ratio = self.ratio * (1 + self.swing * wave) * np.exp(self.trend * day) + self.lift * arm
        mean = self.requests * (1 + self.swing * turn) * (self.times if arm else 1.0)
        size = int(n.sum())
        of_unit = np.repeat(mean, n) * rng.lognormal(-(self.heavy**2) / 2, self.heavy, size)
        sends = rng.random(size) >= self.silent
        d = rng.poisson(of_unit / (1 - self.silent)) * sends
        own = np.repeat(ratio, n) * rng.lognormal(-(self.spread**2) / 2, self.spread, size)
        return rng.binomial(d, np.clip(own, 0, 1)).astype(np.float64), d.astype(np.float64)


def evaluated(
    requests: Requests, count: int, seed: int, *, as_guardrail: bool = False
) -> Iterator[Evidence]:
    rng = np.random.default_rng(seed)
    for begin in range(0, count, AT_ONCE):
        size = min(AT_ONCE, count - begin)
        yield from evaluate([requests.series(rng, as_guardrail=as_guardrail) for _ in range(size)])


def misses(evidence: Evidence, lift: float) -> bool:
    """Whether the interval of any look lacks the true difference."""
    intervals = (look.ci for look in evidence.looks if look.ci is not None)
    return any(low > lift or high < lift for low, high in intervals)


NULLS = {
    "requests ×0.7, swings": Requests(times=0.7, swing=0.5),
    "requests ×1, swings": Requests(swing=0.5),
    "requests ×2, swings": Requests(times=2, swing=0.5),
    "requests ×4, swings": Requests(times=4, swing=0.5),
    "requests ×2, ratio rises ×2.7": Requests(times=2, trend=1.0),
    "requests ×2, share 1→5→25→50 %, swings": Requests(times=2, swing=0.5, share=ramp_of(0.1)),
    "requests ×2, share 5 %": Requests(times=2, share=constant(0.05)),
    "requests ×2, units differ, σ = 0.8": Requests(times=2, spread=0.8),
    "requests log-normal, σ = 1.5": Requests(heavy=1.5),
    "requests ×4, nine of ten units send none": Requests(times=4, silent=0.9, requests=1),
    "requests ×2, 10 units a block": Requests(times=2, units=10, requests=1),
    "errors 0.1 %": Requests(ratio=0.001),
    "errors 0.1 %, share 5 %": Requests(ratio=0.001, share=constant(0.05)),
    "errors 0.1 %, requests ×2, share 5 %": Requests(ratio=0.001, times=2, share=constant(0.05)),
}
EFFECTS = {
    "ratio +5 %, 38,000 units": (Requests(lift=0.01, units=133), 0.75),
    "ratio +10 %": (Requests(lift=0.02), 0.95),
    "ratio +10 %, requests ×2": (Requests(lift=0.02, times=2), 0.95),
}
MISSED = {
    "ratio +20 %, swings": Requests(lift=0.04, swing=0.5),
    "ratio +20 %, requests ×2, swings": Requests(lift=0.04, times=2, swing=0.5),
    "errors 1 % and in treatment 2 %": Requests(ratio=0.01, lift=0.01),
}
HARMS = {
    "breached: errors 0.8 % and in treatment 1.1 %": (Requests(ratio=0.008, lift=0.003), 0.9),
    "breached: errors 0.02 % and in treatment 1 %": (Requests(ratio=0.0002, lift=0.0098), 0.99),
}


def ratios(run: Run) -> Section:
    rows: list[Proportion] = []

    def counted(name: str, hits: Iterator[bool], count: int, **claim: float) -> None:
        run.say(f"ratios: {name}")
        rows.append(Proportion(name=name, hits=sum(hits), count=count, **claim))

    def seed() -> int:
        return 20_261_440_00 + len(rows)

    few, many = run.replications(300), run.replications(2000)
    for name, requests in NULLS.items():
        seen = evaluated(requests, many, seed())
        answered = (one.decision.verdict != "abstain" for one in seen)
        counted(f"an answer, {name}", answered, many, at_most=ALPHA)
    for name, (requests, least) in EFFECTS.items():
        seen = evaluated(requests, few, seed())
        answered = (one.decision.verdict == "keep" for one in seen)
        counted(f"kept, {name}", answered, few, at_least=least)
    for name, requests in MISSED.items():
        seen = evaluated(requests, many, seed())
        counted(
            f"missed, {name}", (misses(one, requests.lift) for one in seen), many, at_most=ALPHA
        )
    for times in (1.0, 2.0):
        seen = evaluated(Requests(ratio=0.01, times=times), many, seed(), as_guardrail=True)
        name = f"breached, no harm, errors 1 %, requests ×{times:g}"
        counted(name, (bool(one.decision.guardrail_breaches) for one in seen), many, at_most=ALPHA)
    for name, (requests, least) in HARMS.items():
        seen = evaluated(requests, few, seed(), as_guardrail=True)
        counted(name, (bool(one.decision.guardrail_breaches) for one in seen), few, at_least=least)
    return Section(title="Ratios", text=TEXT.replace("\n", " ").strip(), rows=rows)
