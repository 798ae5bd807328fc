"""Beliefs of a learner about kinds of change whose places end early, by their likelihoods.

A place ends by its verdict, once a loss of HARM is excluded, or after a day, at looks of a quarter
of an hour; half of the sessions have the change. It drives the functions of the test and of the
effect, no gates and no service. Prints, of each traffic and kind, the mean of the estimates of the
likelihoods, of the effects, and the belief of a learner that takes changes to differ so much.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.report import options, report
from domain.policy import EFFECT_PRIOR, Numbers
from stats.counts.cell import Floats, Totals, terms
from stats.decision.effect import Posterior, posterior_of
from stats.sequential.mixture import Mixture, confidence_sequence

LOOKS, HARM = 96, 0.2
# Rate and sessions a day; the mean of a kind, how much its changes differ, and how much a learner
# takes them to.
TRAFFIC = ((0.2, 50_000), (0.05, 50_000), (0.6, 5_000), (0.2, 5_000), (0.05, 5_000))
KINDS = ((0.08, 0.03, 0.03), (0, 0.03, 0.03), (-0.15, 0.03, 0.03), (0, 0, 0.03), (0, 0.1, 0))


@dataclass(frozen=True, kw_only=True)
class Row:
    """The changes of a kind."""

    traffic: str
    kind: str
    truth: Floats
    seen: list[Posterior]
    taken: float

    @property
    def believed(self) -> tuple[float, float]:
        """The mean that a learner without a prior believes, relative to control, and its error."""
        precision = np.array([1 / (each.observed_error**2 + self.taken**2) for each in self.seen])
        mean = precision @ [each.observed for each in self.seen] / precision.sum()
        return mean / (1 - mean / 2), precision.sum() ** -0.5


def ends(rate: float, per_day: int, truth: Floats, rng: np.random.Generator) -> Iterator[Posterior]:
    """Yields the posterior of each change when its place ends."""
    shape = (truth.size, LOOKS)
    n1, n0 = rng.poisson(per_day / LOOKS / 2, (2, *shape))
    x1 = rng.binomial(n1, np.clip(rate * (1 + truth), 0, 1)[:, None])
    x0 = rng.binomial(n0, rate)
    cells = terms(*(column.ravel() for column in (n1, x1, n0, x0)))
    sums = np.cumsum(cells.reshape(-1, *shape), axis=2).reshape(cells.shape[0], -1)
    totals, policy = Totals.from_rows(sums), Numbers()
    mixture = Mixture(
        rho=np.tile(policy.rho, (sums.shape[1], 1)),
        log_threshold=np.full(sums.shape[1], policy.log_threshold),
    )
    ended = mixture.excess(totals.S, totals.V0) >= 0
    low = confidence_sequence(totals, mixture)[:, 0]
    ended |= low > -HARM * totals.control_rate
    ended = ended.reshape(shape)
    last = np.where(ended.any(axis=1), ended.argmax(axis=1), LOOKS - 1)
    for row in np.ravel_multi_index((np.arange(truth.size), last), shape):
        known = posterior_of(totals[row : row + 1], EFFECT_PRIOR, is_rate=True)
        if known is not None:
            yield known


def main() -> None:
    chosen = options(__doc__)
    chosen.add_argument("--changes", type=int, default=3000)
    asked = chosen.parse_args()
    rng, rows = np.random.default_rng(5), list[Row]()
    for (rate, per_day), (mean, spread, taken) in product(TRAFFIC, KINDS):
        truth = np.clip(rng.normal(mean, spread, asked.changes), -0.9, 0.6)
        rows.append(
            Row(
                traffic=f"{rate:.0%} of {per_day:,}",
                kind=f"{mean:+.0%} ± {spread:.0%}",
                truth=truth,
                seen=list(ends(rate, per_day, truth, rng)),
                taken=taken,
            )
        )
    shown = {
        "sessions a day": lambda row: row.traffic,
        "kind": lambda row: row.kind,
        "truth": lambda row: f"{100 * row.truth.mean():+.2f} %",
        "effect": lambda row: f"{100 * np.mean([each.relative for each in row.seen]):+.2f} %",
        "estimate": lambda row: f"{100 * np.mean([each.observed for each in row.seen]):+.2f} %",
        "taken to differ by": lambda row: f"{row.taken:.0%}",
        "believed": lambda row: "{:+.2f} ± {:.2f} %".format(*(100 * n for n in row.believed)),
    }
    report(rows, shown, lines=asked.lines, caption="a kind of change whose places end early")


if __name__ == "__main__":
    main()
