"""Requirements of a design: the sessions that find a lift, or exclude a harm."""

import math
from collections.abc import Callable

from domain.planning.boundary import Boundary, log_sum
from domain.planning.design import Design

# Defaults of a new experiment's policy, held by a test; a project's settings may differ.
HORIZON_DAYS = 28
# The numbers of `stats.sequential.line`; a test holds them equal.
SURPLUSES, HEAVIEST = ((0.0025, 0.1), (0.01, 0.3), (0.05, 0.4), (0.2, 0.2)), 0.05
Z_POWER = 0.8416  # the normal quantile of 80 % power

_BISECTIONS = 100


def deciding_sessions(design: Design, relative_lift: float, boundary: Boundary) -> float:
    """Sessions, of both arms, that detect a lift with 80 % power.

    The equation of `stats.sequential.requirement.required_sessions`, for a single design and
    without arrays. The share is declared: an answer waits for the surplus line.
    """
    lift = relative_lift * design.rate
    variance = design.noise(lift if design.rate + lift <= 1 else -lift)

    def excess(weight: float) -> float:
        return _line_excess(design.rate, lift, weight, weight * variance, boundary)

    return design.sessions(_reached(variance * (Z_POWER / lift) ** 2, excess))


def excluding_sessions(design: Design, relative_harm: float, boundary: Boundary) -> float:
    """Sessions, of both arms, at which a harm is excluded with 80 % power where there is none.

    With no effect S has mean 0 and variance W·pq, so that S + δW, the score against a loss of δ,
    reaches δW − z·√(W·pq) in 80 % of runs; −δ leaves the confidence sequence where that score
    passes the boundary at variance V(−δ) = W·(pq + max(0, −δ(1−2π)(1−2p))), which is
    docs/statistics.md, 'The test', with the cells' expected values. It is by the test alone: the
    line's interval is a hull of several sets, and may take longer.
    """
    harm = relative_harm * design.rate
    noise = design.noise(0.0)
    tilt = (1.0 - 2.0 * design.share) * (1.0 - 2.0 * design.rate)
    variance = noise + max(0.0, -harm * tilt)

    def excess(weight: float) -> float:
        score = harm * weight - Z_POWER * math.sqrt(weight * noise)
        return boundary.excess(score, weight * variance)

    return design.sessions(_reached(noise * (Z_POWER / harm) ** 2, excess))


def smallest_lift_by_horizon(design: Design, boundary: Boundary) -> float | None:
    """The smallest relative rise that the sessions of the whole horizon find; None for none."""
    weight = design.measured_per_day * HORIZON_DAYS * design.share * (1.0 - design.share)

    def excess(lift: float) -> float:
        return _line_excess(design.rate, lift, weight, weight * design.noise(lift), boundary)

    if excess(1.0 - design.rate) < 0:
        return None
    return _narrowed(0.0, 1.0 - design.rate, excess) / design.rate


def _line_excess(rate: float, lift: float, weight: float, V: float, boundary: Boundary) -> float:
    """Logarithm of α·E_line at the score δW − z·√(V + (1−κ)²B) that 80 % of runs reach.

    As `stats.sequential.line.Line.log_ratio`, with units as declared: S_n = A = 0, I = W, B = p²W.
    """
    spread, weights, ratios = rate**2 * weight, list[float](), list[float]()
    doubt = 1 - 1 / (1 + HEAVIEST**2 * weight)
    score = max(0.0, lift * weight - Z_POWER * math.sqrt(V + doubt**2 * spread))
    for deviation, prior in SURPLUSES:
        units = 1 + deviation**2 * weight
        total = V + (1 - 1 / units) * spread
        weights.append(math.log(prior) - 0.5 * (math.log(units * total) + score**2 / total))
        ratios.append(weights[-1] + boundary.excess(score * V / total, V * V / total))
    return log_sum(ratios) - log_sum(weights)


def _reached(start: float, excess: Callable[[float], float]) -> float:
    """The weight at which the excess turns positive, beyond a weight where it is negative."""
    inside, outside = start, 2.0 * start
    while excess(outside) < 0:
        inside, outside = outside, 2.0 * outside
    return _narrowed(inside, outside, excess)


def _narrowed(inside: float, outside: float, excess: Callable[[float], float]) -> float:
    for _ in range(_BISECTIONS):
        middle = 0.5 * (inside + outside)
        if excess(middle) < 0:
            inside = middle
        else:
            outside = middle
    return inside
