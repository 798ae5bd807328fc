"""Faces at a moment: all of them say at once what was done to a canary, and what got worse."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from mcp import Client
from sqlalchemy import text

from cli.changes.outcome import Exit
from cli.main import main
from mcp_server.address import Address
from mcp_server.reward_api import RewardApi
from mcp_server.server import reward_server
from orchestration.dagster.report import report
from orchestration.outbound.delivery import deliver
from storage.tenants.keys import KeyKind
from storage.views.published import nearest_to_an_answer
from tests.cli.conftest import serving
from tests.clients.owner import Owner
from tests.clients.receiver import receiving
from tests.processes.api_process import eventually
from tests.world import A, K, World

HOTFIX = "eeeeeee5"
HOURS = 60.0
ABSTAIN = {"verdict": "abstain", "abstain_reason": "power", "decided": False}
# Of a canary that is compared no longer, or that harms, no face may say any of these.
GOES_ON = (
    *("Leave the canary running", "larger share", "are needed to find", "reached about"),
    *("four of five", "<progress", "Enough units about", "Go on:"),
)
# A clause that announces a moment to come, and the moment as any face writes it.
_TO_COME = re.compile(
    r"(?:until|about|ends at|can come at|any case) (?:about )?"
    r"(\d{4}-\d\d-\d\d \d\d:\d\d|\d\d \w{3} \d\d:\d\d)"
)
# Faces that show no sentence.
LISTS = ("list", "cli list", "mcp list", "/deploys", "reason")
Faces = Callable[[str], Mapping[str, str]]


@pytest.fixture
def live(story: World, request) -> World:
    """A world whose sixth hour has just closed."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    story.begin = now - timedelta(hours=7, minutes=now.minute % 5)
    story.canary(getattr(request, "param", 0.5))
    return story


@pytest.fixture
def faces(live, monkeypatch) -> Iterator[Faces]:
    key = live.project.keys[KeyKind.PROJECT]
    with serving(live) as url:
        monkeypatch.setenv("SERVICE_API_URL", url)
        monkeypatch.setenv("SERVICE_PROJECT_KEY", key)
        monkeypatch.setenv("COLUMNS", "250")

        def command(*words: str) -> str:
            return " ".join(CliRunner().invoke(main, words).output.split())

        def look(experiment: str) -> Mapping[str, str]:
            evidence, owner = live.get(f"/v1/reward/{experiment}/evidence").json(), Owner(live)
            (row,) = (row for row in live.listed() if row["experiment_id"] == experiment)
            of, metric = row["treatment_commit"], row["metric"]
            gate = {"treatment_commit": of, "target_metric": metric, "policy": "no-breach"}
            with live.store.engine.connect() as connection:
                dagster = dict(report(nearest_to_an_answer(connection, limit=9)))
            pages = ("", "/experiments", "/deploys", f"/experiments/{experiment}")
            return {
                # Before a look there is a problem, whose detail says why.
                **(
                    {"evidence": evidence["detail"]}
                    if "detail" in evidence
                    else {
                        "evidence": " ".join([evidence["sentence"], *evidence["advice"]]),
                        "reason": f"{evidence['headline']}: {evidence['reason']}",
                    }
                ),
                "list": row["headline"],
                **{path: written(owner.page(f"/dashboard{path}")) for path in pages},
                "gate": live.get("/v1/reward/gate", params=gate).json()["sentence"],
                "wait": command("wait", experiment, "--timeout", "0"),
                "explain": command("explain", experiment),
                "cli list": command("list"),
                **asyncio.run(of_an_agent(url, key, experiment)),
                "dagster": " ".join(str(value.value) for value in dagster.values()),
            }

        yield look


def written(page: str) -> str:
    """A page as a person reads it: its tags but a bar's left out."""
    return " ".join(re.sub(r"<(?!progress)[^>]*>", " ", page).split())


