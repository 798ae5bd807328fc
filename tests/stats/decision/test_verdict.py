"""The verdict: which rule speaks, at which look, and what stays open."""

from collections.abc import Callable

import pytest

from domain.metric import DAY
from domain.policy import Numbers
from stats.decision.decision import Decision
from stats.decision.evidence import evaluate
from stats.looks.series import Series

Maker = Callable[..., Series]
Row = tuple[int, ...]
DELAY = 1920
HOURS = 12  # blocks of an hour


def hourly(counts: list[tuple[int, int, int, int]], first: int = 0, stratum: int = 0) -> list[Row]:
    return [((first + i) * HOURS, stratum, *cell) for i, cell in enumerate(counts)]


EVEN = (50, 5, 50, 5)
BETTER = (2000, 300, 2000, 200)
WORSE = (2000, 200, 2000, 300)
NULL = (2000, 250, 2000, 250)
ONLY_TREATMENT = (100, 10, 0, 0)
ONLY_CONTROL = (0, 0, 100, 10)


def decided(series: Maker, rows: list[Row], **options: object) -> Decision:
    (seen,) = evaluate([series(rows, **options)])
    return seen.decision


@pytest.mark.requirement("verdict.keep", "verdict.rollback")
@pytest.mark.parametrize(
    ("better", "cell", "verdict"),
    [
        ("higher", BETTER, "keep"),
        ("higher", WORSE, "rollback"),
        ("lower", BETTER, "rollback"),
        ("lower", WORSE, "keep"),
    ],
)
def test_a_crossing_decides_by_the_side_that_is_better(better, cell, verdict, series) -> None:
    decision = decided(series, hourly([cell]), as_of=4000, policy=Numbers(better=better))
    assert (decision.verdict, decision.decided) == (verdict, True)
    assert decision.lift == pytest.approx((cell[1] - cell[3]) / 2000)
    assert decision.at == 300 + DELAY


@pytest.mark.parametrize("cell", [BETTER, WORSE, NULL])
def test_with_a_day_that_differs_from_the_log_only_its_ends_decide(cell, series) -> None:
    rows, policy = hourly([cell] * 60), Numbers(horizon_seconds=2 * DAY, futility_margin=0.5)
    assert decided(series, rows, as_of=DAY, policy=policy).decided
    kept_open = decided(series, rows, as_of=DAY, policy=policy, day_unequal=True)
    assert (kept_open.verdict, kept_open.decided) == ("abstain", False)
    by_hand = decided(series, rows, as_of=DAY, closed_at=DAY, policy=policy, day_unequal=True)
    assert by_hand.ended_because == "closed"
    ended = decided(series, rows, as_of=3 * DAY, policy=policy, day_unequal=True)
    assert (ended.verdict, ended.ended_because) == ("abstain", "horizon")
    gone = hourly([cell] * 2 + [ONLY_CONTROL] * 40)
    assert decided(series, gone, as_of=3 * DAY, day_unequal=True).ended_because == (
        "withdrawn" if cell is not BETTER else None
    )


def test_the_first_crossing_wins_whatever_comes_later(series) -> None:
    decision = decided(series, hourly([EVEN, BETTER, WORSE, WORSE]), as_of=10 * 3600)
    assert decision.verdict == "keep"
    assert decision.at == 3600 + 300 + DELAY


def test_the_horizon_decides_also_without_a_crossing(series) -> None:
    policy = Numbers(horizon_seconds=2 * DAY)
    rows = hourly([EVEN] * 60)
    before = decided(series, rows, as_of=2 * DAY + DELAY - 1, policy=policy)
    assert not before.decided
    after = decided(series, rows, as_of=2 * DAY + DELAY, policy=policy)
    assert (after.verdict, after.decided) == ("abstain", True)
    assert (after.ended_because, after.abstain_reason) == ("horizon", "power")
    assert after.at == 2 * DAY + DELAY


def test_the_horizon_decides_also_when_nobody_ever_came(series) -> None:
    decision = decided(series, [], start=1000, as_of=40 * DAY)
    assert decision.ended_because == "horizon"
    assert decision.at == (1000 + 28 * DAY) // 300 * 300 + DELAY


