"""Regression adjustment of what users spend, by what the same users spent before the canary."""

from typing import Any

import pytest
from sqlalchemy import text

from domain.evidence.results import Adjustment
from orchestration.pipeline.audit import audit
from orchestration.pipeline.sentence import adjustment_sentence
from storage.upkeep.forgetting import forget_person
from tests.clients.owner import Owner
from tests.world import DAY, A, K

USERS, SPENT = 1600, {"kind": "mean", "sources": ["paid"], "window_seconds": 300}

_HISTORY = text("""
SELECT DISTINCT unit FROM amounts AS a WHERE metric = 'spent before the canary' AND :met = EXISTS (
    SELECT FROM exposures AS p WHERE p.experiment_id = a.experiment_id AND p.unit = a.unit
) AND unit NOT LIKE 'forgotten%'
""")

_KNOWN = text("SELECT unit FROM conversions WHERE metric = 'paid before the canary' ORDER BY unit")

# As if the registration had come with the canary.
_IN_TIME = text("UPDATE experiments SET starts_at = declared_at, declared_at = NULL")


def registered(
    story,
    *,
    predicts: bool = True,
    deployed_before: bool = False,
    gain: float = 0.2,
    renamed: int = 0,
    metric: str = "spent",
) -> str:
    """An experiment on what users spend: four in five of them spent something weeks before.

    So many in twenty of treatment's come under a new pseudonym.
    """
    story.settings(unit="user", metrics={"spent": SPENT, "paid": {"window_seconds": 300}})
    story.deploy(A, minutes=-40 * DAY)
    if deployed_before:
        story.deploy(K, minutes=-3 * DAY, base=A, allocation=0.5)
        story.deploy(K, minutes=-2 * DAY, base=A, allocation=0.0)
    story.deploy(K, minutes=0, base=A, allocation=0.5)
    for user in range(USERS + 20):
        spends, treated = 1.0 + user * 7919 % 100, user % 2
        is_new = treated and user // 2 % 20 < renamed
        before = spends if predicts else 1.0 + user * 104_729 % 100
        visits = [(-20 * DAY, before), (-2 * DAY, spends + user % 7)] if user % 5 else []
        if user < USERS:
            visits.append((600 * user / USERS, (spends + user % 11) * (1 + gain * treated)))
        for minutes, value in visits:
            visit: dict[str, Any] = {
                "session_id": f"s{user}.{minutes}",
                "user_ref": f"id:{user}" if is_new and minutes >= 0 else f"user {user}",
                "commit": K if treated and minutes >= 0 else A,
            }
            for event, later, more in (("page_view", 0, {}), ("paid", 1, {"value": value})):
                at = story.at(minutes + later)
                story.events.append({**visit, "event": event, "occurred_at": at, **more})
    story.send(live=True)
    experiment = story.register(treatment_commit=K, target_metric=metric)
    story.freeze()
    story.in_store(lambda connection: connection.execute(_IN_TIME))
    story.tick(minutes=DAY)
    return experiment


def test_a_history_that_predicts_narrows_the_interval_and_is_said(story) -> None:
    experiment = registered(story)
    evidence, contract = story.evidence(experiment), story.contract(experiment)
    adjustment = evidence["adjustment"]
    assert adjustment["with_history"] == pytest.approx(0.8, abs=0.01)
    assert adjustment["explained"] > 0.13
    assert adjustment["narrower"] == pytest.approx(1 - (1 - adjustment["explained"]) ** 0.5)
    assert adjustment["sentence"].startswith("80 % of users have a history. It explains ")
    assert contract["verdict"] == "keep"
    arms = {arm: row["mean"] for arm, row in evidence["arms"].items()}
    assert evidence["totals"]["lift"] == pytest.approx(arms["treatment"] - arms["control"], abs=1)
    assert audit(story.store.engine, experiment).equal
    story.events.append({"session_id": "s", "event": "paid", "occurred_at": story.at(-3 * DAY)})
    late = story.post("/v1/events?replay=true", {"events": story.events})
    assert (late.status_code, late.json()["code"]) == (409, "history_closed")
    for met in (True, False):
        unit = story.in_store(
            lambda c, met=met: c.execute(_HISTORY, {"met": met}).scalars().first()
        )
        person = bytes.fromhex(unit)
        story.in_store(lambda c, who=person: forget_person(c, story.project_id, who))
        left = story.in_store(lambda c, met=met: c.execute(_HISTORY, {"met": met}).scalars().all())
        assert left
        assert unit not in left
    assert audit(story.store.engine, experiment).equal


