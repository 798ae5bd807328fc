"""Rows of the interface that show only in the whole walk, from deploys and events to an answer."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from cli.main import main
from domain.contract import Contract, contract
from domain.planning.boundary import Boundary
from domain.planning.design import Design
from domain.planning.plan import prospects
from domain.words import AbstainReason, Verdict
from mcp_server.tools import tools
from tests.world import A, K, T

# Long enough ago that every outcome has closed, too short for the horizon.
RECENT = timedelta(hours=20)
DAY = 86_400


def minutes_before_now(ago: timedelta) -> float:
    """The story's minute of a whole hour that lies at least so long in the past."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return (now - ago - T).total_seconds() / 60


def deploy_canary(story, *, ago: timedelta = RECENT) -> float:
    """Records control and a canary beside it; returns the canary's minute."""
    start = minutes_before_now(ago)
    story.deploy(A, minutes=start - 1440)
    story.deploy(K, minutes=start, base=A, allocation=0.5)
    return start


def serve(story, *, at: float, treated: tuple[int, int], controlled: tuple[int, int]) -> None:
    """Units and conversions of both arms in a block."""
    for commit, (units, converting) in ((K, treated), (A, controlled)):
        story.units_of(commit, minutes=at, units=units, converting=converting, route="/checkout")


def served(story, experiment_id: str) -> dict[str, Any]:
    contract = story.contract(experiment_id)
    assert tuple(contract) == Contract.__struct_fields__
    return contract


@pytest.fixture
def judged(story) -> Callable[..., dict[str, Any]]:
    """The verdict on a canary whose traffic all came in its first block."""

    def verdict(
        treated: tuple[int, int], controlled: tuple[int, int], **registration: Any
    ) -> dict[str, Any]:
        start = deploy_canary(story)
        serve(story, at=start + 1, treated=treated, controlled=controlled)
        experiment_id = story.judged(**registration)
        return served(story, experiment_id)

    return verdict


@pytest.mark.requirement(
    "service.experiment",
    "experiment.target_metric.string",
    "verdict.keep",
    "power_state.decided",
    "contract.lift",
    "contract.confidence",
    "contract.ci",
    "contract.value_at_risk.null",
    "contract.cadence",
    "cadence.fast",
)
def test_a_canary_that_doubles_conversions_is_kept(story, judged) -> None:
    answer = judged((200, 120), (200, 60), target_metric="order")
    assert (answer["verdict"], answer["abstain_reason"]) == ("keep", None)
    assert answer["power_state"] == {"clock": "decided", "decided": True}
    assert answer["lift"] == pytest.approx(120 / 200 - 60 / 200)
    low, high = answer["ci"]
    assert 0 < low < answer["lift"] < high
    totals = story.evidence(answer["experiment_id"])["totals"]
    assert answer["confidence"] == 1 - totals["p_running_min"] > 0.95
    assert answer["ci"] == totals["ci"]
    assert answer["cadence"] == "fast"
    assert answer["value_at_risk"] is None
    assert answer["guardrail_breaches"] == []


@pytest.mark.requirement("verdict.rollback", "power_state.decided", "contract.lift")
def test_a_canary_that_halves_conversions_is_rolled_back(judged) -> None:
    answer = judged((200, 60), (200, 120))
    assert (answer["verdict"], answer["abstain_reason"]) == ("rollback", None)
    assert answer["power_state"] == {"clock": "decided", "decided": True}
    assert answer["lift"] == pytest.approx(-0.3)
    assert answer["ci"][1] < 0


@pytest.mark.requirement("cadence.day", "cadence.fast", "contract.cadence")
def test_a_small_lift_in_much_traffic_is_kept_by_the_day_cadence(story, judged) -> None:
    answer = judged((2400, 1372), (2400, 1200))
    assert (answer["verdict"], answer["cadence"]) == ("keep", "day")
    # The cadences are those of `plan`: lifts of 20 and of 50 %.
    design = Design(sessions_per_day=4800, rate=0.5, share=0.5)
    planned = {each.relative_lift: each for each in prospects(design, Boundary())}
    sessions = story.evidence(answer["experiment_id"])["sessions"]
    assert sessions["required"] == pytest.approx(planned[0.2].sessions_to_decide, rel=1e-3)
    assert sessions["required_fast"] == pytest.approx(planned[0.5].sessions_to_decide, rel=1e-3)


