"""Tails of latency: units to a breach by `slow`, by the capped mean, by controllers' thresholds.

Each session makes some requests, whose durations it shares in part, as a user's do. `slow` counts
sessions whose first request exceeds quantiles of the day before. Beside them it counts sessions of
which a randomly picked request does, also within its position. The mean adds a session's requests
up, each capped at the 99th percentile of that day. Blocks of five minutes, as the service has them.
A controller asks each minute, as Flagger does, or each five, as in Argo's example: whether a
quantile of the canary's requests exceeds a limit, or too few succeed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from benchmarks.calibration.scenario import of_one_stratum, rail
from benchmarks.calibration.traffic import BLOCK, Floats, Ints
from benchmarks.report import options, report
from domain.metric import DAY, POSITIONS
from stats.counts.closed_cells import ClosedCells, Values
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Guardrail

QUANTILES = (0.5, 0.9, 0.95, 0.99)
# The shares of requests on the route, and of sessions by the browser, that fail together.
ROUTE, BROWSER = 0.05, 0.1
BLOCKS_A_DAY = DAY // BLOCK
ERRORS = 0.005
REQUESTS = 3.0
# Flagger: https://docs.flagger.app/usage/metrics, P99 and success rate each minute, and five failed
# checks roll back. Argo Rollouts: its example of an analysis, each five minutes, `failureLimit: 3`.
FLAGGER, ARGO = "Flagger", "Argo"
CHECKS = {FLAGGER: (60, 5, 0.99, 0.99), ARGO: (300, 4, 0.95, 0.95)}
# A team sets its limit above what it has: so much.
HEADROOM = 1.2

Harm = Callable[[np.random.Generator, Floats], Floats]


def log_normal(rng: np.random.Generator, session: Ints, *, users: float = 0.5) -> Floats:
    """Durations of requests in milliseconds, which share a factor in each session."""
    own = rng.normal(0, users, session[-1] + 1)[session]
    return 200 * np.exp(own + rng.normal(0, 0.65, session.size))


def bimodal(rng: np.random.Generator, session: Ints) -> Floats:
    """Four in five hit a cache; those of some sessions do more often."""
    hits = rng.beta(4, 1, session[-1] + 1)[session]
    slow = rng.random(session.size) > hits
    return np.where(slow, 600.0, 40.0) * np.exp(rng.normal(0, 0.3, session.size))


def quick_ask_more(rng: np.random.Generator, session: Ints) -> Floats:
    """As `log_normal`, where quicker sessions make more requests."""
    order = np.argsort(np.bincount(session) + rng.random(session[-1] + 1))
    rank = np.empty(order.size)
    rank[order] = np.arange(order.size)
    own = 0.6 * -ndtri((rank + 0.5) / rank.size) + 0.8 * rng.normal(0, 1, order.size)
    return 200 * np.exp(0.5 * own[session] + rng.normal(0, 0.65, session.size))


def times(share: float, factor: float) -> Harm:
    """So many requests take so many times as long."""
    return lambda rng, ms: np.where(rng.random(ms.size) < share, ms * factor, ms)


def plus(share: float, seconds: float) -> Harm:
    """So many requests take so much longer."""
    return lambda rng, ms: np.where(rng.random(ms.size) < share, ms + 1000 * seconds, ms)


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Requests of both arms.

    Attributes:
        durations: Of requests, by the number of the session that each is of.
        harm: What treatment does to them.
        errors: The share of requests that fail in treatment, where it is 0.5 % in control.
        broken: Likewise of requests on the route by the browser, beside those; None where no metric
            asks for them.
        pods: How many serve an arm, and each request at random.
        apart: How far they differ: the standard deviation of the logarithm of their speed.
        own_pods: Whether those of treatment are others than those of control.
        per_day: Sessions a day, of both arms.
        days: How long they come.
        swing: How far the load, and with it the durations, go up and down over a day.
        by_request: Whether each request is its own unit, as a trace would be.
        later: How many times as long treatment's requests take after a session's first.
        nature: Likewise, of both arms.
        more: How many times as many requests treatment makes after a session's first.
    """

    durations: Callable[[np.random.Generator, Ints], Floats] = log_normal
    harm: Harm | None = None
    errors: float = ERRORS
    broken: float | None = None
    pods: int = 1
    apart: float = 0.0
    own_pods: bool = False
    per_day: int = 24_000
    days: float = 1.0
    swing: float = 0.0
    by_request: bool = False
    later: float = 1.0
    nature: float = 1.0
    more: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The requests of an arm: when each came, its session, and what became of it.

    `broken` tells which failed on the route by the browser.
    """

    at: Floats
    session: Ints
    ms: Floats
    failed: Any
    broken: Any


def pods(stream: Stream, rng: np.random.Generator) -> Floats:
    """Returns how slow each pod is, by arm: treatment's, then control's."""
    arms = 2 if stream.own_pods else 1
    return np.exp(rng.normal(0, stream.apart, (arms, stream.pods))) * np.ones((2, 1))


def drawn(
    stream: Stream, rng: np.random.Generator, slowness: Floats, *, per_day: float, treated: bool
) -> Drawn:
    """Returns the requests of an arm on these pods, in the order of their sessions."""
    expected = per_day * stream.days
    at = np.sort(rng.random(rng.poisson(expected * (1 + stream.swing)))) * stream.days
    wave = 1 + stream.swing * np.sin(2 * np.pi * at)
    kept = rng.random(at.size) < wave / (1 + stream.swing)
    at, wave = at[kept], wave[kept]
    further = (REQUESTS - 1) * (stream.more if treated else 1)
    requests = rng.geometric(1 / (1 + further), at.size)
    session = np.repeat(np.arange(at.size), requests)
    ms = stream.durations(rng, session) * (1 + 0.5 * (wave - 1))[session]
    ms *= slowness[rng.integers(slowness.size, size=ms.size)]
    slower = stream.nature * (stream.later if treated else 1)
    ms = np.where(np.diff(session, prepend=-1) > 0, ms, ms * slower)
    ms = stream.harm(rng, ms) if treated and stream.harm is not None else ms
    failed = rng.random(session.size) < (stream.errors if treated else ERRORS)
    there = np.zeros(session.size, dtype=bool)
    if stream.broken is not None:
        there = (rng.random(at.size) < BROWSER)[session] & (rng.random(session.size) < ROUTE)
        failed |= there & treated & (rng.random(session.size) < stream.broken)
    return Drawn(at=at[session] * DAY, session=session, ms=ms, failed=failed, broken=there & failed)


@dataclass(frozen=True, kw_only=True)
class History:
    """What a day before the start gives: thresholds, the cap, and the limits of controllers."""

    over: Floats
    cap: float
    limits: dict[str, float]


def history(stream: Stream, rng: np.random.Generator) -> History:
    per_day, (_, slowness) = min(stream.per_day, 100_000), pods(stream, rng)
    before = drawn(stream, rng, slowness, per_day=per_day, treated=False)
    first = before.ms if stream.by_request else before.ms[_firsts(before)]
    return History(
        over=np.quantile(first, QUANTILES, method="inverted_cdf"),
        cap=float(np.quantile(before.ms, 0.99)),
        limits={
            name: HEADROOM * float(np.quantile(before.ms, quantile))
            for name, (_, _, quantile, _) in CHECKS.items()
        },
    )


def _firsts(arm: Drawn) -> Any:
    return np.flatnonzero(np.diff(arm.session, prepend=-1))


def picks(
    rng: np.random.Generator, arm: Drawn, known: History, *, by_request: bool, blocks: int
) -> list[list[Ints]]:
    """Returns by block the units whose picked request counts, and those that exceed thresholds.

    There is a list for each position.
    """
    firsts = np.arange(arm.at.size) if by_request else _firsts(arm)
    requests = np.diff(np.append(firsts, arm.at.size))
    place = (rng.random(firsts.size) * requests).astype(np.int64)
    ms, block = arm.ms[firsts + place], (arm.at[firsts] / BLOCK).astype(np.int64)
    position = np.searchsorted([1, 2, 4], place, side="right")
    return [
        [
            np.bincount(block[(position == own) & chosen], minlength=blocks)
            for chosen in (ms > 0, *(ms > over for over in known.over))
        ]
        for own in range(len(POSITIONS))
    ]


def counts(arm: Drawn, known: History, *, by_request: bool, blocks: int) -> dict[str, Any]:
    """Returns units, and of each metric the sums, by block."""
    firsts = np.arange(arm.at.size) if by_request else _firsts(arm)
    block = (arm.at[firsts] / BLOCK).astype(np.int64)
    summed = partial(np.bincount, block, minlength=blocks)
    amounts = np.add.reduceat(np.minimum(arm.ms, known.cap), firsts)
    failed, broken = (
        np.add.reduceat(which.astype(np.int64), firsts) > 0 for which in (arm.failed, arm.broken)
    )
    return {
        "units": summed(),
        "slow": [summed(weights=arm.ms[firsts] > over).astype(np.int64) for over in known.over],
        "error": summed(weights=failed).astype(np.int64),
        WHERE: summed(weights=broken).astype(np.int64),
        "y": summed(weights=amounts),
        "yy": summed(weights=amounts**2),
    }


def series(stream: Stream, known: History, arms: Sequence[Drawn], rng: np.random.Generator) -> Any:
    """Returns an experiment whose guardrails are `slow`, `error` and the capped mean."""
    blocks = int(np.ceil(stream.days * BLOCKS_A_DAY))
    one, two = (counts(arm, known, by_request=stream.by_request, blocks=blocks) for arm in arms)
    n1, n0 = one["units"], two["units"]
    picked = [picks(rng, arm, known, by_request=stream.by_request, blocks=blocks) for arm in arms]
    nothing = np.zeros_like(n1)
    block = np.arange(blocks, dtype=np.int64) * BLOCK
    values = Values(y1=one["y"], yy1=one["yy"], y0=two["y"], yy0=two["yy"])
    mean = ClosedCells(
        block=block, stratum=0 * block, n1=n1, x1=nothing, n0=n0, x0=nothing, values=values
    )
    thresholds = [
        Guardrail(
            name=f"slow {quantile}",
            of="slow",
            over=float(over),
            better="lower",
            window_seconds=BLOCK,
            cells=rail("", n1, x1, n0, x0).cells,
            picked=tuple(
                rail("", own[0], own[1 + place], other[0], other[1 + place]).cells
                for own, other in zip(*picked, strict=True)
            ),
        )
        for place, (quantile, over, x1, x0) in enumerate(
            zip(QUANTILES, known.over, one["slow"], two["slow"], strict=True)
        )
    ]
    latency = Guardrail(name="latency", better="lower", window_seconds=BLOCK, cells=mean)
    names = ("error",) if stream.broken is None else ("error", WHERE)
    errors = (rail(name, n1, one[name], n0, two[name]) for name in names)
    return of_one_stratum(n1, nothing, n0, nothing, guardrails=(*thresholds, *errors, latency))


def controller(name: str, arm: Drawn, known: History, *, hours: float) -> float | None:
    """Returns when a controller rolls back, in seconds; it looks at the canary alone."""
    every, failures, quantile, success = CHECKS[name]
    edges = np.arange(every, min(arm.at[-1], hours * 3600) + 1, every)
    parts = np.split(np.arange(arm.at.size), np.searchsorted(arm.at, edges))[: edges.size]
    failed = [
        bool(
            part.size
            and (
                np.quantile(arm.ms[part], quantile) > known.limits[name]
                or arm.failed[part].mean() > 1 - success
            )
        )
        for part in parts
    ]
    reached = np.flatnonzero(np.cumsum(failed) >= failures)
    return float(edges[reached[0]]) if reached.size else None


# Errors on the route by the browser alone: `where` asks for them.
WHERE = "error where"
RAILS = ("slow", "error", WHERE, "latency")
METHODS = (*RAILS, FLAGGER, ARGO)
# A block of a guardrail closes so long after its end.
CLOSES_AFTER = BLOCK + 120


@dataclass(frozen=True, kw_only=True)
class Row:
    """A stream: by method the share of runs with a breach, and medians of what came before it.

    Attributes:
        units: Sessions of both arms.
        minutes: Those from the start until the breach is known.
    """

    stream: str
    runs: int
    shares: dict[str, float]
    units: dict[str, float]
    minutes: dict[str, float]


def breaches(evidence: Evidence) -> dict[str, float | None]:
    """Returns when the exposures that breached each guardrail had come, in seconds."""
    at = {test.metric: test.breached_at for test in evidence.guardrails}
    return {
        name: None if breached is None else breached.timestamp() - CLOSES_AFTER
        for name, breached in at.items()
        if name in RAILS
    }


def measured(name: str, stream: Stream, *, runs: int, seed: int, hours: float) -> Row:
    """Returns how soon each method breaches.

    Args:
        hours: How long a controller analyses: it counts failures as long, and so promotes.
    """
    rng = np.random.default_rng(seed)
    seen: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
    for _ in range(runs):
        known = history(stream, rng)
        arms = [
            drawn(stream, rng, slowness, per_day=stream.per_day / 2, treated=treated)
            for treated, slowness in zip((True, False), pods(stream, rng), strict=True)
        ]
        (evidence,) = evaluate([series(stream, known, arms, rng)])
        when = breaches(evidence)
        when |= {each: controller(each, arms[0], known, hours=hours) for each in CHECKS}
        came = np.sort(np.concatenate([arm.at[_firsts(arm)] for arm in arms]))
        for method, at in when.items():
            if at is not None:
                known_at = at + (CLOSES_AFTER if method in RAILS else 0)
                seen[method].append((float(np.searchsorted(came, at)), known_at / 60))
    medians = {
        own: np.median([*breached, *[(np.inf, np.inf)] * (runs - len(breached))], axis=0)
        for own, breached in seen.items()
    }
    return Row(
        stream=name,
        runs=runs,
        shares={own: len(breached) / runs for own, breached in seen.items()},
        units={own: float(units) for own, (units, _) in medians.items()},
        minutes={own: float(minutes) for own, (_, minutes) in medians.items()},
    )


HARMED = {
    "1 % of requests x10": Stream(harm=times(0.01, 10), days=4),
    "0.5 % x10": Stream(harm=times(0.005, 10), days=4),
    "1 % +20 s": Stream(harm=plus(0.01, 20), days=4),
    "all x1.1": Stream(harm=times(1, 1.1), days=4),
    "errors 0.5 -> 1.5 %": Stream(errors=0.015, days=4),
    "a route fails for a browser": Stream(broken=1, days=4),
    "the same, one in ten": Stream(broken=0.1, days=4),
    "bimodal, 1 % x10": Stream(durations=bimodal, harm=times(0.01, 10), days=4),
    "later requests x1.3": Stream(later=1.3, days=4),
    "later requests x1.3, requests x1.25": Stream(later=1.3, more=1.25, days=4),
    "later requests x1.3, requests x0.8": Stream(later=1.3, more=0.8, days=4),
    "later requests x2": Stream(later=2, days=4),
}
BUSY = {
    f"{name}, 500 requests a second": replace(stream, per_day=14_400_000, days=1 / 48)
    for name, stream in HARMED.items()
}
EQUAL = {
    "log-normal": Stream(),
    "bimodal": Stream(durations=bimodal),
    "log-normal, diurnal load": Stream(swing=0.6),
    "bimodal, diurnal load": Stream(durations=bimodal, swing=0.6),
    "users of a kind": Stream(durations=partial(log_normal, users=1.5), swing=0.6),
    "each request its own unit": Stream(by_request=True, durations=partial(log_normal, users=1.5)),
    "20 pods of both arms, 20 % apart": Stream(pods=20, apart=0.2),
    "the same, bimodal, diurnal load": Stream(pods=20, apart=0.2, durations=bimodal, swing=0.6),
    **{
        f"10 pods of each arm, {apart:.0%} apart": Stream(pods=10, apart=apart, own_pods=True)
        for apart in (0.01, 0.02, 0.03, 0.05, 0.1)
    },
    **{
        f"later x{nature:g} by nature, requests x{more:g}": Stream(more=more, nature=nature)
        for nature in (1, 1.5, 2)
        for more in (0.8, 1.25, 2)
    },
    **{
        f"quick users ask more, later x{nature:g} by nature, requests x{more:g}": Stream(
            durations=quick_ask_more, more=more, nature=nature
        )
        for nature in (1, 2)
        for more in (0.8, 1.25, 2)
    },
}


def main() -> None:
    chosen = options(__doc__)
    chosen.add_argument("--runs", type=int, default=40, help="of each harmed stream")
    chosen.add_argument("--equal", type=int, default=1000, help="of each stream without harm")
    chosen.add_argument("--busy", type=int, default=5, help="of each with 500 requests a second")
    asked = chosen.parse_args()
    rows = [
        measured(name, stream, runs=runs, seed=2026 + number, hours=hours)
        for streams, runs, hours in (
            (HARMED, asked.runs, 1),
            (BUSY, asked.busy, 1),
            (EQUAL, asked.equal, 1),
        )
        if runs
        for number, (name, stream) in enumerate(streams.items())
    ]
    shown: dict[str, Callable[[Row], str]] = {
        "stream": lambda row: row.stream,
        "runs": lambda row: str(row.runs),
        **{own: partial(_cell, own) for own in METHODS},
    }
    report(
        rows,
        shown,
        lines=asked.lines,
        caption="share of runs with a breach, medians of units and minutes to it",
    )


def _cell(method: str, row: Row) -> str:
    units = row.units[method]
    medians = f", {units:,.0f}, {row.minutes[method]:,.0f} min" if np.isfinite(units) else ""
    return f"{row.shares[method]:.3f}{medians}"


if __name__ == "__main__":
    main()
