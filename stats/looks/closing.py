"""Closing for lack of contrast: units come, but none can be compared any more."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from domain.policy import Numbers
from domain.words import EndedBecause
from stats.counts.arrivals import Epoch
from stats.counts.cell import Floats, Ints
from stats.counts.timeline import AnalysisCells, Timeline
from stats.looks.series import Series

GONE_BY_CHANCE = 1e-6
# The largest share that is assumed where none is declared: the smallest share of the calibration.
UNDECLARED_SHARE = 0.01
CONTROL, TREATMENT = 0, 1
Flags = NDArray[np.bool_]


def contrast_gone(series: Series, line: Timeline, experiment: int) -> Flags:
    """Whether the contrast has ended by each closing of an experiment's target.

    W did not grow over the contrast time, while a deploy to all or none was known, or units came
    and chance is excluded. The clock alone would close healthy canaries: at 100 units a day and a
    share of 1 %, 37 of 100 days have no unit of treatment.

    The chance is that every cell has a single arm: the product of πⁿ + (1−π)ⁿ over the cells of n
    units that closed since W last grew. A cell of a single unit has a single arm.

    A treatment that is declared a share and never had a unit stays open: its router sends it none.
    Once it is given a share again, it has the contrast time from then on.
    """
    history, span = _History.of(series, line, experiment), series.policy.contrast_seconds
    apart = ~history.grew_within(history.weight, span) & (history.end - series.start >= span)
    gone = apart & (series.ended_since(history.at) <= history.end - span)
    absent = apart & ~gone & history.grew_within(history.units.sum(axis=0), span)
    closings = np.flatnonzero(absent)
    if closings.size:
        sent = np.array(
            [
                not _is_sent_nothing(history, closing) and not _is_sent_again(history, closing)
                for closing in closings.tolist()
            ]
        )
        gone[closings] = sent & (_log_chances(history, closings) < math.log(GONE_BY_CHANCE))
    return gone


def arms_left(end: Ints, n1: Ints, n0: Ints, look: int, policy: Numbers) -> EndedBecause:
    """Why there is no contrast, by the arms that units still come to."""
    if not n0[look]:
        return EndedBecause.NOTHING_TO_COMPARE
    # A new split of the strata may move the end back a little: take its maximum so far.
    covered = np.maximum.accumulate(end)
    before = int(np.searchsorted(covered, end[look] - policy.contrast_seconds, side="right"))
    treated, controlled = (_between(n, before, look + 1) > 0 for n in (n1, n0))
    if treated and controlled:
        return EndedBecause.SUPERSEDED
    return EndedBecause.PROMOTED if treated else EndedBecause.WITHDRAWN


@dataclass(frozen=True, kw_only=True)
class _History:
    """Cumulative sums of an experiment's target, an entry a closing.

    Attributes:
        units: Array (2, closings), units of control and of treatment so far.
    """

    series: Series
    line: Timeline
    experiment: int
    at: Ints
    end: Ints
    units: Ints
    weight: Floats
    compared: Ints

    @classmethod
    def of(cls, series: Series, line: Timeline, experiment: int) -> "_History":
        rows = line.rows(experiment)
        return cls(
            series=series,
            line=line,
            experiment=experiment,
            at=line.at[rows],
            end=line.end[rows],
            units=np.stack((line.n0[rows], line.n1[rows])),
            weight=line.weight[rows],
            compared=_last_growth(line.weight[rows]),
        )

    def cells(self) -> tuple[AnalysisCells, Ints]:
        """The cells that the sums are made of, and the closing of each."""
        cells = self.line.cells.of_streams(self.experiment, self.experiment + 1)
        return cells, cells.row - self.line.rows(self.experiment).start

    def grew_within(self, sums: Ints | Floats, seconds: int) -> Flags:
        """Whether sums grew over so many seconds before each closing."""
        before = np.searchsorted(self.end, self.end - seconds, side="right")
        return sums > np.concatenate((np.zeros(1, dtype=sums.dtype), sums))[before]

    def share(self, arm: int, first: int, stop: int) -> float | None:
        """An arm's share of the units of some closings; None where it had none."""
        own = _between(self.units[arm], first, stop)
        other = _between(self.units[1 - arm], first, stop)
        return own / (own + other) if own else None

    def epochs(self, closing: int) -> list[Epoch]:
        """The declarations that began within the exposure time that a closing covers."""
        return [epoch for epoch in self.series.allocation or () if epoch.start < self.end[closing]]


