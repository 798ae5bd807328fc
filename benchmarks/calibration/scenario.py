"""Scenarios: experiments with guardrails, declared shares, strata, and differences too small."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.calibration.traffic import BLOCK, BLOCKS_A_DAY, DELAY, Floats, Ints
from domain.cause import Cause
from domain.metric import DAY
from domain.policy import SPLIT_AT, Numbers
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.closed_cells import ClosedCells, Pairs, Values
from stats.counts.finding import LateUnits
from stats.counts.traits import Traits
from stats.decision.evidence import Evidence, evaluate
from stats.gates.companions.after_window import LONG_WINDOW
from stats.gates.companions.channels import VOUCHED
from stats.gates.sample_ratio import SampleRatioReading, sample_ratio
from stats.looks.series import Companion, Guardrail, Series

AT_ONCE = 25
RAIL_RATES = (0.01, 0.05, 0.3)

Draw = Callable[[np.random.Generator], Series]


def evaluated(draw: Draw, count: int, seed: int) -> Iterator[Evidence]:
    rng = np.random.default_rng(seed)
    for begin in range(0, count, AT_ONCE):
        yield from evaluate([draw(rng) for _ in range(min(AT_ONCE, count - begin))])


def units(rng: np.random.Generator, looks: int, mean: float, share: float) -> tuple[Ints, Ints]:
    arrived = rng.poisson(mean, looks)
    n1 = rng.binomial(arrived, share)
    return n1, arrived - n1


def of_one_stratum(
    n1: Ints, x1: Ints, n0: Ints, x0: Ints, *, values: Values | None = None, **read: Any
) -> Series:
    block = np.arange(n1.size, dtype=np.int64) * BLOCK
    cells = ClosedCells(block=block, stratum=0 * block, n1=n1, x1=x1, n0=n0, x0=x0, values=values)
    return of_cells(cells, **{"as_of": n1.size * BLOCK + DELAY, **read})


def of_cells(target: ClosedCells, **read: Any) -> Series:
    return Series(
        **{"policy": Numbers(), "start": 0, "closed_at": None, "cuts": (), "target": target, **read}
    )


def rail(name: str, n1: Ints, x1: Ints, n0: Ints, x0: Ints) -> Guardrail:
    block = np.arange(n1.size, dtype=np.int64) * BLOCK
    cells = ClosedCells(block=block, stratum=0 * block, n1=n1, x1=x1, n0=n0, x0=x0)
    return Guardrail(name=name, better="lower", window_seconds=BLOCK, cells=cells)


def family_of_guardrails(number: int, *, days: int) -> Draw:
    """No effect on any of so many guardrails, and no conversion."""

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * days, 83, 0.5)
        rails = tuple(
            rail(
                f"rail {i}",
                n1,
                rng.binomial(n1, RAIL_RATES[i % 3]),
                n0,
                rng.binomial(n0, RAIL_RATES[i % 3]),
            )
            for i in range(number)
        )
        nothing = np.zeros_like(n1)
        return of_one_stratum(n1, nothing, n0, nothing, guardrails=rails)

    return draw


def better_target(*, errors: float, before: float = 0.01, lift: float = 0.2) -> Draw:
    """Target 5 % and this relative lift for a week.

    Args:
        errors: The error rate in treatment.
        before: The error rate in control.
        lift: What treatment adds to the target, relative to control.
    """

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * 7, 83, 0.5)
        watched = rail("error", n1, rng.binomial(n1, errors), n0, rng.binomial(n0, before))
        x1, x0 = rng.binomial(n1, 0.05 * (1 + lift)), rng.binomial(n0, 0.05)
        return of_one_stratum(n1, x1, n0, x0, guardrails=(watched,))

    return draw


def stratified(strata: Sequence[tuple[float, float]], *, days: int, alpha: float = 1e-290) -> Draw:
    """Strata of a baseline and a ratio of treatment's rate to it; by default no test fires."""
    looks, number = BLOCKS_A_DAY * days, len(strata)

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, looks * number, 83, 0.5)
        rate = np.tile([one for one, _ in strata], looks)
        ratio = np.tile([two for _, two in strata], looks)
        block = np.repeat(np.arange(looks, dtype=np.int64) * BLOCK, number)
        cells = ClosedCells(
            block=block,
            stratum=np.tile(np.arange(number, dtype=np.int64), looks),
            n1=n1,
            x1=rng.binomial(n1, rate * ratio),
            n0=n0,
            x0=rng.binomial(n0, rate),
        )
        return of_cells(cells, policy=Numbers(alpha=alpha), as_of=looks * BLOCK + DELAY)

    return draw


