"""Places: changes ask for a flag or a share of the traffic, wait, and give it back answered."""

from typing import Any

import pytest
from places.capacity import Capacity
from sqlalchemy import text

from domain.planning.boundary import Boundary
from orchestration.outbound.delivery import deliver
from tests.clients.receiver import receiving
from tests.world import DAY, A, K, World

L = "ddddddd4"


def flag(name: str, **members: Any) -> dict[str, Any]:
    return {"flag": {"name": name, "treatment": True, "control": False}, **members}


def asked(world: World, body: dict[str, Any], *, status: int = 201) -> dict[str, Any]:
    answer = world.post("/v1/places", body)
    assert answer.status_code == status, answer.text
    return answer.json()


def listed(world: World, **query: Any) -> list[dict[str, Any]]:
    return world.get("/v1/places", params=query).json()["places"]


@pytest.fixture
def shop(story) -> World:
    """A project whose users have A, and whose keeps wait for no guardrail."""
    story.settings(default_metric="order", guardrails=[], flag_places=1, locked=[])
    story.deploy(A, minutes=-DAY)
    return story


def test_a_change_that_asks_again_has_its_place_and_the_next_has_it_once_it_is_given_back(
    shop,
) -> None:
    first = asked(shop, flag("cart", actor="agent-1"))
    assert (first["state"], first["kind"], first["share"]) == ("placed", "flag", 0.5)
    assert first["action"] == "serve"
    assert shop.bound(first["experiment_id"])["change"] == ["cart=true"]
    assert asked(shop, flag("cart", actor="a retry"), status=200) == first
    other = shop.post("/v1/places", flag("cart", patience_hours=2))
    assert (other.status_code, other.json()["code"]) == (409, "place_open")

    waiting = [asked(shop, flag(name)) for name in ("search", "footer")]
    assert [(each["state"], each["position"]) for each in waiting] == [("queued", 1), ("queued", 2)]
    ended = shop.post(f"/v1/places/{first['place_id']}/end", {}).json()
    assert (ended["state"], ended["outcome"], ended["action"]) == ("ended", "given_back", "none")
    assert shop.post(f"/v1/places/{first['place_id']}/end", {}).json() == ended
    (placed,) = listed(shop, state="placed")
    (queued,) = listed(shop, state="queued")
    assert (placed["change"], queued["change"], queued["position"]) == ("search", "footer", 1)
    assert asked(shop, flag("cart", actor="agent-1"), status=200) == ended
    # Who asks anew stands at the end of the queue.
    assert asked(shop, flag("cart", again=True))["position"] == 2
    assert len(listed(shop)) == 4
    assert listed(shop, limit=1)[0]["change"] == "cart"
    # Another project sees nothing of it, and ends nothing.
    stranger = World.new(shop.store, shop.client, "another")
    assert listed(stranger) == []
    refused = stranger.post(f"/v1/places/{placed['place_id']}/end", {})
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown_place")
    assert shop.post("/v1/places/pl_none/end", {}).status_code == 404


