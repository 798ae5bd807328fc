"""The effects of an actor's changes through REST: a single document, in which none is left out."""

import asyncio
import hashlib
import json
from typing import Any

import dagster as dg
import pytest
from mcp import Client
from sqlalchemy import text

from api.dashboard.page.figures import signs
from mcp_server.address import Address
from mcp_server.reward_api import RewardApi
from mcp_server.server import reward_server
from orchestration.dagster.resources import Store
from orchestration.ledger.asset import ledger
from orchestration.pipeline.audit import audit
from tests.cli.conftest import serving
from tests.clients.owner import Owner
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
    # The agent gives a bad change back at once.
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
    # A mean needs a learned prior.
    assert (served["final"], served["averaged"]) == (len(finals), 0)
    assert served["mean"] is None
    # The digest covers each row.
    content = [[row["experiment_id"], row["effect"]["likelihood"]] for row in served["effects"]]
    written = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    assert served["digest"] == hashlib.sha256(written.encode()).hexdigest()
    assert [row["experiment_id"] for row in effects(story, "ada")["effects"]] == [other]
    assert effects(story, "nobody")["changes"] == 0
    assert story.get("/v1/reward/effects").json()["changes"] == 3


async def explained_to_an_agent(url: str, headers: dict[str, str], experiment: str) -> Any:
    api = RewardApi(Address(url=url, key=headers["X-Service-Project-Key"]))
    async with Client(reward_server(api)) as client:
        return (await client.call_tool("explain", {"experiment_id": experiment})).structured_content


def canary_of(story, commit: str, environment: str) -> str:
    """Registers a canary of half a day that sells half as much again."""
    story.deploy(A, minutes=-DAY, environment=environment)
    deploy = story.deploy(commit, 0.5, minutes=0, base=A, environment=environment)
    for build, rate in ((A, 0.2), (commit, 0.3)):
        served = {"start": 0, "minutes": 600, "units": 600, "environment": environment}
        story.crowd(build, **served, rates={"order": rate})
    story.send()
    return story.register(deploy_id=deploy["deploy_id"])


# Three hundred copies of an experiment stand for a fleet.
_COPY = """
INSERT INTO {table} SELECT (jsonb_populate_record(t, to_jsonb(t) || {changed})).*
FROM {table} AS t CROSS JOIN generate_series(1, 300) AS number WHERE t.experiment_id = :id
"""
_ID = "jsonb_build_object('experiment_id', t.experiment_id || number)"
_BY = "jsonb_build_object('request', t.request || jsonb_build_object('actor', number % :actors))"
_COPIES = (("experiments", f"{_ID} || {_BY}"), ("verdicts", _ID))


@pytest.mark.parametrize(("actors", "teaches"), [(5, True), (4, False)])
def test_three_hundred_changes_teach_the_prior_of_the_next(
    story, monkeypatch, actors, teaches
) -> None:
    # The story tells of days that are long past.
    monkeypatch.setattr("storage.ledger.entries.DAYS", 36_500)
    first = canary_of(story, K, "first")
    story.as_live()
    story.tick(minutes=200)
    assert story.post(f"/v1/reward/{first}/close", {}).status_code == 200
    moved = text("UPDATE experiments SET closed_at = :at WHERE experiment_id = :id")
    story.in_store(lambda store: store.execute(moved, {"at": story.at(200), "id": first}))
    story.tick(minutes=DAY)
    taught = story.get(f"/v1/reward/{first}/effect").json()
    assert "learned" not in taught
    for table, changed in _COPIES:
        copy = text(_COPY.format(table=table, changed=changed))
        bound = {"id": first, **({"actors": actors} if table == "experiments" else {})}
        story.in_store(lambda store, each=copy, of=bound: store.execute(each, of))
    with dg.DagsterInstance.ephemeral() as instance:
        resources = {"store": Store(database_url=story.store.url)}
        for _ in range(2):
            assert dg.materialize([ledger], instance=instance, resources=resources).success
    # A prior counts for experiments of later days.
    story.in_store(lambda store: store.execute(text("UPDATE learned_priors SET day = day - 1")))
    second = canary_of(story, L, "next")
    story.as_live()
    story.tick(minutes=DAY)
    effect = story.get(f"/v1/reward/{second}/effect").json()
    assert ("learned" in effect) == ("credible" in effect) == teaches
    if teaches:
        estimate, likelihood = effect["learned"], effect["likelihood"]["estimate"]
        # The fleet sells more by half, so the learned prior shrinks less than the fixed prior.
        assert effect["relative"] < estimate < likelihood
        low, high = effect["credible"]
        assert low < estimate < high
        said = f"{100 * estimate:+.0f} %, 95 % between {100 * low:+.0f} % and {100 * high:+.0f} %"
        page = Owner(story).page(f"/dashboard/experiments/{second}")
        assert f"Learned estimate: {signs(said)}, by the project" in page
        with serving(story) as url:
            explained = asyncio.run(explained_to_an_agent(url, story.reward, second))
        shown = explained["evidence"]["effect"]
        assert {name: shown[name] for name in ("learned", "credible")} == {
            name: effect[name] for name in ("learned", "credible")
        }
        differences = audit(story.store.engine, second).differences
        assert [each for each in differences if "retrospective" not in each] == []
