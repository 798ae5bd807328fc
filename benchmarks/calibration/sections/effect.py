"""The effect that is served: what it says of the truth, and whether its intervals hold that."""

from collections.abc import Sequence

from benchmarks.calibration.proportion import Proportion
from benchmarks.calibration.reward.population import Change, population
from benchmarks.calibration.reward.reading import Reading
from benchmarks.calibration.reward.served import (
    DAYS,
    DEFAULT,
    INTERVALS,
    KNOWN,
    NUMBERS,
    SPREAD,
    coverage,
    truths,
)
from benchmarks.calibration.sections.section import Run, Section
from stats.looks.policy import Policy

CHANGES = 2000
CLAIMED, WITHIN = "effect, open or at the decision", 0.05
TEXT = f"""
Changes with true effects from a normal distribution around 0 with a standard deviation of
{100 * SPREAD:g} %, 24,000 units a day at 5 %, half and half, {DAYS} days at most; after each answer
a week with a tenth held back. A row counts the intervals that hold the true effect.
"""
READ = """
What a unit of each number is worth: the slope of the regression of the true effect on it, 1 where
it is fit to train on. The effect after the decision is right on average for each change; the noise
of its week flattens the slope. A thousand changes decided by the service itself are in
[statistics](statistics.md#after-the-decision).
"""


def effects(run: Run) -> Section:
    rows: list[Proportion] = []
    after = [" ".join(READ.split())]
    for name, policy, is_claimed in (
        ("`typical_lifts` [0.1]", KNOWN, True),
        ("`typical_lifts` [0.2, 0.5], the default", DEFAULT, False),
    ):
        run.say(f"effect: {name}")
        changes = _changes(run, policy, seed=20_261_441 + len(rows))
        rows += [
            Proportion(name=f"{name}, interval {moment}", hits=held, count=of, at_least=0.95)
            for moment, interval in INTERVALS.items()
            for held, of in [coverage(changes, interval)]
        ]
        after += ["", *_readings(name, changes, is_claimed=is_claimed)]
    return Section(
        title="The effect that is served", text=" ".join(TEXT.split()), rows=rows, after=after
    )


def _changes(run: Run, policy: Policy, *, seed: int) -> Sequence[Change]:
    count = run.replications(CHANGES)
    # Streams of a change are numbered from the seed on.
    return population(truths(count), policy, seed=seed * 10_000, follow=True)


def _readings(name: str, changes: Sequence[Change], *, is_claimed: bool) -> list[str]:
    """A table of what each number says, under a setting."""
    readings = {
        number: Reading.of((read(change), change.truth) for change in changes)
        for number, read in NUMBERS.items()
    }
    return [
        f"| {name} | changes | slope | bias | root mean square error |",
        "| --- | --- | --- | --- | --- |",
        *(reading.row(number) for number, reading in readings.items()),
        *(["", _claim(CLAIMED, readings[CLAIMED])] if is_claimed else []),
    ]


def _claim(number: str, reading: Reading) -> str:
    """Whether the slope keeps its claim; `within error` where the simulation can't deny it."""
    off = abs(reading.slope - 1)
    sure = off - 1.96 * reading.error
    kept = "holds" if off <= WITHIN else "within error" if sure <= WITHIN else "**OUTSIDE**"
    return (
        f"Claimed of the {number}, where `typical_lifts` know the fleet: a slope of 1 ± {WITHIN:g}."
        f" It is {reading.slope:.3f} ± {reading.error:.3f}: {kept}."
    )
