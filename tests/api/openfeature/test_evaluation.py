"""`POST /ofrep/v1/evaluate/flags`: units get their arm, at the declared share, with its token."""

import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import text

from domain.draw import Offer, drawn
from domain.lineage.flag import Flag
from storage.tenants.keys import KeyKind
from storage.tenants.secret import Assignments, assignment_message, assignment_token
from tests.processes.api_process import eventually
from tests.stores.pipeline_run import run_pipeline
from tests.world import register_experiment

pytestmark = pytest.mark.shared_store(ofrep="browser")

BASE, CANARY, OTHER = "ba5e" * 10, "c1" * 20, "c2" * 20
PATH = "/ofrep/v1/evaluate/flags"
UNITS = [f"s-{number}" for number in range(2000)]


def asked(
    service: Any,
    unit: str | None,
    key: str | None = "commit",
    by: dict[str, str] | None = None,
    **context: Any,
) -> Any:
    given = context if unit is None else {"targetingKey": unit, **context}
    address = PATH if key is None else f"{PATH}/{key}"
    return service.client.post(address, json={"context": given}, headers=by or service.public)


def test_a_unit_gets_the_build_that_the_published_hash_draws(service) -> None:
    service.deploy(BASE)
    service.deploy(CANARY, 0.1)
    for unit in UNITS[:200]:
        document = asked(service, unit).json()
        inside = sha256(f"{CANARY}:{unit}".encode()).hexdigest()[:8] < "1999999a"
        assert document["value"] == (CANARY if inside else BASE)
        assert document["variant"] == ("treatment" if inside else "control")
        assert document["metadata"]["commit"] == document["value"]
        assert (document["key"], document["reason"]) == ("commit", "SPLIT")


@pytest.mark.parametrize("environment", [None, "production", " production "])
def test_an_environment_that_is_null_is_production_and_spaces_around_it_are_none(
    service, environment
) -> None:
    service.deploy(BASE)
    service.deploy(CANARY, 0.1)
    for unit in UNITS[:20]:
        spelled = asked(service, unit, environment=environment).json()
        assert spelled == asked(service, unit).json()


def test_several_canaries_are_disjoint_and_each_has_its_declared_size() -> None:
    offers = [Offer(salt=CANARY, share=0.3), Offer(salt=OTHER, share=0.4)]
    units = [f"s-{number}" for number in range(20_000)]
    result = Counter(getattr(drawn(unit, offers), "salt", None) for unit in units)
    for salt, share in ((CANARY, 0.3), (OTHER, 0.4), (None, 0.3)):
        spread = math.sqrt(len(units) * share * (1 - share))
        assert abs(result[salt] - share * len(units)) < 5 * spread


def test_shares_that_add_up_to_more_than_all_leave_the_last_what_is_left() -> None:
    offers = [Offer(salt=CANARY, share=0.6), Offer(salt=OTHER, share=0.6)]
    assert all(drawn(unit, offers) is not None for unit in UNITS)
    assert drawn("s-1", [*offers, Offer(salt=BASE, share=0.5)]) is not None


def test_the_first_deployed_canary_draws_first_whatever_step_came_last(service) -> None:
    service.deploy(BASE, deployed_at="2026-11-01T00:00:00Z")
    service.deploy(CANARY, 0.2, deployed_at="2026-11-02T00:00:00Z")
    service.deploy(OTHER, 0.5, deployed_at="2026-11-03T00:00:00Z")
    service.deploy(CANARY, 0.4, deployed_at="2026-11-04T00:00:00Z")
    offers = [Offer(salt=CANARY, share=0.4), Offer(salt=OTHER, share=0.5)]
    for unit in UNITS[:100]:
        offer = drawn(unit, offers)
        assert asked(service, unit).json()["value"] == (BASE if offer is None else offer.salt)


def test_without_a_canary_everybody_gets_the_build_that_stands(service) -> None:
    service.deploy(BASE)
    service.deploy(CANARY, 0.5)
    service.deploy(CANARY, 0)
    document = asked(service, "s-1").json()
    assert (document["value"], document["reason"]) == (BASE, "STATIC")
    assert "share" not in document["metadata"]


def test_each_environment_hands_out_its_own(service) -> None:
    service.deploy(BASE)
    service.deploy(OTHER, environment="preview")
    assert asked(service, "s-1").json()["value"] == BASE
    assert asked(service, "s-1", environment="preview").json()["value"] == OTHER


FLAG = {"name": "one-step", "treatment": "true"}


@pytest.fixture
def tested(service) -> str:
    """An experiment on a flag, which a run of the pipeline has begun."""
    service.deploy(BASE)
    experiment = service.register(treatment_flag=FLAG, target_metric="activation")
    service.freeze()
    return experiment


