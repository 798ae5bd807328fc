"""Until its first look a page says what arrives, and when the first look can come."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest

from tests.clients.owner import Owner
from tests.processes.api_process import eventually

OLD, NEW = "a" * 40, "b" * 40
BEGUN = datetime.now(UTC) - timedelta(minutes=12)


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.fixture
def experiment(owner) -> str:
    """A canary of 12 minutes ago, whose metric waits 30 minutes for outcomes."""
    before = (BEGUN - timedelta(days=1)).isoformat()
    owner.service.deploy(OLD, deployed_at=before)
    owner.service.deploy(NEW, 0.5, base=OLD, deployed_at=BEGUN.isoformat())
    return owner.service.register(target_metric="order")


def send(owner: Owner, minutes: float) -> None:
    """A session of each build, so long ago."""
    at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    events = [
        {"event": "page_view", "session_id": f"{at}-{sha[0]}", "commit": sha, "occurred_at": at}
        for sha in (OLD, NEW)
    ]
    # As they would have been received then.
    answer = owner.service.post("/v1/events", {"events": events})
    assert answer.json()["accepted"] == 2


def verdict(owner: Owner, experiment: str) -> str:
    return words(owner.page(f"/dashboard/experiments/{experiment}"))


def test_from_the_first_event_on_the_page_says_that_traffic_comes(owner, experiment) -> None:
    assert "It starts with the next run of the pipeline." in verdict(owner, experiment)
    owner.service.freeze()
    assert "Nothing was measured yet. What to do now Send traffic" in verdict(owner, experiment)
    send(owner, 0)
    # The API notes every few seconds whose events came.
    eventually(lambda: "Events are coming in." in verdict(owner, experiment))
    page = verdict(owner, experiment)
    assert "Events are coming in. Units are counted when a block of 5 minutes has closed." in page
    assert "What to do now Leave the canary running." in page
    assert "Send traffic" not in page


def test_units_are_told_as_soon_as_their_block_has_closed(owner, experiment) -> None:
    owner.service.freeze()
    known = owner.service.client.get(f"/dashboard/experiments/{experiment}/live").headers["ETag"]
    with owner.service.store.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO deploy_reward.block_units (experiment_id, block, treatment, control)"
            " VALUES (%s, (extract(epoch FROM now())::bigint / 300) * 300000000, 3, 4)",
            (experiment,),
        )
    page = verdict(owner, experiment)
    assert "7 units have come, and none is complete yet" in page
    # A page that is open shows it too.
    live = owner.service.client.get(
        f"/dashboard/experiments/{experiment}/live", headers={"If-None-Match": known}
    )
    assert live.status_code == 200


def test_the_first_look_is_told_by_the_page_the_checklist_and_the_registration(
    owner, experiment
) -> None:
    at = datetime.fromisoformat(owner.service.bound(experiment)["first_look_at"])
    # A block, the metric's window, and the grace.
    assert timedelta(minutes=32) <= at - BEGUN <= timedelta(minutes=37)
    owner.service.tick()
    # Nothing came in the blocks that have closed meanwhile.
    at = datetime.fromisoformat(owner.service.bound(experiment)["first_look_at"])
    page = owner.page(f"/dashboard/experiments/{experiment}")
    assert f'First look</dt><dd><time datetime="{at:%Y-%m-%dT%H:%M:%SZ}"' in page
    assert "Next look" not in page
    lines = owner.service.get("/v1/reward/checklist").json()
    (arms,) = [
        line["seen"] for line in lines if line["check"] == "canary and control both get traffic"
    ]
    assert arms.endswith(f"Its first look can come at {at:%d %b %H:%M} UTC.")