@pytest.mark.requirement(
    "abstain.power",
    "verdict.abstain",
    "power_state.open",
    "contract.lift.null",
    "contract.confidence.null",
    "contract.ci.null",
)
def test_a_canary_without_an_effect_abstains_for_power(judged) -> None:
    answer = judged((100, 30), (100, 30))
    assert (answer["verdict"], answer["abstain_reason"]) == ("abstain", "power")
    assert answer["power_state"] == {"clock": "open", "decided": False}
    assert (answer["lift"], answer["confidence"], answer["ci"]) == (None, None, None)


@pytest.mark.requirement(
    "abstain.non_identifiable", "verdict.abstain", "contract.confidence.null", "contract.ci.null"
)
def test_a_deploy_to_everyone_at_once_cannot_be_told_from_time(story) -> None:
    start = minutes_before_now(RECENT)
    story.deploy(A, minutes=start - 1440)
    story.deploy(K, minutes=start, base=A)
    story.units_of(A, minutes=start - 60, units=200, converting=20)
    story.units_of(K, minutes=start + 1, units=200, converting=120)
    experiment_id = story.judged()
    answer = served(story, experiment_id)
    assert (answer["verdict"], answer["abstain_reason"]) == ("abstain", "non_identifiable")
    assert (answer["lift"], answer["confidence"], answer["ci"]) == (None, None, None)
    assert story.evidence(experiment_id)["gates"]["vif"] == "inf"


@pytest.mark.requirement(
    "contract.value_at_risk", "experiment.target_metric.object", "endpoint.register.target_metric"
)
@pytest.mark.parametrize(("treated", "sign"), [((200, 120), 1), ((200, 30), -1)])
def test_a_registered_value_makes_value_at_risk_known(judged, treated, sign) -> None:
    answer = judged(
        treated, (200, 60), target_metric={"name": "order", "value_per_conversion": 2.5}
    )
    # 400 units came in the five minutes of exposure until the look.
    baseline_a_day = 400 * DAY / 300 * 60 / 200
    relative_lift = answer["lift"] / (60 / 200)
    assert answer["value_at_risk"] == pytest.approx(baseline_a_day * relative_lift * 2.5)
    assert answer["value_at_risk"] * sign > 0


@pytest.mark.requirement("experiment.value-routes")
@pytest.mark.parametrize(
    ("routes", "value"), [({"routes": ["/checkout"]}, 7), ({}, 5)], ids=["a route", "all routes"]
)
def test_value_routes_of_the_project_make_value_at_risk_known(
    service, judged, routes, value
) -> None:
    service.settings(
        value_routes=[
            {"metric": "order", "value_per_conversion": 5},
            {"metric": "order", "route": "/checkout", "value_per_conversion": 7},
            {"metric": "another", "value_per_conversion": 11},
        ]
    )
    answer = judged((200, 120), (200, 60), **routes)
    assert answer["value_at_risk"] == pytest.approx(0.3 * 400 * DAY / 300 * value)


def test_a_stored_value_in_another_currency_puts_no_money_at_risk(service, judged) -> None:
    yen = {"metric": "order", "value_per_conversion": 4500, "currency": "JPY"}
    settings = json.dumps({"value_routes": [yen]})
    with service.store.engine.begin() as connection:
        connection.execute(
            text("UPDATE projects SET settings = settings || CAST(:settings AS jsonb)"),
            {"settings": settings},
        )
    answer = judged((200, 120), (200, 60))
    assert answer["verdict"] == "keep"
    assert answer["value_at_risk"] is None


def polled_until_resolved(story, experiment_id: str, *, since: float) -> list[dict[str, Any]]:
    """What a client sees that polls each hour and stops as the interface says."""
    seen: list[dict[str, Any]] = []
    for hour in range(1, 24):
        answer = served(story, experiment_id)
        seen.append(answer)
        if answer["power_state"]["decided"]:
            return seen
        if answer["verdict"] != "abstain" and answer["abstain_reason"] != "power":
            return seen
        story.tick(minutes=since + 60 * hour)
    raise AssertionError(seen[-1])


