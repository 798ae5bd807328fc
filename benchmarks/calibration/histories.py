"""A build that renames some of its users' ids: their history is lost in a single arm.

Users of `benchmarks.calibration.sections.adjustment` without an effect; a share of treatment's
comes under a new pseudonym, which has no history. Prints how many experiments are answered by the
adjusted mean, by the plain mean, and by a rule that reads the plain mean alone once the test of
'has a history' has reached ALARM. The engine's own functions; the rule is not in the engine yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.calibration.proportion import bounds
from benchmarks.calibration.sections.adjustment import Buyers
from benchmarks.calibration.traffic import Floats
from benchmarks.report import options
from domain.policy import Numbers
from stats.counts.closed_cells import ClosedCells
from stats.decision.evidence import evaluate
from stats.looks.series import Series
from stats.looks.stratification import stratified
from stats.looks.trace import traced

ALARM = 100.0
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True, kw_only=True)
class Renamed(Buyers):
    """Buyers, of whom a share of treatment's comes under a new pseudonym."""

    renamed: float = 0.0

    def users(self, rng: np.random.Generator) -> tuple[Floats, ...]:
        """The same users; the renamed have no history."""
        cell, treated, y, x = super().users(rng)
        lost = (treated > 0) & (rng.random(x.size) < self.renamed)
        return cell, treated, y, np.where(lost, 0.0, x)


def _has_history(buyers: Renamed, rng: np.random.Generator) -> Series:
    """The same users' series, with 'has a history' as the outcome."""
    cell, treated, _, x = buyers.users(rng)
    series = buyers.series(np.random.default_rng(0))
    number = series.target.block.size
    sums = [
        np.bincount(cell.astype(np.int64), part * (treated == arm), minlength=number)
        for arm in (1, 0)
        for part in (x**0, x > 0)
    ]
    n1, x1, n0, x0 = (part.astype(np.int64) for part in sums)
    target = ClosedCells(
        block=series.target.block, stratum=series.target.stratum, n1=n1, x1=x1, n0=n0, x0=x0
    )
    return replace(series, policy=Numbers(), target=target)


def answers(buyers: Renamed, seed: int) -> tuple[bool, bool, bool, bool]:
    """Whether the adjusted mean, the plain mean and the rule answer, and whether it alarms."""

    def drawn() -> np.random.Generator:
        return np.random.default_rng(seed)

    adjusted, plain = evaluate(
        [buyers.series(drawn()), replace(buyers, adjusted=False).series(drawn())]
    )
    trace = traced([stratified(_has_history(buyers, drawn()))]).trace
    alarms = trace.at[trace.log_e >= np.log(ALARM)]
    is_alarmed = alarms.size > 0
    answered = [each.decision.verdict != "abstain" for each in (adjusted, plain)]
    before = answered[0] and (not is_alarmed or (adjusted.decision.at or 0) < alarms[0])
    return answered[0], answered[1], before or (is_alarmed and answered[1]), is_alarmed


def rows(count: int, seed: int) -> Iterator[str]:
    """Yields the table."""
    yield "| renamed, with a history | adjusted | plain | with the rule | alarmed |"
    yield "| --- | --- | --- | --- | --- |"
    for history in (1.0, 0.6):
        for renamed in SHARES:
            buyers = Renamed(r2=0.4, history=history, renamed=renamed)
            hits = np.array([answers(buyers, seed + number) for number in range(count)]).sum(axis=0)
            cells = (
                f"{hit / count:.2f} ({low:.2f}–{high:.2f})"
                for hit in hits.tolist()
                for low, high in [bounds(hit, count, 0.95)]
            )
            yield f"| {renamed:.0%}, {history:.0%} | {' | '.join(cells)} |"


def main() -> None:
    chosen = options(__doc__)
    chosen.add_argument("--count", type=int, default=40, help="experiments of each row")
    asked = chosen.parse_args()
    for row in rows(asked.count, 510_000):
        print(row, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
