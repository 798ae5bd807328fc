"""Regression adjustment: revenue of users, some of whom have a history that predicts it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from benchmarks.calibration.proportion import Proportion
from benchmarks.calibration.ratios import misses
from benchmarks.calibration.sections.section import Run, Section
from benchmarks.calibration.traffic import (
    BLOCK,
    BLOCKS_A_DAY,
    DELAY,
    Floats,
    Share,
    constant_share,
    ramp_of,
)
from domain.metric import DAY
from domain.policy import Numbers
from stats.counts.closed_cells import Adjusted, ClosedCells, Values
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Series

ALPHA = 0.05
TEXT = """Revenue of users, 24,000 a day for three days. Each fifth buys, for a log-normal sum
(σ = 1, capped at its 99th percentile); a share has a history, whose R² is how much of the revenue
it explains before the cap."""

AT_TEN_PERCENT = """At +10 %: experiments that were kept, with the history and without, and how many
times the median users and the variance it needs."""


@dataclass(frozen=True, kw_only=True)
class Buyers:
    """Users of both arms, and what they spend before the experiment and in it.

    Attributes:
        r2: The share of the variance that the history of those who have a history explains.
        history: The share of users who have a history.
        lift: What treatment adds, relative to control.
        sigma: Of the logarithm of what a buyer spends.
        rises: How far the logarithm of it rises over time.
        fades: How far that of the history falls over time.
        strata: The number of strata.
        adjusted: Whether the test reads the history.
    """

    r2: float = 0.16
    history: float = 0.6
    lift: float = 0.0
    sigma: float = 1.0
    rises: float = 0.0
    fades: float = 0.0
    strata: int = 1
    share: Share = constant_share
    days: int = 3
    adjusted: bool = True

    def users(self, rng: np.random.Generator) -> tuple[Floats, ...]:
        """Of each user the cell, whether it is in treatment, the value and the history."""
        looks = self.days * BLOCKS_A_DAY
        time = (np.arange(looks) + 0.5) / BLOCKS_A_DAY
        block = np.repeat(np.arange(looks), rng.poisson(83, looks))
        stratum = rng.integers(0, self.strata, block.size)
        treated = rng.random(block.size) < self.share(time)[block]
        level, passed = stratum * 2 / max(self.strata - 1, 1), time[block] / self.days
        x, other = (self._spent(rng, block.size) for _ in range(2))
        y = np.where(rng.random(block.size) < math.sqrt(self.r2), x, other)
        y *= np.exp(level + self.rises * passed) * np.where(treated, 1 + self.lift, 1.0)
        x *= np.exp(level - self.fades * passed) * (rng.random(block.size) < self.history)
        return (
            block * self.strata + stratum,
            treated,
            np.minimum(y, self._cap),
            np.minimum(x, self._cap),
        )

    def series(self, rng: np.random.Generator) -> Series:
        cell, treated, y, x = self.users(rng)
        number = self.days * BLOCKS_A_DAY * self.strata
        parts = {"n": y**0, "x": y > 0, "y": y, "yy": y * y, "d": x, "dd": x * x, "yd": y * x}
        parts["h"] = x > 0
        sums = {
            f"{name}{arm}": np.bincount(cell, part * (treated == arm), minlength=number)
            for name, part in parts.items()
            for arm in (1, 0)
        }
        counts = {name: sums.pop(name).astype(np.int64) for name in ("n1", "n0", "x1", "x0")}
        if not self.adjusted:
            sums = {name: sums[name] for name in ("y1", "yy1", "y0", "yy0")}
        values = Adjusted(**sums) if self.adjusted else Values(**sums)
        block, stratum = np.divmod(np.arange(number), self.strata)
        cells = ClosedCells(block=block * BLOCK, stratum=stratum, values=values, **counts)
        as_of = self.days * DAY + DELAY
        return Series(policy=Numbers(), start=0, as_of=as_of, closed_at=None, cuts=(), target=cells)

    @property
    def difference(self) -> float:
        """The true difference of the capped means, where nothing moves them beside treatment."""
        return 0.2 * (self._mean(1 + self.lift) - self._mean(1.0))

    @property
    def _cap(self) -> float:
        return math.exp(2.326 * self.sigma)

    def _spent(self, rng: np.random.Generator, size: int) -> Floats:
        return (rng.random(size) < 0.2) * rng.lognormal(0.0, self.sigma, size)

    def _mean(self, times: float) -> float:
        z = 2.326 - math.log(times) / self.sigma
        below = times * math.exp(self.sigma**2 / 2) * norm.cdf(z - self.sigma)
        return float(below + self._cap * norm.sf(z))


def evaluated(buyers: Buyers, count: int, seed: int) -> Iterator[Evidence]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield from evaluate([buyers.series(rng)])


NULLS = {
    "rising": Buyers(r2=0.4, rises=math.log(2)),
    "share 1→5→25→50 %, rising": Buyers(r2=0.4, rises=math.log(2), share=ramp_of(0.5)),
    "by strata": Buyers(r2=0.4, strata=8),
    "σ = 2": Buyers(r2=0.4, sigma=2.0),
    "early users have more history": Buyers(r2=0.4, fades=math.log(2), rises=math.log(2)),
}


def adjustment(run: Run) -> Section:
    rows: list[Proportion] = []
    after = [
        AT_TEN_PERCENT,
        "",
        "| R² | have a history | kept | without | median users | variance |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    few, many = run.replications(90), run.replications(300)
    for r2 in (0.0, 0.07, 0.16, 0.4):
        # Without a history no R² matters.
        for history in (0.3, 0.6, 1.0) if r2 else (0.0, 1.0):
            buyers = Buyers(r2=r2, history=history, lift=0.1)
            name, seed = f"R² {r2:g}, history of {100 * history:g} %", 20_261_450_00 + len(rows)
            run.say(f"adjustment: {name}")
            null = list(evaluated(replace(buyers, lift=0.0), many, seed))
            hits = sum(one.decision.verdict != "abstain" for one in null)
            rows.append(Proportion(name=f"an answer, {name}", hits=hits, count=many, at_most=ALPHA))
            after.append(_line(buyers, few, seed))
    for name, buyers in NULLS.items():
        run.say(f"adjustment: {name}")
        hits = sum(
            one.decision.verdict != "abstain"
            for one in evaluated(buyers, many, 20_261_450_00 + len(rows))
        )
        name_of_row = f"an answer, R² 0.4, history of 60 %, {name}"
        rows.append(Proportion(name=name_of_row, hits=hits, count=many, at_most=ALPHA))
    for history in (0.3, 1.0):
        run.say(f"adjustment: coverage at {history}")
        buyers = Buyers(r2=0.4, history=history, lift=0.1)
        seen = evaluated(buyers, many, 20_261_450_00 + len(rows))
        hits = sum(misses(one, buyers.difference) for one in seen)
        name = f"missed at +10 %, R² 0.4, history of {100 * history:g} %"
        rows.append(Proportion(name=name, hits=hits, count=many, at_most=ALPHA))
    return Section(title="Regression adjustment", text=TEXT, rows=rows, after=after)


def _line(buyers: Buyers, count: int, seed: int) -> str:
    """The row of a table: kept, users and variance, with the history and without."""
    kept, users, variances = [], [], []
    for adjusted in (True, False):
        seen = list(evaluated(replace(buyers, adjusted=adjusted), count, seed + 500))
        until = [one.units_in_cells if one.decision.verdict == "keep" else math.inf for one in seen]
        kept.append(sum(map(math.isfinite, until)) / count)
        users.append(float(np.median(until)))
        last = evaluated(replace(buyers, lift=0.0, adjusted=adjusted), 20, seed + 700)
        variances.append(sum(one.totals.V / one.totals.W for one in last))
    ratio = f"×{users[0] / users[1]:.2f}" if all(map(math.isfinite, users)) else "–"
    cells = [
        *(f"{buyers.r2:g}", f"{100 * buyers.history:g} %"),
        *(f"{share:.2f}" for share in kept),
        *(ratio, f"×{variances[0] / variances[1]:.2f}"),
    ]
    return f"| {' | '.join(cells)} |"
