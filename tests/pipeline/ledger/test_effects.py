"""Changes with effects from N(0, 10 %) through the service: its effects are the engine's."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.calibration.reward.population import drawn
from stats.counts.closed_cells import ClosedCells
from stats.decision.evidence import evaluate
from stats.looks.policy import Policy

A, BASE, HOURS = "aaaaaaa1", 0.3, 4


def served(
    story: Any, number: int, truth: float, units: int, generator: np.random.Generator
) -> str:
    """A canary of some hours in an environment of its own; its deploy."""
    place, commit = f"shop-{number}", f"c{number:07x}"
    story.deploy(A, minutes=-1440, environment=place)
    deploy = story.deploy(commit, minutes=0, base=A, allocation=0.5, environment=place)
    for hour in range(HOURS):
        for build, rate in ((A, BASE), (commit, BASE * (1 + truth))):
            came = int(generator.poisson(units))
            story.units_of(
                build,
                minutes=60 * hour,
                units=came,
                converting=int(generator.binomial(came, rate)),
                environment=place,
            )
    return deploy["deploy_id"]


@pytest.mark.parametrize(
    ("count", "units"),
    [
        pytest.param(6, 60, id="small"),
        pytest.param(
            100, 400, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]
        ),
    ],
)
def test_the_served_effect_is_the_engine_s_for_each_of_many_changes(
    story, count: int, units: int
) -> None:
    generator = np.random.default_rng(16)
    truths = generator.normal(0.0, 0.1, count).tolist()
    deploys = [served(story, i, truth, units, generator) for i, truth in enumerate(truths)]
    story.send()
    experiments = [story.register(deploy_id=deploy) for deploy in deploys]
    story.tick(minutes=60 * (HOURS + 2))
    effects: list[float] = []
    for experiment in experiments:
        effect = story.get(f"/v1/reward/{experiment}/effect").json()
        rows = np.array([row[:1] + row[2:] for row in story.cells(experiment)])
        minutes, n1, x1, n0, x0 = rows.T
        series = replace(
            drawn(0, 0.0, Policy(), days=1),
            as_of=3600 * (HOURS + 2),
            target=ClosedCells(block=60 * minutes, stratum=0 * minutes, n1=n1, x1=x1, n0=n0, x0=x0),
        )
        (evidence,) = evaluate([series])
        assert evidence.effect is not None
        assert effect["estimate"] == pytest.approx(evidence.effect.posterior.estimate, rel=1e-9)
        effects.append(effect["estimate"] / BASE)
    if count > 50:
        (slope, _), cov = np.polyfit(effects, truths, 1, cov=True)
        print(f"{count} changes through the service: slope {slope:.3f} ± {cov[0, 0] ** 0.5:.3f}")  # noqa: T201
