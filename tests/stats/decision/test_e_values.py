"""E of every look of random worlds, beside a second reckoning of the lines in plain Python."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from domain.policy import Numbers
from stats.counts.arrivals import Epoch
from stats.counts.closed_cells import Adjusted, ClosedCells, Pairs, Values
from stats.decision.evidence import evaluate
from stats.looks.series import Series
from tests.oracle.e_values import reckoned_at
from tests.repetition import times

BLOCK, CLOSES = 300, 2220
KINDS = ("conversion", "mean", "adjusted", "ratio")


def world(rng: np.random.Generator, kind: str) -> tuple[list[dict[str, float]], Mapping[int, Any]]:
    """Cells of up to three strata, in which an arm may have more units or lose its histories."""
    strata, blocks = int(rng.integers(1, 4)), int(rng.integers(15, 60))
    turn = int(rng.integers(1, blocks)) * BLOCK
    epochs = dict[int, Any]()
    empty, lost, lift = rng.choice([0, 0.05, 0.3]), rng.choice([0, 0.1, 0.4]), rng.choice([0, 0.2])
    cells = list[dict[str, float]]()
    for stratum in range(strata):
        shares, base = rng.choice([0.1, 0.5, 0.9], 2), rng.choice([0.05, 0.4, 0.8])
        if rng.random() < 0.8:
            epochs[stratum] = [(0, turn, shares[0]), (turn, None, shares[1])]
        for block in range(blocks):
            share = shares[int(block * BLOCK >= turn)]
            users = int(rng.choice([0, 1, 20, 90]))
            treated = rng.random(users) < share
            treated = np.append(treated, np.ones(rng.poisson(empty * share * users)) > 0)
            real = np.arange(treated.size) < users
            history = rng.lognormal(0, 1, treated.size) * (rng.random(treated.size) < 0.7)
            rate = np.clip(base * (1 + lift * treated), 0, 1)
            events = rng.poisson(2, treated.size) + 1.0 if kind == "ratio" else history
            y = (rng.random(treated.size) < rate) * real
            if kind == "ratio":
                y = rng.binomial(events.astype(int), rate) * real
            elif kind != "conversion":
                y = y * rng.lognormal(0, 0.5, treated.size) + 0.5 * history * real
            seen = np.where(treated & (rng.random(treated.size) < lost), 0.0, events)
            d = events if kind == "ratio" else seen
            cell = {"block": float(block * BLOCK), "stratum": float(stratum)}
            columns = {"n": y**0, "x": y > 0, "y": y, "yy": y * y}
            columns |= {"d": d, "dd": d * d, "yd": y * d, "h": d > 0}
            for arm, own in (("1", treated), ("0", ~treated)):
                cell |= {f"{name}{arm}": float(part[own].sum()) for name, part in columns.items()}
            if cell["n1"] + cell["n0"]:
                cells.append(cell)
    return sorted(cells, key=lambda cell: (cell["block"], cell["stratum"])), epochs


def series_of(cells: list[dict[str, float]], epochs: Mapping[int, Any], kind: str) -> Series:
    """The same cells as the engine reads them, each an analysis block of its own."""
    columns = {name: np.array([cell[name] for cell in cells]) for name in cells[0]}
    whole = {name: columns.pop(name).astype(np.int64) for name in ("block", "stratum")}
    whole |= {name: columns[name].astype(np.int64) for name in ("n1", "n0", "x1", "x0")}
    sums = {"conversion": None, "mean": Values, "adjusted": Adjusted, "ratio": Pairs}[kind]
    values = sums and sums(**{name: columns[name] for name in sums.__dataclass_fields__})
    last = int(whole["block"].max())
    return Series(
        policy=Numbers(),
        start=0,
        as_of=last + 10 * CLOSES,
        closed_at=None,
        cuts=tuple(range(0, last + 2 * BLOCK, BLOCK)),
        target=ClosedCells(values=values, **whole),
        stratum_shares={
            stratum: tuple(Epoch(start=start, end=end, share=share) for start, end, share in own)
            for stratum, own in epochs.items()
        },
    )


@times(gate=6, nightly=40, deep=600)
def test_e_and_the_likelihood_of_every_look_are_those_of_the_pages(times) -> None:
    looks = lines = 0
    for number in range(times):
        rng, kind = np.random.default_rng(7000 + number), KINDS[number % 4]
        cells, epochs = world(rng, kind)
        series = series_of(cells, epochs, kind)
        (evidence,) = evaluate([series])
        reckoned = None
        for look in evidence.looks:
            at = int(look.at.timestamp())
            closed = [cell for cell in cells if cell["block"] + CLOSES <= at]
            rho = series.policy.rho
            reckoned = reckoned_at(
                closed, kind=kind, rho=rho, epochs=epochs, size=BLOCK, closes=CLOSES
            )
            log_e = 0.0 if reckoned is None else reckoned.log_e
            assert math.log(look.e_value) == pytest.approx(log_e, rel=1e-9, abs=1e-9), number
            looks += 1
        effect = evidence.effect
        if effect is not None and reckoned is not None and not effect.moved:
            z = effect.posterior.observed / effect.posterior.observed_error
            assert z == pytest.approx(reckoned.likelihood, rel=1e-9), number
        lines += evidence.surplus is not None
    assert looks > 15 * times
    assert lines > times / 3


def test_declared_cells_without_a_test_yet_exclude_nothing() -> None:
    """A ratio whose declared cells have 60 users of control beside enough in all: it raised."""
    cells, epochs = world(np.random.default_rng(7159), "ratio")
    (evidence,) = evaluate([series_of(cells, epochs, "ratio")])
    assert evidence.candidate is not None
    low, high = evidence.candidate.ci
    assert low <= 0 < high