@pytest.mark.requirement(
    "endpoint.poll.until", "transition.power-to-verdict", "cadence.thin-traffic", "status.abstain"
)
def test_a_thin_canary_abstains_on_each_poll_until_its_sessions_have_come(story) -> None:
    start = deploy_canary(story)
    for hour in range(12):
        serve(story, at=start + 60 * hour + 1, treated=(30, 16), controlled=(30, 8))
    story.send()
    experiment_id = story.register(treatment_commit=K)
    seen = polled_until_resolved(story, experiment_id, since=start)
    *waiting, last = seen
    assert len(waiting) >= 3
    assert {(answer["verdict"], answer["abstain_reason"]) for answer in waiting} == {
        ("abstain", "power")
    }
    assert {answer["power_state"]["clock"] for answer in waiting} == {"open"}
    assert (last["verdict"], last["power_state"]["decided"]) == ("keep", True)
    story.tick(minutes=start + 18 * 60)
    assert served(story, experiment_id) == last


@pytest.mark.requirement("endpoint.poll.until", "power_state.decided")
def test_a_client_of_an_experiment_that_ends_without_an_answer_stops_too(story) -> None:
    start = deploy_canary(story, ago=timedelta(days=30))
    serve(story, at=start + 1, treated=(50, 15), controlled=(50, 15))
    experiment_id = story.judged()
    (answer,) = polled_until_resolved(story, experiment_id, since=0)
    assert (answer["verdict"], answer["abstain_reason"]) == ("abstain", "power")
    assert answer["power_state"] == {"clock": "decided", "decided": True}


@pytest.mark.requirement("transition.keep-without-breaches")
def test_a_keep_with_breaches_is_refused_before_it_is_published() -> None:
    with pytest.raises(ValueError, match="iterate"):
        contract(
            "exp_1",
            verdict=Verdict.KEEP,
            abstain_reason=None,
            decided=True,
            guardrail_breaches=["error"],
        )


def words(schema: dict[str, Any], parts: dict[str, Any], member: str) -> set[str]:
    shown = schema["properties"][member]
    word = shown.get("anyOf", [shown])[0]
    return set(parts[word["$ref"].rpartition("/")[2]]["enum"] if "$ref" in word else word["enum"])


@pytest.mark.requirement(
    "contract.rest",
    "contract.mcp",
    "contract.verdict",
    "contract.abstain_reason",
    "contract.cadence",
)
def test_each_room_spells_the_contract_alike(service) -> None:
    parts = service.get("/openapi.json").json()["components"]["schemas"]
    (tool,) = (tool for tool in tools() if tool.name == "get_verdict")
    for schema in (parts["Contract"], tool.output_schema):
        assert tuple(schema["properties"]) == Contract.__struct_fields__
        assert words(schema, parts, "verdict") == {"keep", "rollback", "iterate", "abstain"}
        assert words(schema, parts, "abstain_reason") == {word.value for word in AbstainReason}
        assert words(schema, parts, "cadence") == {"day", "fast"}
    assert len(Contract.__struct_fields__) == 10
    assert {*AbstainReason} == {"power", "non_identifiable", "interacting"}


@pytest.mark.requirement("key.management")
def test_keys_are_made_listed_and_ended_with_a_project_s_settings(service, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", service.store.url)

    def run(*command: str) -> Any:
        result = CliRunner().invoke(main, ["keys", *command, "-p", "shop", "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def status(key: str) -> int:
        body = {"event": "page_view", "session_id": "s"}
        headers = {"X-Service-Project-Key": key}
        return service.client.post("/v1/events", json=body, headers=headers).status_code

    key = run("create", "public")["key"]
    assert status(key) == 202
    assert [each["kind"] for each in run("list") if key.startswith(each["key"][:-1])] == ["public"]
    run("revoke", key)
    deadline, asked_at = time.monotonic() + 1, 0.0
    while status(key) != 401:
        # However long an answer takes: what is asked after a second is refused.
        assert asked_at < deadline
        asked_at = time.monotonic()
