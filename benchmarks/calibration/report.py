"""The report of the calibration, `docs/calibration.md`: written by a single command, at any scale.

Run by `make calibrate`. A scale of 1 takes some 20 minutes of a single core; a scale of 10 has
ten times the replications.
"""

import argparse
import platform
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.calibration.chart import Chart, Line
from benchmarks.calibration.endings import rare_errors, revenue_with_a_whale, thin_ramp
from benchmarks.calibration.proportion import Proportion
from benchmarks.calibration.ratios import ratios
from benchmarks.calibration.scenario import (
    CONTROL_HAS_NONE,
    LAWS,
    Draw,
    better_target,
    continuous,
    evaluated,
    family_of_guardrails,
    of_shares,
    quiet,
    ramp_declared,
    shares_seen,
    small_difference,
    stratified,
)
from benchmarks.calibration.sections.adjustment import adjustment
from benchmarks.calibration.sections.each_gate import each_gate
from benchmarks.calibration.sections.effect import effects
from benchmarks.calibration.sections.empty_units import empty_units
from benchmarks.calibration.sections.gates import unequal_arms
from benchmarks.calibration.sections.many_changes import many_changes
from benchmarks.calibration.sections.page import PEERS, claims, with_claims, with_section
from benchmarks.calibration.sections.section import Run, Section
from benchmarks.calibration.sections.stopping import stopping
from benchmarks.calibration.strata import Strata, in_phase, inflation_if_joined_together
from benchmarks.calibration.traffic import (
    BLOCKS_A_DAY,
    Share,
    Traffic,
    answered,
    constant,
    evidences,
    missed,
    ramp,
    ramp_of,
)
from benchmarks.peers import GBSTATS, METHODS, PLANNED, SIGNED, Peers, compared, found_gbstats
from stats.decision.evidence import evaluate

DOCS = Path(__file__).parents[2] / "docs"
ALPHA = 0.05
Part = TypeVar("Part")
BASELINES = (0.001, 0.01, 0.05, 0.1, 0.3)
SHARES = (0.01, 0.05, 0.2, 0.5)
RAMPS: dict[str, Share] = {
    "ramp 1→5→25→50 % over 4 days": ramp,
    "ramp 1→5→25→50 % over 12 hours": ramp_of(0.125),
}
REGIMES: dict[str, Share] = {
    f"share {100 * share:g} %": constant(share) for share in SHARES
} | RAMPS
NEVER = "–"
WHAT = """
What the engine's promises come to on simulated traffic, written by `make calibrate` at scale
{scale:g} in {minutes:.1f} minutes of a core. The formulas are in [statistics](statistics.md).
"""
HOW = """
Unless something else is said, a day has 24,000 sessions with a daily rhythm of ± 60 %, the baseline
swings by ± 50 % over a week, and the arms are looked at every five minutes. Bounds are exact
(Clopper & Pearson). A share that breaks its claim is `within error` if its bounds reach the claim,
else **OUTSIDE**. Rows that differ in their numbers alone are a single line with the row nearest to
breaking the claim. The rows drive the decision functions, on counts; those that drive the service
say so. Of ninety bounds at 95 % a few lie beyond a claim that is just kept: run such a row longer.
"""
SECONDS = """
Seconds are CPU of a process for 10,000 experiments of 168 blocks. Ours gives evidence, intervals
and verdict over all 168 looks; gbstats is given finished sums, for the last look or for each.
"""
POOLED = """
The pooled tests fail on the ramp because treatment's share rises while the baseline moves: they
compare days with days.
"""


def over_baselines(
    run: Run, what: str, count: int, hits: Callable[[Share, float, int, int], int]
) -> list[Proportion]:
    found: list[Proportion] = []
    for regime, share in REGIMES.items():
        run.say(f"{what}: {regime}")
        for baseline in BASELINES:
            size = run.replications(count)
            name = f"{regime}, baseline {100 * baseline:g} %"
            number = hits(share, baseline, size, len(found))
            found.append(Proportion(name=name, hits=number, count=size, at_most=ALPHA))
    return found


