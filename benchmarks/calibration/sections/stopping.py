"""Agents that stop their changes: what may be trained on, whoever stopped it and when."""

import numpy as np

from benchmarks.calibration.reward.population import FLEETS, UNITS_A_DAY
from benchmarks.calibration.reward.reading import Reading
from benchmarks.calibration.reward.stopping import AGENTS, DAYS, LEARNED_FROM, Trained, lives
from benchmarks.calibration.sections.section import Run, Section
from stats.counts.cell import Floats

PARTS = 4
GROWN = "N(0, 3 %)"
TEXT = f"""
Fleets of changes, {UNITS_A_DAY:,} units a day at 5 %, half and half, as above; `reward_at` is the
day {DAYS}. An agent reads the effect of each change, stops those that it likes, or gives back what
looks bad. Beside the mean of all posterior means by the fixed prior stands that by the prior that
{LEARNED_FROM} other changes of the fleet taught as the agent stopped them (`learned`); the
likelihood of each change is trained on. Of the effect those are trainable whose likelihood has an
error of at most 5 %: slope of the truth on it, and on `learned` of the same changes.
"""
HEAD = (
    "mean of all effects | of all `learned` | trainable | slope, error | slope of `learned`, error"
    " | below −20 % trained on, by likelihood and effect |"
)
READ = """
Asked was a mean of 0 ± 0.2 % without effects, and a slope of 1 ± 0.15. By the fixed prior an agent
that stops at a good moment is paid up to 1.1 % for changes that do nothing; by the learned prior it
is paid nothing. A slope among changes that were all stopped before they reached 1 or 3 % says
little, since nothing beyond is left. A prior around 0 is too mild where most changes harm.
"""


def stopping(run: Run) -> Section:
    after: list[str] = []
    size = LEARNED_FROM * max(2, round(PARTS * run.scale))
    fleets = {**FLEETS, GROWN: _grown}
    for number, (name, draw) in enumerate(fleets.items()):
        run.say(f"stopping: {name}")
        truths = draw(np.random.default_rng(51 + number), size)
        fleet = list(lives(truths, seed=5 * 10**8 + number * 10**6))
        mean = 100 * truths.mean()
        after += [
            f"| {name}, {size:,} changes, {mean:+.2f} % on average | {HEAD}",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for agent, stops in AGENTS.items():
            after.append(_row(agent, Trained.of(fleet, stops)))
        after.append("")
    return Section(
        title="Agents that stop their changes",
        text=" ".join(TEXT.split()),
        after=[" ".join(READ.split()), "", *after],
    )


def _grown(generator: np.random.Generator, size: int) -> Floats:
    return generator.normal(0.0, 0.03, size)


def _row(agent: str, got: Trained) -> str:
    slopes = [
        Reading.of(zip(numbers[got.precise].tolist(), got.truth[got.precise].tolist(), strict=True))
        if got.precise.sum() > 2
        else None
        for numbers in (got.served, got.learned)
    ]
    harmful = got.truth < -0.2
    cells = [
        f"{100 * got.served.mean():+.2f} %",
        f"{100 * got.learned.mean():+.2f} ± {100 * got.learned.std() / got.truth.size**0.5:.2f} %",
        f"{got.precise.mean():.2f}",
        *(
            "–"
            if slope is None or np.isnan(slope.slope) or got.truth.std() == 0
            else f"{slope.slope:.2f} ± {slope.error:.2f}, {100 * slope.rmse:.1f} %"
            for slope in slopes
        ),
        f"{harmful.sum()} and {(harmful & got.precise).sum()} of {harmful.sum()}"
        if harmful.any()
        else "–",
    ]
    return f"| {agent} | {' | '.join(cells)} |"
