"""Lost histories: whether a gain holds beside users of a single arm whose history is lost.

A history is joined by the user's pseudonym, which a build can change: a user with a new pseudonym
has no history, and the adjustment credits the arm with the prediction that is missing.
"""

import math

import numpy as np

from stats.counts.cell import Floats, Totals
from stats.counts.mean import mean_totals
from stats.sequential.line import Flags, Line, LineGuard
from stats.sequential.mixture import Mixture

# From so much evidence on that the arms differ in who has a history, none is read.
ALARM = 100.0


def line_on_lost_histories(
    known: Floats, totals: Totals, factor: Floats, mixture: Mixture
) -> tuple[LineGuard, Totals, Floats]:
    """The line on lost histories, and the test that it stands beside, an entry a look.

    With λ the share of treatment's histories that are lost, by λ̂ = −S_h/(hW) with variance 1/I,
    I = hW/(1 − h): S would be λ̂·Σwθd̄ less.

    Args:
        known: Rows of `history_terms`, summed up to each look.
        totals: Of the adjusted means, whose test has the precisions of `mixture` times `factor`.

    Returns:
        The line; and totals and factor, of the plain mean where the arms differ in who has a
        history.
    """
    score, weight, variance, with_history, credited = known[:5]
    differ = mixture.log_e(score, variance) >= math.log(ALARM)
    users = np.maximum(known[11] + known[14], 1.0)
    is_read = (with_history > 0) & (totals.W > 0) & ~differ
    held = np.where(is_read, weight * with_history / users, 1.0)
    # A single lost history is the least that can be counted.
    information = held / np.maximum(1 - with_history / users, 1 / users)
    lost = -score / held
    line = Line(
        rho=mixture.rho * factor[:, None],
        totals=totals,
        surplus=lost * information,
        information=information,
        moved=credited * lost,
        spread=credited**2 / information,
    )
    guard = LineGuard(log_e=line.log_e(), line=line, is_asked=is_read)
    return guard, *unadjusted(differ, known, totals, factor)


def unadjusted(
    where: Flags, known: Floats, totals: Totals, factor: Floats
) -> tuple[Totals, Floats]:
    """Totals and factor of the plain mean at some looks, as given at the others."""
    plain, factors = mean_totals(known[5:])
    rows = np.where(where, plain, np.stack(tuple(vars(totals).values())))
    return Totals.from_rows(rows), np.where(where, factors, factor)