def false_answers(run: Run) -> Section:
    def hits(share: Share, baseline: float, size: int, cell: int) -> int:
        return answered(
            Traffic(days=14, share=share, baseline=baseline), size, 20_261_401_00 + cell
        )

    rows = over_baselines(run, "type-I error", 300, hits)
    return Section(
        title="False answers",
        text="No effect, 14 days, looked at every five minutes; the share of experiments that end"
        " in `keep` or `rollback`.",
        rows=rows,
        after=[_picture("type-1-error", "Type-I error over baselines and shares")],
    )


def intervals(run: Run) -> Section:
    def hits(share: Share, baseline: float, size: int, cell: int) -> int:
        traffic = Traffic(days=14, share=share, baseline=baseline, lift=0.2 * baseline)
        return missed(traffic, size, 20_261_402_00 + cell)

    return Section(
        title="Intervals that miss",
        text="A lift of 20 % of the mean baseline, the same in points all the time; 14 days."
        " Counted is an experiment if the interval of *any* of its looks, every five minutes,"
        " misses the true lift: coverage at all looks together is 1 minus the share.",
        rows=over_baselines(run, "coverage", 200, hits),
    )


@dataclass(frozen=True, kw_only=True)
class Power:
    """How soon a lift of 20 % is decided.

    Attributes:
        share: Treatment's share.
        baseline: Control's rate.
        days: Days of exposure at the decision, infinite where there was none in 28 days.
        sessions: Sessions of both arms until then.
    """

    share: float
    baseline: float
    days: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    sessions: np.ndarray[tuple[int, ...], np.dtype[np.float64]]

    def median(self) -> str:
        """The median of the sessions until the decision."""
        ordered = np.sort(self.sessions)
        return _number(ordered[int(ordered.size / 2)])


def _number(sessions: float) -> str:
    return f"{sessions:,.0f}" if np.isfinite(sessions) else NEVER


def powers(run: Run) -> list[Power]:
    found: list[Power] = []
    count = run.replications(100)
    for share in SHARES:
        run.say(f"power: share {100 * share:g} %")
        for baseline in BASELINES:
            traffic = Traffic(
                days=28, share=constant(share), baseline=baseline, lift=0.2 * baseline
            )
            seen = [
                (one.closed_until / 86_400, one.units_in_cells)
                if one.decision.verdict == "keep"
                else (np.inf, np.inf)
                for one in evidences(traffic, count, 20_261_403_00 + len(found))
            ]
            days, sessions = np.array(seen).T
            found.append(Power(share=share, baseline=baseline, days=days, sessions=sessions))
    return found


def power_section(found: Sequence[Power]) -> Section:
    return Section(
        title="Sessions to decide",
        text="The median of the sessions until a lift of 20 % of the baseline is kept, by share and"
        f" baseline, in {found[0].days.size} runs each; {NEVER} where it is not within 28 days.",
        after=[
            f"| | {' | '.join(f'{100 * one:g} %' for one in BASELINES)} |",
            f"| --- |{' --- |' * len(BASELINES)}",
            *(
                f"| share {100 * share:g} % | "
                + " | ".join(one.median() for one in found if one.share == share)
                + " |"
                for share in SHARES
            ),
            "",
            _picture("days-to-decide", "Share of experiments decided over days, by share"),
        ],
    )