def test_before_its_policy_is_frozen_everybody_gets_control_and_counts_from_then_on(
    service,
) -> None:
    service.settings(unit="auto", verified_draws=True)
    service.deploy(BASE)
    experiment = service.register(treatment_flag=FLAG, target_metric="activation")
    for unit in UNITS[:20]:
        early = asked(service, unit, "one-step", user_ref=unit).json()
        assert (early["value"], early["reason"]) == (False, "DEFAULT")
        assert early["metadata"]["waits_for"] == "start"
        event = {"event": "page_view", "session_id": unit, "flags": {"one-step": False}}
        assert service.post("/v1/events", event).status_code == 202
    asked_until = datetime.now(UTC)
    service.freeze()
    registration = service.get(f"/v1/reward/{experiment}/registration").json()
    assert datetime.fromisoformat(registration["starts_at"]) > asked_until
    # What is handed out is remembered for half a second.
    eventually(lambda: asked(service, UNITS[0], "one-step").json()["reason"] == "SPLIT")
    later = [asked(service, unit, "one-step").json() for unit in UNITS[:40]]
    assert {flag["reason"] for flag in later} == {"SPLIT"}
    assert {flag["value"] for flag in later} == {True, False}
    events = [
        {
            "event": "page_view",
            "session_id": unit,
            "commit": BASE,
            "flags": {"one-step": flag["value"]},
        }
        for unit, flag in zip(UNITS, later, strict=False)
    ]
    assert service.post("/v1/events", {"events": events}).json()["accepted"] == 40
    run_pipeline(service.store.engine, as_of=datetime.now(UTC) + timedelta(days=2))
    evidence = service.evidence(experiment)
    # Who had control until the freeze is in neither arm, whatever came of it.
    assert evidence["counts"]["in_flight"] == 20
    assert evidence["draw"] == {"verified": 20, "mismatched": 0}


def test_who_got_control_while_its_policy_was_read_is_before_the_start(service) -> None:
    service.deploy(BASE)
    experiment = service.register(treatment_flag=FLAG, target_metric="activation")
    waiting = text(
        "SELECT FROM pg_locks WHERE NOT granted AND relation = 'runtime_events'::regclass"
    )
    with ThreadPoolExecutor() as pool:
        with service.store.engine.begin() as connection:
            connection.execute(text("LOCK runtime_events IN ACCESS EXCLUSIVE MODE"))
            freezing = pool.submit(service.freeze)
            eventually(lambda: connection.execute(waiting).all())
            assert asked(service, UNITS[0], "one-step").json()["reason"] == "DEFAULT"
            asked_until = datetime.now(UTC)
        freezing.result()
    assert datetime.fromisoformat(service.bound(experiment)["starts_at"]) > asked_until


def test_a_flag_under_test_is_on_for_half_of_the_units(service, tested) -> None:
    result = Counter(asked(service, unit, "one-step").json()["value"] for unit in UNITS[:400])
    assert abs(result[True] - 200) < 5 * 10
    assert result[True] + result[False] == 400
    document = asked(service, "s-1", "one-step").json()
    assert document["metadata"]["experiment_id"] == tested
    assert document["variant"] == ("treatment" if document["value"] else "control")


@pytest.mark.parametrize("unit", ["session", "user", "account"])
def test_the_arms_that_are_handed_out_are_those_that_the_pipeline_verifies(service, unit) -> None:
    service.settings(unit=unit, verified_draws=True)
    service.deploy(BASE, minutes=0)
    experiment = service.register(treatment_flag=FLAG, target_metric="activation")
    service.freeze()
    events: list[dict[str, Any]] = []
    for number, session in enumerate(UNITS[:80]):
        who = {"session_id": session, "user_ref": f"u-{number % 40}"}
        account = {"account": number % 40}
        answer = asked(service, session, "one-step", user_ref=who["user_ref"], **account)
        flags = {"one-step": answer.json()["value"]}
        visit = {**who, "event": "page_view", "commit": BASE, "properties": account}
        events.append({**visit, "flags": flags})
    assert service.post("/v1/events", {"events": events}).json()["accepted"] == len(events)
    run_pipeline(service.store.engine, as_of=datetime.now(UTC) + timedelta(days=2))
    counted = 80 if unit == "session" else 40
    assert service.evidence(experiment)["draw"] == {"verified": counted, "mismatched": 0}


