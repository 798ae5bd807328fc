"""The tipping point: how many invented sessions would explain a lift without being noticed."""

import math

from domain.evidence.counts import TippingPoint
from stats.looks.series import Series
from stats.looks.trace import Trace

# Standard errors of the split that the sample ratio's test lets pass, at its E ≥ 100.
_UNNOTICED = 4.0


def tipping_point(series: Series, now: Trace, *, is_declared: bool) -> TippingPoint | None:
    """The tipping point of a rate at a look; None of a mean, and where nothing was compared.

    k units that all convert raise an arm's rate from p to p + lift where k = lift·n/(1−p), n its
    units with them. An excess of k units is k(1−π)/√(Nπ(1−π)) standard errors of the split, π being
    the arm's share of N units.
    """
    if series.target.values is not None or not now.totals.W[0] > 0:
        return None
    lift, control = float(now.totals.lift[0]), float(now.totals.control_rate[0])
    n1, n0 = int(now.compared.n1[0]), int(now.compared.n0[0])
    own, other, below = (n1, n0, control) if lift > 0 else (n0, n1, control + lift)
    if not below < 1:
        return None
    return TippingPoint(
        sessions=math.ceil(abs(lift) * own / (1 - below)),
        unseen=round(_UNNOTICED * math.sqrt((n1 + n0) * own / other)) if is_declared else None,
    )