def guardrails(run: Run) -> Section:
    rows: list[Proportion] = []
    for family in (1, 3, 5, 10):
        run.say(f"guardrails: {family}")
        count = run.replications(1500)
        seen = evaluated(family_of_guardrails(family, days=7), count, 20_261_404_00 + len(rows))
        name = f"some of {family} breached, none harmed"
        hits = sum(bool(one.decision.guardrail_breaches) for one in seen)
        rows.append(Proportion(name=name, hits=hits, count=count, at_most=ALPHA))
    for errors, low, high in ((0.015, None, 0.1), (0.01, 0.9, None)):
        count = run.replications(300)
        seen = evaluated(better_target(errors=errors), count, 20_261_405_00 + len(rows))
        hits = sum(one.decision.verdict == "keep" for one in seen)
        name = f"target +20 %, errors 1 % and in treatment {100 * errors:g} %: kept"
        rows.append(Proportion(name=name, hits=hits, count=count, at_most=high, at_least=low))
    return Section(
        title="Guardrails",
        text="A week; guardrails of 1, 5 and 30 % in turn. The level of a whole family is 0.05.",
        rows=rows,
    )


def sample_ratios(run: Run) -> Section:
    rows: list[Proportion] = []
    count = run.replications(3500)
    declared = {f"share {100 * share:g} %": (ramp_declared(share), 0) for share in SHARES}
    steps = ramp_declared(0.01, 0.05, 0.25, 0.5)
    declared |= {"ramp 1→5→25→50 %": (steps, 0), "the same, router ten minutes late": (steps, 600)}
    for name, (allocation, lag) in declared.items():
        run.say(f"sample ratio: {name}")
        rng = np.random.default_rng([20_261_406, len(rows)])
        found = [shares_seen(rng, allocation, days=14, lag=lag) for _ in range(count)]
        for what in ("statistic", "log_too_few"):
            hits = sum(bool(np.any(getattr(one, what) >= np.log(1000))) for one in found)
            kind = "alarm" if what == "log_e" else "`arrival` breached"
            rows.append(Proportion(name=f"{kind}, {name}", hits=hits, count=count, at_most=0.001))
    for share, real in ((0.5, 0.45), (0.05, 0.04)):
        rng = np.random.default_rng([20_261_407, len(rows)])
        size = run.replications(500)
        split = np.full(3 * BLOCKS_A_DAY, real)
        hits = sum(
            bool(np.any(of_shares(rng, ramp_declared(share), split).statistic >= np.log(1000)))
            for _ in range(size)
        )
        name = f"alarm within 3 days, {100 * real:g} % instead of {100 * share:g} %"
        rows.append(Proportion(name=name, hits=hits, count=size, at_least=0.9))
    return Section(
        title="Sample ratio",
        text="24,000 units a day for 14 days; each visitor has a single session. Behind a router"
        " that keeps visitors the gate `unit` holds instead.",
        rows=rows,
    )


def interactions(run: Run) -> Section:
    rows: list[Proportion] = []
    kinds: tuple[tuple[str, list[tuple[float, float]], bool], ...] = (
        ("no effect, two strata", [(0.05, 1.0)] * 2, False),
        ("no effect, four strata", [(0.05, 1.0)] * 4, False),
        ("no effect, baselines 2 and 10 %", [(0.02, 1.0), (0.1, 1.0)], False),
        ("+20 % in both, baselines 2 and 10 %", [(0.02, 1.2), (0.1, 1.2)], False),
        ("+50 % in both, baselines 2 and 10 %", [(0.02, 1.5), (0.1, 1.5)], False),
        ("+50 % and −20 %, baseline 5 %", [(0.05, 1.5), (0.05, 0.8)], True),
    )
    count = run.replications(2000)
    for name, strata, real in kinds:
        run.say(f"interaction: {name}")
        seen = evaluated(stratified(strata, days=3), count, 20_261_408_00 + len(rows))
        hits = sum(any(look.gated for look in one.looks) for one in seen)
        low, high = (0.9, None) if real else (None, 0.01)
        rows.append(
            Proportion(name=f"alarm, {name}", hits=hits, count=count, at_most=high, at_least=low)
        )
    return Section(
        title="Interaction", text="24,000 units a day in each stratum for 3 days.", rows=rows
    )