def small_difference(relative: float) -> Draw:
    """1.7 million units in a day at 5 %, with a futility margin of 5 % of that."""

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY, 6000, 0.5)
        x1, x0 = rng.binomial(n1, 0.05 * (1 + relative)), rng.binomial(n0, 0.05)
        return of_one_stratum(n1, x1, n0, x0, policy=Numbers(futility_margin=0.05))

    return draw


def ramp_declared(*shares: float) -> tuple[Epoch, ...]:
    """Shares declared for a day each, the last for good."""
    last = len(shares) - 1
    return tuple(
        Epoch(start=i * DAY, end=None if i == last else (i + 1) * DAY, share=share)
        for i, share in enumerate(shares)
    )


def shares_seen(
    rng: np.random.Generator, allocation: tuple[Epoch, ...], *, days: int, lag: int = 0
) -> SampleRatioReading:
    """Both evidences at every block, where a router applies a new share `lag` seconds late."""
    block = np.arange(days * BLOCKS_A_DAY, dtype=np.int64) * BLOCK
    share = np.zeros(block.size)
    for epoch in allocation:
        assert epoch.share is not None
        share[block >= epoch.start + (lag if epoch.start else 0)] = epoch.share
    return of_shares(rng, allocation, share)


def of_shares(
    rng: np.random.Generator, allocation: tuple[Epoch, ...], share: Any
) -> SampleRatioReading:
    """Both evidences at every block, where units split by `share`, an entry a block."""
    block = np.arange(share.size, dtype=np.int64) * BLOCK
    arrived = rng.poisson(83, block.size)
    n1 = rng.binomial(arrived, share)
    return sample_ratio(
        allocation,
        Arrivals(block=block, treatment=n1, others=arrived - n1),
        at=block + BLOCK + 120,
        block_seconds=BLOCK,
        grace_seconds=120,
    )


def quiet(
    *,
    days: int,
    per_day: int,
    shares: Sequence[tuple[float, float]],
    strata: int = 1,
    declared: Sequence[tuple[float, float | None]] = (),
) -> Draw:
    """Traffic so thin that arms miss each other for a day, and a test that never fires.

    Args:
        days: How long it comes.
        per_day: Units of all strata.
        shares: (day, share) from when on treatment gets which share.
        strata: Units fall into these evenly.
        declared: (day, share) that is declared; empty where nothing is.
    """
    looks = days * BLOCKS_A_DAY
    block = np.arange(looks, dtype=np.int64) * BLOCK
    share = _steps(shares, block)
    epochs = (
        tuple(
            Epoch(start=int(day * DAY), end=end, share=one)
            for (day, one), end in zip(
                declared, [*[int(day * DAY) for day, _ in declared[1:]], None], strict=True
            )
        )
        if declared
        else None
    )

    def draw(rng: np.random.Generator) -> Series:
        arrived = rng.poisson(per_day / BLOCKS_A_DAY / strata, (looks, strata))
        n1 = rng.binomial(arrived, share[:, np.newaxis])
        n0 = arrived - n1
        came = arrived.ravel() > 0
        nothing = np.zeros(int(came.sum()), dtype=np.int64)
        cells = ClosedCells(
            block=np.repeat(block, strata)[came],
            stratum=np.tile(np.arange(strata, dtype=np.int64), looks)[came],
            n1=n1.ravel()[came],
            x1=nothing,
            n0=n0.ravel()[came],
            x0=nothing,
        )
        return of_cells(
            cells,
            as_of=looks * BLOCK + DELAY,
            cuts=tuple(epoch.start for epoch in (epochs or ())[1:]),
            allocation=epochs,
            arrivals=None
            if epochs is None
            else Arrivals(block=block, treatment=n1.sum(axis=1), others=n0.sum(axis=1)),
        )

    return draw


