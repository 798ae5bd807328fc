"""The effect that is served: what it says of the truth, and whether its intervals hold that."""

from collections.abc import Sequence

import numpy as np

from benchmarks.calibration.proportion import Proportion, bounds
from benchmarks.calibration.reward.agent import final_effects, harvest
from benchmarks.calibration.reward.population import FLEETS, UNITS_A_DAY, Change, population
from benchmarks.calibration.reward.reading import Reading
from benchmarks.calibration.reward.served import DAYS, INTERVALS, NUMBERS, POLICY, coverage
from benchmarks.calibration.sections.section import Run, Section
from stats.counts.cell import Floats

CHANGES, ENDED = 2000, 400
CLAIMED, WITHIN = "effect, at reward_at", 0.1
TEXT = f"""
Changes of six fleets at a rate of 5 %, half and half, {DAYS} days at most; after each answer a week
with a tenth held back. The engine's own functions, without guardrails. A row counts the intervals
of N(0, 10 %) that hold the true effect.
"""
READ = f"""
The slope of the true effect on a number, 1 where it is fit to train on, and the number's root mean
square error. Claimed is a slope of 1 ± {WITHIN:g} of the effect at `reward_at`.
"""
SHOWN = {
    "contract's lift": "contract's lift",
    "at the decision": "effect, at the decision",
    "at `reward_at`": CLAIMED,
}
HARMFUL = """
Of its harmful changes it ends some by chance; the others are trainable. Asked was 0.9, which
fails at a threshold of 1 %.
"""
SERVED = """
Through the service (`python -m benchmarks.calibration.reward.fleets`, 24 changes a fleet, 3,600
sessions each at 70 %) the slope at `reward_at` is 0.98 to 1.02 and the error 0.95 to 1.02 of the
formula's. With 960 sessions a change at 60 % it is 0.95 to 2.44: the prior outweighs so few
sessions. Of 90 changes of N(0, 10 %) the slope is 1.05 ± 0.05, and all 90 intervals hold the truth.
"""
LOGINS = """
Logins through the service (`benchmarks.calibration.reward.logins`): a build that sells 10 % more at
60 % and has more of its visitors log in, or fewer. With 40, 50 and 30 % named in treatment 9, 10
and 7 of 16 were kept, and `turnover` held none.
"""
ACTED = """
Agents through the service (`benchmarks.calibration.reward.acting`): 60 changes, at the first hour
at which the effect reaches 1 % closed, promoted, starved or cut to a tenth. Served was +0.32 ±
0.13 % of changes without an effect (asked at most 1.5 %), of the trainable -0.17 ± 0.09 % (asked
0 ± 0.3 %); of those of −8 % 0.90 (0.79–0.96) were trainable.
"""
PLACED = """
An agent's loop through places (`benchmarks.calibration.reward.factory --commits-per-day 60`): of
100 changes of three kinds with +8.1, +1.7 and −14.9 % on average it learned +6.5 ± 1.0, +1.3 ± 2.5
and −15.0 ± 1.3 % from `likelihood`. Changes that end early end on extreme numbers: a plain average
of their likelihoods is +0.9 to +5.1 % without an effect. A learner that weighs each by its error
comes within 0.3 points; without the changes that it ended it is 0.3 to 5.2 points too low.
"""


def effects(run: Run) -> Section:
    rows: list[Proportion] = []
    after = [
        " ".join(READ.split()),
        "",
        f"| fleet | {' | '.join(SHOWN)} | claim |",
        f"| --- |{' --- |' * len(SHOWN)} --- |",
    ]
    for number, (fleet, draw) in enumerate(FLEETS.items()):
        run.say(f"effect: {fleet}")
        truths = draw(np.random.default_rng(35 + number), run.replications(CHANGES))
        # Streams of a change are numbered from the seed on.
        changes = population(truths, POLICY, seed=(number + 1) * 10**6, follow=True)
        if number == 0:
            rows = [
                Proportion(name=f"interval {moment}", hits=held, count=of, at_least=0.95)
                for moment, interval in INTERVALS.items()
                for held, of in [coverage(changes, interval)]
            ]
        after.append(_readings(fleet, changes))
    after += ["", *_agent(run), "", _large(run)]
    after += [
        line for text in (SERVED, LOGINS, ACTED, PLACED) for line in ("", " ".join(text.split()))
    ]
    return Section(
        title="The effect that is served", text=" ".join(TEXT.split()), rows=rows, after=after
    )


