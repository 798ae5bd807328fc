"""Changes that the service decides, through REST, with the numbers that it serves of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.world import at

A, BASE, SPREAD = "aaaaaaa1", 0.7, 0.1
HOUR, DAY = 60, 24 * 60
# The first day decides; then traffic goes on, thinner, past the week after any decision.
DAYS = 9
MOMENTS = (*range(0, DAY, HOUR), *range(DAY, DAYS * DAY, 4 * HOUR))


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change and the numbers that the service gives of it, relative to control's true rate.

    Attributes:
        truth: Its true effect.
        lift: The contract's; None of an abstention.
        basis: Of the effect as it is served at last.
        last: The effect as it is served at last.
        interval: Of the last.
    """

    truth: float
    lift: float | None
    basis: str
    last: float
    interval: tuple[float, float]

    @property
    def covered(self) -> bool:
        low, high = self.interval
        return low <= self.truth <= high


def canary(story: Any, truth: float, units: int, generator: Any) -> str:
    """A canary in an environment of its own, half and half; its deploy."""
    place, commit = f"shop-{story.units}", f"c{story.units:07x}"
    story.deploy(A, minutes=-DAY, environment=place)
    deploy = story.deploy(commit, minutes=0, base=A, allocation=0.5, environment=place)
    for moment in MOMENTS:
        for build, rate in ((A, BASE), (commit, min(BASE * (1 + truth), 1.0))):
            came = int(generator.poisson(units if moment < DAY else units / 8))
            # The event that exposes a unit may be its conversion too.
            for event in np.where(generator.random(came) < rate, "order", "page_view").tolist():
                story.units += 1
                session = {"session_id": f"s{story.units}", "commit": build, "environment": place}
                story.events.append({**session, "event": event, "occurred_at": at(moment)})
    story.send()
    return deploy["deploy_id"]


def answered(story: Any, experiment: str, truth: float) -> Change:
    contract = story.contract(experiment)
    effect = story.get(f"/v1/reward/{experiment}/effect").json()
    first = story.evidence(experiment)["effect"]
    assert contract["verdict"] in ("keep", "rollback", "abstain")
    assert first["basis"] == ("open" if contract["verdict"] == "abstain" else "at_decision")
    return Change(
        truth=truth,
        lift=None if contract["lift"] is None else contract["lift"] / BASE,
        basis=effect["basis"],
        last=effect["relative"],
        interval=(effect["interval"][0] / BASE, effect["interval"][1] / BASE),
    )


def of(story: Any, truths: Sequence[float], units: int, generator: Any) -> list[Change]:
    """The changes as the service answers them once all is over."""
    deploys = [canary(story, truth, units, generator) for truth in truths]
    experiments = [story.register(deploy_id=deploy) for deploy in deploys]
    # The second tick serves the follow-ups, which start once a decision is published.
    for days in (DAYS, DAYS + 1):
        story.tick(minutes=days * DAY)
    return [
        answered(story, experiment, truth)
        for experiment, truth in zip(experiments, truths, strict=True)
    ]