async def of_an_agent(url: str, key: str, experiment: str) -> Mapping[str, str]:
    api = RewardApi(Address(url=url, key=key))
    async with Client(reward_server(api)) as client:
        each = {"experiment_id": experiment}
        polled = await client.call_tool("get_verdict", each)
        explained = await client.call_tool("explain", each)
        state = "decided" if polled.structured_content["power_state"]["decided"] else "open"
        listed = await client.call_tool("list_experiments", {"status": state})
    said = explained.content[0].text
    if not explained.is_error:
        evidence = explained.structured_content["evidence"]
        said, sessions = evidence["sentence"], evidence.get("sessions")
        assert not (sessions and sessions["projected_decision_at"]) or sessions["required"]
    return {
        "get_verdict": polled.content[1].text,
        "mcp explain": said,
        "mcp list": listed.structured_content["experiments"][0]["headline"],
    }


def compared(
    world: World, *, errors: float = 0.0, order: float = 0.2, live: bool = True, **members: Any
) -> str:
    """A canary that was compared for six hours, and its experiment, which is open."""
    for commit, rate, wrong in ((A, 0.2, 0.01), (K, order, errors)):
        rates = {"order": rate, "error": wrong}
        world.crowd(commit, start=0, minutes=6 * HOURS, units=600, rates=rates)
    world.send(live=live)
    experiment = world.register(treatment_commit=K, **members)
    world.as_live()
    world.tick()
    return experiment


def require(said: Mapping[str, str], word: str, *, but: tuple[str, ...] = ()) -> None:
    """Holds that each face says a word, nothing forbidden, and no date that has passed."""
    assert not {face for face, shown in said.items() if word.lower() not in shown.lower()} - {*but}
    denied = {face: bad for face, shown in said.items() for bad in GOES_ON if bad in shown}
    assert denied == {}
    for face, shown in said.items():
        for moment in _TO_COME.findall(shown.replace("\u202f", " ")):
            assert read(moment) > datetime.now(UTC), (face, moment)


def read(moment: str) -> datetime:
    year = "" if moment[4:5] == "-" else f"{datetime.now(UTC).year} "
    form = "%Y %d %b %H:%M" if year else "%Y-%m-%d %H:%M"
    return datetime.strptime(f"{year}{moment}", form).replace(tzinfo=UTC)


def test_a_canary_that_is_compared_has_a_date_to_come_and_is_left_running(live, faces) -> None:
    said = faces(compared(live))
    assert "Leave the canary running" in said["evidence"]
    assert all("are needed to find a 20" in said[face] for face in ("evidence", "wait", "explain"))


@pytest.mark.parametrize(
    ("step", "word"),
    [
        ({"sha": K, "allocation": 0}, "withdrawn"),
        ({"sha": K, "allocation": 1}, "promoted"),
        ({"sha": HOTFIX, "allocation": 1, "base": A}, "another build"),
    ],
)
def test_a_deploy_is_said_by_each_face_before_the_next_look(live, faces, step, word) -> None:
    experiment = compared(live)
    live.deploy(**step, minutes=6 * HOURS + 55)
    said = faces(experiment)
    # A sentence says of a promotion that everybody has the change.
    sentences = {"evidence", "gate", "wait", "explain", "get_verdict", "mcp explain", "dagster"}
    require(said, word, but=() if word == "withdrawn" else tuple(sentences))
    leads = live.bound(experiment)["situation"]["sentence"]
    assert {face for face in sentences if leads[:40] not in said[face]} == set()
    assert live.evidence(experiment)["advice"] == live.bound(experiment)["situation"]["advice"]
    assert live.evidence(experiment)["sessions"]["required"] is None


def test_a_canary_that_got_its_share_again_goes_on_and_every_sentence_says_since_when(
    live, faces
) -> None:
    experiment = compared(live)
    live.deploy(K, 0, minutes=6 * HOURS + 40)
    live.deploy(K, 0.5, minutes=6 * HOURS + 55)
    said = faces(experiment)
    silent = {face for face, shown in said.items() if "its share again since" not in shown}
    assert silent <= {*LISTS, ""}


def test_a_page_that_is_open_is_told_of_a_deploy_and_that_it_was_a_mistake(live) -> None:
    client, experiment = Owner(live).client, compared(live)

    def known() -> str:
        return client.get(f"/dashboard/experiments/{experiment}/live").headers["ETag"]

    before = known()
    hotfix = live.deploy(HOTFIX, 1, minutes=6 * HOURS + 55, base=A)
    assert known() != before
    assert live.withdraw(hotfix).is_success
    assert known() == before


