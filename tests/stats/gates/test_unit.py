"""The gate `unit`: a router that keeps visitors is no lottery, whatever its arms' sizes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from domain.policy import Numbers
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.unit_counts import UnitCounts
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Series

Maker = Callable[..., Series]
HOUR = 12  # blocks
CELL = (500, 50, 500, 50)


def returning(*hours: tuple[int, int, int, int], units: tuple[int, int] = (500, 500)) -> UnitCounts:
    """Users by the hour of their second session: of treatment, kept there; of control, likewise."""
    again1, kept1, again0, kept0 = np.array(hours, dtype=np.int64).T
    every = np.ones(len(hours), dtype=np.int64)
    return UnitCounts(
        block=np.arange(len(hours), dtype=np.int64) * HOUR * 300,
        columns={
            "treatment": every * units[0],
            "control": every * units[1],
            "again_treatment": again1,
            "kept_treatment": kept1,
            "again_control": again0,
            "kept_control": kept0,
        },
    )


def seen_of(
    series: Maker, returns: UnitCounts, cell: tuple[int, int, int, int] = CELL, **read: Any
) -> Evidence:
    hours = returns.block.size
    rows = [(hour * HOUR, 0, *cell) for hour in range(hours)]
    # No answer of the test ends the looks.
    policy = Numbers(alpha=1e-9)
    (seen,) = evaluate(
        [series(rows, policy=policy, as_of=hours * 3600 + 1920, units=returns, **read)]
    )
    return seen


@pytest.mark.parametrize(
    ("users", "kept", "holds"), [(29, 29, False), (30, 30, True), (30, 23, True), (30, 22, False)]
)
def test_thirty_visitors_half_way_from_a_lottery_to_a_kept_arm_hold(
    series, users, kept, holds
) -> None:
    seen = seen_of(series, returning((users, kept, 0, 0)))
    assert (seen.gates.interacting_because == ("unit",)) == holds
    number = seen.gates.visitors_kept
    assert number == (None if users < 30 else pytest.approx((kept - 15) / 15))


def test_the_smaller_arm_is_read_since_a_lottery_too_keeps_most_of_the_larger(series) -> None:
    larger = returning((0, 0, 900, 810), units=(100, 900))
    assert seen_of(series, larger, (100, 10, 900, 90)).gates.visitors_kept is None
    few = returning((10, 6, 900, 810), units=(100, 900))
    assert seen_of(series, few, (100, 10, 900, 90)).gates.interacting_because == ("unit",)
    both = returning((9, 9, 900, 810), units=(100, 900))
    assert seen_of(series, both, (100, 10, 900, 90)).gates.visitors_kept is None
    # At a hundredth so few who come back are beyond chance.
    for again, kept, holds in ((2, 2, False), (3, 1, False), (3, 2, True)):
        few = returning((again, kept, 900, 891), units=(10, 990))
        causes = seen_of(series, few, (10, 1, 990, 99)).gates.interacting_because
        assert (causes == ("unit",)) == holds
    both = returning((100, 90, 900, 810), units=(100, 900))
    assert seen_of(series, both, (100, 10, 900, 90)).gates.interacting_because == ("unit",)


def test_a_lottery_whose_share_changes_is_none_that_keeps_visitors(series) -> None:
    """A share of 80 % and then of 10 %: over both, most users of treatment come back to it."""
    first, then = returning((800, 640, 200, 40)), returning((10, 1, 90, 81))
    returns = UnitCounts(
        block=np.array([0, HOUR * 300]),
        columns={
            name: np.concatenate((column, then.columns[name]))
            for name, column in first.columns.items()
        }
        | {"treatment": np.array([1600, 20]), "control": np.array([400, 180])},
    )
    seen = seen_of(series, returns, cuts=(3600,))
    assert seen.gates.interacting_because == ()
    assert seen.gates.visitors_kept == pytest.approx(0, abs=0.02)
    assert seen_of(series, returns).gates.visitors_kept != seen.gates.visitors_kept


def test_while_visitors_keep_their_arm_its_size_is_no_alarm_and_leaves_none(series) -> None:
    """Treatment gets a third of the sessions where half is declared."""
    blocks = np.arange(4, dtype=np.int64) * 3600
    read: dict[str, Any] = {
        "allocation": (Epoch(start=0, end=None, share=0.5),),
        "arrivals": Arrivals(block=blocks, treatment=np.full(4, 500), others=np.full(4, 1000)),
    }
    kept, drawn = (50, 50, 50, 50), (0, 0, 0, 0)
    lottery = (2000, 900, 2000, 900)
    seen = seen_of(series, returning(kept, drawn, drawn, drawn), **read)
    assert seen.gates.interacting_because == ("unit",)
    assert [rail.breached_at for rail in seen.guardrails] == [None]
    ratio = next(
        check for check in seen.gates.checks if check.name == "Traffic is split as declared"
    )
    assert ratio.state == "not_known"
    # Nothing of it stays once visitors are drawn anew and the shares are as declared.
    even: dict[str, Any] = {
        **read,
        "arrivals": Arrivals(
            block=blocks,
            treatment=np.array([500, 1000, 500, 500]),
            others=np.array([1000, 500, 500, 500]),
        ),
    }
    seen = seen_of(series, returning(kept, lottery, lottery, lottery), **even)
    assert seen.gates.interacting_because == ()
    assert seen.gates.held_throughout == ()
    # Without any visitor who came back it alarms.
    seen = seen_of(series, returning(drawn, drawn, drawn, drawn), **read)
    assert seen.gates.interacting_because == ("sample_ratio",)


def test_evidence_says_which_gates_held_every_look(series) -> None:
    kept, drawn = (50, 50, 50, 50), (0, 0, 0, 0)
    assert seen_of(series, returning(kept, drawn)).gates.held_throughout == ("unit",)
    late = seen_of(series, returning(drawn, kept))
    assert late.gates.interacting_because == ("unit",)
    assert late.gates.held_throughout == ()