def _steps(steps: Sequence[tuple[float, float]], block: Ints) -> Any:
    """The value in force at each block."""
    begins = np.array([day * DAY for day, _ in steps])
    return np.array([value for _, value in steps])[np.searchsorted(begins, block, side="right") - 1]


def with_effects(first: float, second: float, *, days: int) -> Draw:
    """48,000 units a day, a rate that goes up and down by day, and an effect in each half."""
    # No test fires: all of it is measured.
    policy = Numbers(alpha=1e-200)

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * days, 167, 0.5)
        block = np.arange(n1.size)
        rate = 0.05 * (1 + 0.5 * np.sin(2 * np.pi * block / BLOCKS_A_DAY))
        effect = np.where(block < n1.size / 2, first, second)
        x1, x0 = rng.binomial(n1, rate * (1 + effect)), rng.binomial(n0, rate)
        return of_one_stratum(n1, x1, n0, x0, policy=policy)

    return draw


def with_late_outcomes(
    treated: float, control: float, *, lift: float = 0.0, is_read: bool = True
) -> Draw:
    """120,000 units a day at 30 % for a week.

    Args:
        lift: What treatment adds to the rate, relative to control.
        is_read: Whether the gate reads the late outcomes.
        treated: The share of treatment's outcomes that come after their block has closed.
        control: The share of control's.
    """

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * 7, 417, 0.5)
        happened = [rng.binomial(n1, 0.3 * (1 + lift)), rng.binomial(n0, 0.3)]
        late = [rng.binomial(x, p) for x, p in zip(happened, (treated, control), strict=True)]
        block = np.arange(n1.size, dtype=np.int64) * BLOCK
        when = np.concatenate([np.repeat(block, one) for one in late])
        found = LateUnits(
            block=when,
            stratum=0 * when,
            arm=np.repeat([1, 0], [int(one.sum()) for one in late]),
            at=when + BLOCK + DELAY + rng.exponential(3600, when.size).astype(np.int64),
        )
        on_time = (n1, happened[0] - late[0], n0, happened[1] - late[1])
        return of_one_stratum(*on_time, late=found if is_read else None)

    return draw


def partly_after_the_window(
    inside: tuple[float, float], *, lift: float, days: int, is_read: bool = True
) -> Draw:
    """24,000 units a day at 5 % in the end, of which the window of 30 minutes misses some.

    Args:
        inside: The share of treatment's and of control's outcomes that come within the window.
        lift: What treatment adds to the rate in the end, relative to control.
        days: How long they come.
        is_read: Whether the gate reads the long window.
    """
    policy = Numbers()

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * days, 83, 0.5)
        end1, end0 = rng.binomial(n1, 0.05 * (1 + lift)), rng.binomial(n0, 0.05)
        x1, x0 = rng.binomial(end1, inside[0]), rng.binomial(end0, inside[1])
        whole = of_one_stratum(n1, end1, n0, end0).target
        long = Companion(window_seconds=4 * policy.window_seconds, cells=whole)
        read = {LONG_WINDOW: long} if is_read else {}
        return of_one_stratum(n1, x1, n0, x0, policy=policy, companions=read)

    return draw


