"""The ledger: which keeps stand, and what their effects add up to."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.ledger.account import MOST_KEEPS, LedgerMetric, ledger_of
from domain.ledger.entry import Entry
from domain.ledger.standing import standing

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def entry(
    number: int, verdict: str = "abstain", e_value: float | None = None, **members: Any
) -> Entry:
    known = {
        "experiment_id": f"exp_{number:04d}",
        "metric": "order",
        "treatment_commit": None,
        "title": None,
        "actor": None,
        "at": NOW - timedelta(hours=number % 600),
        "asked_at": NOW - timedelta(hours=number % 600 + 2),
        "decided": True,
        "changes": 1,
        "outcome": None,
        "units": None,
        "level": 0.05,
        "followed": None,
        "claimed": 0.3 if verdict == "keep" else None,
        "at_decision": 0.2 if verdict == "keep" else None,
        "after_decision": None,
        "measured_error": None,
        "harm": 0.004 if verdict == "keep" else None,
        "no_effect": 0.3 if verdict == "keep" else None,
    }
    log_e = None if e_value is None else math.log(e_value)
    return Entry(**{**known, "verdict": verdict, "log_e": log_e, **members})


def test_a_keep_that_stopped_where_it_crossed_is_not_known_to_stand_beside_many() -> None:
    alone = entry(0, "keep", 21.0)
    assert standing([alone]) == {"exp_0000": "yes"}
    others = [entry(number) for number in range(1, 10)]
    assert standing([alone, *others]) == {"exp_0000": "not_yet"}
    assert standing([entry(0, "keep", 101.0), *others]) == {"exp_0000": "yes"}


@pytest.mark.parametrize(
    ("followed", "answer"),
    [("running", "not_yet"), ("stopped", "not_yet"), ("final", "no"), (None, "not_yet")],
)
def test_only_a_follow_up_to_its_end_says_no(followed, answer) -> None:
    others = [entry(number) for number in range(1, 10)]
    keep = entry(0, "keep", 30.0, followed=followed)
    assert standing([keep, *others]) == {"exp_0000": answer}


def test_keeps_help_each_other_as_in_the_procedure_step_by_step() -> None:
    # Ten were judged: k e-values of at least 10 / (0.1 k) stand together.
    values = [60.0, 51.0, 20.0]
    entries = [entry(number, "keep", value) for number, value in enumerate(values)]
    entries += [entry(number) for number in range(3, 10)]
    assert list(standing(entries).values()) == ["yes", "yes", "not_yet"]


def test_a_rollback_s_evidence_helps_no_keep() -> None:
    entries = [entry(0, "keep", 51.0), entry(1, "rollback", 1e6)]
    entries += [entry(number) for number in range(2, 10)]
    assert standing(entries) == {"exp_0000": "not_yet"}


def test_it_adds_up_by_actor_week_and_metric() -> None:
    entries = [
        entry(
            1, "keep", 900.0, actor="bot", followed="final", after_decision=0.1, measured_error=0.03
        ),
        entry(2, "keep", 15.0, actor="bot", metric="signup"),
        entry(200, "rollback", 50.0, actor="ada"),
        entry(201, level=0.0125),
    ]
    account = ledger_of(entries, as_of=NOW)
    assert (account.judged, account.kept, account.rolled_back, account.standing) == (4, 2, 1, 1)
    assert account.expected_false == pytest.approx(0.3 * (3 * 0.05 + 0.0125))
    assert [(line.actor, line.judged) for line in account.actors] == [
        ("bot", 2),
        ("ada", 1),
        (None, 1),
    ]
    for name in ("judged", "kept", "rolled_back", "standing"):
        assert sum(getattr(line, name) for line in account.actors) == getattr(account, name)
        assert sum(getattr(line, name) for line in account.weeks) == getattr(account, name)
    assert [line.week for line in account.weeks] == ["2026-11-16", "2026-11-09"]
    order, signup = account.metrics
    assert order == LedgerMetric(
        metric="order",
        kept=1,
        claimed=0.3,
        measured=1,
        claimed_of_measured=0.3,
        after_decision=0.1,
        standard_error=0.03,
    )
    assert (signup.claimed, signup.measured, signup.after_decision) == (0.3, 0, 0)
    assert [(keep.experiment_id, keep.stands) for keep in account.keeps] == [
        ("exp_0001", "yes"),
        ("exp_0002", "not_yet"),
    ]


def test_no_more_keeps_are_expected_to_be_false_than_there_are() -> None:
    account = ledger_of([entry(number) for number in range(100)], as_of=NOW)
    assert account.expected_false == 0


def test_of_many_keeps_the_newest_are_listed_and_all_are_counted() -> None:
    entries = [entry(number, "keep", 1e9) for number in range(MOST_KEEPS + 5)]
    account = ledger_of(entries, as_of=NOW)
    assert (account.kept, len(account.keeps), account.left_out) == (205, 200, 5)
    assert ledger_of([], as_of=NOW).judged == 0


def test_a_day_of_changes_says_how_many_were_answered_how_soon_and_how_many_units_were_lost() -> (
    None
):
    harmless = entry(1, outcome="harmless", actor="agent-1")
    bad = entry(2, "rollback", changes=3, units=20, asked_at=NOW - timedelta(hours=8))
    ledger = ledger_of([harmless, bad, entry(3)], as_of=NOW, queued=4, placed=2)
    figures = (ledger.judged, ledger.answered, ledger.bundled, ledger.rolled_back, ledger.hours)
    assert figures == (3, 2, 1, 1, 4.0)
    assert (ledger.queued, ledger.placed, ledger.lost_units) == (4, 2, 20)
    assert sum(day.judged for day in ledger.by_day) == 3
    assert {line.actor: line.answered for line in ledger.actors} == {"agent-1": 1, None: 1}
