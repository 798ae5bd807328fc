"""The ledger through REST and on its page: what verdicts add up to, and what is left of keeps."""

from typing import Any

import pytest
from sqlalchemy import text

from tests.clients.owner import Owner

A, K, L = "aaaaaaa1", "ccccccc3", "ddddddd4"
DAY = 1440.0


@pytest.fixture
def judged(story, monkeypatch) -> dict[str, str]:
    """A keep of a bot with a hold-back of a week, and somebody's open canary, by their actors."""
    # The story tells of days that are long past.
    monkeypatch.setattr("storage.ledger.entries.DAYS", 36_500)
    story.deploy(A, minutes=-DAY)
    commit = {"message": "Shorten the form\n\nAt last.", "actor": "bot", "author": "ada"}
    kept = story.deploy(K, minutes=0, base=A, allocation=0.5, commit=commit)
    for begin, days, units, rate in ((0.0, 1, 4000, 0.14), (DAY, 9, 6000, 0.12)):
        minutes = days * DAY
        story.crowd(A, start=begin, minutes=minutes, units=units, rates={"order": 0.10})
        story.crowd(K, start=begin, minutes=minutes, units=units, rates={"order": rate})
    other = story.deploy(L, minutes=0, base=A, allocation=0.5, environment="staging")
    for commit in (A, L):
        story.crowd(
            commit, start=0, minutes=DAY, units=500, rates={"order": 0.1}, environment="staging"
        )
    story.send()
    experiments = {
        "bot": story.register(treatment_commit=K, deploy_id=kept["deploy_id"]),
        "grace": story.register(deploy_id=other["deploy_id"]),
    }
    # Who asks may be said later; whoever comes after that is not who asked.
    for actor in ("grace", "eve"):
        assert story.register(deploy_id=other["deploy_id"], actor=actor) == experiments["grace"]
    story.as_live()
    return experiments


def ledger(story) -> dict[str, Any]:
    answer = story.get("/v1/reward/ledger")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_keep_claims_first_and_is_measured_after(story, judged) -> None:
    owner = Owner(story)
    assert ledger(story)["judged"] == 0
    assert "Nothing was judged yet" in owner.page("/dashboard/ledger")
    story.tick(minutes=DAY)
    page = owner.page("/dashboard/ledger")
    assert "Of 2 experiments with a look in the last" in page
    assert "1 was kept" in page
    assert "grace" in page
    assert f'/dashboard/experiments/{judged["bot"]}">Shorten the form</a>' in page
    assert "1 keep, which claimed" in page
    assert "None was measured afterwards yet." in page
    first = ledger(story)
    assert (first["judged"], first["kept"]) == (2, 1)
    assert first["expected_false"] == pytest.approx(0.03)
    assert "Of your 1 keep at most about 0.03 are false." in page
    assert {line["actor"]: line["kept"] for line in first["actors"]} == {"bot": 1, "grace": 0}
    (keep,), (metric,) = first["keeps"], first["metrics"]
    assert keep["experiment_id"] == judged["bot"]
    assert (keep["treatment_commit"], keep["title"]) == (K, "Shorten the form")
    assert keep["after_decision"] is None
    assert (metric["measured"], metric["after_decision"]) == (0, 0)
    assert 0 < keep["at_decision"] < keep["claimed"] == metric["claimed"]
    effect = story.get(f"/v1/reward/{judged['bot']}/effect").json()
    assert (keep["harm"], keep["no_effect"]) == (effect["harm"], effect["no_effect"])
    # Sure to the threshold alone it would be a few in a hundred.
    assert 0 < keep["harm"] < keep["no_effect"] < 0.001
    assert 'data-head="Does nothing">&lt; 0.1 %</td>' in page
    story.tick(minutes=10 * DAY)
    (later,), (sums,) = (ledger(story)[name] for name in ("keeps", "metrics"))
    effect = story.get(f"/v1/reward/{judged['bot']}/effect").json()
    assert later["after_decision"] == effect["after_decision"]["relative"] == sums["after_decision"]
    assert 0 < later["after_decision"] < keep["claimed"] == sums["claimed_of_measured"]
    assert 0 < sums["standard_error"] < 0.1
    # The test went on with the units of the hold-back.
    assert later["log_e"] > keep["log_e"]
    assert later["stands"] == "yes"
    # History may choose, but is left out with a word.
    assert not story.decoded(judged["bot"]).retrospective
    history = text("UPDATE experiments SET registered_at = now() WHERE experiment_id = :id")
    story.in_store(lambda connection: connection.execute(history, {"id": judged["bot"]}))
    assert (ledger(story)["judged"], ledger(story)["retrospective"]) == (1, 1)
