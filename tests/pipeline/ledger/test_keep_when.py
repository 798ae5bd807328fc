"""`keep_when: stands` through REST: a keep waits until it stands beside the project's changes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from orchestration.pipeline.audit import audit
from tests.clients.owner import Owner
from tests.world import DAY, A, K, T

_ROW = """
INSERT INTO keep_records (project_id, day, judged, kept) VALUES (:project, :day, :judged, :kept)
"""


def record(story: Any, at: datetime, *, judged: int, kept: int) -> None:
    """The record as the first look of a day noted it."""
    bound = {"project": story.project_id, "day": at.date(), "judged": judged, "kept": kept}
    story.in_store(lambda store: store.execute(text(_ROW), bound))


def better(story: Any, *, until: float = DAY / 2, units: int = 1300, **chosen: Any) -> str:
    """A canary that sells more, sure enough alone and not beside a hundred others."""
    story.settings(keep_when="stands", **chosen)
    story.canary(None)
    for commit, rate in ((A, 0.20), (K, 0.26)):
        story.crowd(commit, start=0, minutes=until, units=units, rates={"order": rate})
    story.send()
    experiment = story.register(treatment_commit=K)
    story.as_live()
    return experiment


def test_a_keep_waits_until_it_stands_and_each_face_says_so(story) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    story.begin = now - timedelta(hours=13)
    experiment = better(story)
    for day in {story.begin.date(): story.begin, now.date(): now}.values():
        record(story, day, judged=40_000, kept=4)
    story.tick(minutes=DAY / 2 + 55)
    assert story.contract(experiment)["power_state"]["decided"] is False
    candidate = story.evidence(experiment)["candidate"]
    stand = candidate["stand"]
    assert candidate["holds"] is True
    assert stand["holds"] is False
    assert 20 < stand["e_value"] < stand["needed"] == 100_000
    assert (stand["record"]["judged"], stand["record"]["kept"]) == (40_000, 4)
    said = "its evidence is 100,000 and stands beside 40,000 changes judged in 30 days, 4 of them"
    situation = story.bound(experiment)["situation"]
    assert said in situation["sentence"]
    assert situation["advice"][0].startswith(f"Leave the canary running until {said}")
    assert (situation["state"], situation["action"]) == ("almost", "wait")
    gate = story.get(f"/v1/reward/gate?policy=no-breach&treatment_commit={K}").json()
    assert gate["phase"] == "Running"
    page = Owner(story).page(f"/dashboard/experiments/{experiment}")
    assert "to reach 100,000, beside 40,000 changes judged in 30 days, 4 of them kept so" in page


def test_the_record_of_a_look_s_day_decides_and_an_audit_reads_it_again(story) -> None:
    experiment = better(story, until=4 * DAY, units=9000)
    record(story, T, judged=10**9, kept=1)
    record(story, T + timedelta(days=2), judged=200, kept=40)
    story.tick(minutes=6 * DAY)
    assert story.contract(experiment)["verdict"] == "keep"
    evidence = story.evidence(experiment)
    assert evidence["candidate"]["at"].startswith("2026-10-01")
    assert evidence["as_of"].startswith("2026-10-03")
    assert evidence["candidate"]["stand"]["record"]["day"] == "2026-10-03"
    # What is judged since then changes nothing.
    record(story, T + timedelta(days=9), judged=10**6, kept=0)
    differences = audit(story.store.engine, experiment).differences
    assert [each for each in differences if "retrospective" not in each] == []


@pytest.mark.parametrize("judged", [10**9, None], ids=["too many", "no record"])
def test_patience_ends_the_wait_without_a_keep(story, judged) -> None:
    experiment = better(story, patience_hours=24, until=3 * DAY, units=2600)
    if judged is not None:
        record(story, T, judged=judged, kept=0)
    story.tick(minutes=6 * DAY)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "power")
    assert contract["power_state"]["decided"] is True
    assert evidence["ended_because"] == "does_not_stand"
    assert "it did not stand beside the project's other changes in time" in evidence["sentence"]
    waited = datetime.fromisoformat(evidence["as_of"]) - datetime.fromisoformat(
        evidence["candidate"]["at"]
    )
    # Looks are hours apart here.
    assert timedelta(days=1) <= waited < timedelta(days=1.5)


def test_the_first_look_of_a_day_notes_what_was_judged_and_nothing_notes_it_again(story) -> None:
    story.begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
    experiment = better(story, until=4 * 60)
    rows = text("SELECT day, judged, kept FROM keep_records")
    read = lambda: story.in_store(lambda store: store.execute(rows).all())  # noqa: E731
    story.tick(minutes=DAY)
    (first,) = read()
    # Before its first look nothing was judged.
    assert (first.day, first.judged, first.kept) == (datetime.now(UTC).date(), 0, 0)
    story.tick(minutes=2 * DAY - 60)
    assert read() == [first]
    story.in_store(lambda store: store.execute(text("UPDATE keep_records SET day = day - 1")))
    story.tick(minutes=2 * DAY - 30)
    assert [(row.judged, row.kept) for row in read()] == [(0, 0), (1, 0)]
    assert story.evidence(experiment)["candidate"] is not None
