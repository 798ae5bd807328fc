"""The situation of a canary: every face says what was done to it, and asks for nothing else."""

import pytest

from tests.clients.owner import Owner

BASE, CANARY = "aaaaaaa1", "ccccccc1"
DAY, HOURS = 1440.0, 360.0


@pytest.mark.parametrize(
    ("allocation", "state", "sentence", "again"),
    [
        (0, "withdrawn", "The canary was withdrawn at 01 Oct 06:00 UTC", "as a canary again"),
        (1, "promoted", "Everybody has had the change since 01 Oct 06:00 UTC", "the next change"),
    ],
)
def test_nobody_is_asked_to_leave_a_canary_running_that_is_gone(
    story, allocation, state, sentence, again
) -> None:
    story.deploy(BASE, minutes=-DAY)
    story.deploy(CANARY, 0.5, minutes=0, base=BASE)
    for commit in (BASE, CANARY):
        story.crowd(commit, start=0, minutes=HOURS, units=300, rates={"order": 0.2})
    experiment = story.judged(treatment_commit=CANARY, minutes=HOURS + 60)
    running = story.bound(experiment)["situation"]
    assert (running["state"], running["action"]) == ("comparing", "wait")
    assert running["advice"] == story.evidence(experiment)["advice"]

    story.deploy(CANARY, allocation, minutes=HOURS)

    situation = story.bound(experiment)["situation"]
    assert (situation["state"], situation["action"]) == (state, "none")
    assert situation["sentence"].startswith(sentence)
    # The day after has passed since.
    assert "until" not in situation
    assert again in situation["advice"][1]
    page = Owner(story).page(f"/dashboard/experiments/{experiment}")
    assert sentence in page
    assert "Leave the canary running" not in page
    assert "in four of five experiments" not in page
    checks = story.get("/v1/reward/checklist").json()
    assert not any("a share above 0" in check["fix"] for check in checks)


def test_a_canary_that_was_withdrawn_before_any_unit_came_is_no_open_task(story) -> None:
    story.deploy(BASE, minutes=-DAY)
    story.deploy(CANARY, 0.5, minutes=0, base=BASE)
    experiment = story.register(treatment_commit=CANARY)
    story.deploy(CANARY, 0, minutes=5)
    seen = [line["seen"] for line in story.get("/v1/reward/checklist").json()]
    assert f"{experiment}: the canary was withdrawn." in seen
