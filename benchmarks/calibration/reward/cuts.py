"""Null changes whose share an agent cuts at a good moment, without declaring it.

A kernel of hourly looks over a week. It drives neither the service nor the decision functions and
shares only their prior. Prints the mean effect that would be trained on, each change counted.
"""

from itertools import product

import numpy as np
import numpy.typing as npt
from rich.console import Console

from domain.policy import EFFECT_PRIOR

CHANGES, HOURS, RATE, THRESHOLD = 6000, 168, 0.05, 0.01


def effects(
    score: npt.NDArray[np.float64], variance: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Posterior means of the relative lift."""
    deviations, weights = np.array(EFFECT_PRIOR).T
    V, S, prior = variance[:, None], score[:, None], deviations**2
    spread = 1 + prior * V
    log = np.log(weights) - np.log(spread) / 2 + S**2 * prior / spread / 2
    likely = np.exp(log - log.max(axis=1, keepdims=True))
    means = (likely * S * prior / spread).sum(axis=1) / likely.sum(axis=1)
    return means * (1 - RATE)


def main() -> None:
    generator = np.random.default_rng(2)
    for per_day, share, factor in product((24000, 2400), (0.5, 0.1), (0.6, 0.5, 0.04, 0)):
        score, variance = np.zeros(CHANGES), np.zeros(CHANGES)
        is_cut = np.zeros(CHANGES, dtype=bool)
        for _ in range(HOURS):
            units = per_day / 24
            treated = generator.binomial(int(units), np.where(is_cut, factor, 1) * share)
            gained = treated * (units - treated) / units * RATE * (1 - RATE)
            score += generator.normal(size=CHANGES) * np.sqrt(gained)
            variance += gained
            is_cut |= effects(score, variance) >= THRESHOLD
        trained = 100 * effects(score, variance)
        error = trained.std() / np.sqrt(CHANGES)
        Console().print(
            f"{per_day:,} a day, {share:.0%} cut to {factor * share:.1%}: {is_cut.mean():.2f} cut,"
            f" mean {trained.mean():+.2f} ± {error:.2f} %"
        )


if __name__ == "__main__":
    main()