def futility(run: Run) -> Section:
    rows: list[Proportion] = []
    count = run.replications(1000)
    run.say("futility")
    for relative in (0.0, 0.05, -0.05):
        seen = evaluated(small_difference(relative), count, 20_261_409_00 + len(rows))
        hits = sum(one.decision.ended_because == "futility" for one in seen)
        low, high = (None, ALPHA) if relative else (0.9, None)
        name = f"ended by futility at a lift of {100 * relative:+g} %".replace("-", "−")
        rows.append(Proportion(name=name, hits=hits, count=count, at_most=high, at_least=low))
    return Section(
        title="Futility",
        text="A baseline of 5 %, 1.7 million units in a day, and a margin of 5 % of the baseline:"
        " a lift at the margin may not be called no difference.",
        rows=rows,
    )


def strata_errors(run: Run) -> Section:
    thin = Strata(number=1, per_day=60, days=28, share=in_phase)
    cases = {
        "64 strata, 2,400 units a day, 50 % declared": (Strata(number=64, per_day=2400), 0.5),
        "64 strata, 2,400 units a day, not declared": (Strata(number=64, per_day=2400), None),
        "256 strata, 24,000 units a day, 50 % declared": (Strata(number=256), 0.5),
        "256 strata, 24,000 units a day, not declared": (Strata(number=256), None),
        "a share of 20 to 80 % with the baseline, not declared; 60 units a day": (thin, None),
        "the same, baseline 30 %": (replace(thin, baseline=0.3), None),
        "the same, baseline 5 %, 240 units a day": (replace(thin, per_day=240), None),
        "the same, 64 strata, 2,400 units a day": (
            Strata(number=64, per_day=2400, share=in_phase),
            None,
        ),
    } | {
        f"the same, {number} strata of 60 units a day, baseline {100 * baseline:g} %": (
            Strata(number=number, per_day=60 * number, share=in_phase, baseline=baseline),
            None,
        )
        for number in (32, 256)
        for baseline in (0.05, 0.3)
    }
    rows: list[Proportion] = []
    for name, (strata, declared) in cases.items():
        run.say(f"strata: {name}")
        count = run.replications(
            1000 if strata.number == 1 else 100 if strata.per_day < 2e4 else 40
        )
        hits = replace(strata, declared=declared).answers(count, 20_261_410_00 + len(rows))
        rows.append(Proportion(name=name, hits=hits, count=count, at_most=ALPHA))
    count = run.replications(1000)
    for baseline in (0.1, 0.3):
        long = replace(thin, declared=0.5, baseline=baseline)
        hits = long.answers(count, 20_261_411_00 + len(rows))
        name = f"60 units a day, baseline {100 * baseline:g} %, by the rule for declared shares"
        rows.append(Proportion(name=name, hits=hits, count=count))
    return Section(
        title="Strata and undeclared shares",
        text="No effect; units fall evenly into strata, the baseline swings by half each day, 14"
        " days (28 with 1 stratum).",
        rows=rows,
        after=["", *_inflations(run)],
    )


def _inflations(run: Run) -> list[str]:
    """A table of what strata cost."""
    lines = [
        "What strata cost at 24,000 units a day, as VIF (times the sessions of a single stratum):",
        "",
        "| strata | joined per stratum, declared | not declared | were they joined together |",
        "| --- | --- | --- | --- |",
    ]
    for number in (1, 32, 256, 512):
        run.say(f"strata: VIF of {number}")
        series = Strata(number=number, days=7, declared=0.5).drawn(
            np.random.default_rng(20_261_412)
        )
        undeclared = replace(series, allocation=None, arrivals=None)
        costs = [one.vif for one in evaluate([series, undeclared])]
        costs.append(inflation_if_joined_together(series))
        lines.append(f"| {number} | {' | '.join(f'{cost:.2f}' for cost in costs)} |")
    return lines


