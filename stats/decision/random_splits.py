"""Random splits: how often the test answers where units of an arm are split by lot."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from scipy.special import betaincinv

from domain.policy import Numbers
from stats.counts.cell import Floats, Ints
from stats.counts.closed_cells import ClosedCells, Values
from stats.decision.evidence import evaluate
from stats.looks.series import Series

SPLITS = 200
_AT_ONCE = 25


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The outcomes of the units of an arm, in the order of their blocks.

    Attributes:
        policy: The numbers of the test, with the metric's window and direction.
        block: The start of the block of each unit's exposure, seconds since the epoch.
        converted: 1 for each unit that converted.
        amount: Of a mean what each unit comes to; None of a conversion.
    """

    policy: Numbers
    block: Ints
    converted: Ints
    amount: Floats | None = None


def lots(names: Sequence[str], salt: str) -> NDArray[np.bool_]:
    """Returns which names are in treatment, a row a name and a column a split.

    A split is a bit of the published hash, SHA-256 of `SALT:NAME`.
    """
    digests = b"".join(hashlib.sha256(f"{salt}:{name}".encode()).digest() for name in names)
    octets = np.frombuffer(digests, dtype=np.uint8).reshape(len(names), -1)
    return np.unpackbits(octets, axis=1)[:, :SPLITS].astype(np.bool_)


def answers(outcomes: Outcomes, treated: NDArray[np.bool_]) -> int:
    """Returns in how many splits the test finds an effect, which is none of the build's.

    Args:
        treated: As from `lots`, a row a unit.
    """
    begins = np.flatnonzero(np.diff(outcomes.block, prepend=-1))
    block = outcomes.block[begins]
    units, converted = (
        _sums(column, treated, begins)
        for column in (np.ones_like(outcomes.block), outcomes.converted)
    )
    amounts = None
    if outcomes.amount is not None:
        amounts = tuple(_sums(outcomes.amount**power, treated, begins) for power in (1, 2))

    def cells(split: int) -> ClosedCells:
        (x1, x0), (n1, n0) = ((arm[:, split] for arm in each) for each in (converted, units))
        values = None
        if amounts is not None:
            (y1, y0), (yy1, yy0) = ((arm[:, split] for arm in each) for each in amounts)
            values = Values(y1=y1, yy1=yy1, y0=y0, yy0=yy0)
        stratum = np.zeros_like(block)
        return ClosedCells(block=block, stratum=stratum, n1=n1, x1=x1, n0=n0, x0=x0, values=values)

    policy = structs.replace(outcomes.policy, attempt=1, keep_when="alone")
    last = int(block[-1]) + 2 * policy.block_seconds + policy.window_seconds + policy.grace_seconds
    series = Series(
        policy=structs.replace(policy, horizon_seconds=last - int(block[0])),
        start=int(block[0]),
        as_of=last,
        closed_at=None,
        cuts=(),
        target=cells(0),
    )
    each = [replace(series, target=cells(split)) for split in range(SPLITS)]
    return sum(
        evidence.decision.verdict != "abstain"
        for first in range(0, SPLITS, _AT_ONCE)
        for evidence in evaluate(each[first : first + _AT_ONCE])
    )


def _sums(
    column: NDArray[np.number[Any]], treated: NDArray[np.bool_], begins: NDArray[np.intp]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the sums of each block, a column a split: of treatment and of control."""
    of_treatment, of_control = (
        np.add.reduceat(column[:, np.newaxis] * arm, begins, axis=0) for arm in (treated, ~treated)
    )
    return of_treatment, of_control


def exact_interval(hits: int, count: int, sure: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval of a share (Clopper & Pearson, Biometrika 26, 1934)."""
    tail = (1 - sure) / 2
    low = float(betaincinv(hits, count - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 1 - tail)) if hits < count else 1.0
    return low, high


def worst(outcomes: Outcomes, cluster: Ints) -> int:
    """Returns the cluster whose units differ most from the others, in standard errors."""
    value = outcomes.converted if outcomes.amount is None else outcomes.amount
    count, total = np.bincount(cluster), np.bincount(cluster, weights=value)
    spread = max(float(np.var(value)), 1e-300)
    other = np.maximum(value.size - count, 1)
    difference = total / np.maximum(count, 1) - (float(value.sum()) - total) / other
    return int(np.argmax(np.abs(difference) / np.sqrt(spread / np.maximum(count, 1))))
