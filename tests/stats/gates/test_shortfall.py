"""The shortfall: a share that fell differs from a share that never was the declared share."""

from typing import Any

import numpy as np
import pytest

from stats.counts.arrivals import Arrivals, Epoch
from stats.gates.sample_ratio import sample_ratio
from stats.gates.shortfall import Shortfall, shortfall

BLOCK, GRACE = 300, 120
Counts = list[tuple[int, int]]


def last(counts: Counts, *epochs: Epoch) -> Shortfall:
    """The shortfall at the closing of the last block, breached at the first."""
    treatment, others = np.array(counts, dtype=np.int64).T
    block = np.arange(len(counts), dtype=np.int64) * BLOCK
    at = block + BLOCK + GRACE
    return shortfall(
        epochs or (Epoch(start=0, end=None, share=0.5),),
        Arrivals(block=block, treatment=treatment, others=others),
        at=at,
        block_seconds=BLOCK,
        grace_seconds=GRACE,
        breached_at=int(at[0]),
    )


def drawn(seed: int, shares: list[float], units: int = 100) -> Counts:
    rng = np.random.default_rng(seed)
    treated = rng.binomial(units, shares)
    return [(int(arrived), units - int(arrived)) for arrived in treated]


def test_a_fall_is_remembered_though_the_share_comes_back() -> None:
    counts = drawn(1, [0.5] * 20 + [0.1] * 10 + [0.5] * 200)
    assert last(counts[:30]).fell
    assert last(counts).fell


def test_what_hardly_arrives_is_no_mis_set_weight_but_what_is_sent_nowhere_is() -> None:
    assert not last([(4, 96)] * 10).steady
    assert last([(6, 94)] * 10).steady
    assert last([(0, 100)] * 10).steady
    assert not last([(50, 50)] * 10 + [(0, 100)] * 10).steady


def test_a_declared_step_of_the_share_is_no_fall() -> None:
    step = 60 * BLOCK
    epochs = (Epoch(start=0, end=step, share=0.5), Epoch(start=step, end=None, share=0.1))
    seen = last(drawn(1, [0.35] * 60 + [0.07] * 60), *epochs)
    assert seen.steady
    assert (seen.declared, seen.actual) == (0.5, pytest.approx(0.35, abs=0.02))


def test_where_no_unit_came_nothing_fell() -> None:
    assert last([(0, 0)] * 5 + [(1, 3)]) == Shortfall(declared=0.5, actual=0.25, fell=False)


@pytest.mark.calibration
def test_a_steady_ratio_is_hardly_ever_called_a_fall() -> None:
    """28 days of looks at each block, a mis-set weight: at most 2 % are ever called a fall."""
    epochs = (Epoch(start=0, end=None, share=0.5),)
    called, runs = 0, 200
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        block = np.arange(28 * 288, dtype=np.int64) * BLOCK
        units = rng.poisson(24_000 / 288 * (1 + 0.5 * np.sin(block / 86_400 * 2 * np.pi)))
        treated = rng.binomial(units, 0.35)
        arrivals = Arrivals(block=block, treatment=treated, others=units - treated)
        at = block + BLOCK + GRACE
        read: dict[str, Any] = {"at": at, "block_seconds": BLOCK, "grace_seconds": GRACE}
        ratio = sample_ratio(epochs, arrivals, **read)
        breached_at = int(at[np.flatnonzero(ratio.log_too_few >= np.log(1000))[0]])
        called += bool(shortfall(epochs, arrivals, **read, breached_at=breached_at).fell)
    assert called <= 0.02 * runs, called
