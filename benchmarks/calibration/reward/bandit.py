"""A bandit that chooses whose change comes next: how many changes it needs to know the best."""

from collections.abc import Mapping

import numpy as np

from benchmarks.calibration.reward.population import Change
from domain.metric import DAY
from domain.policy import Numbers
from stats.counts.cell import Floats

MERITS = (-0.02, 0.0, 0.01, 0.02, 0.05)
SPREAD = 0.05
BEST = len(MERITS) - 1
POLICY = Numbers(horizon_seconds=3 * DAY)


def rewards(changes: list[list[Change]]) -> Mapping[str, Floats]:
    """By name what each change of each agent is paid, (agents, changes)."""
    return {
        "effect": np.array([[each.served for each in agent] for agent in changes]),
        # Of an abstention the contract has none: nothing was earned.
        "lift": np.array([[each.lift or 0.0 for each in agent] for agent in changes]),
        "truth": np.array([[each.truth for each in agent] for agent in changes]),
    }


def leaders(pool: Floats, rng: np.random.Generator, *, changes: int) -> Floats:
    """Thompson sampling on normal means: which agent has the best mean after each change."""
    agents, size = pool.shape
    counts, sums, squares = np.zeros(agents), np.zeros(agents), np.zeros(agents)
    leading = np.zeros(changes)
    for step in range(changes):
        if step < 2 * agents:
            agent = step % agents
        else:
            mean = sums / counts
            spread = np.sqrt(max((squares - counts * mean**2).sum() / (step - agents), 1e-12))
            agent = int(np.argmax(rng.normal(mean, spread / np.sqrt(counts))))
        reward = pool[agent, rng.integers(size)]
        counts[agent] += 1
        sums[agent] += reward
        squares[agent] += reward**2
        leading[step] = np.argmax(np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf))
    return leading


def changes_needed(
    pool: Floats, *, best: int, runs: int, changes: int
) -> tuple[float, float, float]:
    """The median, and nine in ten: after so many the best agent leads for good; and who chose well.

    Returns:
        Median and ninth decile of the changes, and the share of runs that end on the best agent.
    """
    needed = np.full(runs, np.inf)
    for run in range(runs):
        leading = leaders(pool, np.random.default_rng(run), changes=changes)
        wrong = np.flatnonzero(leading != best)
        if not wrong.size or wrong[-1] < changes - 1:
            needed[run] = wrong[-1] + 2 if wrong.size else 1
    ended = float(np.isfinite(needed).mean())
    median, ninth = np.quantile(needed, [0.5, 0.9], method="lower")
    return float(median), float(ninth), ended