def test_a_canary_gets_the_share_that_its_traffic_can_answer_and_goes_on_when_its_base_moves(
    shop,
) -> None:
    with receiving() as receiver:
        shop.settings(webhooks=[{"url": receiver.url, "events": ["placed", "promote", "withdraw"]}])
        # Nothing was measured yet: a tenth.
        place = asked(shop, {"change": "#12", "commit": K})
        assert (place["kind"], place["share"], place["expected_hours"]) == ("canary", 0.1, None)
        assert place["experiment_id"] is None
        # The changes of a single commit cannot be separated by it.
        same = asked(shop, {"change": "#13", "commit": K})
        assert same["state"] == "queued"
        shop.post(f"/v1/places/{same['place_id']}/end", {})
        # Four more fit beside the half that stays with what users have.
        others = [asked(shop, {"commit": f"eeeeee{number}"}) for number in range(10, 15)]
        assert [each["state"] for each in others] == ["placed"] * 4 + ["queued"]
        for each in others:
            shop.post(f"/v1/places/{each['place_id']}/end", {})

        shop.deploy(K, 0.5, minutes=0, base=A)
        for commit, rate in ((A, 0.4), (K, 0.2)):
            shop.crowd(commit, start=0, minutes=30, units=100, rates={"order": rate})
        # Another is promoted: the build that carries both goes on without a word from anybody.
        shop.deploy(L, 1, minutes=60, base=A)
        shop.deploy(K, 0, minutes=60)
        both = "ddddddd5"
        shop.deploy(both, 0.5, minutes=61, commit={"changes": [K, L]}, base=A)
        for commit, rate in ((L, 0.4), (both, 0.2)):
            shop.crowd(commit, start=61, minutes=60, units=800, rates={"order": rate})
        shop.send()
        shop.tick(minutes=50)
        (place,) = listed(shop, change="#12")
        assert place["experiment_id"] is not None
        assert shop.bound(place["experiment_id"])["change"] == [K]
        assert shop.bound(place["experiment_id"])["base_moved"] is None
        shop.tick(minutes=300)
        (place,) = listed(shop, change="#12")
        assert (place["state"], place["outcome"], place["action"]) == (
            *("ended", "rollback"),
            "withdraw",
        )
        deliver(shop.store.engine, secret=b"a secret of the tests, long enough")
    kinds = [got.document["type"].removeprefix("deploy_reward.") for got in receiver.got]
    assert (kinds.count("placed"), kinds.count("withdraw"), len(kinds)) == (6, 1, 7)
    data = receiver.got[-1].document["data"]
    assert (data["subject"], data["sentence"]) == (place["place_id"], "Withdraw #12: rollback.")
    assert data["contract"]["verdict"] == "rollback"


@pytest.mark.parametrize("kind", ["raw", "slack"])
@pytest.mark.parametrize(
    ("on_suspicion", "ends"),
    [("pause", ("placed", None, "pause")), ("roll_back", ("ended", "suspected", "withdraw"))],
)
def test_a_place_stops_on_a_suspicion_or_goes_back_and_a_webhook_tells_of_it_once(
    shop, on_suspicion, ends, kind
) -> None:
    """6,360 sessions of the canary, 360 of them empty: by the rate alone it is worse."""
    with receiving() as receiver:
        webhook = {"url": receiver.url, "format": kind, "events": ["suspected", "withdraw"]}
        shop.settings(on_suspicion=on_suspicion, webhooks=[webhook])
        # A loss of all but a tenth is excluded from the start, and makes no promotion.
        place = asked(shop, {"change": "#12", "commit": K, "accept_harm": 0.9})
        shop.deploy(K, 0.5, minutes=0, base=A)
        for commit, units, rate in ((A, 6000, 0.6), (K, 6360, 3600 / 6360)):
            shop.crowd(commit, start=0, minutes=600, units=units, rates={"order": rate})
        shop.send()
        shop.goes_on()
        for minutes in (-60, DAY, DAY + 10, DAY + 20):
            shop.tick(minutes=minutes)
        (listed_place,) = listed(shop, change="#12")
        assert tuple(listed_place[name] for name in ("state", "outcome", "action")) == ends
        word = "Withdraw #12" if ends[1] else "Raise the share of #12 no further"
        assert listed_place["sentence"] == f"{word}: worse, unless units are lost."
        deliver(shop.store.engine, secret=b"a secret of the tests, long enough")
    assert place["action"] == "serve"
    if kind == "slack":
        texts = [got.document["text"] for got in receiver.got]
        messages = [text for text in texts if text.startswith("*A harm is suspected*\n")]
        assert "Worse, unless units are lost: order is down" in messages[0]
    else:
        types = [got.document["type"] for got in receiver.got]
        messages = [each for each in types if each == "deploy_reward.suspected"]
    assert len(messages) == 1
    assert len(receiver.got) == 1 + (on_suspicion == "roll_back")