def test_a_closing_is_said_by_each_face_before_the_next_look(live, faces) -> None:
    experiment = compared(live)
    assert live.post(f"/v1/reward/{experiment}/close", {}).status_code == 200
    require(faces(experiment), "closed")


def idle(world: World) -> None:
    """Lets half an hour pass without a run of the pipeline."""
    long_ago = "UPDATE ticks SET succeeded_at = succeeded_at - interval '30 minutes'"
    world.in_store(lambda c: c.execute(text(long_ago)))


def waits_for_its_deploy(world: World) -> str:
    return world.register(treatment_commit="ddddddd4")


def is_deployed_to_nobody(world: World) -> str:
    world.deploy("ddddddd4", 0, base=A)
    experiment = world.register(treatment_commit="ddddddd4")
    world.tick()
    return experiment


def starts(world: World) -> str:
    world.tick()
    return world.register(treatment_commit=K)


def starts_while_the_pipeline_is_down(world: World) -> str:
    experiment = starts(world)
    idle(world)
    return experiment


def has_no_unit(world: World) -> str:
    experiment = world.register(treatment_commit=K)
    world.tick()
    return experiment


def cannot_start(world: World) -> str:
    slow = {"sources": ["request"], "over": "p95", "better": "lower"}
    world.settings(metrics={"slow": slow})
    experiment = world.register(treatment_commit=K, target_metric="slow")
    world.tick()
    return experiment


def is_compared_while_the_pipeline_is_down(world: World) -> str:
    experiment = compared(world)
    idle(world)
    return experiment


def is_promoted_before_any_unit(world: World) -> str:
    experiment = has_no_unit(world)
    world.deploy(K, 1)
    return experiment


def is_withdrawn(world: World) -> str:
    experiment = compared(world)
    world.deploy(K, 0, minutes=6 * HOURS + 55)
    return experiment


@pytest.mark.parametrize(
    ("state", "sentence", "elsewhere"),
    [
        (
            waits_for_its_deploy,
            "It starts with the deploy of ddddddd4 to production",
            {"gate": "Hold: no deploy of this environment is of commit ddddddd4."},
        ),
        (is_deployed_to_nobody, "It has no share of the traffic yet.", {}),
        (starts, "It starts with the next run of the pipeline.", {}),
        (starts_while_the_pipeline_is_down, "of the pipeline. The pipeline has not run since", {}),
        (has_no_unit, "othing was measured yet", {}),
        (
            cannot_start,
            "t cannot start: slow is not watched yet",
            {"get_verdict": "Its target has too short a history for its threshold."},
        ),
        (is_compared_while_the_pipeline_is_down, "The pipeline has not run since", {}),
        (is_promoted_before_any_unit, "Everybody has had the change since", {}),
        (is_withdrawn, "The canary was withdrawn at", {}),
    ],
)
def test_each_state_of_a_registration_is_said_by_each_face_and_so_is_its_closing(
    live, faces, state, sentence, elsewhere
) -> None:
    experiment = state(live)
    said = faces(experiment)
    sentences = {f"/experiments/{experiment}", "evidence", "wait", "explain", "gate"}
    for face in sentences | {"get_verdict", "mcp explain"}:
        assert elsewhere.get(face, sentence) in said[face], face
    if state not in {starts, has_no_unit, is_deployed_to_nobody}:
        require(said, "")

    closing = CliRunner().invoke(main, ("close", experiment)).output
    if state is cannot_start:
        assert "ended without a verdict before" in closing
        return
    assert "is closed" in closing
    # Of a commit that was never deployed a gate and the list of deploys say nothing else.
    but = ("dagster", *(("gate", "/deploys") if elsewhere else ()))
    said = faces(experiment)
    require(said, "closed", but=but)
    assert "Close without a verdict" not in said[f"/experiments/{experiment}"]
    live.tick(minutes=9 * HOURS)
    require(faces(experiment), "closed", but=(*but, *LISTS))
    waited = CliRunner().invoke(main, ("wait", experiment, "--timeout", "0"))
    assert waited.exit_code == Exit.CLOSED


