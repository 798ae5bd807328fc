"""The effect: the best estimate of a change's effect, beside the verdict.

How it is served: docs/api.md, 'The effect'.

A lift that is read when the test crosses overstates the truth, since a test stops at a lucky
moment. A posterior mean does not depend on the moment of stopping: it is taken over all units that
were compared, those after the decision included, under a prior that the policy froze.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from domain.policy import Numbers
from stats.counts.cell import Totals
from stats.decision.decision import Interval
from stats.decision.learned import chances
from stats.decision.surplus import Surplus
from stats.looks.trace import Batch
from stats.sequential.line import USUAL, Line
from stats.sequential.mixture import confidence_sequence


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """The posterior of a lift.

    Attributes:
        observed: The lift by the units alone, without the prior, relative to both arms.
        standard_deviation: Its standard deviation. No interval may be made of it: that of the
            effect is the confidence sequence.
        chances: The probabilities of a lift below 0, and of none at all.
        relative: The mean divided by control's level; None where that is 0, or the arms' means have
            not the same sign. Then `observed` is absolute.
    """

    observed: float
    observed_error: float
    estimate: float
    standard_deviation: float
    chances: tuple[float, float]
    relative: float | None


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect at a look, `as_of` in epoch seconds."""

    as_of: int
    units: int
    posterior: Posterior
    interval: Interval
    moved: bool = False


def effect_at(
    batch: Batch,
    row: int,
    policy: Numbers,
    *,
    is_rate: bool,
    interval: Interval | None = None,
    surplus: Surplus | None = None,
) -> Effect | None:
    """Returns the effect at a look of a batch; None where nothing was compared.

    Args:
        interval: The confidence sequence there; None where it is not known yet.
        surplus: At that look alone; None where no share is declared.
    """
    look = batch.trace[row : row + 1]
    lines = list[tuple[Line, float]]()
    if look.history is not None and look.history.is_asked[0]:
        lines.append((look.history.line, 0.0))
    if surplus is not None and surplus.is_asked[0]:
        lines.append((surplus.line, USUAL))
    posterior = posterior_of(look.totals, policy.effect_prior, is_rate=is_rate, lines=lines)
    if posterior is None:
        return None
    if interval is None:
        mixture = batch.mixture[row : row + 1]
        ends = (
            confidence_sequence(look.totals, mixture)
            if surplus is None
            else surplus.intervals(look.totals, mixture, look.history)
        )[0]
        low, high = (np.clip(ends, -1.0, 1.0) if is_rate else ends).tolist()
    else:
        low, high = interval
    estimate = posterior.estimate
    return Effect(
        as_of=int(look.at[0]),
        units=int(look.compared.units[0]),
        posterior=posterior,
        interval=(min(low, estimate), max(high, estimate)),
    )


def posterior_of(
    totals: Totals,
    prior: Sequence[tuple[float, float]],
    *,
    is_rate: bool,
    lines: Sequence[tuple[Line, float]] = (),
) -> Posterior | None:
    """Returns a look's posterior, None where W = 0 or V = 0 (docs/statistics.md, 'The effect').

    Of a rate the score drifts by θV, θ the log-odds lift: θ̂ = S/V with variance 1/V, and the lift
    is d = θV/W. It is relative to r₀ = Σw(m/n − d·n₁/n)/W, which both arms tell, since control's
    own rate is noisy at a first look. Of a mean or ratio θ is relative to the level of both arms:
    θ̂ = lift/ℓ with variance V/(Wℓ)².

    Args:
        prior: Standard deviations of θ around 0, each with its weight.
        lines: Those beside the test, each with how often the doubtful units do as usual: S and its
            variance are those of a mixture, over how much of it there is.
    """
    S, W, V, C = (float(part[0]) for part in (totals.S, totals.W, totals.V0, totals.C))
    if not (W > 0 and V > 0):
        return None
    scores, variances = totals.S, totals.V0
    for line, usual in lines:
        scores, variances = line.estimated(scores, variances, usual=usual)
    score, spread = float(scores[0]), float(variances[0])
    if is_rate:
        both, scale = float(totals.M[0]), V / W
        observed, variance = score / V, spread / V / V
        mean, deviation = _normal_posterior(observed, variance, prior)
        level = (both - mean * scale * float(totals.T[0])) / W
    else:
        both, scale = C + S / 2, float(totals.level[0])
        observed, variance = score / W / scale, (math.sqrt(spread) / (W * scale)) ** 2
        mean, deviation = _normal_posterior(observed, variance, prior)
        level = abs(both / W - mean * scale / 2) if C and C * (C + S) >= 0 else 0.0
    estimate, unit = mean * scale, abs(both) if level > 0 else W
    return Posterior(
        observed=score / unit,
        observed_error=math.sqrt(spread) / unit,
        estimate=estimate,
        standard_deviation=deviation * scale,
        chances=chances(observed, math.sqrt(variance), prior),
        relative=max(-1.0, estimate / level) if level > 0 else None,
    )


def _normal_posterior(
    observed: float, variance: float, prior: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Mean and standard deviation of θ, given an estimate with a normal error."""
    deviation, weight = np.array(prior, dtype=np.float64).T
    spread = deviation * deviation + variance
    log_weight = np.log(weight) - 0.5 * (np.log(spread) + observed * (observed / spread))
    share = np.exp(log_weight - np.logaddexp.reduce(log_weight))
    means = observed * (deviation * (deviation / spread))
    mean = float(share @ means)
    spreads = deviation * np.sqrt(variance / spread)
    return mean, math.hypot(*(np.sqrt(share) * np.hypot(spreads, means - mean)))
