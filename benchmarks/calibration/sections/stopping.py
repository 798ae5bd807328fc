"""Agents that stop their changes: what may be trained on, whoever stopped it and when."""

import numpy as np

from benchmarks.calibration.reward.population import FLEETS
from benchmarks.calibration.reward.reading import Reading
from benchmarks.calibration.reward.stopping import AGENTS, DAYS, LEARNED_FROM, Trained, lives
from benchmarks.calibration.sections.section import Run, Section
from stats.counts.cell import Floats

PARTS = 4
GROWN = "N(0, 3 %)"
TEXT = f"""
Fleets of changes at 5 %, half and half; `reward_at` is the day {DAYS}. An agent reads the effect of
each change and stops those that it likes, or gives back what looks bad. Beside the mean of all
effects by the fixed prior stands that by the prior which {LEARNED_FROM} other changes taught as the
agent stopped them (`learned`). A slope is that of the truth on the effects that are trainable (an
error of at most 5 %), and on their `learned`. Asked was a mean of 0 ± 0.2 % without effects, and a
slope of 1 ± 0.15.
"""
MEANS = ("stops at +1 %", "gives back at −1 %")
SLOPES = ("holds each to `reward_at`", "acts on each verdict at once", "stops at ±1 %, acts")
HEAD = (
    "| fleet, its mean | "
    + " | ".join([*(f"{agent}: means" for agent in MEANS), *(f"{one}: slopes" for one in SLOPES)])
    + " |",
    "| --- |" + " --- |" * (len(MEANS) + len(SLOPES)),
)


def stopping(run: Run) -> Section:
    table = [*HEAD]
    size = LEARNED_FROM * max(2, round(PARTS * run.scale))
    fleets = {**FLEETS, GROWN: _grown}
    for number, (name, draw) in enumerate(fleets.items()):
        run.say(f"stopping: {name}")
        truths = draw(np.random.default_rng(51 + number), size)
        fleet = list(lives(truths, seed=5 * 10**8 + number * 10**6))
        trained = {agent: Trained.of(fleet, AGENTS[agent]) for agent in (*MEANS, *SLOPES)}
        cells = [
            f"{name}, {100 * truths.mean():+.2f} %",
            *(_means(trained[agent]) for agent in MEANS),
            *(_slopes(trained[agent]) for agent in SLOPES),
        ]
        table.append(f"| {' | '.join(cells)} |")
    return Section(title="Agents that stop their changes", text=" ".join(TEXT.split()), after=table)


def _grown(generator: np.random.Generator, size: int) -> Floats:
    return generator.normal(0.0, 0.03, size)


def _means(trained: Trained) -> str:
    """The mean of all effects by the fixed prior, and by the learned prior with its error."""
    error = trained.learned.std() / trained.truth.size**0.5
    return (
        f"{100 * trained.served.mean():+.2f} %,"
        f" {100 * trained.learned.mean():+.2f} ± {100 * error:.2f} %"
    )


def _slopes(trained: Trained) -> str:
    """The slope of the truth on the trainable effects, and on their learned effects."""
    precise = trained.precise
    if precise.sum() < 3 or trained.truth.std() == 0:
        return "–"
    truth = trained.truth[precise].tolist()
    readings = [
        Reading.of(zip(numbers[precise].tolist(), truth, strict=True))
        for numbers in (trained.served, trained.learned)
    ]
    return ", ".join(f"{reading.slope:.2f} ± {reading.error:.2f}" for reading in readings)