def test_the_experiment_of_a_canary_s_base_says_that_no_build_without_it_is_served(
    live, faces
) -> None:
    compared(live)
    base = live.register(treatment_commit=A, target_metric="order")
    live.tick()
    said = faces(base)
    sentences = {"evidence", "gate", "wait", "explain", "get_verdict", "mcp explain"}
    silent = {face for face in sentences if "o build without this change is" not in said[face]}
    assert silent == set()
    registered = CliRunner().invoke(main, ("register", "--commit", A, "--metric", "order")).output
    assert "No build without this change is served" in registered
    assert "`deploy-reward wait` ends with exit code 15" in registered
    assert CliRunner().invoke(main, ("wait", base, "--timeout", "0")).exit_code == Exit.FAULT


def test_where_nothing_comes_each_face_says_since_when_and_no_date(live, faces) -> None:
    experiment = compared(live)
    # Nothing else happens for the hours of which the clock is moved on here.
    live.in_store(lambda c: c.execute(text(SILENCE)))
    said = faces(experiment)
    require(said, "Nothing has been counted since", but=(*LISTS, "gate"))
    assert said["gate"].startswith("Look before you go on: no guardrail is breached. Nothing has")


def test_a_date_that_has_passed_is_shown_no_more(live) -> None:
    experiment = compared(live)
    soon = datetime.now(UTC) + timedelta(hours=2)
    for at, reached in ((soon, ", reached about"), (soon - timedelta(hours=6), ".")):
        sessions = {"required": 5000.0, "projected_decision_at": at.isoformat()}
        live.publish(experiment, ABSTAIN, sessions=sessions)
        evidence = live.evidence(experiment)
        assert (
            f"About 5,000 sessions are needed to find a 20 % change{reached}"
            in (evidence["sentence"])
        )
        assert (evidence["sessions"]["projected_decision_at"] is None) == (at < soon)
        assert (", reached about" in evidence["sentence"]) == (at == soon)


@pytest.mark.parametrize(
    ("units", "said"),
    [(0, "The first look at order can come at"), (5, "comes once it has enough units, or by")],
)
def test_a_first_look_that_is_late_is_announced_by_a_time_to_come(live, faces, units, said) -> None:
    for commit in (A, K) if units else ():
        live.crowd(commit, start=0, minutes=5, units=units)
    live.send(live=True)
    experiment = live.register(treatment_commit=K, target_metric="order")
    live.as_live()
    live.tick()
    shown = faces(experiment)["wait"]
    assert said in shown
    (moment,) = re.findall(r"(?:at|by) (\d{4}-\d\d-\d\d \d\d:\d\d) UTC", shown)
    assert read(moment) > datetime.now(UTC)
    assert (f"{read(moment):%Y-%m-%dT%H:%M:%SZ}" == live.bound(experiment)["first_look_at"]) == (
        not units
    )


SILENCE = "UPDATE block_units SET block = block - 12 * 3600 * 1000000::bigint"
CLAIMED = text("SELECT claimed_at IS NOT NULL FROM seen_names WHERE event = :name")
BREACH = "error got worse: 1.00 % → 12.00 %. Take it back."


