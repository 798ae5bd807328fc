"""The follow-up: units after a decision know nothing of the luck with which it was reached."""

from collections.abc import Callable

import numpy as np
import pytest

from domain.metric import DAY
from domain.policy import Numbers
from stats.decision.follow_up import follow_up
from stats.looks.series import Series

Maker = Callable[..., Series]
HOURS = 12  # blocks of an hour
BASE, LIFT = 0.10, 0.01
UNITS_AN_HOUR = 150
WEEK = 7 * DAY


def drawn(
    series: Maker, generator: np.random.Generator, *, decided_at: int | None, lift: float = LIFT
) -> Series:
    """Four weeks of an hourly canary at a half; after a decision control keeps a tenth."""
    hour = np.arange(28 * 24)
    after = hour * 3600 >= (10**12 if decided_at is None else decided_at)
    share = np.where(after, 0.9, 0.5)
    n1 = generator.binomial(UNITS_AN_HOUR, share)
    n0 = UNITS_AN_HOUR - n1
    x1, x0 = generator.binomial(n1, BASE + lift), generator.binomial(n0, BASE)
    rows = zip(hour * HOURS, np.zeros_like(hour), n1, x1, n0, x0, strict=True)
    cuts = () if decided_at is None else (-(-decided_at // 3600) * 3600,)
    return series(list(rows), cuts=cuts, policy=Numbers(), as_of=40 * DAY)


def of_a_keep(series: Maker) -> tuple[Series, int]:
    begin = 2 * DAY
    return drawn(series, np.random.default_rng(3), decided_at=begin), begin


def test_units_before_the_decision_do_not_count(series) -> None:
    whole, begin = of_a_keep(series)
    result = follow_up(whole, begin=begin, end=begin + WEEK)
    assert result.units == 7 * 24 * UNITS_AN_HOUR
    assert result.per_day == pytest.approx(24 * UNITS_AN_HOUR, rel=0.02)
    cells = whole.target.between(begin, begin + WEEK)
    rates = [cells.x1.sum() / cells.n1.sum(), cells.x0.sum() / cells.n0.sum()]
    assert result.lift == pytest.approx(rates[0] - rates[1], abs=0.002)


def test_it_runs_until_the_outcomes_of_its_last_block_have_closed(series) -> None:
    whole, begin = of_a_keep(series)
    end = begin + WEEK
    cells = whole.target
    rows = list(
        zip(cells.block // 300, cells.stratum, cells.n1, cells.x1, cells.n0, cells.x0, strict=True)
    )
    until = end + Numbers().window_seconds + Numbers().grace_seconds
    for as_of, ended in ((until - 1, False), (until, True)):
        known = [row for row in rows if row[0] * 300 + 300 <= as_of]
        result = follow_up(series(known, as_of=as_of, cuts=whole.cuts), begin=begin, end=end)
        assert result.ended is ended