def means(run: Run) -> Section:
    rows: list[Proportion] = []
    count = run.replications(1000)
    for law in LAWS:
        for share in (0.05, 0.5):
            run.say(f"means: {law}, share {100 * share:g} %")
            draw = continuous(law, share=share, days=1 if run.scale < 0.1 else 3)
            seen = evaluated(draw, count, 20_261_415_00 + len(rows))
            hits = sum(one.decision.verdict != "abstain" for one in seen)
            name = f"an answer, {law}, share {100 * share:g} %"
            rows.append(Proportion(name=name, hits=hits, count=count, at_most=ALPHA))
    for as_guardrail in (False, True):
        draw = continuous(CONTROL_HAS_NONE, share=0.5, days=1, as_guardrail=as_guardrail)
        seen = evaluated(draw, count, 20_261_415_00 + len(rows))
        hits = sum(
            one.decision.verdict == "keep" or bool(one.decision.guardrail_breaches) for one in seen
        )
        name = f"{'breached' if as_guardrail else 'kept'}, {CONTROL_HAS_NONE}"
        rows.append(Proportion(name=name, hits=hits, count=count, at_least=0.99))
    return Section(
        title="Continuous metrics",
        text="3 days without an effect on the mean, or a day of events that control lacks.",
        rows=rows,
    )


def endings(run: Run) -> Section:
    rows: list[Proportion] = []

    def counted(name: str, draw: Draw, count: int, word: str, **claim: float) -> None:
        run.say(f"endings: {name}")
        size = run.replications(count)
        seen = evaluated(draw, size, 20_261_413_00 + len(rows))
        hits = sum(word in {one.decision.verdict, one.decision.ended_because} for one in seen)
        rows.append(Proportion(name=name, hits=hits, count=size, **claim))

    for shares in ((0.25, 0.01), (0.1, 0.01), (0.01,)):
        steps = "→".join(f"{100 * share:g}" for share in shares)
        name = f"closed as `withdrawn`: declared {steps} %, 240 units a day, nothing withdrawn"
        counted(name, thin_ramp(*shares), 300, "withdrawn", at_most=0.01)
    for strata, per_day, share in ((64, 24, 0.5), (64, 100, 0.05), (512, 240, 0.5)):
        steady = [(0.0, share)]
        draw = quiet(days=14, per_day=per_day, shares=steady, declared=steady, strata=strata)
        name = f"closed as `superseded`: {strata} strata, {per_day} units a day, nothing superseded"
        counted(name, draw, 60, "superseded", at_most=0.01)
    for before, share, claim in (
        (0.001, 0.003, {"at_most": 0.25}),
        (0.001, 0.001, {"at_least": 0.9}),
        (0.0001, 0.0001, {"at_least": 0.9}),
    ):
        errors = f"errors {100 * before:g} and in treatment {100 * share:g} %"
        draw = rare_errors(control=before, treatment=share)
        counted(f"kept: +20 % on the target, {errors}", draw, 200, "keep", **claim)
    for capped, low in ((False, None), (True, 0.8)):
        name = "kept: +50 % payers, log-normal sums (σ = 2) and a whale of 500,000, "
        name += "capped by default" if capped else "without a cap"
        claim = {} if low is None else {"at_least": low}
        counted(name, revenue_with_a_whale(lift=0.5, capped=capped), 60, "keep", **claim)
    return Section(
        title="How experiments end",
        text="Thin canaries that nobody withdraws, rare errors, and a payer of very large amounts.",
        rows=rows,
        after=["", *_overstatement(run)],
    )


def _overstatement(run: Run) -> list[str]:
    """How far the lift of a keep lies above the true lift."""
    run.say("endings: lift of a keep")
    count = run.replications(300)
    ratios = np.array(
        [
            (one.candidate.lift / 0.01, one.decision.lift / 0.01)
            for one in evaluated(better_target(errors=0.01), count, 20_261_414)
            if one.candidate is not None and one.decision.lift is not None
        ]
    )
    first, served = (
        f"{column.mean():.2f} (rmse {np.sqrt(np.mean((column - 1) ** 2)):.2f})"
        for column in ratios.T
    )
    text = (
        f"The lift of a keep over the true lift of +20 % at 5 %, of {len(ratios):,} keeps that"
        f" waited for their guardrail: {served} on average; of the candidate {first}."
    )
    return [text]


