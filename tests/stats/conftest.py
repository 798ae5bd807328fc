"""The makers of series that the statistics' tests share."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from domain.policy import Numbers
from stats.counts.closed_cells import ClosedCells, Values
from stats.decision.evidence import Evidence
from stats.looks.series import Guardrail, Margin, Series

Row = tuple[int, ...]
BLOCK = 300


def make_series(
    rows: Iterable[Row],
    *,
    policy: Numbers | None = None,
    start: int = 0,
    as_of: int = 10**10,
    closed_at: int | None = None,
    cuts: tuple[int, ...] = (),
    values: Values | None = None,
    **read: Any,
) -> Series:
    """A series of (block, stratum, n1, x1, n0, x0), where block counts blocks from the epoch."""
    policy = policy or Numbers()
    columns = np.array(list(rows), dtype=np.int64).reshape(-1, 6).T
    block, stratum, n1, x1, n0, x0 = np.ascontiguousarray(columns)
    return Series(
        policy=policy,
        start=start,
        as_of=as_of,
        closed_at=closed_at,
        cuts=cuts,
        target=ClosedCells(
            block=block * policy.block_seconds,
            stratum=stratum,
            n1=n1,
            x1=x1,
            n0=n0,
            x0=x0,
            values=values,
        ),
        **read,
    )


def make_guardrail(
    rows: Iterable[Row],
    *,
    name: str = "error",
    better: str = "lower",
    window_seconds: int = BLOCK,
    margin: Margin = "default",
) -> Guardrail:
    """A guardrail of the same rows (block, stratum, n1, x1, n0, x0)."""
    columns = np.array(list(rows), dtype=np.int64).reshape(-1, 6).T
    block, stratum, n1, x1, n0, x0 = np.ascontiguousarray(columns)
    cells = ClosedCells(block=block * BLOCK, stratum=stratum, n1=n1, x1=x1, n0=n0, x0=x0)
    return Guardrail(
        name=name, better=better, window_seconds=window_seconds, margin=margin, cells=cells
    )


def look_times(evidence: Evidence) -> list[int]:
    """When each served look was, epoch seconds."""
    return [int(look.at.timestamp()) for look in evidence.looks]


def plain_e_value(treatment: tuple[int, int], control: tuple[int, int], *, cells: int = 1) -> float:
    """E(0) of cells that are alike, of units and conversions of either arm."""
    (n1, x1), (n0, x0) = treatment, control
    n, m = n1 + n0, x1 + x0
    S = cells * (x1 * n0 - x0 * n1) / n
    V = cells * n1 * n0 / n * m * (n - m) / (n * (n - 1))
    parts = [math.sqrt(r / (r + V)) * math.exp(S * S / (2 * (r + V))) for r in (25.0, 4.0)]
    return sum(parts) / 2


@pytest.fixture(scope="session")
def series() -> Callable[..., Series]:
    return make_series


@pytest.fixture(scope="session")
def guardrail() -> Callable[..., Guardrail]:
    return make_guardrail
