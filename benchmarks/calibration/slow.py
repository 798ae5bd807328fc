"""Slow metrics: when a loss is said so far, and when the whole window says it.

Prints a table. Run it as `python -m benchmarks.calibration.slow [RUNS]`.
"""

import math
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.calibration.traffic import Ints
from domain.metric import DAY, so_far_seconds
from domain.policy import Numbers
from domain.words import Verdict
from stats.counts.closed_cells import ClosedCells
from stats.decision.evidence import evaluate
from stats.decision.surplus import beside_line
from stats.guardrails.guardrail import guardrail_watches
from stats.looks.series import Guardrail, Series
from stats.looks.stratification import stratified
from stats.looks.trace import traced

HOUR, GRACE = 3600, 120
DAYS, WINDOW, RATE = 28, 14 * DAY, 0.05
SO_FAR = so_far_seconds(WINDOW)
# Delays in days, of those that come within the window.
LAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "exponential, mean 4 days": lambda rng, n: rng.exponential(4, n),
    "exponential, mean 8 days": lambda rng, n: rng.exponential(8, n),
    "Weibull, about 6 days": lambda rng, n: 7 * rng.weibull(3, n),
    "half at once, half on day 9": lambda rng, n: np.where(
        rng.random(n) < 0.5, rng.exponential(0.3, n), 9 * rng.weibull(8, n)
    ),
}


def delays(rng: np.random.Generator, law: str, factor: float, n: int) -> np.ndarray:
    """Delays within the window, in seconds: treatment's are longer by a factor."""
    drawn = LAWS[law](rng, 4 * n + 100) * factor
    kept = drawn[drawn <= WINDOW / DAY]
    while kept.size < n:
        more = LAWS[law](rng, 4 * n + 100) * factor
        kept = np.concatenate((kept, more[more <= WINDOW / DAY]))
    return kept[:n] * DAY


def arm(
    rng: np.random.Generator, units: Ints, rate: float, law: str, factor: float
) -> tuple[Ints, Ints]:
    """The conversions of each hour within the window, and those within its first part."""
    converted = rng.binomial(units, rate)
    hour = np.repeat(np.arange(units.size), converted)
    early = delays(rng, law, factor, hour.size) <= SO_FAR
    return converted, np.bincount(hour[early], minlength=units.size)


def drawn(
    rng: np.random.Generator, per_day: int, law: str, lift: float, factor: float, day: float
) -> Series:
    looks = DAYS * 24
    n1, n0 = (rng.poisson(per_day / 48, looks) for _ in "10")
    x1, soon1 = arm(rng, n1, RATE * (1 + lift), law, factor)
    x0, soon0 = arm(rng, n0, RATE, law, 1.0)
    block = np.arange(looks, dtype=np.int64) * HOUR

    def cells(x1: Ints, x0: Ints) -> ClosedCells:
        return ClosedCells(block=block, stratum=0 * block, n1=n1, x1=x1, n0=n0, x0=x0)

    so_far = Guardrail(
        name="so far",
        better="higher",
        margin=None,
        watch_only=True,
        window_seconds=SO_FAR,
        cells=cells(soon1, soon0),
    )
    return Series(
        policy=Numbers(block_seconds=HOUR, window_seconds=WINDOW, grace_seconds=GRACE),
        start=0,
        as_of=int(day * DAY),
        closed_at=None,
        cuts=(),
        target=cells(x1, x0),
        guardrails=(so_far,),
    )


def first_days(series: Series) -> tuple[float, float]:
    """The days of the first warning and of a rollback; infinite where there is none."""
    ((watch,),) = guardrail_watches(traced([stratified(series)]), beside_line)
    (seen,) = evaluate([series])
    is_rollback = seen.decision.verdict is Verdict.ROLLBACK
    said, decided = watch.breached_at, seen.as_of if is_rollback else None
    return _day(said), _day(decided)


def _day(at: int | None) -> float:
    return math.inf if at is None else at / DAY


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    rows = [
        "| delay | change | units a day | said so far | on day | rolled back | on day |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for law in LAWS:
        for per_day in (24_000, 2_400):
            for name, lift, factor in (
                ("none", 0.0, 1.0),
                ("×1.3 later", 0.0, 1.3),
                ("×0.7 as late", 0.0, 0.7),
                ("-20 %", -0.2, 1.0),
                ("-10 %", -0.1, 1.0),
            ):
                rng = np.random.default_rng([7, per_day])
                each = [
                    first_days(drawn(rng, per_day, law, lift, factor, DAYS + 15))
                    for _ in range(runs)
                ]
                columns = []
                for moments in zip(*each, strict=True):
                    reached = [moment for moment in moments if moment < math.inf]
                    columns += [
                        f"{len(reached)} of {runs}",
                        f"{np.median(moments):.0f}" if 2 * len(reached) > runs else "–",
                    ]
                rows.append(f"| {law} | {name} | {per_day:,} | {' | '.join(columns)} |")
    sys.stdout.write("\n".join([*rows, ""]))


if __name__ == "__main__":
    main()