def partly_left_out(
    shares: tuple[float, float],
    *,
    days: int,
    lifts: tuple[float, float] = (0.0, 0.0),
    has_rates: bool = False,
    is_read: bool = True,
) -> Draw:
    """24,000 units a day of which 5 % pay, and some of these in another currency.

    Args:
        lifts: What treatment adds to the payments in the metric's currency, and to the others.
        has_rates: Whether the metric converts the others, and leaves none out.
        shares: The share of treatment's and of control's payments that is in another currency.
        days: How long they come.
        is_read: Whether the gate reads what is left out.
    """

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * days, 83, 0.5)
        in_metric, in_other = (
            [rng.binomial(n1, rate1 * (1 + lift)), rng.binomial(n0, rate0)]
            for lift, (rate1, rate0) in zip(
                lifts,
                ([0.05 * (1 - share) for share in shares], [0.05 * share for share in shares]),
                strict=True,
            )
        )
        x1, x0 = in_other
        if has_rates:
            return of_one_stratum(n1, in_metric[0] + x1, n0, in_metric[1] + x0)
        y1, y0 = x1.astype(np.float64), x0.astype(np.float64)
        values = Values(y1=y1, yy1=y1, y0=y0, yy0=y0)
        cells = of_one_stratum(n1, x1, n0, x0, values=values).target
        companion = Companion(window_seconds=Numbers().window_seconds, cells=cells)
        read = {Cause.OTHER_CURRENCY: companion} if is_read else {}
        return of_one_stratum(n1, in_metric[0], n0, in_metric[1], companions=read)

    return draw


def of_visitors(
    *,
    days: int,
    lift: float = 0.0,
    returns: tuple[float, float] = (0.1, 0.1),
    lasts: float = 0.0,
    cut: float = 0.0,
    gives_up: float = 0.0,
    known: float | tuple[float, float] = 1.0,
    rate: float = 0.05,
    is_read: bool = True,
) -> Draw:
    """24,000 visitors a day, each of whose visits is routed anew.

    Args:
        days: How long they come.
        lift: What treatment adds to the rate of a visit, relative to control.
        returns: The share of treatment's and of control's visits with another within the window.
        lasts: The share of visitors who come back within the window: to treatment in the session
            that they had, to control in a new session. Others do not come back then.
        cut: The share of treatment's sessions that end before anything is bought.
        gives_up: The share of these whose visitor does not begin another.
        known: The share of sessions that name their user; of treatment's and of control's.
        rate: Of visits that buy.
        is_read: Whether the gate reads who begins another session.
    """

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * days, 83, 0.5)
        rate1 = rate * (1 + lift)
        ended = rng.binomial(n1, cut)
        again = rng.binomial(ended, 1 - gives_up), rng.binomial(n0, lasts)
        both = rng.binomial(n1, lasts)
        to1 = rng.binomial(again[0] + again[1], 0.5)
        to0 = again[0] + again[1] - to1
        x1 = rng.binomial(n1 - ended, rate1) + rng.binomial(both, rate1 * (1 - rate1))
        x1 += rng.binomial(to1, rate1 * (1 - cut))
        x0 = rng.binomial(n0, rate) + rng.binomial(to0, rate)
        n1, n0 = n1 + to1, n0 + to0
        x1 = np.minimum(x1, n1)
        log_in = known if isinstance(known, tuple) else (known, known)
        named = rng.binomial(n1, log_in[0]), rng.binomial(n0, log_in[1])
        usual = (0.0, 0.0) if lasts else returns
        g1, g0 = (
            np.minimum(rng.binomial(back, part) + rng.binomial(n - back, share * part), most)
            for back, n, share, part, most in zip(
                again, (n1, n0), usual, log_in, named, strict=True
            )
        )
        cells = of_one_stratum(named[0], g1, named[1], g0).target
        companion = Companion(window_seconds=Numbers().window_seconds, cells=cells)
        read = {Cause.TURNOVER: companion} if is_read else {}
        return of_one_stratum(n1, x1, n0, x0, companions=read)

    return draw