@pytest.mark.parametrize(
    ("tail", "reason"), [(ONLY_TREATMENT, "promoted"), (ONLY_CONTROL, "withdrawn")]
)
def test_a_day_without_contrast_closes_and_names_the_arm_that_is_left(tail, reason, series) -> None:
    rows = hourly([EVEN] * 5 + [tail] * 40)
    decision = decided(series, rows, as_of=3 * DAY)
    assert (decision.verdict, decision.decided, decision.ended_because) == ("abstain", True, reason)
    # It was compared fairly until then.
    assert decision.abstain_reason == "power"
    last_contrast = 4 * 3600 + 300
    assert decision.at is not None
    assert 0 <= decision.at - DELAY - last_contrast - DAY <= 3600


def test_silence_is_no_lack_of_contrast(series) -> None:
    decision = decided(series, hourly([EVEN] * 5), as_of=5 * DAY)
    assert not decision.decided


def test_a_gated_look_neither_fires_nor_enters_the_running_minimum(series) -> None:
    leaking = hourly([(20, 0, 20_000, 2000), (20_000, 6000, 20, 0)])
    even = hourly([(30_000, 6000, 30_000, 3000)], first=2)
    rows = [*leaking, *even]
    (gated,) = evaluate([series(rows, as_of=2 * 3600, policy=Numbers(alpha=0.9))])
    assert [look.gated for look in gated.looks] == [False, True]
    assert gated.decision.abstain_reason == "non_identifiable"
    (free,) = evaluate([series(rows, as_of=4 * 3600, policy=Numbers(alpha=0.9))])
    assert [look.gated for look in free.looks] == [False, True, False]
    assert free.looks[1].p_running_min == free.looks[0].p_running_min
    assert free.decision.verdict == "keep"


def test_closing_by_hand_ends_at_the_last_look_before_it(series) -> None:
    rows = hourly([EVEN, EVEN, BETTER])
    closed_at = 3600 + 300 + DELAY + 10
    decision = decided(series, rows, as_of=10 * 3600, closed_at=closed_at)
    assert (decision.verdict, decision.ended_because) == ("abstain", "closed")
    assert decision.at == 3600 + 300 + DELAY


def test_closing_by_hand_after_an_answer_changes_nothing(series) -> None:
    rows = hourly([EVEN, BETTER, WORSE])
    look = 3600 + 300 + DELAY
    for closed_at in (look, look + 1, look + 3600):
        decision = decided(series, rows, as_of=10 * 3600, closed_at=closed_at)
        assert (decision.verdict, decision.at) == ("keep", look)


def test_closing_by_hand_is_not_known_before_it_happens(series) -> None:
    decision = decided(series, hourly([EVEN]), as_of=4000, closed_at=4001)
    assert not decision.decided


def test_closing_by_hand_before_any_look_is_a_decision_of_that_moment(series) -> None:
    decision = decided(series, hourly([BETTER]), as_of=10**6, closed_at=100)
    assert (decision.verdict, decision.decided, decision.ended_because) == (
        "abstain",
        True,
        "closed",
    )
    assert decision.at == 100


def test_a_crossing_at_the_horizon_itself_comes_too_late(series) -> None:
    policy = Numbers(horizon_seconds=600)
    rows = [(0, 0, *EVEN), (1, 0, *BETTER)]
    assert decided(series, rows, as_of=10**4, policy=policy).ended_because == "horizon"


@pytest.mark.requirement("cadence.concurrent")
@pytest.mark.parametrize(
    ("cell", "cadence"),
    # E_day and E_fast are 11 and 82 here, then 32 and 18: their mean is above 20, the other
    # alone would not be.
    [((200, 60, 200, 30), "fast"), ((12_000, 713, 12_000, 600), "day")],
)
def test_either_cadence_fires_where_the_other_alone_would_not(cell, cadence, series) -> None:
    decision = decided(series, hourly([cell]), as_of=4000)
    assert (decision.decided, decision.cadence) == (True, cadence)


@pytest.mark.requirement("cadence.day", "cadence.fast")
@pytest.mark.parametrize(
    ("per_hour", "cadence"),
    # docs/statistics.md: at a rate of 5 % a lift of 50 % needs 5,815 sessions, here within a day,
    # and a lift of 20 % needs 33,335, here within 28 days. Both arms have so many an hour.
    [(140, "fast"), (120, "day"), (40, "day"), (20, None)],
)
def test_an_open_experiment_names_the_cadence_that_its_traffic_suffices_for(
    per_hour, cadence, series
) -> None:
    rows = hourly([(per_hour, per_hour // 20) * 2] * 120)
    decision = decided(series, rows, as_of=120 * 3600)
    assert (decision.decided, decision.cadence) == (False, cadence)