def peers_section(found: Peers) -> Section:
    count, lifted = found.constant.count, found.lifted.count
    if found.largest_difference is None:
        checked = "gbstats could not be installed here: its row is left out."
    else:
        checked = (
            "gbstats 0.8.0 (`SequentialTwoSidedTTest`) runs in an environment of its own, on two"
            " scales: the difference of the rates, on which ours tests, and the relative lift, its"
            f" default. At {found.checked:,} looks of these streams its p-values equal the"
            f" formula's to {found.largest_difference:.0e}."
        )
    return Section(
        title=PEERS,
        text=f"Made by `make peers` too. Every method sees the same streams: {count:,} of 28 days"
        " without an effect, with a baseline of 5 % that swings by 50 or 10 % over a week, at 50/50"
        f" and on a ramp of 1, 5, 25 and 50 % for a day each; and {lifted:,} of 7 days at 50/50"
        " with +20 %. All look after each block; `a single look as planned` looks once. The"
        " oracles are Wald's test, given the size of the effect, or its sign too.",
        after=[
            *found.table(),
            "",
            checked,
            "",
            _paragraph(SECONDS),
            "",
            _paragraph(POOLED),
            "",
            _picture("peers-on-a-ramp", "False answers on a ramp over days, by method"),
        ],
    )


def _paragraph(text: str) -> str:
    return " ".join(text.split())


def _picture(name: str, words: str) -> str:
    return f"![{words}](calibration/{name}.svg)"


def type_1_chart(rows: Sequence[Proportion]) -> Chart:
    size = len(BASELINES)
    lines = [
        Line(
            name=regime.replace("1→5→25→50 % ", ""),
            x=range(size),
            y=[one.share for one in rows[number * size : (number + 1) * size]],
            intervals=[one.interval for one in rows[number * size : (number + 1) * size]],
        )
        for number, regime in enumerate(REGIMES)
    ]
    return Chart(
        title="Share of false answers, with 95 % bounds; dashed: α",
        lines=lines,
        ticks=[(i, f"{100 * one:g} %") for i, one in enumerate(BASELINES)],
        across="baseline",
        top=0.1,
        bound=ALPHA,
    )


def days_chart(found: Sequence[Power]) -> Chart:
    grid = np.linspace(0, 28, 113)
    return Chart(
        title="Share of experiments decided: +20 % at a baseline of 5 %",
        lines=[
            Line(
                name=f"share {100 * one.share:g} %",
                x=grid.tolist(),
                y=[float(np.mean(one.days <= day)) for day in grid],
            )
            for one in found
            if one.baseline == 0.05
        ],
        ticks=[(day, str(day)) for day in range(0, 29, 7)],
        across="days of 24,000 sessions",
        top=1.0,
    )


def ramp_chart(found: Peers) -> Chart:
    grid = np.linspace(0, 28, 113)
    return Chart(
        title="Share of false answers on a ramp, baseline swinging by 10 % over a week; dashed: α",
        lines=[
            Line(
                name=name.replace(" at every 5 minutes", "")
                .replace(", sequential", "")
                .replace(", size of the effect known", ""),
                x=grid.tolist(),
                y=[float(np.mean(found.mild.days[name] <= day)) for day in grid],
            )
            for name in METHODS
            if name in found.methods and name not in (PLANNED, SIGNED)
        ],
        ticks=[(day, str(day)) for day in range(0, 29, 7)],
        across="days",
        top=1.0,
        bound=ALPHA,
    )


