"""Calibration of guardrails, gates, futility and continuous metrics on simulated traffic."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from stats.closed_cells import ClosedCells, Values
from stats.evidence import Evidence, evaluate
from stats.guardrail import Guardrail
from stats.lateness import LateUnits
from stats.policy import DAY, Policy
from stats.sample_ratio import Arrivals, Epoch, SampleRatio, sample_ratio
from stats.series import Series

BLOCK = 300
DELAY = 1920
SURE = 0.999
AT_ONCE = 25

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Draw = Callable[[np.random.Generator], Series]


def sizes(small: int, full: int) -> list[Any]:
    return [
        pytest.param(small, id="small"),
        pytest.param(full, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]),
    ]


def bounds(hits: int, count: int, sure: float = SURE) -> tuple[float, float]:
    """The exact two-sided binomial interval of a share (Clopper & Pearson, Biometrika 1934)."""
    tail = (1 - sure) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return low, high


def report(name: str, hits: int, count: int, claim: str) -> tuple[float, float]:
    """Prints a row of the calibration's table, and gives the share's sure bounds."""
    share = hits / count
    error = (share * (1 - share) / count) ** 0.5
    low, high = bounds(hits, count, 0.95)
    print(  # noqa: T201  # the table is what the full calibration is run for
        f"{name:<58} {count:>6} {share:>7.4f} ± {error:.4f}  [{low:.4f}, {high:.4f}]  {claim}"
    )
    return bounds(hits, count)


def evaluated(draw: Draw, count: int, seed: int) -> Iterator[Evidence]:
    rng = np.random.default_rng(seed)
    for begin in range(0, count, AT_ONCE):
        yield from evaluate([draw(rng) for _ in range(min(AT_ONCE, count - begin))])


def units(rng: np.random.Generator, looks: int, mean: float, share: float) -> tuple[Ints, Ints]:
    arrived = rng.poisson(mean, looks)
    n1 = rng.binomial(arrived, share)
    return n1, arrived - n1


def of_one_stratum(n1: Ints, x1: Ints, n0: Ints, x0: Ints, **read: Any) -> Series:
    looks = n1.size
    return Series(
        **{
            "policy": Policy(),
            "start": 0,
            "as_of": looks * BLOCK + DELAY,
            "closed_at": None,
            "cuts": (),
            "block": np.arange(looks, dtype=np.int64) * BLOCK,
            "stratum": np.zeros(looks, dtype=np.int64),
            "n1": n1,
            "x1": x1,
            "n0": n0,
            "x0": x0,
            **read,
        }
    )


def rail(name: str, n1: Ints, x1: Ints, n0: Ints, x0: Ints) -> Guardrail:
    block = np.arange(n1.size, dtype=np.int64) * BLOCK
    cells = ClosedCells(block=block, stratum=0 * block, n1=n1, x1=x1, n0=n0, x0=x0)
    return Guardrail(name=name, better="lower", window_seconds=BLOCK, cells=cells)


# Guardrails


@pytest.mark.parametrize("count", sizes(100, 2000))
@pytest.mark.parametrize("family", [1, 3, 5, 10])
def test_a_family_of_guardrails_is_falsely_breached_no_more_often_than_its_level(
    family: int, count: int
) -> None:
    rates = (0.01, 0.05, 0.3)
    looks = 288 * (3 if count < 1000 else 7)

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, looks, 83, 0.5)
        rails = tuple(
            rail(
                f"rail {i}",
                n1,
                rng.binomial(n1, rates[i % 3]),
                n0,
                rng.binomial(n0, rates[i % 3]),
            )
            for i in range(family)
        )
        nothing = np.zeros_like(n1)
        return of_one_stratum(n1, nothing, n0, nothing, guardrails=rails)

    hits = sum(bool(seen.guardrail_breaches) for seen in evaluated(draw, count, 20_261_201))
    low, _ = report(f"false breaches of {family} guardrails", hits, count, "<= 0.05")
    assert low <= 0.05


@pytest.mark.parametrize("count", sizes(100, 2000))
def test_a_change_that_helps_the_target_and_raises_errors_is_seldom_kept(count: int) -> None:
    """Target +20 %, errors 1 → 1.5 %."""

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, 288 * 7, 83, 0.5)
        errors = rail("error", n1, rng.binomial(n1, 0.015), n0, rng.binomial(n0, 0.01))
        x1, x0 = rng.binomial(n1, 0.06), rng.binomial(n0, 0.05)
        return of_one_stratum(n1, x1, n0, x0, guardrails=(errors,))

    found = [seen.decision for seen in evaluated(draw, count, 20_261_202)]
    kept = sum(one.verdict == "keep" for one in found)
    iterated = sum(one.verdict == "iterate" for one in found)
    report("target +20 %, errors 1 → 1.5 %: iterate", iterated, count, "the rest")
    low, _ = report("target +20 %, errors 1 → 1.5 %: kept", kept, count, "<= 0.1")
    assert low <= 0.1
    assert iterated > 0.8 * count


@pytest.mark.parametrize("count", sizes(60, 1000))
def test_a_change_that_harms_no_guardrail_is_kept(count: int) -> None:
    waited: list[int] = []

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, 288 * 7, 83, 0.5)
        errors = rail("error", n1, rng.binomial(n1, 0.01), n0, rng.binomial(n0, 0.01))
        x1, x0 = rng.binomial(n1, 0.06), rng.binomial(n0, 0.05)
        return of_one_stratum(n1, x1, n0, x0, guardrails=(errors,))

    kept = 0
    for seen in evaluated(draw, count, 20_261_203):
        kept += seen.decision.verdict == "keep"
        if seen.candidate is not None and seen.decision.at is not None:
            waited.append(seen.decision.at - seen.candidate.at)
    name = f"target +20 %, errors 1 %: kept (waited {np.mean(waited) / 3600:.1f} h)"
    _, high = report(name, kept, count, "most")
    assert high >= 0.9


# Sample ratio


def shares_seen(
    rng: np.random.Generator, allocation: tuple[Epoch, ...], *, days: int, lag: int = 0
) -> SampleRatio:
    """Both evidences at every block, where a router applies a new share `lag` seconds late."""
    block = np.arange(days * 288, dtype=np.int64) * BLOCK
    share = np.zeros(block.size)
    for epoch in allocation:
        assert epoch.share is not None
        share[block >= epoch.start + (lag if epoch.start else 0)] = epoch.share
    arrived = rng.poisson(83, block.size)
    n1 = rng.binomial(arrived, share)
    found = sample_ratio(
        allocation,
        Arrivals(block=block, treatment=n1, others=arrived - n1),
        at=block + BLOCK + 120,
        block_seconds=BLOCK,
        grace_seconds=120,
    )
    assert found is not None
    return found


def ramp(*shares: float) -> tuple[Epoch, ...]:
    last = len(shares) - 1
    return tuple(
        Epoch(start=i * DAY, end=None if i == last else (i + 1) * DAY, share=share)
        for i, share in enumerate(shares)
    )


@pytest.mark.parametrize("count", sizes(150, 5000))
@pytest.mark.parametrize("name", ["1 %", "50 %", "ramp", "ramp, router ten minutes late"])
def test_declared_shares_that_are_kept_raise_no_alarm(name: str, count: int) -> None:
    rng = np.random.default_rng(20_261_204)
    allocation = {"1 %": ramp(0.01), "50 %": ramp(0.5)}.get(name, ramp(0.01, 0.05, 0.25, 0.5))
    days = 6 if count < 1000 else 28
    lag = 600 if "late" in name else 0
    both = few = 0
    for _ in range(count):
        found = shares_seen(rng, allocation, days=days, lag=lag)
        both += bool(np.any(found.log_e >= np.log(1000)))
        few += bool(np.any(found.log_too_few >= np.log(1000)))
    low, _ = report(f"sample-ratio alarms, {name}", both, count, "<= 0.001")
    assert low <= 0.001
    low, _ = report(f"arrival breaches, {name}", few, count, "<= 0.001")
    assert low <= 0.001


@pytest.mark.parametrize("count", sizes(60, 1000))
@pytest.mark.parametrize(("share", "seen"), [(0.5, 0.45), (0.05, 0.04)])
def test_arms_that_lose_units_are_found(share: float, seen: float, count: int) -> None:
    rng = np.random.default_rng(20_261_205)
    block = np.arange(3 * 288, dtype=np.int64) * BLOCK
    first: dict[str, list[int]] = {"sample ratio": [], "arrival": []}
    for _ in range(count):
        arrived = rng.poisson(83, block.size)
        n1 = rng.binomial(arrived, seen)
        found = sample_ratio(
            ramp(share),
            Arrivals(block=block, treatment=n1, others=arrived - n1),
            at=block + 420,
            block_seconds=BLOCK,
            grace_seconds=120,
        )
        assert found is not None
        for name, log_e in (("sample ratio", found.log_e), ("arrival", found.log_too_few)):
            reached = np.flatnonzero(log_e >= np.log(1000))
            first[name].append(int(reached[0]) if reached.size else block.size)
    for name, looks in first.items():
        hits = sum(look < block.size for look in looks)
        text = f"{name} at {seen:.0%} for {share:.0%} (median {np.median(looks) / 12:.1f} h)"
        low, _ = report(text, hits, count, "found in 3 days")
        assert low > 0.5


# Interaction


@pytest.mark.parametrize("count", sizes(100, 2000))
@pytest.mark.parametrize(
    ("name", "strata", "claim"),
    [
        ("none, two strata", [(0.05, 1.0), (0.05, 1.0)], 0.01),
        ("none, baselines 2 and 10 %", [(0.02, 1.0), (0.1, 1.0)], 0.01),
        ("none, four strata", [(0.05, 1.0)] * 4, 0.01),
        ("constant +20 %, baselines 2 and 10 %", [(0.02, 1.2), (0.1, 1.2)], 0.01),
        ("constant +50 %, baselines 2 and 10 %", [(0.02, 1.5), (0.1, 1.5)], 0.01),
        ("+50 % and -20 %", [(0.05, 1.5), (0.05, 0.8)], None),
    ],
)
def test_an_interaction_is_told_where_the_relative_effects_differ_alone(
    name: str, strata: list[tuple[float, float]], claim: float | None, count: int
) -> None:
    looks = 288 * (2 if count < 1000 else 7)
    number = len(strata)

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, looks * number, 83, 0.5)
        rate = np.tile([one for one, _ in strata], looks)
        ratio = np.tile([two for _, two in strata], looks)
        block = np.repeat(np.arange(looks, dtype=np.int64) * BLOCK, number)
        return of_one_stratum(
            n1,
            rng.binomial(n1, rate * ratio),
            n0,
            rng.binomial(n0, rate),
            policy=Policy(alpha=1e-290),
            block=block,
            stratum=np.tile(np.arange(number, dtype=np.int64), looks),
            as_of=looks * BLOCK + DELAY,
        )

    hits = sum(bool(seen.looks.gated.any()) for seen in evaluated(draw, count, 20_261_206))
    text = "most" if claim is None else f"<= {claim}"
    low, high = report(f"interaction alarms, {name}", hits, count, text)
    if claim is None:
        assert high > 0.9
    else:
        assert low <= claim


# Futility


@pytest.mark.parametrize("count", sizes(60, 1000))
@pytest.mark.parametrize(("relative", "claim"), [(0.0, None), (0.05, 0.05), (-0.05, 0.05)])
def test_futility_ends_what_makes_no_difference_and_seldom_what_does(
    relative: float, claim: float | None, count: int
) -> None:
    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, 288, 6000, 0.5)
        x1, x0 = rng.binomial(n1, 0.05 * (1 + relative)), rng.binomial(n0, 0.05)
        return of_one_stratum(n1, x1, n0, x0, policy=Policy(futility_margin=0.05))

    hits = sum(
        seen.decision.ended_because == "futility" for seen in evaluated(draw, count, 20_261_207)
    )
    text = "most" if claim is None else f"<= {claim}"
    low, high = report(f"ended by futility at {relative:+.0%}, margin 5 %", hits, count, text)
    assert high > 0.9 if claim is None else low <= claim


# Lateness


@pytest.mark.parametrize("count", sizes(60, 1000))
@pytest.mark.parametrize(("share", "claim"), [(0.01, 0.05), (0.05, 0.1)])
def test_an_arm_whose_outcomes_come_late_is_not_taken_for_harm(
    share: float, claim: float, count: int
) -> None:
    """An A/A test where 5 % of treatment's outcomes are late, and 1 % of control's."""

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, 288 * 7, 417, 0.5)
        happened = [rng.binomial(n, 0.3) for n in (n1, n0)]
        late = [rng.binomial(x, p) for x, p in zip(happened, (share, 0.01), strict=True)]
        block = np.arange(n1.size, dtype=np.int64) * BLOCK
        when = np.concatenate([np.repeat(block, one) for one in late])
        found = LateUnits(
            block=when,
            stratum=0 * when,
            arm=np.repeat([1, 0], [int(one.sum()) for one in late]),
            at=when + BLOCK + DELAY + rng.exponential(3600, when.size).astype(np.int64),
        )
        return of_one_stratum(n1, happened[0] - late[0], n0, happened[1] - late[1], late=found)

    answers = alarms = 0
    for seen in evaluated(draw, count, 20_261_208):
        answers += seen.decision.verdict != "abstain"
        alarms += "lateness" in seen.gates.interacting_because
    even = share == 0.01
    text = "<= 0.01" if even else "most"
    low, high = report(f"lateness alarms, {share:.0%} against 1 %", alarms, count, text)
    assert low <= 0.01 if even else high > 0.9
    low, _ = report(f"false answers, late {share:.0%} against 1 %", answers, count, f"<= {claim}")
    assert low <= claim


# Continuous metrics


def lognormal(rng: np.random.Generator, size: int) -> Floats:
    return rng.lognormal(0.0, 2.0, size)


def normal(rng: np.random.Generator, size: int) -> Floats:
    return rng.normal(1.0, 1.0, size)


def zero_inflated(rng: np.random.Generator, size: int) -> Floats:
    return np.where(rng.random(size) < 0.05, rng.lognormal(3.0, 1.0, size), 0.0)


LAWS = {"normal": normal, "log-normal, σ = 2": lognormal, "5 % pay": zero_inflated}


@pytest.mark.parametrize("count", sizes(60, 2000))
@pytest.mark.parametrize("share", [0.5, 0.05])
@pytest.mark.parametrize("law", [*LAWS, "spread half as large again"])
def test_the_mean_of_a_continuous_metric_is_answered_falsely_no_more_often_than_alpha(
    law: str, share: float, count: int
) -> None:
    looks = 288 * (1 if count < 1000 else 3)

    def drawn(rng: np.random.Generator, n: Ints, *, treated: bool) -> tuple[Floats, Floats]:
        if law in LAWS:
            y = LAWS[law](rng, int(n.sum()))
        else:
            y = rng.normal(1.0, 1.5 if treated else 1.0, int(n.sum()))
        block = np.repeat(np.arange(n.size), n)
        return (
            np.bincount(block, weights=y, minlength=n.size),
            np.bincount(block, weights=y * y, minlength=n.size),
        )

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, looks, 83, share)
        y1, yy1 = drawn(rng, n1, treated=True)
        y0, yy0 = drawn(rng, n0, treated=False)
        values = Values(y1=y1, yy1=yy1, y0=y0, yy0=yy0)
        return of_one_stratum(n1, n1, n0, n0, values=values)

    hits = sum(seen.decision.verdict != "abstain" for seen in evaluated(draw, count, 20_261_209))
    low, _ = report(f"type-I error of a mean, {law}, share {share:.0%}", hits, count, "<= 0.05")
    assert low <= 0.05
