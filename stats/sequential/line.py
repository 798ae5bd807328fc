"""The line: the mixture beside units of a single arm, by how many nobody declared."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stats.counts.cell import Floats, Totals
from stats.counts.columns import Columns, Rows
from stats.sequential.boundary import last_inside, widened
from stats.sequential.mixture import TOLERANCE, log_component, log_mean, variance_at

# How far the arms' units may be from what is declared, standard deviations with their weights.
SURPLUSES = ((0.0025, 0.1), (0.01, 0.3), (0.05, 0.4), (0.2, 0.2))
HEAVIEST = 0.05
# The effect's interval has to hold the truth: its weights are heavier beyond the ordinary. Surplus
# units convert as others do with the probability USUAL.
OF_EFFECT = ((0.0025, 0.02), (0.01, 0.12), (0.05, 0.46), (0.2, 0.4))
USUAL = 0.15
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
Component = Callable[[Floats, Floats, Floats], Floats]


@dataclass(frozen=True, kw_only=True)
class Line(Columns):
    """The sums that the line reads, an entry a look.

    Attributes:
        rho: Precisions (looks, components).
        totals: Of the cells whose share is declared.
        surplus: S_n, treatment's units beyond its share, with their variance I.
        moved: A, by how much S is moved where they have no outcome; B its variance by chance.
    """

    rho: Floats
    totals: Totals
    surplus: Floats
    information: Floats
    moved: Floats
    spread: Floats

    def log_e(self, component: Component = log_component) -> Floats:
        """The logarithm of E_line; 0 where S* of the heaviest weight is not of the sign of S."""
        S, V = self.totals.S, self.totals.V0
        known = (V > 0) & (self.information > 0)
        agrees = (S - self.doubt(HEAVIEST) * self.moved) * S > 0
        return np.where(known & agrees, self.log_ratio(S, V, component), 0.0)

    def log_ratio(
        self, score: Floats, variance: Floats, component: Component = log_component
    ) -> Floats:
        """Logarithm of the likelihood ratio under a common prior of the surplus on both sides.

        With κ = 1/(1 + τ²I): S* = S − (1 − κ)A, V* = V + (1 − κ)B, the mixture on S*V/V* with
        variance V²/V*, at the weights w·N(S_n; 0, I(1 + τ²I))·N(S*; 0, V*).
        """
        V, weights, ratios = np.where(variance > 0, variance, 1.0), list[Floats](), list[Floats]()
        for doubt, log_weight in self.priors():
            own, of_own = score - doubt * self.moved, V + doubt * self.spread
            share = V / of_own
            weights.append(log_weight + _log_normal(own, of_own))
            ratios.append(
                weights[-1]
                + log_mean(self.rho, lambda each, x=own * share, v=V * share: component(x, v, each))
            )
        return np.logaddexp.reduce(ratios) - np.logaddexp.reduce(weights)

    def hull(self, ends: Floats, log_threshold: Floats, *, holds: Flags) -> Floats:
        """Both ends of the interval around the test's set and {δ : E_line(δ) < 1/α} at each look.

        Args:
            ends: Of the test's set (looks, 2).
            holds: Whether both reach the threshold on the same side: exactly then 0 is outside.
        """
        looks = holds.size
        both = np.tile(np.arange(looks), 2)
        own, sure, towards = self[both], holds[both], np.repeat((-1.0, 1.0), looks)
        first, step = ends.T.ravel(), towards * (ends[:, 1] - ends[:, 0])[both] / 2
        lift, limit = own.totals.lift, log_threshold[both]

        def excess(delta: Floats, rows: Rows) -> Floats:
            part = own[rows]
            variance = variance_at(part.totals, lift[rows], delta)
            return part.log_ratio(part.totals.S - delta * part.totals.W, variance) - limit[rows]

        inside, reached = first, excess(first, slice(None)) < 0
        centres = [lift - doubt * own.moved / own.totals.W for doubt, _ in own.priors()]
        for centre in (*centres, np.zeros_like(lift)):
            further = ((centre - inside) * towards > 0) & ~(sure & (centre * first <= 0))
            further &= excess(centre, slice(None)) < 0
            inside, reached = np.where(further, centre, inside), reached | further
        stop = sure & (first * towards < 0)
        outside = np.where(stop, 0.0, inside + step)
        inside, outside = widened(inside, outside, reached & ~stop, excess)
        outside = np.where(reached, outside, inside)
        tolerance = TOLERANCE * np.abs(step) + 4.0 * np.finfo(np.float64).eps * np.abs(lift)
        low, high = last_inside(inside, outside, tolerance, excess).reshape(2, looks)
        return np.stack(
            (np.where(holds, low, np.minimum(low, 0)), np.where(holds, high, np.maximum(high, 0))),
            axis=1,
        )

    def estimated(
        self, score: Floats, variance: Floats, *, usual: float = USUAL
    ) -> tuple[Floats, Floats]:
        """Mean and variance of S where surplus units do nothing, or, so often, do as usual."""
        priors = self.priors(OF_EFFECT)
        doubts, log_weights = (np.array(column) for column in zip(*priors, strict=True))
        empty = (1 - usual) * np.exp(log_weights - np.logaddexp.reduce(log_weights))
        mean = score - np.sum(empty * doubts * self.moved, axis=0)
        apart = (score - doubts * self.moved - mean) ** 2 + doubts * self.spread
        return mean, variance + np.sum(empty * apart, axis=0) + usual * (score - mean) ** 2

    def doubt(self, deviation: float) -> Floats:
        """1 − κ, how much of what units may have moved is taken off."""
        return 1 - 1 / (1 + deviation**2 * self.information)

    def priors(
        self, weights: Sequence[tuple[float, float]] = SURPLUSES
    ) -> Iterator[tuple[Floats, Floats]]:
        """Yields 1 − κ of each prior of the surplus, and the logarithm of w·N(S_n; 0, I/κ)."""
        units = np.where(self.information > 0, self.information, 1.0)
        for deviation, weight in weights:
            spread = units * (1 + deviation**2 * units)
            yield self.doubt(deviation), np.log(weight) + _log_normal(self.surplus, spread)


@dataclass(frozen=True, kw_only=True)
class LineGuard(Columns):
    """The line beside a test that it guards, an entry a look.

    Attributes:
        log_e: Of the line; 0 where it says nothing.
        is_asked: Whether an answer needs it.
    """

    log_e: Floats
    line: Line
    is_asked: Flags

    def guarded(self, log_e: Floats) -> Floats:
        """The logarithm of E: the smaller of the test's e-process and the line's, where asked."""
        return np.where(self.is_asked, np.minimum(log_e, self.log_e), log_e)

    def hull(self, ends: Floats, log_threshold: Floats, *, holds: Flags) -> Floats:
        """The hull of given intervals and the line's set, where it is asked; see `Line.hull`."""
        compared = self.line.totals.W > 0
        # Where it has no test yet it excludes nothing.
        wider, blind = ends.copy(), self.is_asked & ~compared
        wider[blind] = np.stack((ends.min(axis=1, initial=0), ends.max(axis=1, initial=0)), 1)[
            blind
        ]
        asked = np.flatnonzero(self.is_asked & compared)
        own, limit = self.line[asked], log_threshold[asked]
        wider[asked] = own.hull(ends[asked], limit, holds=holds[asked])
        return wider

    def excludes(self, bound: Floats, log_threshold: float) -> Flags:
        """Whether the line's set lies between ± a bound at each look; true where none is asked."""
        asked, inside = np.flatnonzero(self.is_asked), np.ones(bound.size, dtype=np.bool_)
        own, limit = self.line[asked], bound[asked]
        sums, excluded = own.totals, own.totals.W > 0
        for doubt, _ in own.priors():
            excluded &= np.abs(sums.S - doubt * own.moved) < limit * sums.W
        for end in (limit, -limit):
            variance = variance_at(sums, sums.lift, end)
            excluded &= own.log_ratio(sums.S - end * sums.W, variance) >= log_threshold
        inside[asked] = excluded
        return inside


def _log_normal(value: Floats, variance: Floats) -> Floats:
    """Logarithm of the density of N(0, variance), without its constant."""
    standard = value / np.sqrt(variance)
    return -0.5 * (np.log(variance) + standard * standard)
