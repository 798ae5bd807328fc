"""Many changes at once: tries of a change, late choices, and flags of a single build."""

import numpy as np

from benchmarks.calibration.attempts.late import LOOKED, kept_late, metrics, sets_of_routes
from benchmarks.calibration.attempts.tries import DAYS, TRIES, kept_at_last
from benchmarks.calibration.many_flags.build import Build, independent, leaning
from benchmarks.calibration.proportion import Proportion
from benchmarks.calibration.sections.section import Run, Section

ALPHA = 0.05
TEXT = f"""
A change without effect is registered again until it is kept, {TRIES} times at most, for {DAYS} days
each. The best of many metrics (5 % in both arms), or of fifty sets of five of ten routes, is chosen
by its z on day {LOOKED} and registered then. A flag without effect beside others with an effect, in
a build, for a day.
"""


def many_changes(run: Run) -> Section:
    rows: list[Proportion] = []
    for counted, number, claim in ((True, 1000, ALPHA), (False, 200, None)):
        kind = "each try an attempt" if counted else "each try as the first"
        name = f"kept in any of {TRIES} tries, {kind}"
        run.say(f"many changes: {name}")
        count = run.replications(number)
        hits = kept_at_last(count, counted=counted, seed=20_261_431_00 + 50 * len(rows))
        rows.append(Proportion(name=name, hits=hits, count=count, at_most=claim))
    for name, build in (
        ("ten independent flags, two of +50 %", _pooled(0.5)),
        ("ten independent flags, two of −50 %", _pooled(-0.5)),
        *(
            (f"{flags} verified flags, four of +50 %, four of −50 %", _verified(flags))
            for flags in (40, 100)
        ),
        (
            "eight flags of +50 %, on for 52 % of treatment and 48 % of control",
            Build(draw=leaning(8), lifts=(0.0, *[0.5] * 8)),
        ),
    ):
        run.say(f"many changes: {name}")
        count = run.replications(300)
        rng = np.random.default_rng(20_261_432_00 + len(rows))
        hits = sum(
            one.decision.verdict != "abstain"
            for _ in range(count)
            for one in build.evidence(rng, 0)
        )
        rows.append(Proportion(name=f"{name}: an answer", hits=hits, count=count, at_most=ALPHA))
    late = (
        ("20 metrics", metrics(20)),
        ("50 metrics", metrics(50)),
        ("50 sets of routes", sets_of_routes),
    )
    for with_past, number, claim in ((False, 800, ALPHA), (True, 200, None)):
        for what, choices in late:
            counted = "the past counted" if with_past else "counted from its registration"
            name = f"the best of {what}, late, {counted}: kept"
            run.say(f"many changes: {name}")
            count = run.replications(number)
            seed = 20_261_433_00 + len(rows)
            hits = kept_late(choices, count, with_past=with_past, seed=seed)
            rows.append(Proportion(name=name, hits=hits, count=count, at_most=claim))
    return Section(title="Many changes at once", text=" ".join(TEXT.split()), rows=rows)


def _pooled(effect: float) -> Build:
    return Build(draw=independent(10), lifts=(0.0, *[effect] * 2, *[0.0] * 7))


def _verified(flags: int) -> Build:
    lifts = (0.0, *[0.5] * 4, *[-0.5] * 4, *[0.0] * (flags - 9))
    return Build(draw=independent(flags), lifts=lifts, verified=True)
