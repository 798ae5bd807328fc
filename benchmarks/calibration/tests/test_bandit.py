"""Five simulated agents: how many changes a bandit needs until it knows whose are the best."""

import numpy as np
import pytest

from benchmarks.calibration.reward.bandit import (
    BEST,
    MERITS,
    POLICY,
    SPREAD,
    changes_needed,
    rewards,
)
from benchmarks.calibration.reward.population import population


@pytest.mark.calibration
@pytest.mark.timeout(3600)
def test_who_trains_on_the_effect_finds_the_best_agent_in_fewer_changes() -> None:
    rng = np.random.default_rng(4)
    changes = [
        list(population(rng.normal(merit, SPREAD, 600), POLICY, seed=1000 * number))
        for number, merit in enumerate(MERITS)
    ]
    answered = sum(each.lift is not None for agent in changes for each in agent)
    print(f"{answered} of {600 * len(MERITS)} have a contract's lift")  # noqa: T201
    pools = rewards(changes)
    needed = {
        name: changes_needed(pool, best=BEST, runs=1000, changes=600)
        for name, pool in pools.items()
    }
    for name, (median, ninth, ended) in needed.items():
        print(f"{name}: median {median:.0f}, nine in ten {ninth:.0f}, {ended:.3f} on the best")  # noqa: T201
    assert needed["effect"][0] < needed["lift"][0]
    assert needed["effect"][2] >= needed["lift"][2]
