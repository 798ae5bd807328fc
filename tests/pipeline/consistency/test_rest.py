"""A tick computes anew what may have a new look, and what it passes by would say the same."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from orchestration.pipeline.drafts import draft_bound
from orchestration.pipeline.steps import publish, stage_due
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import claim_derived_tables

T = datetime(2026, 10, 1, tzinfo=UTC)
DAY = 24 * 60
A, K = "aaaaaaa1", "bbbbbbb2"
B, K_ON_B = "ddddddd3", "eeeeeee4"


def at(minutes: float) -> datetime:
    return T + timedelta(minutes=minutes)


def _canary(story: Any, *, minutes: float, units: int) -> None:
    story.deploy(A, minutes=-DAY)
    story.deploy(K, minutes=0, base=A, allocation=0.2)
    for commit in (A, K):
        story.crowd(commit, start=0, minutes=minutes, units=units, rates={"order": 0.1})


def _staged(story: Any) -> dict[str, tuple[Any, ...]]:
    with story.store.engine.begin() as connection:
        rows = connection.execute(
            text("SELECT experiment_id, document::text, contract::text, next_look_at FROM evidence")
        )
        return {row.experiment_id: tuple(row)[1:] for row in rows}


def _computed_anew(story: Any) -> dict[str, tuple[Any, ...]]:
    with story.store.engine.begin() as connection:
        drafts = [entry.draft for entry in draft_bound(connection)]
    return {
        entry.experiment_id: (entry.document, entry.contract, entry.next_look_at)
        for entry in drafts
    }


def test_a_deploy_that_cuts_a_block_is_seen_by_the_tick_that_closes_it(story) -> None:
    _canary(story, minutes=60, units=300)
    story.crowd(K, start=60, minutes=40, units=8)
    story.deploy(K, minutes=83, allocation=0.5)
    story.send()
    story.register(treatment_commit=K)
    looks = set[tuple[Any, ...]]()
    for minutes in range(105, 125, 5):
        story.tick(minutes=minutes)
        assert _staged(story) == _computed_anew(story), minutes
        looks.update(staged[:2] for staged in _staged(story).values())
    assert len(looks) == 2, "at 62 minutes the traffic ends; at 80 the deploy cuts"


def test_a_tick_passes_by_what_has_no_new_look(story) -> None:
    _canary(story, minutes=60, units=300)
    story.crowd(K, start=60, minutes=60, units=12)
    experiment_id = story.judged(treatment_commit=K, minutes=130)
    before = _staged(story)[experiment_id]
    engine = story.store.engine
    with engine.begin() as connection:
        claim_derived_tables(connection)
        extend_exposures(connection, as_of=at(135))
        assert extend_cells(connection) > 0
        assert stage_due(connection, as_of=at(135)) == []
        publish(connection)
    after = _staged(story)[experiment_id]
    assert after == (*before[:2], before[2] + timedelta(minutes=5))
    assert after == _computed_anew(story)[experiment_id]
    with engine.begin() as connection:
        served = connection.execute(text("SELECT next_look_at FROM verdicts")).scalar_one()
    assert served == after[2]


def test_a_share_that_is_first_declared_after_a_look_changes_nothing_of_it(story) -> None:
    story.deploy(A, minutes=-DAY)
    story.deploy(K, minutes=0, base=A)
    for commit in (A, K):
        story.crowd(commit, start=0, minutes=60, units=300, rates={"order": 0.1})
    experiment_id = story.judged(treatment_commit=K, minutes=130)
    before = _staged(story)[experiment_id]
    story.deploy(K, minutes=135, allocation=0.5)
    assert _computed_anew(story)[experiment_id][:2] == before[:2]