def with_a_cold_start(*, warm_up: int, days: int) -> Draw:
    """240,000 units a day at 5 %, of which treatment loses half in its first hour.

    Args:
        warm_up: How many of the first blocks' units are in neither arm.
        days: How long they come.
    """

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * days, 833, 0.5)
        cold = np.arange(n1.size) < 3600 // BLOCK
        x1, x0 = rng.binomial(n1, np.where(cold, 0.025, 0.05)), rng.binomial(n0, 0.05)
        whole = of_one_stratum(n1, x1, n0, x0)
        return replace(whole, target=whole.target.between(warm_up * BLOCK, whole.as_of))

    return draw


def with_forged_units(share: float, *, lift: float, days: int) -> Draw:
    """24,000 honest units a day at 5 %, whose outcomes are vouched for, and forged ones.

    Args:
        share: How many units are forged for treatment, out of the honest ones; all convert.
        lift: What treatment adds to the rate of honest units, relative to control.
        days: How long they come.
    """

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * days, 83, 0.5)
        forged = rng.poisson(83 * share, n1.size)
        x1, x0 = rng.binomial(n1, 0.05 * (1 + lift)), rng.binomial(n0, 0.05)
        honest = of_one_stratum(n1 + forged, x1, n0, x0).target
        vouched = Companion(window_seconds=Numbers().window_seconds, cells=honest)
        read = {VOUCHED: vouched}
        return of_one_stratum(n1 + forged, x1 + forged, n0, x0, companions=read)

    return draw


def by_two_channels(
    sent: tuple[float, float],
    *,
    vouched: float = 0.5,
    lift: float = 0.0,
    days: int = 14,
    is_read: bool = True,
) -> Draw:
    """24,000 units a day; 5 % of them buy. Servers report some purchases, pages most.

    A purchase that either of them reported counts.

    Args:
        sent: The share of purchases that the page sends: treatment's, control's.
        vouched: The share of purchases that servers send.
        lift: What treatment adds to the rate, relative to control.
        days: How long units come.
        is_read: Whether the gate is asked.
    """

    def draw(rng: np.random.Generator) -> Series:
        arms = units(rng, BLOCKS_A_DAY * days, 83, 0.5)
        counts: dict[str, list[Ints]] = {"": [], VOUCHED: [], Cause.CHANNELS: []}
        for n, page, rate in zip(arms, sent, (0.05 * (1 + lift), 0.05), strict=True):
            bought = rng.binomial(n, rate)
            known = rng.binomial(bought, vouched)
            alone = rng.binomial(bought - known, page)
            counts[""].append(known + alone)
            counts[VOUCHED].append(known)
            counts[Cause.CHANNELS].append(rng.binomial(known, page) + alone)
        companions = {
            role: Companion(
                window_seconds=Numbers().window_seconds,
                cells=of_one_stratum(arms[0], x1, arms[1], x0).target,
            )
            for role, (x1, x0) in counts.items()
            if role and is_read
        }
        return of_one_stratum(arms[0], counts[""][0], arms[1], counts[""][1], companions=companions)

    return draw


def partly_before_the_exposure(
    shares: tuple[float, float], *, lift: float = 0.0, days: int = 28, is_read: bool = True
) -> Draw:
    """24,000 units a day, of which 5 % buy, and some of these before they are exposed.

    Args:
        shares: The share of buyers that buy before it, and do not count: treatment's, control's.
        lift: What treatment adds to the rate, relative to control.
        days: How long units come.
        is_read: Whether the gate is asked.
    """

    def draw(rng: np.random.Generator) -> Series:
        arms = units(rng, BLOCKS_A_DAY * days, 83, 0.5)
        bought = [
            rng.binomial(n, rate) for n, rate in zip(arms, (0.05 * (1 + lift), 0.05), strict=True)
        ]
        early = [rng.binomial(x, share) for x, share in zip(bought, shares, strict=True)]
        (n1, n0), (x1, x0) = arms, (x - before for x, before in zip(bought, early, strict=True))
        companion = Companion(
            window_seconds=Numbers().window_seconds,
            cells=of_one_stratum(n1, bought[0], n0, bought[1]).target,
        )
        read = {Cause.BEFORE_EXPOSURE: companion} if is_read else {}
        return of_one_stratum(n1, x1, n0, x0, companions=read)

    return draw


