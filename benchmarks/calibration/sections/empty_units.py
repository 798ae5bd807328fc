"""Units of a single arm that do nothing: false answers of rates, means and ratios."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.calibration.proportion import Proportion
from benchmarks.calibration.scenario import (
    evaluated,
    of_one_stratum,
    ramp_declared,
    with_a_lagging_router,
    with_empty_units,
)
from benchmarks.calibration.sections.section import Run, Section
from benchmarks.calibration.traffic import BLOCK, Floats, Ints
from stats.counts.arrivals import Arrivals
from stats.counts.closed_cells import Pairs, Values
from stats.decision.evidence import Evidence
from stats.looks.series import Series

CLEAN, SPOILT = 0.05, 0.1
LOOKS_A_DAY, UNITS_A_LOOK = 48, 500
SHARES = (0.005, 0.01, 0.02, 0.05)
PATTERNS = ("steady", "by day", "in bursts")
TEXT = """
No effect, at a declared half, looked at every half hour: rates for seven days, means and ratios for
two. Units that do nothing come to a single arm: steadily; up and down by day; or in bursts, ten
times as many in a tenth of the hours. Each row is the worst of both arms and these patterns.
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A metric, and the units that do nothing.

    Attributes:
        level: The rate, of a mean its coefficient of variation, of a ratio the share of good.
        arm: The arm that empty units come to, 1 for treatment.
    """

    kind: str
    level: float
    days: int
    empty: float = 0.0
    arm: int = 0
    pattern: str = "steady"

    @property
    def name(self) -> str:
        """The metric in words."""
        of = f"CV {self.level:g}" if self.kind == "mean" else f"{100 * self.level:g} %"
        return f"{self.kind}, {of}"


CASES = (
    Case(kind="rate", level=0.05, days=7),
    Case(kind="rate", level=0.6, days=7),
    Case(kind="rate", level=0.9, days=7),
    Case(kind="mean", level=0.53, days=2),
    Case(kind="ratio", level=0.8, days=2),
)


def _times(rng: np.random.Generator, looks: int, pattern: str) -> Floats:
    """How many times as many empty units come at each look."""
    if pattern == "by day":
        return 1 + np.sin(2 * np.pi * np.arange(looks) / LOOKS_A_DAY)
    if pattern == "in bursts":
        return np.repeat(10.0 * (rng.random(looks // 2 + 1) < 0.1), 2)[:looks]
    return np.ones(looks)


def _sums(block: Ints, looks: int, *columns: Floats) -> Iterator[Floats]:
    for column in columns:
        yield np.bincount(block, column, minlength=looks)


def drawn(rng: np.random.Generator, case: Case) -> Series:
    """An experiment of a case."""
    looks = case.days * LOOKS_A_DAY
    own = rng.poisson(UNITS_A_LOOK / 2, (2, looks))
    times = _times(rng, looks, case.pattern)
    empty = np.zeros((2, looks), dtype=np.int64)
    empty[case.arm] = rng.poisson(UNITS_A_LOOK / 2 * case.empty * times)
    n, x, sums, values = own + empty, own, dict[str, Floats](), None
    if case.kind == "rate":
        x = rng.binomial(own, case.level)
    else:
        for arm in (0, 1):
            of = np.repeat(np.arange(looks), own[arm])
            nothing = np.repeat(np.arange(looks), empty[arm])
            names = [f"{name}{arm}" for name in ("y", "yy", "d", "dd", "yd")]
            if case.kind == "mean":
                spread = math.log(1 + case.level**2)
                y = np.exp(
                    np.minimum(rng.normal(0, math.sqrt(spread), of.size), 3.09 * math.sqrt(spread))
                )
                sums |= dict(zip(names, _sums(of, looks, y, y * y), strict=False))
                continue
            d, of_empty = rng.poisson(2, of.size) + 1, rng.poisson(2, nothing.size) + 1
            y = rng.binomial(d, case.level)
            more = [np.zeros(looks)] * 2, [*_sums(nothing, looks, of_empty, of_empty**2)]
            more = [*more[0], *more[1], np.zeros(looks)]
            columns = _sums(of, looks, y, y * y, d, d * d, y * d)
            sums |= {name: a + b for name, a, b in zip(names, columns, more, strict=True)}
        values = Values(**sums) if case.kind == "mean" else Pairs(**sums)
    epochs = ramp_declared(0.5)
    arrivals = Arrivals(block=np.arange(looks, dtype=np.int64) * BLOCK, treatment=n[1], others=n[0])
    return of_one_stratum(
        n[1],
        x[1],
        n[0],
        x[0],
        values=values,
        allocation=epochs,
        arrivals=arrivals,
        stratum_shares={0: epochs},
    )


def empty_units(run: Run) -> Section:
    """False answers by metric, arm and pattern, then what else was simulated of such units."""
    rows: list[Proportion] = []
    count, seed = run.replications(400), 20_261_430_00
    for case in CASES:
        cells: dict[float, list[int]] = {0.0: [_answers(case, count, seed)]}
        for pattern in PATTERNS:
            for arm, name in enumerate(("control", "treatment")):
                run.say(f"empty units: {case.name}, {pattern}, {name}")
                for share in SHARES:
                    seed += 1
                    spoilt = Case(
                        kind=case.kind,
                        level=case.level,
                        days=case.days,
                        empty=share,
                        arm=arm,
                        pattern=pattern,
                    )
                    cells.setdefault(share, []).append(_answers(spoilt, count, seed))
        for share, hits in cells.items():
            name = f"{case.name}: {f'{100 * share:g} % empty' if share else 'none'}: an answer"
            bound = SPOILT if share >= 0.01 else CLEAN
            rows.append(Proportion(name=name, hits=max(hits), count=count, at_most=bound))
        seed += 1
    _more(run, rows, seed)
    return Section(title="Units of a single arm", text=" ".join(TEXT.split()), rows=rows)


def _answers(case: Case, count: int, seed: int) -> int:
    seen = evaluated(partial(drawn, case=case), count, seed)
    return sum(evidence.decision.verdict != "abstain" for evidence in seen)


def _more(run: Run, rows: list[Proportion], seed: int) -> None:
    """A canary beside it, a router that lags, and true answers."""

    def counted(name: str, draw: Callable[..., Series], word: str, **claim: float) -> None:
        run.say(f"empty units: {name}")
        count = run.replications(200)
        seen: Iterator[Evidence] = evaluated(draw, count, seed + len(rows))
        hits = sum(evidence.decision.verdict == word for evidence in seen)
        rows.append(Proportion(name=name, hits=hits, count=count, **claim))

    draw = with_empty_units(0.6, share=0.1, beside=0.1, empty=0.05)
    name = "rate, 60 %: 5 % empty in control, a canary of 10 % beside it: kept"
    counted(name, draw, "keep", at_most=SPOILT)
    draw = with_a_lagging_router(0.6, empty=0.05)
    counted(
        "rate, 60 %: 5 % empty in control, a ramp that lags: kept", draw, "keep", at_most=SPOILT
    )
    for base, lift in ((0.05, 0.2), (0.2, 0.1), (0.6, 0.05)):
        for sign, word in ((1, "keep"), (-1, "rollback")):
            draw = with_empty_units(base, share=0.5, lift=sign * lift)
            name = f"rate, {100 * base:g} %: none, a true {100 * sign * lift:+.0f} %: {word}"
            counted(name.replace("-", "−"), draw, word, at_least=0.9)
