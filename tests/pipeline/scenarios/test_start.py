"""The start: where a ramp began, however late it was registered; not where it was chosen late."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from orchestration.pipeline.audit import audit
from storage.lake.day_engines import DayEngineSettings
from tests.clients.owner import Owner
from tests.pipeline.engines.rows import oracle_rows, recomputed_rows, stored_rows
from tests.world import DAY, A, K

B, L = "bbbbbbb2", "ddddddd4"
UNFROZEN = text("UPDATE experiments SET policy = NULL, frozen_at = NULL, starts_at = NULL")
POSTED_AT_ONCE = text("UPDATE deploys SET recorded_at = deployed_at")
# Ten units of each arm in each of these hours.
STEPS = ((0, 0.01), (60, 0.05), (120, 0.25), (180, 0.5))


def ramp(story, *, meanwhile=None) -> None:
    """A ramp of four steps, an hour each; something else happens at the third."""
    story.deploy(A, minutes=-DAY)
    for minutes, share in STEPS:
        if minutes == 120 and meanwhile is not None:
            meanwhile(story)
        story.deploy(K, minutes=minutes, base=A, allocation=share)
        story.units_of(A, minutes=minutes + 10, units=10)
        story.units_of(K, minutes=minutes + 10, units=10)
    story.send()


def treated(story, experiment: str) -> int:
    story.tick(minutes=2 * DAY)
    return story.evidence(experiment)["arms"]["treatment"]["units"]


def test_a_ramp_that_is_registered_at_its_last_step_counts_from_its_first(story) -> None:
    ramp(story)
    experiment = story.register(treatment_commit=K)
    assert treated(story, experiment) == 40


def deployed(sha: str, allocation: float | None = None) -> Callable[[Any], object]:
    """Deploys a build on A before the third step."""
    return lambda world: world.deploy(sha, minutes=110, base=A, allocation=allocation)


def mistaken(world: Any) -> None:
    deploy = world.deploy(B, minutes=110, base=A)
    assert world.withdraw(deploy).status_code == 200


MEANWHILE = {
    "it was withdrawn": (deployed(K, 0), 20),
    "it was promoted": (deployed(K, 1), 20),
    "its share is no longer declared": (deployed(K), 20),
    "another commit takes over": (deployed(B), 20),
    "a deploy was posted by mistake": (mistaken, 40),
    "a canary comes beside it": (deployed(L, 0.1), 40),
    "a canary beside it ends": (deployed(L, 0), 40),
}


@pytest.mark.parametrize(("meanwhile", "units"), MEANWHILE.values(), ids=MEANWHILE)
def test_a_declaration_that_was_broken_begins_again_and_no_other(story, meanwhile, units) -> None:
    ramp(story, meanwhile=meanwhile)
    assert treated(story, story.register(treatment_commit=K, control_commit=A)) == units


def test_a_deploy_without_a_declared_share_starts_with_itself(story) -> None:
    story.deploy(A, minutes=-DAY)
    ids: list[str] = []
    for minutes in (0, 60):
        ids.append(story.deploy(K, minutes=minutes, base=A)["deploy_id"])
        story.units_of(A, minutes=minutes + 10, units=10)
        story.units_of(K, minutes=minutes + 10, units=10)
    story.send()
    assert treated(story, story.register(deploy_id=ids[1])) == 10


@pytest.mark.parametrize("share", [0, 1])
def test_a_ramp_that_is_registered_after_its_end_counts_from_its_first_step(story, share) -> None:
    ramp(story)
    story.deploy(K, minutes=300, base=A, allocation=share)
    assert treated(story, story.register(treatment_commit=K)) == 40


# --- A canary that is deployed to nobody first ----------------------------------------------------


def dark(story, *, hours: float = 48) -> dict[str, Any]:
    """A canary that is deployed to nobody, and visits of users of A meanwhile."""
    story.deploy(A, minutes=-9 * DAY)
    deploy = story.deploy(K, minutes=-hours * 60, base=A, allocation=0)
    story.crowd(A, start=-hours * 60, minutes=hours * 60 - 1, units=1000, rates={"order": 0.5})
    return deploy


@pytest.mark.parametrize("named", ["commit", "deploy", "nothing", "before its deploy"])
def test_a_canary_that_is_deployed_to_nobody_starts_with_its_first_share(story, named) -> None:
    asked = {"commit": {"treatment_commit": K}, "before its deploy": {"treatment_commit": K}}
    early = story.register(treatment_commit=K) if named == "before its deploy" else None
    deploy = dark(story)
    asked |= {"deploy": {"deploy_id": deploy["deploy_id"]}, "nothing": {}}
    experiment = early or story.register(**asked[named])
    for minutes in (-DAY, -1):
        assert story.answer(experiment, minutes=minutes) == ("abstain", "power", False)
    waiting = story.bound(experiment)
    assert (waiting["deploy_id"], waiting["situation"]["action"]) == (None, "wait")
    assert waiting["situation"]["sentence"].startswith("It has no share of the traffic yet.")
    assert waiting["waits_for_deploy"]["unshared"]

    for start, each in ((0, (900, 100)), (600, (500, 500))):
        for commit, units in zip((A, K), each, strict=True):
            story.crowd(commit, start=start, minutes=599, units=units, rates={"order": 0.1})
    story.send()
    first = story.deploy(K, minutes=0, base=A, allocation=0.1)
    story.deploy(K, minutes=600, base=A, allocation=0.5)
    story.in_store(lambda connection: connection.execute(POSTED_AT_ONCE))
    assert story.register(**asked[named]) == experiment
    assert story.answer(experiment, minutes=2 * DAY) == ("abstain", "power", False)
    bound, evidence = story.bound(experiment), story.evidence(experiment)
    assert (bound["deploy_id"], bound["starts_at"]) == (first["deploy_id"], "2026-10-01T00:00:00Z")
    # Neither the units of control before, nor their orders.
    arms = {arm: each["units"] for arm, each in evidence["arms"].items()}
    assert arms == {"control": 1400, "treatment": 600}
    assert evidence["arms"]["control"]["rate"] == pytest.approx(0.1, abs=0.005)
    assert evidence["gates"]["sample_ratio_e"] < 1
    require_equal_on_every_engine(story, experiment)


def require_equal_on_every_engine(story, experiment: str) -> None:
    """Holds that a recomputation, DuckDB and the plain implementation have the same rows."""
    assert audit(story.store.engine, experiment).differences == []
    story.require_the_counts_to_add_up()
    as_of = story.begin + timedelta(minutes=2 * DAY)
    computed, ends = recomputed_rows(story.store, as_of=as_of, settings=DayEngineSettings())
    with story.store.engine.connect() as connection:
        stored = stored_rows(connection, experiment)
        plain = oracle_rows(connection, experiment, until=ends[experiment])
    assert stored == computed[experiment]
    assert {name: stored[name] for name in plain} == plain


def test_users_who_came_before_a_first_share_cross_over_to_nothing(story) -> None:
    story.settings(unit="user")
    dark(story)
    for number in range(200):
        for commit, minutes in ((A, -100), ((A, K)[number % 2], 10 + number)):
            visit = {"session_id": f"v{number}.{minutes}", "user_ref": f"u{number}"}
            visit |= {"event": "page_view", "commit": commit, "occurred_at": story.at(minutes)}
            story.events.append(visit)
    experiment = story.register(treatment_commit=K)
    story.tick(minutes=-1)
    story.send()
    story.deploy(K, minutes=0, base=A, allocation=0.5)
    story.tick(minutes=DAY)
    evidence = story.evidence(experiment)
    assert [evidence["arms"][arm]["units"] for arm in ("control", "treatment")] == [100, 100]
    assert evidence["counts"]["crossover"] == 0


def test_a_canary_that_goes_back_to_nobody_is_withdrawn(story) -> None:
    dark(story)
    experiment = story.register(treatment_commit=K)
    for commit in (A, K):
        story.crowd(commit, start=0, minutes=300, units=100, rates={"order": 0.2})
    story.crowd(A, start=301, minutes=3 * DAY, units=900)
    story.send()
    story.deploy(K, minutes=0, base=A, allocation=0.5)
    withdrawal = story.deploy(K, minutes=300, base=A, allocation=0)
    story.in_store(lambda connection: connection.execute(POSTED_AT_ONCE))
    assert story.bound(experiment)["situation"]["state"] == "withdrawn"
    # A registration of the withdrawal means the canary that it ended.
    assert story.register(deploy_id=withdrawal["deploy_id"]) == experiment
    assert story.answer(experiment, minutes=4 * DAY) == ("abstain", "power", True)
    assert story.evidence(experiment)["ended_because"] == "withdrawn"


def test_a_deploy_to_nobody_that_was_a_mistake_is_waited_for_and_is_not_its_own_likeness(
    story,
) -> None:
    deploy = story.deploy(K, minutes=0, base=A, allocation=0)
    experiment = story.register(treatment_commit=K)
    assert story.withdraw(deploy).is_success
    awaited = story.bound(experiment)["waits_for_deploy"]
    assert (awaited["unshared"], awaited["nearest"]) == (False, None)


def test_whoever_waits_for_the_next_deploy_is_given_no_withdrawal(story) -> None:
    experiment = story.register()
    story.deploy(K, minutes=0, base=A, allocation=0)
    assert story.bound(experiment)["waits_for_deploy"]["commit"] is None
    story.deploy(B, minutes=1, base=A, allocation=0.1)
    assert story.bound(experiment)["treatment_commit"] == B


# --- Choosing after looking -----------------------------------------------------------------------


def set_before(story, **chosen: Any) -> None:
    """Settings that the project was created with: nobody changed them since."""
    added = text("UPDATE projects SET settings = settings || CAST(:chosen AS jsonb)")
    story.in_store(lambda connection: connection.execute(added, {"chosen": json.dumps(chosen)}))


@pytest.fixture
def served(story) -> Any:
    """A canary that has been served beside A for long, in a project that measures orders."""
    set_before(story, default_metric="order", metrics={"order": {}, "basket": {}})
    story.registration = {}
    story.canary()
    for commit in (A, K):
        story.units_of(commit, minutes=10, units=10)
    return story


LATE, IN_TIME = True, False
CHOICES = [
    ({}, {}, IN_TIME),
    ({}, {"target_metric": {"name": "order", "value_per_conversion": 40}}, IN_TIME),
    ({}, {"control_commit": A}, IN_TIME),
    ({}, {"guardrails": ["error", "basket"]}, IN_TIME),
    ({}, {"target_metric": "basket"}, LATE),
    ({}, {"routes": ["/cart"]}, LATE),
    ({}, {"control_commit": B}, LATE),
    ({}, {"guardrails": []}, LATE),
    ({"guardrails": ["error", "basket"]}, {}, IN_TIME),
    ({"guardrails": []}, {}, LATE),
    ({"metrics": {"order": {"window_seconds": 600}, "basket": {}}}, {}, LATE),
    ({"default_metric": "basket"}, {}, LATE),
    ({"alpha": 0.2}, {}, LATE),
    ({"verified_draws": True}, {}, LATE),
    ({"reward_days": 3}, {}, LATE),
    ({"default_branch": "line"}, {}, LATE),
    ({"span_event": "request"}, {}, LATE),
    ({"value_routes": [{"metric": "order", "value_per_conversion": 5}]}, {}, IN_TIME),
]


@pytest.mark.parametrize(("settings", "members", "late"), CHOICES)
def test_a_choice_that_could_follow_a_look_counts_no_past(served, settings, members, late) -> None:
    served.send(live=True)
    served.settings(**settings)
    bound = served.bound(served.register(treatment_commit=K, **members))
    begun, registered = "2026-10-01T00:00:00Z", bound["registered_at"]
    expected = (registered, begun) if late else (begun, None)
    assert (bound["starts_at"], bound["declared_at"]) == expected


def test_the_page_says_why_no_past_counts(served) -> None:
    served.send(live=True)
    experiment = served.register(treatment_commit=K, target_metric="basket")
    served.freeze()
    page = Owner(served).page(f"/dashboard/experiments/{experiment}")
    assert "its canary runs since 2026-10-01 00:00 UTC" in page


def test_however_late_a_policy_is_frozen_it_is_that_of_the_registration(story) -> None:
    story.settings(alpha=0.01)
    story.deploy(A, minutes=-DAY)
    experiment = story.register(treatment_flag={"name": "cart", "treatment": True})
    waiting = story.get(f"/v1/reward/{experiment}/registration").json()
    assert (waiting["frozen_at"], waiting["starts_at"]) == (None, None)
    assert waiting["situation"]["state"] == "starting"
    flagged = {"event": "page_view", "session_id": "s", "commit": A, "flags": {"cart": True}}
    assert story.post("/v1/events", flagged).status_code == 202
    story.settings(alpha=0.05)
    frozen = story.bound(experiment)
    assert (frozen["starts_at"], frozen["fires_at"]) == (frozen["registered_at"], 100)


@pytest.mark.parametrize("served", [False, True], ids=["browsers alone", "a server too"])
def test_a_stranger_s_event_of_a_flag_is_no_start_where_a_server_sends_the_flag(
    story, served
) -> None:
    story.deploy(A, minutes=-DAY)
    flagged = {"event": "page_view", "commit": A, "flags": {"cart": True}}
    by_a_stranger, by_a_server = (datetime.now(UTC) - timedelta(minutes=ago) for ago in (9, 3))
    event = {**flagged, "session_id": "x", "occurred_at": by_a_stranger.isoformat()}
    assert story.post("/v1/events", event, headers=story.public).status_code == 202
    if served:
        event = {**flagged, "session_id": "s", "occurred_at": by_a_server.isoformat()}
        assert story.post("/v1/events", event).status_code == 202
    experiment = story.register(treatment_flag={"name": "cart", "treatment": True})
    starts_at = datetime.fromisoformat(story.bound(experiment)["starts_at"])
    assert starts_at == (by_a_server if served else by_a_stranger)
    (source,) = story.policy(experiment)["read_from"]
    assert (source["member"], source["vouched"], source["unvouched"]) == (
        "start",
        served,
        not served,
    )


def test_a_policy_that_is_frozen_six_hours_later_is_the_one_of_at_once(story) -> None:
    story.begin = datetime.now(UTC) - timedelta(minutes=30)
    story.canary()
    story.units_of(K, minutes=1, units=60)
    story.send(live=True)
    story.tick()
    experiment = story.register(treatment_commit=K)
    members = ("starts_at", "declared_at", "registered_at")
    at_once = story.policy(experiment), [story.bound(experiment)[each] for each in members]
    # Meanwhile, as while nothing ran: another build for everybody, visits, and other settings.
    story.deploy(B, base=A)
    visit = {"event": "page_view", "session_id": "s", "commit": B}
    assert story.post("/v1/events", visit).status_code == 202
    story.settings(alpha=0.2, unit="user", warmup_minutes=60)
    story.in_store(lambda connection: connection.execute(UNFROZEN))
    story.tick()
    assert at_once == (
        story.policy(experiment),
        [story.bound(experiment)[each] for each in members],
    )


@pytest.mark.parametrize("first", [0, 1])
def test_a_commit_and_nothing_at_all_in_one_minute_are_the_same_experiment(served, first) -> None:
    asked = [{"treatment_commit": K}, {}]
    bodies = [asked[first], asked[first], asked[1 - first]]
    assert len({served.register(**body) for body in bodies}) == 1


@pytest.mark.parametrize(("units", "late"), [(20, False), (60, True)])
def test_a_choice_is_late_once_a_block_of_units_has_closed(story, units, late) -> None:
    story.begin = datetime.now(UTC) - timedelta(minutes=30)
    story.canary()
    story.units_of(K, minutes=1, units=units)
    story.send(live=True)
    story.tick()
    experiment = story.register(treatment_commit=K)
    assert (story.bound(experiment)["declared_at"] is not None) == late


def test_units_seen_before_a_late_start_are_in_neither_arm(served) -> None:
    """Nor does the warm-up begin anew: users have had the change for long."""
    set_before(served, warmup_minutes=60)
    served.send(live=True)
    experiment = served.register(treatment_commit=K, target_metric="basket")
    served.begin = datetime.now(UTC)
    visits = [(f"s{number}", (A, K)[number // 10]) for number in range(20)]
    visits += [(f"new{number}", (A, K)[number % 2]) for number in range(6)]
    page = {"event": "page_view", "occurred_at": served.at(0)}
    batch = [{**page, "session_id": session, "commit": commit} for session, commit in visits]
    assert served.post("/v1/events", {"events": batch}).json()["accepted"] == 26
    served.tick(minutes=1.1 * DAY)
    counts = served.evidence(experiment)["counts"]
    assert (counts["in_flight"], counts["in_cells"], counts["warming"]) == (20, 6, 0)
