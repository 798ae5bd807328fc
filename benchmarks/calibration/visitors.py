"""Visitors: people who come in several sessions, behind a router that keeps them or draws each."""

import numpy as np

from benchmarks.calibration.scenario import Draw, of_one_stratum
from benchmarks.calibration.traffic import BLOCK, BLOCKS_A_DAY, Ints
from domain.policy import Numbers
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.unit_counts import UnitCounts
from stats.gates.gate import Flags
from stats.looks.series import Series

DAYS = 14
LOOKS = DAYS * BLOCKS_A_DAY
# Of a visitor's sessions 5 % buy in the mean, and they are alike with a correlation of 0.1.
RATE, ALIKE = 0.05, 0.1
# A visitor buys so long after coming, in the mean; a session that is cut begins anew after that.
BUYS_AFTER, ANEW_AFTER = 480.0, 120.0

Counts = tuple[Ints, Ints]


def of_a_router(
    *,
    sessions: float,
    share: float,
    a_day: int = 2400,
    lift: float = 0.0,
    keeps: bool = True,
    by_user: bool = False,
    cut: float = 0.0,
    is_read: bool = True,
) -> Draw:
    """A fortnight of visitors, at a declared share.

    Args:
        sessions: How many a visitor has, in the mean.
        share: Of treatment.
        a_day: How many sessions come in a day.
        lift: What treatment adds to the rate of a session, relative to control.
        keeps: Whether the router keeps visitors in their arm, or draws each session.
        by_user: Whether visitors are the units.
        cut: Where they are, the share of treatment's sessions that end early: the visitor begins
            another, and buys in that.
        is_read: Whether the gate reads who came back.
    """

    def draw(rng: np.random.Generator) -> Series:
        visits = 1 + rng.poisson(sessions - 1, round(DAYS * a_day / sessions))
        user = np.repeat(np.arange(visits.size), visits)
        block = rng.integers(0, LOOKS, user.size)
        order = np.lexsort((block, user))
        block = block[order]
        treated = rng.random(user.size) < share
        first = np.append(0, np.cumsum(visits)[:-1])
        if keeps:
            treated = treated[first][user]
        spread = 1 / ALIKE - 1
        drawn = rng.random(user.size)
        rate = rng.beta(RATE * spread, (1 - RATE) * spread, visits.size)[user]
        buys = drawn < rate * (1 + lift * treated)
        window = Numbers().window_seconds
        late = rng.exponential(BUYS_AFTER, user.size)
        late += ANEW_AFTER * (treated & (rng.random(user.size) < cut))
        buys &= late <= window
        if by_user:
            cells = _counted(block[first], treated[first], buys[first])
            return _series(cells, share)
        cells = _counted(block, treated, buys)
        returning = _returning(user, block, treated, cells) if is_read else None
        return _series(cells, share, returning=returning)

    return draw


def _counted(block: Ints, treated: Flags, buys: Flags) -> tuple[Counts, Counts]:
    """Units and buyers of treatment, and those of control, by block."""
    treatment, control = (
        (np.bincount(block[arm], minlength=LOOKS), np.bincount(block[arm & buys], minlength=LOOKS))
        for arm in (treated, ~treated)
    )
    return treatment, control


def _series(
    cells: tuple[Counts, Counts], share: float, *, returning: UnitCounts | None = None
) -> Series:
    (n1, x1), (n0, x0) = cells
    block = np.arange(LOOKS, dtype=np.int64) * BLOCK
    return of_one_stratum(
        n1,
        x1,
        n0,
        x0,
        allocation=(Epoch(start=0, end=None, share=share),),
        arrivals=Arrivals(block=block, treatment=n1, others=n0),
        units=returning,
    )


def _returning(user: Ints, block: Ints, treated: Flags, cells: tuple[Counts, Counts]) -> UnitCounts:
    """Each visitor's second session, where it is in a later block than the first."""
    second = np.flatnonzero((user[1:] == user[:-1]) & (np.append(-1, user[:-2]) != user[:-1])) + 1
    second = second[block[second] > block[second - 1]]
    kept = treated[second] == treated[second - 1]

    def by_block(chosen: Flags) -> Ints:
        return np.bincount(block[second[chosen]], minlength=LOOKS)

    before = treated[second - 1]
    return UnitCounts(
        block=np.arange(LOOKS, dtype=np.int64) * BLOCK,
        columns={
            "treatment": cells[0][0],
            "control": cells[1][0],
            "again_treatment": by_block(before),
            "kept_treatment": by_block(before & kept),
            "again_control": by_block(~before),
            "kept_control": by_block(~before & kept),
        },
    )