def at_a_declared_half(served: float, *, lift: float = 0.0, days: int = 14) -> Draw:
    """24,000 units a day, of which 5 % convert; half of the units are declared for treatment.

    Args:
        served: The share that the router serves.
        lift: What treatment adds to the rate, relative to control.
        days: How long they come.
    """

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * days, 83, served)
        block = np.arange(n1.size, dtype=np.int64) * BLOCK
        arrivals = Arrivals(block=block, treatment=n1, others=n0)
        x1, x0 = rng.binomial(n1, 0.05 * (1 + lift)), rng.binomial(n0, 0.05)
        half = ramp_declared(0.5)
        return of_one_stratum(n1, x1, n0, x0, allocation=half, arrivals=arrivals)

    return draw


def of_two_segments(
    rates: tuple[float, float], *, treated: tuple[float, float], days: int, is_read: bool = True
) -> Draw:
    """24,000 units a day of two segments, without an effect, that the arms share unequally.

    Args:
        rates: The rate in each segment.
        treated: The share of each segment that treatment gets.
        days: How long they come.
        is_read: Whether strata are split by the segment where it is shared unequally.
    """
    traits = Traits(
        lineage=np.zeros(2, dtype=np.int64),
        names=("properties.platform",),
        values=np.array([[0, 1]]),
        segments=frozenset(["properties.platform"]),
    )

    def draw(rng: np.random.Generator) -> Series:
        looks = BLOCKS_A_DAY * days
        arrived = rng.poisson(41.7, (looks, 2))
        n1 = rng.binomial(arrived, treated)
        n0 = arrived - n1
        cells = ClosedCells(
            block=np.repeat(np.arange(looks, dtype=np.int64) * BLOCK, 2),
            stratum=np.tile(np.arange(2, dtype=np.int64), looks),
            n1=n1.ravel(),
            x1=rng.binomial(n1, rates).ravel(),
            n0=n0.ravel(),
            x0=rng.binomial(n0, rates).ravel(),
        )
        whole = of_cells(cells, policy=Numbers(split_at=SPLIT_AT), as_of=looks * BLOCK + DELAY)
        return (
            replace(whole, traits=traits)
            if is_read
            else whole.regrouped(np.zeros(2, dtype=np.int64))
        )

    return draw


LAWS = ("normal", "log-normal, σ = 2", "5 % pay", "a mean of 0", "spread half as large again")
CONTROL_HAS_NONE = "2 % of treatment pay and nobody in control"


def _values(rng: np.random.Generator, law: str, size: int, *, treated: bool) -> Floats:
    if law == "log-normal, σ = 2":
        return rng.lognormal(0.0, 2.0, size)
    if law == "5 % pay":
        return np.where(rng.random(size) < 0.05, rng.lognormal(3.0, 1.0, size), 0.0)
    if law == CONTROL_HAS_NONE:
        return np.where(rng.random(size) < 0.02 * treated, rng.lognormal(3.0, 0.5, size), 0.0)
    mean = 0.0 if law == "a mean of 0" else 1.0
    return rng.normal(mean, 1.5 if treated and law == LAWS[-1] else 1.0, size)