def test_a_breach_while_the_target_is_open_leads_every_face(live, faces) -> None:
    with receiving() as receiver:
        live.settings(webhooks=[{"url": receiver.url}])
        experiment = compared(live, errors=0.12, guardrails=["error"])
        deliver(live.store.engine, secret=b"a secret of the tests")
    (got,) = receiver.got
    contract = live.contract(experiment)
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "power")
    assert contract["guardrail_breaches"] == ["error"]
    situation = live.bound(experiment)["situation"]
    assert (situation["action"], situation["headline"]) == ("roll_back", "error got worse")
    said = {**faces(experiment), "webhook": got.document["data"]["sentence"]}
    require(said, "error got worse")
    for face in ("evidence", "wait", "explain", "mcp explain", "dagster", "webhook", "get_verdict"):
        assert said[face].startswith(BREACH), face
    # Its events came with the write key alone.
    assert "Anybody can send" not in said["evidence"]
    pending = {"pending": True}
    (row,) = live.get("/v1/reward", params=pending).json()["experiments"]
    assert (row["action"], row["by_itself"], row["decided_at"]) == ("roll_back", True, None)
    assert row["breached_at"] == live.evidence(experiment)["guardrails"][0]["breached_at"]

    live.deploy(K, 0, minutes=6 * HOURS + 55)
    assert live.get("/v1/reward", params=pending).json()["experiments"] == []
    said = faces(experiment)
    require(said, "withdrawn")
    assert said["gate"].startswith("Already taken back: error is breached. error got worse: 1.00 %")
    for face in ("evidence", "wait", "explain", "mcp explain", "dagster", "get_verdict"):
        assert "error got worse: 1.00 % → 12.00 %. The canary was withdrawn at" in said[face], face
    # A change that harmed is to be mended, and not to be deployed again.
    assert live.evidence(experiment)["advice"][1].startswith("Fix that, deploy the fix")

    # With its share again it harms again, which no face may leave out, nor a mistaken hotfix stop.
    live.deploy(K, 0.5, minutes=6 * HOURS + 56)
    assert live.withdraw(live.deploy(HOTFIX, 1, minutes=6 * HOURS + 57, base=A)).is_success
    require(faces(experiment), "error got worse")
    (row,) = live.get("/v1/reward", params=pending).json()["experiments"]
    assert (row["action"], row["by_itself"], row["superseded_by"]) == ("roll_back", True, None)


def hours_pass(world: World) -> None:
    world.in_store(lambda connection: connection.execute(text(SILENCE)))


def a_hotfix_comes(world: World) -> None:
    world.deploy(HOTFIX, 1, minutes=6 * HOURS + 55, base=A)


@pytest.mark.parametrize("then", [hours_pass, a_hotfix_comes])
def test_a_suspicion_to_act_on_leads_every_face_whatever_comes_after_it(live, faces, then) -> None:
    experiment = compared(live)
    surplus = {"e_value": 1.0, "holds": False, "suspected": True}
    surplus |= {"declared": 0.5, "served": 0.51, "units": 1200}
    words = {
        "sentence": "Worse, unless units are lost: order is down 9 points.",
        "reason": "With this change, order is down 9 points.",
    }
    policy = {"on_suspicion": "roll_back", "target": {"name": "order"}}
    live.publish(experiment, ABSTAIN, surplus=surplus, policy=policy, **words)
    then(live)
    said = faces(experiment)
    require(said, "Worse, unless units are lost")
    for face in ("evidence", "wait", "explain", "mcp explain", "dagster", "get_verdict"):
        assert said[face].startswith("Worse, unless units are lost. Take it back."), face
    assert said["gate"].startswith("Go back: worse, unless units are lost.")
    situation = live.bound(experiment)["situation"]
    assert (situation["action"], situation.get("silent_since")) == ("roll_back", None)
    (row,) = live.get("/v1/reward", params={"pending": True}).json()["experiments"]
    assert (row["action"], row["by_itself"]) == ("roll_back", True)


@pytest.mark.parametrize("live", [None], indirect=True)
@pytest.mark.parametrize("order", [0.2, 0.02])
def test_a_canary_without_a_declared_share_is_listed_to_be_taken_back(live, order) -> None:
    experiment = compared(live, errors=0.12, order=order, live=False, guardrails=["error"])
    answer = {0.2: "abstain", 0.02: "rollback"}[order]
    assert live.contract(experiment)["verdict"] == answer
    gate = {"treatment_commit": K, "target_metric": "order"}
    assert live.get("/v1/reward/gate", params=gate).json()["phase"] == "Failed"
    pending = {"pending": True}
    (row,) = live.get("/v1/reward", params=pending).json()["experiments"]
    assert (row["action"], row["by_itself"], row["allocation"]) == ("roll_back", True, None)
    # A decided verdict is not acted on once another build may have replaced the canary.
    other = live.deploy(HOTFIX, 1, minutes=6 * HOURS + 55, base=A)
    rows = live.get("/v1/reward", params=pending).json()["experiments"]
    assert [row["superseded_by"] for row in rows] == ([HOTFIX] if answer == "abstain" else [])
    assert live.withdraw(other).is_success
    assert len(live.get("/v1/reward", params=pending).json()["experiments"]) == 1
    live.deploy(K, 0, minutes=6 * HOURS + 56)
    assert live.get("/v1/reward", params=pending).json()["experiments"] == []


