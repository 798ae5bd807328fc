"""The effects of an actor's changes through REST: a single document, in which none is left out."""

import hashlib
import json
from typing import Any

import pytest
from sqlalchemy import text

from tests.world import DAY, A, K

L, M = "ddddddd4", "eeeeeee5"


def effects(story, actor: str) -> dict[str, Any]:
    answer = story.get("/v1/reward/effects", params={"actor": actor})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_list_of_an_actor_holds_what_it_stopped_and_what_it_did_not(story) -> None:
    story.deploy(A, minutes=-DAY)
    ids = []
    for place, (commit, rate) in enumerate({K: 0.14, L: 0.07, M: 0.1}.items()):
        environment = {"environment": f"place-{place}"}
        story.deploy(A, minutes=-DAY, **environment)
        actor = {"commit": {"actor": "ada" if commit == M else "bot"}}
        deploy = story.deploy(commit, 0.5, minutes=0, base=A, **environment, **actor)
        for build, of in ((A, 0.1), (commit, rate)):
            story.crowd(build, start=0, minutes=600, units=1500, rates={"order": of}, **environment)
        ids.append((deploy["deploy_id"], environment))
    story.send()
    good, bad, other = [story.register(deploy_id=deploy) for deploy, _ in ids]
    story.as_live()
    story.tick(minutes=300)
    # What looks bad is given back at once.
    assert story.post(f"/v1/reward/{bad}/close", {}).status_code == 200
    moved = text("UPDATE experiments SET closed_at = :at WHERE experiment_id = :id")
    story.in_store(lambda store: store.execute(moved, {"at": story.at(300), "id": bad}))
    story.tick(minutes=10 * DAY)
    served = effects(story, "bot")
    assert (served["changes"], served["left_out"]) == (2, 0)
    rows = {row["experiment_id"]: row["effect"] for row in served["effects"]}
    assert {*rows} == {good, bad}
    assert rows[bad]["stopped"] == "closed"
    assert rows[bad]["likelihood"]["trainable"] is True
    for experiment, effect in rows.items():
        alone = story.get(f"/v1/reward/{experiment}/effect").json()
        assert {**alone, "after_decision": None} == {**effect, "after_decision": None}
    finals = [effect["relative"] for effect in rows.values() if effect["final"]]
    assert (served["final"], served["averaged"]) == (len(finals), len(finals))
    assert served["mean"] == pytest.approx(sum(finals) / len(finals))
    # Whoever shows some of the rows alone has another digest.
    content = [[row["experiment_id"], row["effect"]["likelihood"]] for row in served["effects"]]
    written = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    assert served["digest"] == hashlib.sha256(written.encode()).hexdigest()
    assert [row["experiment_id"] for row in effects(story, "ada")["effects"]] == [other]
    assert effects(story, "nobody")["changes"] == 0
    assert story.get("/v1/reward/effects").json()["changes"] == 3