def _is_sent_nothing(history: _History, closing: int) -> bool:
    """Whether treatment is declared a share at a closing, and had no unit up to there."""
    shares = [epoch.share or 0.0 for epoch in history.epochs(closing)]
    return bool(shares) and 0 < shares[-1] < 1 and not history.units[TREATMENT][closing]


def _is_sent_again(history: _History, closing: int) -> bool:
    """Whether treatment was given a share again, within the contrast time before a closing."""
    policy = history.series.policy
    closes_after = policy.block_seconds + policy.grace_seconds
    known = [
        epoch
        for epoch in history.series.allocation or ()
        # A deploy that was posted late counts from the block that closes after it.
        if epoch.start - epoch.start % policy.block_seconds + closes_after <= history.at[closing]
    ]
    if len(known) < 2 or known[-2].share not in (0.0, 1.0) or not 0 < (known[-1].share or 0) < 1:
        return False
    return bool(known[-1].start > history.end[closing] - policy.contrast_seconds)


def _log_chances(history: _History, closings: Ints) -> Floats:
    """The log probability of the arrivals since W last grew, at some of the closings."""
    begins = history.compared[closings]
    shares = np.array([_share(history, closing) for closing in closings.tolist()])
    cells, row = history.cells()
    size = (cells.n1 + cells.n0).astype(np.float64)
    chances = np.zeros(closings.size)
    # While an arm is missing the share stays the same, so that few sums serve all closings.
    for begin, share in sorted(set(zip(begins.tolist(), shares.tolist(), strict=True))):
        same = (begins == begin) & (shares == share)
        first = int(np.searchsorted(row, begin))
        n = size[first:]
        one_arm = np.logaddexp(n * math.log(share), n * math.log1p(-share))
        sums = np.concatenate(([0.0], np.cumsum(np.where(n > 1, one_arm, 0.0))))
        closed = np.searchsorted(row[first:], closings[same], side="right")
        chances[same] = sums[closed]
    return chances


def _share(history: _History, closing: int) -> float:
    """The share π at a closing: of the arm that is missing; where both came, of the rarer arm."""
    begin = int(history.compared[closing])
    missing = [
        arm for arm in (CONTROL, TREATMENT) if not _between(history.units[arm], begin, closing + 1)
    ]
    shares = [_smallest_share(history, arm, closing) for arm in missing or (CONTROL, TREATMENT)]
    return min(shares, key=lambda share: min(share, 1.0 - share))


def _smallest_share(history: _History, arm: int, closing: int) -> float:
    """The smallest share that an arm had, or was declared to have; of those inside (0, 1)."""
    begin = int(history.compared[closing])
    epochs = history.epochs(closing)
    known = [history.share(arm, 0, begin)]
    if epochs:
        known.append(_share_since(epochs[-1], history, arm, closing))
        known += _declared(epochs, history, arm, begin)
    shares = [share for share in known if share is not None and 0 < share < 1]
    if not epochs or epochs[-1].share is None or not shares:
        shares.append(UNDECLARED_SHARE)
    return min(shares)


def _share_since(epoch: Epoch, history: _History, arm: int, closing: int) -> float | None:
    """An arm's share since the last declared change, up to its last unit."""
    # Analysis blocks are cut at the block that holds the change.
    changed = epoch.start - epoch.start % history.series.policy.block_seconds
    first = int(np.searchsorted(history.end, changed, side="right"))
    last = int(_last_growth(history.units[arm, : closing + 1])[-1])
    return history.share(arm, first, last)


def _declared(epochs: list[Epoch], history: _History, arm: int, begin: int) -> list[float]:
    """The shares that were declared for an arm while the units since W last grew arrived.

    Not the current share alone: a day without a unit at 1 % says nothing of the 25 % that were
    declared at its end.
    """
    since = int(history.end[begin - 1]) if begin else history.series.begin
    shares = [epoch.share for epoch in epochs if epoch.end is None or epoch.end > since]
    return [share if arm == TREATMENT else 1.0 - share for share in shares if share is not None]


def _last_growth(sums: Ints | Floats) -> Ints:
    """Counts, at each entry, the entries up to the last entry at which sums grew."""
    grew = np.diff(sums, prepend=np.zeros(1, dtype=sums.dtype)) > 0
    return np.maximum.accumulate(np.where(grew, np.arange(1, sums.size + 1), 0))


def _between(sums: Ints, first: int, stop: int) -> int:
    """The increase from an entry up to before another."""
    if stop <= first:
        return 0
    return int(sums[stop - 1]) - (int(sums[first - 1]) if first else 0)
