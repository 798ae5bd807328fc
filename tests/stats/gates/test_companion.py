"""Gates on companions: each holds back the side that its outcomes explain, and that side alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from domain.cause import LEFT_OUT, Cause
from domain.policy import Numbers
from stats.counts.closed_cells import Values
from stats.decision.evidence import Evidence, evaluate
from stats.gates.companions.after_window import LONG_WINDOW, missed_outcomes
from stats.gates.companions.channels import VOUCHED
from stats.looks.series import Companion, Series
from tests.stats.conftest import plain_e_value

Maker = Callable[..., Series]
HOURS, HOUR = 4, 12  # blocks
GRACE, WINDOW = 120, 1800
LESS = (4000, 320, 4000, 400)
MORE = (4000, 480, 4000, 400)
CAUSES = (Cause.AFTER_WINDOW, Cause.CHANNELS, Cause.BEFORE_EXPOSURE, *LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class Uncounted:
    """Outcomes of treatment's and of control's units that do not count, an hour."""

    units: tuple[int, int]
    each: int = 1


def series_of(
    series: Maker,
    cause: Cause,
    cell: tuple[int, int, int, int],
    uncounted: Sequence[Uncounted],
    *,
    better: str = "higher",
    alpha: float = 1e-4,
    as_of: int | None = None,
    servers: tuple[int, int] = (250, 250),
) -> Series:
    """Hours that are alike but for the outcomes that do not count."""
    hours, (n1, x1, n0, x0) = len(uncounted), cell
    policy = Numbers(better=better, alpha=alpha)  # pyright: ignore[reportArgumentType] - parametrized
    own = series(
        [(hour * HOUR, 0, *cell) for hour in range(hours)],
        policy=policy,
        as_of=as_of or hours * 3600 + WINDOW + GRACE,
    )
    if cause in (Cause.AFTER_WINDOW, Cause.BEFORE_EXPOSURE, Cause.NOT_VOUCHED):
        rows = [
            (hour * HOUR, 0, n1, x1 + lost.units[0], n0, x0 + lost.units[1])
            for hour, lost in enumerate(uncounted)
        ]
        role, windows = (LONG_WINDOW, 4) if cause is Cause.AFTER_WINDOW else (cause, 1)
        longer = Companion(window_seconds=windows * WINDOW, cells=series(rows).target)
        return replace(own, companions={role: longer})
    if cause is Cause.CHANNELS:
        page = [
            (hour * HOUR, 0, n1, x1 - lost.units[0], n0, x0 - lost.units[1])
            for hour, lost in enumerate(uncounted)
        ]
        known = [(hour * HOUR, 0, n1, servers[0], n0, servers[1]) for hour in range(hours)]
        sent = {cause: series(page).target, VOUCHED: series(known).target}
        companions = {
            role: Companion(window_seconds=WINDOW, cells=cells) for role, cells in sent.items()
        }
        return replace(own, companions=companions)
    counts = np.array([lost.units for lost in uncounted], dtype=np.float64).T
    each = np.array([lost.each for lost in uncounted], dtype=np.float64)
    y1, y0 = counts * each
    values = Values(y1=y1, yy1=y1 * each, y0=y0, yy0=y0 * each)
    rows = [
        (hour * HOUR, 0, n1, lost.units[0], n0, lost.units[1])
        for hour, lost in enumerate(uncounted)
    ]
    cells = series(rows, values=values).target
    return replace(own, companions={cause: Companion(window_seconds=WINDOW, cells=cells)})


def with_turnover(
    series: Maker,
    cell: tuple[int, int, int, int],
    again: tuple[int, int],
    *,
    better: str,
    named: tuple[int, int] = (800, 800),
) -> Series:
    """The same hours: a fifth of the sessions name a user, and some users have two sessions."""
    own = series_of(series, Cause.OTHER_CURRENCY, cell, [Uncounted(units=(0, 0))] * HOURS)
    policy = structs.replace(own.policy, better=better)  # pyright: ignore[reportArgumentType] - parametrized
    rows = [(hour * HOUR, 0, named[0], again[0], named[1], again[1]) for hour in range(HOURS)]
    companion = Companion(window_seconds=WINDOW, cells=series(rows).target)
    return replace(own, policy=policy, companions={Cause.TURNOVER: companion})


@pytest.mark.parametrize(
    ("cause", "cell"), [(Cause.CHANNELS, LESS), (Cause.BEFORE_EXPOSURE, (4000, 240, 4000, 400))]
)
def test_lost_outcomes_hold_no_harm_back_that_other_outcomes_show(cause, cell, series) -> None:
    """Servers show the harm by themselves; or the outcomes together with those before exposure."""
    lost = [Uncounted(units=(80, 0))] * HOURS
    (seen,) = evaluate([series_of(series, cause, cell, lost, servers=(140, 240))])
    assert (seen.decision.verdict, seen.gates.interacting_because) == ("rollback", ())
    assert e_value_of(seen, cause) > 100


def e_value_of(seen: Evidence, cause: Cause) -> Any:
    if cause not in LEFT_OUT:
        return getattr(seen.gates, f"{cause}_e")
    return next((each.e_value for each in seen.left_out if each.reason is cause), None)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize(
    ("cell", "lost", "better", "verdict"),
    [
        (LESS, (80, 0), "higher", "abstain"),
        (LESS, (0, 80), "higher", "rollback"),
        (MORE, (80, 0), "higher", "keep"),
        (MORE, (0, 80), "higher", "abstain"),
        # A lower rate of treatment looks like a gain here.
        (LESS, (80, 0), "lower", "abstain"),
        (LESS, (0, 80), "lower", "keep"),
    ],
)
def test_it_holds_back_the_answer_that_it_explains_and_that_alone(
    cause, cell, lost, better, verdict, series
) -> None:
    own = series_of(series, cause, cell, [Uncounted(units=lost)] * HOURS, better=better)
    (seen,) = evaluate([own])
    assert seen.decision.verdict == verdict
    assert seen.gates.interacting_because == ((cause,) if verdict == "abstain" else ())
    assert (e_value_of(seen, cause) or 0.0) > 100
    (unread,) = evaluate([replace(own, companions={})])
    assert unread.decision.verdict != "abstain"
    assert e_value_of(unread, cause) is None


@pytest.mark.parametrize("cause", CAUSES)
def test_it_is_not_sticky_and_asks_for_the_cells_of_the_same_look(cause, series) -> None:
    # First treatment's outcomes do not count, then control's as often.
    lost = [Uncounted(units=(80, 0))] * 4 + [Uncounted(units=(0, 80))] * 8
    (seen,) = evaluate([series_of(series, cause, LESS, lost, alpha=1e-200)])
    assert any(look.gated for look in seen.looks)
    assert not seen.looks[-1].gated


@pytest.mark.parametrize(
    ("cell", "again", "better", "verdict", "warnings"),
    [
        (MORE, (200, 280), "higher", "abstain", ()),
        (MORE, (280, 200), "higher", "keep", ()),
        (LESS, (280, 200), "higher", "rollback", ("sessions_cut",)),
        (LESS, (200, 280), "higher", "rollback", ()),
        (LESS, (280, 200), "lower", "abstain", ()),
        (MORE, (200, 280), "lower", "rollback", ()),
    ],
)
def test_fewer_sessions_hold_a_keep_back_and_more_of_them_warn_of_a_rollback(
    cell, again, better, verdict, warnings, series
) -> None:
    own = with_turnover(series, cell, again, better=better)
    (seen,) = evaluate([own])
    assert (seen.decision.verdict, seen.warnings) == (verdict, warnings)
    assert seen.gates.interacting_because == ((Cause.TURNOVER,) if verdict == "abstain" else ())
    # Whoever names no user has no other session: the rates are those of all units.
    hours = seen.arms.control.units // 4000
    expected = min(
        plain_e_value((units, again[0]), (units, again[1]), cells=hours)
        # Half of the further sessions are in either arm.
        for units in (800 - sum(again) // 2, 4000)
    )
    assert seen.gates.turnover_e == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("named", "again"),
    [
        # Fewer log in, or more of those who come back less: neither begins fewer sessions.
        ((600, 800), (210, 280)),
        ((1400, 800), (280, 280)),
        # Of 1,200 and 1,600 who log in half come back once, 700 of them to either arm.
        ((1900, 2300), (600, 800)),
    ],
)
def test_other_logins_hold_no_keep_back(named, again, series) -> None:
    own = with_turnover(series, MORE, again, better="higher", named=named)
    (seen, longer) = evaluate([own, replace(own, policy=structs.replace(own.policy, alpha=1e-200))])
    assert (seen.decision.verdict, seen.gates.interacting_because) == ("keep", ())
    assert not any(look.gated for look in longer.looks)
    assert longer.gates.turnover_e < 100


def test_outcomes_after_the_window_count_once_four_windows_have_closed(series) -> None:
    closes = 300 + 4 * WINDOW + GRACE
    before, then = (
        evaluate(
            [
                series_of(
                    series,
                    Cause.AFTER_WINDOW,
                    LESS,
                    [Uncounted(units=(80, 0))] * HOURS,
                    alpha=1e-200,
                    as_of=as_of,
                )
            ]
        )[0]
        for as_of in (closes - 1, None)
    )
    assert before.gates.after_window_e == 1.0
    # At the look of the fourth hour's block that of the third is still open.
    assert then.as_of == 3 * 3600 + 300 + WINDOW + GRACE
    expected = plain_e_value((400, 80), (400, 0), cells=2)
    assert then.gates.after_window_e == pytest.approx(expected, rel=1e-9)


def test_units_are_tested_and_outcomes_that_are_left_out_are_counted(series) -> None:
    lost = [Uncounted(units=(80, 60), each=3)] * HOURS
    (seen,) = evaluate([series_of(series, Cause.OTHER_CURRENCY, LESS, lost)])
    hours = seen.arms.control.units // 4000
    (outcomes,) = seen.left_out
    assert (outcomes.treatment, outcomes.control) == (hours * 240, hours * 180)
    expected = plain_e_value((4000, 80), (4000, 60), cells=hours)
    assert outcomes.e_value == pytest.approx(expected, rel=1e-9)


def test_a_payment_that_the_long_window_counts_for_another_unit_is_not_missed(series) -> None:
    target = series([(0, 0, 10, 4, 10, 3), (0, 1, 10, 0, 10, 2), (1, 1, 10, 1, 10, 1)]).target
    long = series([(0, 0, 10, 5, 10, 2), (0, 1, 10, 3, 10, 2)]).target
    missed = missed_outcomes(target, long)
    counts = [column.tolist() for column in (missed.n1, missed.x1, missed.n0, missed.x0)]
    assert counts == [[5, 3], [1, 3], [3, 2], [0, 0]]
    with pytest.raises(ValueError, match="does not have"):
        missed_outcomes(long, target)
    assert missed_outcomes(long, replace(long, x1=np.array([5, 3]))).x1.tolist() == [0, 0]