def _readings(fleet: str, changes: Sequence[Change]) -> str:
    """The row of a fleet: slope and error of each number, and whether the claimed slope holds."""
    readings = {
        title: Reading.of((NUMBERS[number](change), change.truth) for change in changes)
        for title, number in SHOWN.items()
    }
    has_slope = bool(np.std([change.truth for change in changes]))
    claim = _claim(readings["at `reward_at`"]) if has_slope else "–"
    return f"| {fleet} | {' | '.join(one.cell() for one in readings.values())} | {claim} |"


def _claim(reading: Reading) -> str:
    """Whether the slope keeps its claim; `within error` where the simulation can't deny it."""
    if np.isnan(reading.slope):
        return "–"
    off = abs(reading.slope - 1)
    sure = off - 1.96 * reading.error
    return "holds" if off <= WITHIN else "within error" if sure <= WITHIN else "**OUTSIDE**"


def _large(run: Run) -> str:
    """How far large effects at several rates are off after seven days."""
    run.say("effect: large effects")
    biases: list[float] = []
    errors: list[float] = []
    for truth, base in ((t, b) for t in (0.5, -0.5) for b in (0.05, 0.2, 0.4, 0.6, 0.9)):
        if base * (1 + truth) >= 1:
            continue
        size = run.replications(40)
        effects = final_effects(size, truth, base=base, seed=9 * 10**8 + round(100 * base))
        biases.append(100 * abs(effects.mean() - truth))
        errors.append(100 * np.sqrt(np.mean((effects - truth) ** 2)))
    return (
        "Effects of ±50 % after seven days, at rates of 5 to 90 %, are off by at most"
        f" {max(biases):.1f} points on average, with a root mean square error of at most"
        f" {max(errors):.1f} %."
    )


def _agent(run: Run) -> list[str]:
    """A table of an agent that ends its own null changes at a good moment."""
    run.say("effect: an agent that ends its changes")
    table = [
        "An agent ends its null changes at the first look of an hour at which the effect reaches:",
        "",
        "| | of them ended | mean of what is served | of what is trainable |",
        "| --- | --- | --- | --- |",
    ]
    for per_day in (UNITS_A_DAY, UNITS_A_DAY // 10):
        for threshold in (0.01, 0.03, 0.08):
            got = harvest(run.replications(ENDED), threshold, seed=7 * 10**8, per_day=per_day)
            table.append(
                f"| {threshold:.0%}, {per_day:,} units a day | {got.ended:.2f}"
                f" | {_mean(got.served)} % | {_mean(got.trainable, with_error=True)} % |"
            )
    return [*table, "", *_harmful(run)]


def _mean(effects: Floats, *, with_error: bool = False) -> str:
    """The mean of some effects in percent; a dash where there is none."""
    if not effects.size:
        return "–"
    error = f" ± {100 * effects.std() / np.sqrt(effects.size):.2f}" if with_error else ""
    return f"{100 * effects.mean():+.2f}{error}"


def _harmful(run: Run) -> list[str]:
    """A table of how many of its harmful changes such an agent lets count."""
    table = [
        " ".join(HARMFUL.split()),
        "",
        "| the effect at which it ends them | of −5 % trainable | of −10 % |",
        "| --- | --- | --- |",
    ]
    size = run.replications(150)
    for threshold in (0.01, 0.03, 0.08):
        cells: list[str] = []
        for truth in (-0.05, -0.1):
            got = harvest(size, threshold, seed=8 * 10**8, truth=truth)
            low, high = bounds(got.trainable.size, size, 0.95)
            cells.append(f"{got.trainable.size / size:.2f} ({low:.2f}–{high:.2f})")
        table.append(f"| {threshold:.0%} | {' | '.join(cells)} |")
    return table