@pytest.mark.parametrize("reason", [{"predicts": False}, {"deployed_before": True}])
def test_a_history_that_says_nothing_or_may_be_the_change_s_is_not_read(story, reason) -> None:
    experiment = registered(story, **reason)
    assert "adjustment" not in story.evidence(experiment)


def test_a_build_that_renames_its_users_is_compared_by_the_plain_mean(story) -> None:
    """The adjustment credits treatment with what the histories that it lost would predict."""
    experiment = registered(story, gain=0.0, renamed=8)
    evidence, contract = story.evidence(experiment), story.contract(experiment)
    arms = {arm: row["mean"] for arm, row in evidence["arms"].items()}
    assert contract["verdict"] == "abstain"
    assert evidence["totals"]["lift"] == pytest.approx(arms["treatment"] - arms["control"], abs=0.5)
    assert evidence["gates"]["balance_e"] >= 100
    assert evidence["gates"]["interacting_because"] == []
    assert abs(evidence["effect"]["relative"]) < 0.03
    assert evidence["adjustment"]["is_read"] is False
    assert evidence["adjustment"]["sentence"].endswith("so test and effect do without it.")
    assert "who_came" in evidence["warnings"]
    (check,) = (each for each in evidence["gates"]["checks"] if each["state"] == "differs")
    assert check["detail"].startswith("known before: ")
    page = Owner(story).page(f"/dashboard/experiments/{experiment}")
    assert "The arms differ in who came" in page
    assert "differs; known before: " in page
    gate = story.get(f"/v1/reward/gate?policy=no-breach&treatment_commit={K}").json()
    assert gate["phase"] == "Running"
    assert audit(story.store.engine, experiment).equal


@pytest.mark.parametrize("renamed", [0, 8])
def test_who_came_is_checked_of_a_metric_that_no_history_adjusts(story, renamed) -> None:
    experiment = registered(story, gain=0.0, renamed=renamed, metric="paid")
    evidence = story.evidence(experiment)
    (check,) = (each for each in evidence["gates"]["checks"] if each["name"].startswith("Who came"))
    assert check["state"] == ("differs" if renamed else "holds")
    assert (evidence["gates"]["balance_e"] >= 100) is bool(renamed)
    assert ("who_came" in evidence["warnings"]) is bool(renamed)
    assert evidence["gates"]["interacting_because"] == []
    assert "adjustment" not in evidence
    page = Owner(story).page(f"/dashboard/experiments/{experiment}")
    assert ("The arms differ in who came" in page) is bool(renamed)
    assert audit(story.store.engine, experiment).equal
    unit = story.in_store(lambda c: c.execute(_KNOWN).scalars().first())
    story.in_store(lambda c: forget_person(c, story.project_id, bytes.fromhex(unit)))
    assert unit not in story.in_store(lambda c: c.execute(_KNOWN).scalars().all())
    assert audit(story.store.engine, experiment).equal


@pytest.mark.parametrize("narrower", [0.0, -0.012])
def test_a_history_that_makes_the_interval_no_narrower_is_not_said_to(narrower) -> None:
    gain = Adjustment(with_history=0.5, explained=2 * narrower, narrower=narrower)
    assert adjustment_sentence(gain, "user").endswith("does not narrow the interval so far.")