# No face may say these words of history.
STEPS = ("Take it back", "Ship it", "Leave the canary running", "Go back:", "Go on:", "Don't ship")
ANSWERS = {"rollback": (0.02, 0.01), "keep": (0.9, 0.01), "abstain": (0.2, 0.12)}
ANSWERS |= {"open": (0.2, 0.01)}


def registered(world: World, answer: str, *, until: float = 6 * HOURS) -> str:
    """A canary's experiment on events until then, which came as history."""
    order, errors = ANSWERS[answer]
    for commit, rate, wrong in ((A, 0.2, 0.01), (K, order, errors)):
        rates = {"order": rate, "error": wrong}
        world.crowd(commit, start=0, minutes=until, units=600, rates=rates)
    world.send()
    # A keep alone would wait for a guardrail.
    rails = [] if answer == "keep" else ["error"]
    return world.register(treatment_commit=K, guardrails=rails)


def asked(world: World) -> tuple[list[str], set[str]]:
    """Returns the steps that a workflow may take, and the phase of each gate policy."""
    rows = world.get("/v1/reward", params={"pending": True}).json()["experiments"]
    question = {"treatment_commit": K, "target_metric": "order"}
    gates = {
        world.get("/v1/reward/gate", params={**question, "policy": policy}).json()["phase"]
        for policy in ("keep", "no-breach", "no-harm:0.5")
    }
    return [row["action"] for row in rows if row["by_itself"]], gates


@pytest.mark.parametrize(
    ("live", "answer"),
    [(0.5, "keep"), (0.5, "abstain"), (None, "rollback"), (0.5, "open")],
    indirect=["live"],
)
def test_nobody_is_asked_to_act_on_a_history(live, faces, answer) -> None:
    with receiving() as receiver:
        live.settings(webhooks=[{"url": receiver.url}])
        experiment = registered(live, answer)
        live.tick()
        deliver(live.store.engine, secret=b"a secret of the tests")
    assert live.contract(experiment)["verdict"] == answer.replace("open", "abstain")
    assert asked(live) == ([], {"Running"})
    assert [row["by_itself"] for row in live.listed()] == [False]
    assert receiver.got == []
    action = live.bound(experiment)["situation"]["action"]
    assert action == ("wait" if answer == "open" else "none")
    said = faces(experiment)
    asking = {face: word for face, shown in said.items() for word in STEPS if word in shown}
    assert asking == {}
    assert said["gate"].startswith("Hold: the change was not measured live.")
    for face in ("evidence", f"/experiments/{experiment}", "get_verdict"):
        assert "all its units are history" in said[face], face
    if answer == "abstain":
        assert said["evidence"].count("error got worse: 1.00 % → 12.00 %.") == 1


def test_a_canary_that_is_served_after_its_history_was_read_is_acted_on(live) -> None:
    experiment = registered(live, "rollback")
    live.tick()
    assert asked(live) == ([], {"Running"})
    visits = [{"event": "page_view", "session_id": name, "commit": K} for name in "ab"]
    assert live.post("/v1/events", {"events": visits}).status_code == 202
    live.tick(minutes=9 * HOURS)
    assert live.contract(experiment)["verdict"] == "rollback"
    assert asked(live) == (["roll_back"], {"Failed"})


@pytest.mark.parametrize("until", [5, 3 * HOURS])
def test_a_live_canary_beside_whose_events_some_were_replayed_is_acted_on(live, until) -> None:
    """A single event that was lost and sent again, and half of the canary's events."""
    live.crowd(A, start=until, minutes=6 * HOURS - until, units=300, rates={"error": 0.01})
    live.crowd(K, start=until, minutes=6 * HOURS - until, units=300, rates={"error": 0.2})
    live.send(live=True)
    for commit in (A, K):
        live.crowd(commit, start=0, minutes=until, units=1 if until == 5 else 300)
    live.send()
    experiment = live.register(treatment_commit=K, guardrails=["error"])
    live.tick()
    assert live.evidence(experiment)["retrospective"]
    assert live.contract(experiment)["guardrail_breaches"] == ["error"]
    assert live.bound(experiment)["situation"]["sentence"].startswith("error got worse: ")
    assert asked(live) == (["roll_back"], {"Failed"})