@pytest.mark.parametrize("member", ["user_ref", "account"])
@pytest.mark.parametrize("nobody", [None, "undefined", ""])
def test_where_users_are_drawn_who_names_none_gets_control_and_is_told(
    service, member, nobody
) -> None:
    service.settings(unit="user" if member == "user_ref" else member)
    nobody = {} if nobody is None else {member: nobody}
    service.deploy(BASE)
    service.deploy(CANARY, 0.5, base=BASE)
    service.register(treatment_flag=FLAG, target_metric="activation")
    service.freeze()
    for unit in UNITS[:20]:
        flags = asked(service, unit, None, by=service.write, **nobody).json()["flags"]
        assert [(flag["key"], flag["value"]) for flag in flags] == [
            ("commit", BASE),
            ("one-step", False),
        ]
        for flag in flags:
            assert (flag["variant"], flag["reason"]) == ("control", "DEFAULT")
            assert flag["metadata"]["waits_for"] == member
            assert "assignment" not in flag["metadata"]
    known = [asked(service, unit, "one-step", **{member: unit}).json() for unit in UNITS[:40]]
    assert {flag["reason"] for flag in known} == {"SPLIT"}
    assert {flag["value"] for flag in known} == {True, False}


def test_a_flag_is_handed_out_no_more_once_its_experiment_is_closed(service, tested) -> None:
    service.post(f"/v1/reward/{tested}/close", {})
    answer = asked(service, "s-1", "one-step")
    assert answer.status_code == 404
    document = answer.json()
    assert (document["code"], document["errorCode"]) == ("flag_not_found", "FLAG_NOT_FOUND")
    assert document["key"] == "one-step"


def test_a_flag_is_handed_out_only_where_its_registration_names_control(service) -> None:
    unnamed, panel = {"name": "layout", "treatment": "grid"}, {"name": "panel", "treatment": "on"}
    service.deploy(BASE)
    # While nothing is handed out, a registration need not name it.
    service.settings(ofrep="off")
    service.in_store(
        lambda c: register_experiment(c, service.project_id, treatment_flag=Flag(**unnamed))
    )
    service.settings(ofrep="browser")
    for path, member in (("/v1/reward/register", "treatment_flag"), ("/v1/places", "flag")):
        refused = service.post(path, {member: unnamed})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == f"/{member}/control"
    service.register(treatment_flag={**panel, "control": "off"})
    service.freeze()
    assert asked(service, "s-1", "layout").json()["errorCode"] == "FLAG_NOT_FOUND"
    documents = [asked(service, unit, "panel").json() for unit in UNITS[:50]]
    shown = {(document["value"], document["variant"]) for document in documents}
    assert shown == {("on", "treatment"), ("off", "control")}


@pytest.mark.parametrize(
    ("treatment", "control", "handed_out"),
    [
        (2.5, 1, ("2.5", "1")),
        ("10.0", "-3.50", ("10.0", "-3.5")),
        (True, None, ("true", "false")),
        ("grid", "2.5.1", ('"grid"', '"2.5.1"')),
    ],
)
def test_a_value_is_handed_out_in_its_type_and_its_event_counts_for_it(
    service, treatment, control, handed_out
) -> None:
    service.settings(verified_draws=True)
    flag = {"name": "team/price?", "treatment": treatment, "control": control}
    service.deploy(BASE)
    experiment = service.register(treatment_flag=flag, target_metric="activation")
    service.freeze()
    answers = [asked(service, unit, "team/price%3F", by=service.write) for unit in UNITS[:20]]
    result = {(each.text.partition('"value":')[2].partition(',"metadata"')[0]) for each in answers}
    assert result == set(handed_out)
    for unit, answer in zip(UNITS[:20], answers, strict=True):
        served, assignment = answer.json()["value"], answer.json()["metadata"]["assignment"]
        # JavaScript prints 10.0 as 10.
        served = int(served) if served == 10 else served
        event = {"event": "page_view", "session_id": unit, "flags": {"team/price?": served}}
        event |= {"commit": BASE, "assignment": assignment}
        assert service.post("/v1/events", event).status_code == 202
    run_pipeline(service.store.engine, as_of=datetime.now(UTC) + timedelta(days=2))
    assert service.evidence(experiment)["draw"] == {"verified": 20, "mismatched": 0}
    signed = text("SELECT bool_and(signed) FROM runtime_events WHERE project_id = :project")
    assert service.in_store(lambda c: c.execute(signed, {"project": service.project_id}).scalar())


@pytest.mark.usefixtures("tested")
def test_one_request_evaluates_every_flag_and_is_answered_anew_only_where_it_changed(
    service,
) -> None:
    service.deploy(CANARY, 0.5)
    answer = asked(service, "s-1", None)
    assert [flag["key"] for flag in answer.json()["flags"]] == ["commit", "one-step"]
    known = {**service.public, "If-None-Match": answer.headers["ETag"]}
    body = {"context": {"targetingKey": "s-1"}}
    assert service.client.post(PATH, json=body, headers=known).status_code == 304
    other = service.client.post(PATH, json={"context": {"targetingKey": "s-2"}}, headers=known)
    assert other.status_code == 200