def preface(run: Run, sections: Sequence[Section], seconds: float) -> list[str]:
    return [
        "# Calibration",
        "",
        _paragraph(WHAT.format(scale=run.scale, minutes=seconds / 60)),
        "",
        _paragraph(HOW),
        "",
        claims([line for section in sections for line in section.lines()]),
        "",
    ]


def environment(peers: Peers) -> list[str]:
    ours = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    theirs = f"; {GBSTATS.split(',')[0]}" if GBSTATS in peers.methods else ""
    return [f"Run with Python {platform.python_version()}, {ours}{theirs}."]


PARTS = (
    false_answers,
    intervals,
    guardrails,
    sample_ratios,
    interactions,
    futility,
    means,
    adjustment,
    ratios,
    strata_errors,
    endings,
    unequal_arms,
    empty_units,
    many_changes,
    effects,
    stopping,
)


def timed(part: Callable[..., Part], *arguments: Any) -> tuple[Part, float]:
    """The result of a part of the report, and the CPU seconds that it took."""
    begun = time.process_time()
    return part(*arguments), time.process_time() - begun


def write(run: Run, gbstats: Path | None, docs: Path, *, processes: int) -> None:
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        compared_first = pool.submit(timed, compared, found_gbstats(gbstats), run.scale, run.say)
        parts = [pool.submit(timed, part, run) for part in PARTS]
        power = pool.submit(timed, powers, run)
        peers, seconds = compared_first.result()
        found, of_power = power.result()
        written = [part.result() for part in parts]
    seconds += of_power + sum(one for _, one in written)
    answers, coverage, *others = (section for section, _ in written)
    sections = [answers, coverage, power_section(found), *others, peers_section(peers)]
    lines = preface(run, sections, seconds)
    for section in sections:
        lines += section.lines()
    lines = with_section(lines, each_gate(lines))
    lines += environment(peers)
    charts = {
        "type-1-error": type_1_chart(answers.rows),
        "days-to-decide": days_chart(found),
        "peers-on-a-ramp": ramp_chart(peers),
    }
    (docs / "calibration").mkdir(parents=True, exist_ok=True)
    for name, chart in charts.items():
        (docs / "calibration" / f"{name}.svg").write_text(chart.svg())
    (docs / "calibration.md").write_text("\n".join(_single_spaced(lines)) + "\n")


def rewrite(run: Run, parts: Sequence[str], docs: Path, *, processes: int) -> None:
    """Computes some sections anew, and leaves the others of the page as they stand."""
    page = (docs / "calibration.md").read_text().splitlines()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        chosen = [pool.submit(part, run) for part in PARTS if part.__name__ in parts]
        for future in chosen:
            section = future.result()
            alone = f"Written by itself, at scale {run.scale:g}."
            page = with_section(page, replace(section, after=[*section.after, "", alone]))
    page = with_section(page, each_gate(page))
    (docs / "calibration.md").write_text("\n".join(_single_spaced(with_claims(page))) + "\n")


def _single_spaced(lines: Sequence[str]) -> list[str]:
    """The lines, with no two empty ones in a row."""
    return [*lines[:1], *(two for one, two in pairwise(lines) if one or two)]


def say(what: str) -> None:
    """Says what is being simulated now."""
    sys.stderr.write(f"{what}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1: some 20 minutes of a core")
    parser.add_argument("--gbstats", type=Path, help="the Python that has gbstats")
    parser.add_argument("--processes", type=int, default=2, help="how many work at once")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page is written to")
    parser.add_argument(
        "--only",
        action="append",
        choices=[part.__name__ for part in PARTS],
        help="write this section of the page anew, and leave the others; may be repeated",
    )
    chosen = parser.parse_args(arguments)
    run = Run(scale=chosen.scale, say=say)
    if chosen.only:
        rewrite(run, chosen.only, chosen.docs, processes=chosen.processes)
        return
    write(run, chosen.gbstats, chosen.docs, processes=chosen.processes)


if __name__ == "__main__":
    main()