def test_a_breach_of_which_an_event_came_with_the_public_key_is_a_person_s_to_judge(live) -> None:
    experiment = compared(live, errors=0.12, guardrails=["error"])

    def by_itself(event: str) -> bool:
        stranger = {"event": event, "session_id": "x", "commit": K}
        sent = live.post("/v1/events", {"events": [stranger]}, headers=live.public)
        assert sent.status_code == 202
        eventually(lambda: live.in_store(lambda c: c.execute(CLAIMED, {"name": event}).scalar()))
        (row,) = live.get("/v1/reward", params={"pending": True}).json()["experiments"]
        return row["by_itself"]

    assert by_itself("page_view")
    assert "Anybody can send" not in live.evidence(experiment)["sentence"]
    assert not by_itself("error")
    assert "Anybody can send such events with the public" in live.evidence(experiment)["sentence"]
    live.settings(act_on_unvouched_breaches=True)
    assert by_itself("error")


def test_a_rollback_is_said_by_each_face_until_it_is_acted_on(live, faces) -> None:
    experiment = compared(live, order=0.02)
    assert live.contract(experiment)["verdict"] == "rollback"
    # Dagster shows open experiments.
    require(faces(experiment), "roll back", but=("dagster",))
    pending = {"pending": True}
    (row,) = live.get("/v1/reward", params=pending).json()["experiments"]
    assert (row["action"], row["by_itself"]) == ("roll_back", True)
    live.deploy(K, 0, minutes=6 * HOURS + 55)
    assert live.get("/v1/reward", params=pending).json()["experiments"] == []
    said = faces(experiment)
    require(said, "roll back", but=("dagster",))
    assert not [face for face, shown in said.items() if "Take it back" in shown]


def test_a_breach_with_a_candidate_asks_to_revise_and_is_nobody_s_to_take_back(live) -> None:
    experiment = compared(live)
    candidate = {
        "at": "2026-10-01T10:00:00Z",
        "lift": 0.1,
        "confidence": 0.99,
        "ci": [0.05, 0.15],
        "cadence": "fast",
        "holds": False,
        "waits_for": [],
    }
    live.publish(experiment, {**ABSTAIN, "guardrail_breaches": ["error"]}, candidate=candidate)
    situation = live.bound(experiment)["situation"]
    assert situation["action"] == "revise"
    assert situation["advice"][0].startswith("Don't ship it as it is: it helps order, but harms")
    assert live.get("/v1/reward", params={"pending": True}).json()["experiments"] == []


@pytest.mark.parametrize("cause", ["unit", "crossover", "draw"])
def test_where_units_are_in_the_wrong_arm_the_set_up_comes_before_a_breach(live, cause) -> None:
    experiment = compared(live)
    answer = {**ABSTAIN, "abstain_reason": "interacting", "guardrail_breaches": ["error"]}
    live.publish(experiment, answer, gates={"interacting_because": [cause]})
    assert live.bound(experiment)["situation"]["action"] == "fix"
    gate = {"treatment_commit": K, "target_metric": "order"}
    assert live.get("/v1/reward/gate", params=gate).json()["phase"] == "Running"


def test_a_flag_that_harms_is_turned_off(live) -> None:
    flag = {"name": "cart", "treatment": True, "control": False}
    experiment = live.register(treatment_flag=flag)
    live.publish(experiment, {**ABSTAIN, "guardrail_breaches": ["error"]})
    situation = live.bound(experiment)["situation"]
    assert "Turn it off." in situation["sentence"]
    assert situation["advice"][0].startswith("Turn it off: ")
    # No workflow acts on its commit, also where the project allows that; its end ends the call.
    live.settings(act_on_unvouched_breaches=True)
    pending = {"pending": True}
    (row,) = live.get("/v1/reward", params=pending).json()["experiments"]
    step = (row["treatment_flag"], row["action"], row["by_itself"])
    assert step == ("cart=true", "roll_back", False)
    assert live.post(f"/v1/reward/{experiment}/close", {}).status_code == 200
    assert live.get("/v1/reward", params=pending).json()["experiments"] == []
