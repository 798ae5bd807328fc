"""Splits of a project's own traffic by lot: of a clean log, with a bad pod, of visitors."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from domain.checklist.own_splits import OwnSplits
from orchestration.dagster.resources import Store
from orchestration.ledger.asset import own_splits as asset
from orchestration.ledger.own_splits import own_splits
from stats.decision.random_splits import SPLITS, exact_interval
from storage.ledger.own_splits import control_weeks, keep_splits
from tests.world import DAY, ON_ORDERS, A, K, World

PODS, VISITORS = 6, 300
_KEPT = text("SELECT document FROM own_splits")


def night(story) -> OwnSplits:
    """Splits the week before two days after the canary, with a salt of the test's, and keeps it."""
    as_of = story.begin + timedelta(days=2)

    def split(connection: Any) -> OwnSplits:
        (week,) = control_weeks(connection, as_of=as_of)
        splits = own_splits(week, night=as_of.date(), salt="a test's")
        keep_splits(connection, week.project_id, splits)
        assert control_weeks(connection, as_of=as_of) == []
        return splits

    return story.in_store(split)


def line(story) -> dict[str, Any]:
    lines = story.get("/v1/reward/checklist", headers=story.reward).json()
    (own,) = (each for each in lines if each["check"] == "splits by lot")
    return own


def counts(splits: OwnSplits) -> dict[str, int]:
    return {each.by: each.answers for each in splits.results}


@pytest.mark.parametrize("bad", [None, 2])
def test_a_pod_that_differs_is_named_and_pods_that_are_alike_are_not(story, bad) -> None:
    story.canary()
    for pod in range(PODS):
        rate = 0.1 if pod == bad else 0.3
        story.crowd(
            *(A,),
            start=0,
            minutes=600,
            units=250,
            rates={"order": rate},
            properties={"pod": f"web-{pod}"},
        )
    story.crowd(K, start=0, minutes=600, units=1500, rates={"order": 0.3})
    experiment = story.judged(minutes=DAY, **ON_ORDERS)
    before = story.contract(experiment)
    splits = night(story)
    assert (splits.units, splits.unit, splits.experiment_id) == (250 * PODS, "session", experiment)
    by = counts(splits)
    assert by.keys() == {"unit", "pod", "hour"}
    assert by["unit"] <= 0.05 * SPLITS + 10
    shown = line(story)
    assert shown["ok"] == (bad is None)
    assert ("most of all in web-2" in shown["seen"]) == (bad is not None)
    assert f"{by['pod']} of {SPLITS} splits by pod showed an effect on order" in shown["seen"]
    # No verdict reads it.
    story.tick(minutes=DAY)
    assert story.contract(experiment) == before


def test_visitors_who_come_back_show_that_the_unit_is_wrong(story) -> None:
    story.settings(unit="session")
    story.canary()
    for visitor in range(VISITORS):
        for visit in range(5):
            story.units_of(
                A,
                minutes=2 * visitor + 60 * visit,
                units=1,
                converting=int(visitor % 3 == 0),
                user_ref=f"v{visitor}",
            )
    story.judged(minutes=2 * DAY, **ON_ORDERS)
    by = counts(night(story))
    assert by["user"] > 0.2 * SPLITS > by["unit"]
    shown = line(story)
    assert not shown["ok"]
    assert "set the project's `unit` to `user`" in shown["fix"]


def test_dagster_s_page_says_what_the_night_s_splits_showed(service) -> None:
    story = World(
        store=service.store,
        client=service.client,
        project=service.project,
        begin=datetime.now(UTC) - timedelta(days=2),
    )
    story.settings(locked=[])
    story.canary()
    for commit in (A, K):
        story.crowd(commit, start=0, minutes=600, units=1000, rates={"order": 0.3})
    experiment = story.judged(minutes=DAY, **ON_ORDERS)
    shown = asset(Store(database_url=service.store.url)).metadata
    (document,) = story.in_store(lambda c: c.execute(_KEPT).scalars().all())
    kept = msgspec.convert(document, OwnSplits)
    assert shown["wrong"] == len(kept.wrong)
    lines = [f"- {experiment}: splits {each}" for each in kept.sentences]
    assert shown["splits"].value == "\n".join(lines)


def test_an_interval_is_that_of_the_binomial() -> None:
    assert exact_interval(0, SPLITS) == (0.0, pytest.approx(0.01828, abs=1e-5))
    assert exact_interval(9, SPLITS) == pytest.approx((0.0208, 0.0837), abs=1e-4)
    assert exact_interval(SPLITS, SPLITS)[1] == 1.0