def continuous(law: str, *, share: float, days: int, as_guardrail: bool = False) -> Draw:
    """A metric whose values follow a law: of `LAWS` with the same mean in both arms."""
    looks = days * BLOCKS_A_DAY

    def sums(rng: np.random.Generator, n: Ints, *, treated: bool) -> tuple[Floats, Floats]:
        y = _values(rng, law, int(n.sum()), treated=treated)
        block = np.repeat(np.arange(n.size), n)
        return (
            np.bincount(block, weights=y, minlength=n.size),
            np.bincount(block, weights=y * y, minlength=n.size),
        )

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, looks, 83, share)
        y1, yy1 = sums(rng, n1, treated=True)
        y0, yy0 = sums(rng, n0, treated=False)
        values = Values(y1=y1, yy1=yy1, y0=y0, yy0=yy0)
        whole = of_one_stratum(n1, n1, n0, n0, values=values)
        if not as_guardrail:
            return whole
        own = Guardrail(name="cost", better="lower", window_seconds=BLOCK, cells=whole.target)
        return replace(of_one_stratum(n1, 0 * n1, n0, 0 * n0), guardrails=(own,))

    return draw


def with_empty_units(
    base: float,
    *,
    share: float,
    empty: float = 0.0,
    lift: float = 0.0,
    days: int = 14,
    beside: float = 0.0,
    kind: str = "conversion",
) -> Draw:
    """24,000 units a day at a declared share, and units of control alone that never convert.

    They make treatment's rate look higher, where there is no effect.

    Args:
        base: Control's rate.
        share: Treatment's, of all units of the environment.
        empty: How many empty units come to control, out of its own.
        lift: What treatment adds to the rate, relative to control.
        beside: The share of a canary beside it, whose units are in another stratum.
        kind: `conversion`; `mean`, where each conversion is worth 1; or `ratio`, where each unit
            makes an attempt.
    """
    within = share / (1 - beside)
    epochs = ramp_declared(within)

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * days, 83 * (1 - beside), within)
        x1, x0 = rng.binomial(n1, min(base * (1 + lift), 1.0)), rng.binomial(n0, base)
        n0 = n0 + rng.poisson(83 * (1 - beside) * (1 - within) * empty, n0.size)
        block = np.arange(n1.size, dtype=np.int64) * BLOCK
        return of_one_stratum(
            n1,
            x1,
            n0,
            x0,
            allocation=epochs,
            arrivals=Arrivals(block=block, treatment=n1, others=n0),
            values=_worth(kind, n1, x1, n0, x0),
            stratum_shares={0: epochs},
        )

    return draw


def _worth(kind: str, n1: Ints, x1: Ints, n0: Ints, x0: Ints) -> Values | None:
    """The sums of conversions that are worth 1 each."""
    sums = {f"{name}{arm}": 1.0 * x for arm, x in ((1, x1), (0, x0)) for name in ("y", "yy")}
    if kind == "mean":
        return Values(**sums)
    sums |= {f"{name}{arm}": 1.0 * n for arm, n in ((1, n1), (0, n0)) for name in ("d", "dd")}
    return None if kind == "conversion" else Pairs(**sums, yd1=1.0 * x1, yd0=1.0 * x0)


def with_a_lagging_router(base: float, *, empty: float, days: int = 8) -> Draw:
    """A ramp of 5, 25 and 50 % that a router applies half an hour late, with empty units."""
    epochs = ramp_declared(0.05, 0.25, 0.5)

    def draw(rng: np.random.Generator) -> Series:
        block = np.arange(days * BLOCKS_A_DAY, dtype=np.int64) * BLOCK
        share = np.zeros(block.size)
        for epoch in epochs:
            share[block >= epoch.start + (1800 if epoch.start else 0)] = epoch.share
        arrived = rng.poisson(83, block.size)
        n1 = rng.binomial(arrived, share)
        n0 = arrived - n1
        x1, x0 = rng.binomial(n1, base), rng.binomial(n0, base)
        n0 = n0 + rng.poisson(83 * (1 - share) * empty)
        return of_one_stratum(
            n1,
            x1,
            n0,
            x0,
            cuts=tuple(epoch.start for epoch in epochs[1:]),
            allocation=epochs,
            arrivals=Arrivals(block=block, treatment=n1, others=n0),
            stratum_shares={0: epochs},
        )

    return draw