@pytest.mark.usefixtures("tested")
def test_the_token_vouches_for_what_was_handed_out_and_for_nothing_else(service) -> None:
    service.deploy(CANARY, 0.5)
    key = Assignments(b"a secret of the tests, long enough").key(service.project_id, 1)
    for unit in UNITS[:20]:
        by = service.write
        flags = {flag["key"]: flag for flag in asked(service, unit, None, by=by).json()["flags"]}
        served = {
            "environment": "production",
            "session_id": unit,
            "commit": flags["commit"]["value"],
        }
        both = assignment_message(**served, flags={"one-step": flags["one-step"]["value"]})
        for flag in flags.values():
            assert flag["metadata"]["assignment"] == assignment_token(key, both)
        alone = asked(service, unit, by=by).json()["metadata"]["assignment"]
        assert alone == assignment_token(key, assignment_message(**served))


@pytest.mark.parametrize(
    "context",
    [
        {"targetingKey": f"s-1\0{CANARY}\0flag"},
        {"targetingKey": "s-1", "environment": f"production\0s-2\0{CANARY}"},
    ],
)
def test_no_unit_s_name_can_speak_of_another_assignment(service, context) -> None:
    service.deploy(BASE)
    answer = service.client.post(PATH, json={"context": context}, headers=service.public)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"context": {}}, "TARGETING_KEY_MISSING"),
        ({}, "TARGETING_KEY_MISSING"),
        ({"context": {"targetingKey": 7}}, "TARGETING_KEY_MISSING"),
        ({"context": {"targetingKey": "s", "environment": 7}}, "INVALID_CONTEXT"),
        ("{", "PARSE_ERROR"),
    ],
)
@pytest.mark.parametrize("key", [None, "commit"])
def test_what_is_no_evaluation_is_refused_in_the_protocol_s_words(service, body, word, key) -> None:
    headers = {**service.public, "Content-Type": "application/json"}
    content = body if isinstance(body, str) else json.dumps(body)
    address = PATH if key is None else f"{PATH}/{key}"
    answer = service.client.post(address, content=content, headers=headers)
    assert answer.status_code == 400
    document = answer.json()
    assert (document.get("key"), document["errorCode"]) == (key, word)
    assert document["errorDetails"]


@pytest.mark.parametrize("setting", ["off", "server", "browser"])
@pytest.mark.parametrize("kind", ["write", "public"])
@pytest.mark.parametrize("key", [None, "commit", "one-step", "unheard-of"])
@pytest.mark.usefixtures("tested")
def test_the_setting_says_to_which_key_arms_are_handed_out_and_the_write_key_s_are_signed(
    service, setting, kind, key
) -> None:
    service.deploy(CANARY, 0.5)
    service.settings(ofrep=setting)
    by = {"X-Service-Project-Key": service.new_key(KeyKind(kind))}
    answer = asked(service, "s-1", key, by=by)
    if setting == "off" or (setting, kind) == ("server", "public"):
        assert (answer.status_code, answer.json()["code"]) == (403, "remote_evaluation_off")
        assert answer.json()["errorCode"] == "GENERAL"
        # Nothing that differs by what the project tests.
        assert not any(name in answer.text for name in (BASE, CANARY, "exp_", "0.5", "one-step"))
    elif key == "unheard-of":
        assert (answer.status_code, answer.json()["errorCode"]) == (404, "FLAG_NOT_FOUND")
    else:
        evaluations = [answer.json()] if key else answer.json()["flags"]
        signed = ["assignment" in evaluation["metadata"] for evaluation in evaluations]
        assert signed == [kind == "write"] * len(evaluations)


def test_until_a_project_asks_for_it_no_arm_is_handed_out(tenant) -> None:
    tenant.deploy(BASE)
    for by in (tenant.write, tenant.public):
        assert asked(tenant, "s-1", by=by).status_code == 403


def test_a_page_may_ask_from_its_own_origin(service) -> None:
    origin = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
    for path in (PATH, f"{PATH}/commit"):
        answer = service.client.options(path, headers=origin)
        assert answer.status_code == 204
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        assert "If-None-Match" in answer.headers["Access-Control-Allow-Headers"]
    assert (
        "ETag"
        in service.client.post(PATH, headers={**service.public, **origin}).headers[
            "Access-Control-Expose-Headers"
        ]
    )


def test_the_key_may_stand_where_openfeature_s_clients_put_theirs(service) -> None:
    service.deploy(BASE)
    bearer = {"Authorization": f"Bearer {service.project.keys[KeyKind.PUBLIC]}"}
    body = {"context": {"targetingKey": "s-1"}}
    answer = service.client.post(f"{PATH}/commit", json=body, headers=bearer)
    assert answer.json()["value"] == BASE
