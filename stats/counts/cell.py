"""Cells: the counts of an analysis block and stratum, and the sums that the test reads."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stats.counts.columns import Columns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = Ints | Floats

TERMS = 8
# Smallest level, in a unit's standard deviations, that a relative effect is divided by.
LEAST_LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class ArmCounts:
    """Units n of treatment (1) and control (0), x with the event; arrays of equal length."""

    n1: Ints
    x1: Ints
    n0: Ints
    x0: Ints


@dataclass(frozen=True, kw_only=True)
class Totals(Columns):
    """Sums over cells; arrays of the same shape, an entry a look.

    Attributes:
        S: Σ s, the score: treatment's conversions beyond their expectation under no effect.
        W: Σ w, the Mantel-Haenszel weight: the information in the contrasts.
        V0: Σ v₀, the variance of S under no effect.
        Q: Σ Q of Sato's variance.
        P: Σ P of Sato's variance.
        C: Σ x₀n₁/n, control's conversions at treatment's mix of cells.
        M: Σ w·m/n, the conversions of both arms at the weights of the lift.
        T: Σ w·n₁/n, treatment's share at these weights.
    """

    S: Floats
    W: Floats
    V0: Floats
    Q: Floats
    P: Floats
    C: Floats
    M: Floats
    T: Floats

    @classmethod
    def of(cls, n1: Ints, x1: Ints, n0: Ints, x0: Ints) -> Self:
        """The totals of all the given cells, an entry a cell, as arrays of length 1."""
        return cls.from_rows(np.cumsum(terms(n1, x1, n0, x0), axis=1)[:, -1:])

    @classmethod
    def from_rows(cls, rows: Floats) -> Self:
        """The totals whose members are the rows of an array (8, looks), in their order."""
        S, W, V0, Q, P, C, M, T = rows
        return cls(S=S, W=W, V0=V0, Q=Q, P=P, C=C, M=M, T=T)

    def gathered(self, rows: Ints) -> Self:
        """The totals of the given rows; of a row −1, those before any cell."""
        columns = (self.S, self.W, self.V0, self.Q, self.P, self.C, self.M, self.T)
        return self.from_rows(np.stack([np.append(column, 0.0)[rows] for column in columns]))

    def plus(self, other: Self) -> Self:
        """The totals of the cells of both."""
        return type(self)(**{name: own + vars(other)[name] for name, own in vars(self).items()})

    @property
    def lift(self) -> Floats:
        """Treatment's rate minus control's, S/W; NaN where W = 0."""
        return _ratio(self.S, self.W)

    @property
    def control_rate(self) -> Floats:
        """Control's rate at the weights of the lift, Σ(x₀n₁/n)/W; NaN where W = 0."""
        return _ratio(self.C, self.W)

    @property
    def level(self) -> Floats:
        """The size of the mean or ratio that both arms show, at least σ/20 with σ² = V/W.

        It is what a difference is relative to; 0 where W = 0.
        """
        floor = LEAST_LEVEL * (np.sqrt(self.V0) * np.sqrt(self.W))
        both = np.maximum(np.abs(self.C + self.S / 2), floor)
        return np.divide(both, self.W, out=np.zeros_like(both), where=self.W > 0)

    def sato_variance(self, lift: Floats) -> Floats:
        """V₁ = lift·ΣP + ΣQ, the variance of S at the measured lift (Sato, Biometrics 45, 1989)."""
        return lift * self.P + self.Q


def terms(n1: Counts, x1: Counts, n0: Counts, x0: Counts) -> Floats:
    """Computes the terms that each cell adds to the totals, in their order: an array (8, cells).

    A cell with a single arm adds nothing: every term has a factor of the absent arm.
    s, w: Mantel & Haenszel, JNCI 22 (1959). v₀: the hypergeometric variance. Q, P: Sato (1989).
    """
    t, c = n1.astype(np.float64), n0.astype(np.float64)
    a, b = x1.astype(np.float64), x0.astype(np.float64)
    m = a + b
    n = np.maximum(t + c, 1.0)
    w = t * c / n
    columns = np.empty((TERMS, n.size))
    columns[0] = (a * c - b * t) / n
    columns[1] = w
    columns[2] = w * m * (n - m) / np.maximum(n * (n - 1.0), 1.0)
    columns[3] = (a * (c - b) + b * (t - a)) / (2.0 * n)
    columns[4] = (t * t * b - c * c * a + t * c * (c - t) / 2.0) / (n * n)
    columns[5] = b * t / n
    columns[6] = w * m / n
    columns[7] = w * t / n
    return columns


def number_or_none(value: float) -> float | None:
    """A number as Python's float; None for NaN, which stands for 'cannot say'."""
    return None if math.isnan(value) else float(value)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    missing = np.full(denominator.shape, np.nan)
    return np.divide(numerator, denominator, out=missing, where=denominator > 0)