def test_a_place_ends_by_a_bound_on_harm_or_by_patience_and_a_bad_one_stops_nobody(shop) -> None:
    for on in (True, False):
        shop.crowd(A, start=1, minutes=60, units=600, rates={"order": 0.4}, flags={"cart": on})
    shop.send()
    place = asked(shop, flag("cart", accept_harm=0.5))
    hasty = asked(shop, flag("search", patience_hours=1e-6))
    # No experiment can be made of it any more once its turn has come.
    asked(shop, flag("bad", target_metric="signup"))
    shop.settings(locked=["target_metric"])
    locked = shop.post("/v1/places", {"commit": K, "target_metric": "signup"})
    assert locked.status_code == 201, "its deploy has not come yet"
    assert shop.post("/v1/places", {"change": "nothing"}).status_code == 422
    # Who asks chooses neither the harm nor the time where the project keeps both; defaults stay.
    shop.settings(locked=["target_metric", "accept_harm", "patience"])
    for member, value in (("accept_harm", 1), ("patience_hours", 672)):
        kept = shop.post("/v1/places", {"change": "greedy", "commit": K, member: value})
        assert (kept.status_code, kept.json()["code"]) == (403, "locked")
    asked(shop, {"change": "modest", "commit": K, "accept_harm": 0.2, "patience_hours": 24})
    stranger = World.new(shop.store, shop.client, "another")
    stranger.settings(flag_places=1)
    broken = asked(stranger, flag("cart"))
    shop.in_store(
        lambda connection: connection.execute(
            text("UPDATE places SET request = '{}' WHERE place_id = :id"),
            {"id": broken["place_id"]},
        )
    )
    shop.tick(minutes=300)
    (ended,) = listed(shop, change="cart")
    assert (ended["outcome"], ended["action"]) == ("harmless", "promote")
    assert ended["sentence"] == "Promote cart: a loss beyond 50 % is excluded."
    assert listed(shop, change="search")[0]["state"] == "placed"
    shop.tick(minutes=310)
    assert listed(shop, change="search")[0]["outcome"] == "unanswered"
    (refused,) = listed(shop, change="bad")
    assert (refused["outcome"], refused["action"]) == ("refused", "none")
    assert "the project's setting `locked`" in refused["sentence"]
    assert hasty["state"] == "queued"
    # Their experiments are closed, so that no unit is drawn for them any more.
    assert shop.contract(place["experiment_id"])["verdict"] == "abstain"


@pytest.mark.parametrize(
    ("first", "ended_because", "stopped"),
    [
        ("place", "place_ended", None),
        ("experiment", "closed", "closed"),
        ("hand", "closed", "closed"),
    ],
)
def test_the_effect_of_a_change_is_trained_on_where_its_place_alone_chose_the_end(
    shop, first, ended_because, stopped
) -> None:
    for on in (True, False):
        shop.crowd(A, start=1, minutes=60, units=600, rates={"order": 0.4}, flags={"cart": on})
    shop.send()
    if first == "experiment":
        # It might have been watched up to a good moment.
        shop.settings(flag_places=2)
        shop.register(deploy_id=None, treatment_flag=flag("cart")["flag"])
    place = asked(shop, flag("cart", accept_harm=0.5))
    if first == "hand":
        shop.tick(minutes=250)
        shop.post(f"/v1/reward/{place['experiment_id']}/close", {})
    shop.as_live()
    shop.tick(minutes=300)
    # The server's clock is not the story's.
    asked_at, closed_at = 100 if first == "experiment" else 0, 250 if first == "hand" else 300
    moved = {"asked": shop.at(asked_at), "closed": shop.at(closed_at), "ended": shop.at(300)}
    for statement in (
        "UPDATE experiments SET closed_at = :closed WHERE closed_at IS NOT NULL",
        "UPDATE places SET asked_at = :asked, placed_at = :asked, ended_at = :ended",
    ):
        shop.in_store(lambda connection, each=statement: connection.execute(text(each), moved))
    shop.tick(minutes=310)
    evidence = shop.evidence(place["experiment_id"])
    effect = evidence["effect"]
    assert (evidence["ended_because"], effect["stopped"]) == (ended_because, stopped)
    # A likelihood is as good at any end; the estimate rests on 600 sessions.
    assert (effect["final"], effect["likelihood"]["trainable"]) == (True, True)
    assert effect["likelihood"]["standard_error"] > 0.05
    assert not effect["trainable"]


@pytest.mark.parametrize(
    ("per_day", "rate", "hours", "share"),
    [(50_000, 0.2, 3.0, 0.1), (50_000, 0.05, 14.5, 0.5), (500_000, 0.2, 0.3, 0.01)],
)
def test_a_share_is_as_large_as_the_traffic_needs_to_answer_in_half_of_the_patience(
    per_day, rate, hours, share
) -> None:
    capacity = Capacity(sessions_per_day=per_day, rate=rate, boundary=Boundary())
    assert capacity.hours("flag", 0.5, 0.2) == pytest.approx(hours, rel=0.05)
    assert capacity.canary_share(0.2, 24) == share
