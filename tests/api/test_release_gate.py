"""`/v1/reward/gate`: Argo Rollouts and Flagger, with the requests that they send."""

import json
from typing import Any

import pytest

from storage.freeze import freeze, unfreeze
from storage.keys import KeyKind
from tests.conftest import Service
from tests.publication import publish

GATE = "/v1/reward/gate"
A, B = "a" * 40, "b" * 40
LIFT = {"lift": 0.1, "confidence": 0.999, "ci": (0.05, 0.15), "cadence": "fast"}
ABSTAIN = {"verdict": "abstain", "abstain_reason": "power", "decided": False}
ENDED = {**ABSTAIN, "decided": True}
BREACHED = {"guardrail_breaches": ["error"]}
GO, BACK, HOLD = "Successful", "Failed", "Running"


@pytest.fixture
def service(tenant: Service) -> Service:
    """A project of the test's own: no test here asks of its store what else is in it."""
    return tenant


@pytest.fixture
def canary(service: Any) -> Any:
    """A service in whose production a canary runs."""
    for sha in (A, B):
        assert service.post("/v1/deploys", {"commit": {"sha": sha}}).status_code == 201
    return service


def asked(service: Any, **parameters: Any) -> dict[str, Any]:
    """What a web metric of Argo Rollouts gets."""
    answer = service.client.get(GATE, params=parameters, headers=service.reward)
    assert answer.status_code == 200, answer.text
    return answer.json()


def flagged(service: Any, metadata: dict[str, Any], address: str = GATE) -> Any:
    """What Flagger gets, which sends no header of ours, to an address that is fixed."""
    key = service.project.keys[KeyKind.PROJECT]
    body = {
        "name": "shop",
        "namespace": "production",
        "phase": "Progressing",
        "checksum": "85d557f47b",
        "metadata": {"key": key, **metadata},
    }
    return service.client.post(address, json=body)


def published(service: Any, answer: dict[str, Any], **known: Any) -> None:
    """Publishes a verdict of the only experiment, as a tick does."""
    (experiment,) = service.get("/v1/reward").json()["experiments"]
    members = {"abstain_reason": None, "decided": True, **answer}
    document = {
        "sentence": "What is known.",
        "policy": {"target": {"better": known.pop("better", "higher")}},
        "known": {"not_worse_than": None, **known},
    }
    service.in_store(
        lambda connection: publish(connection, experiment["experiment_id"], members, document)
    )


PHASES = [
    ("keep", {"verdict": "keep", **LIFT}, {}, GO),
    ("keep", {"verdict": "rollback", **LIFT}, {}, BACK),
    ("keep", {"verdict": "iterate", **LIFT, **BREACHED}, {}, BACK),
    ("keep", {**ABSTAIN, **BREACHED}, {}, BACK),
    ("keep", ABSTAIN, {"not_worse_than": -0.01}, HOLD),
    ("keep", ENDED, {"not_worse_than": -0.01}, HOLD),
    ("no-harm:0.2", ABSTAIN, {}, HOLD),
    ("no-harm:0.2", ABSTAIN, {"not_worse_than": -0.19}, GO),
    ("no-harm:0.2", ABSTAIN, {"not_worse_than": -0.21}, HOLD),
    ("no-harm:0.2", ABSTAIN, {"not_worse_than": 0.19, "better": "lower"}, GO),
    ("no-harm:0.2", ABSTAIN, {"not_worse_than": 0.21, "better": "lower"}, HOLD),
    ("no-harm:0.2", {**ABSTAIN, **BREACHED}, {"not_worse_than": -0.1}, BACK),
    (
        "no-harm:0.2",
        {**ABSTAIN, "abstain_reason": "interacting"},
        {"not_worse_than": -0.1},
        HOLD,
    ),
    ("no-harm:1", {"verdict": "rollback", **LIFT}, {"not_worse_than": -0.1}, BACK),
    ("no-breach", ABSTAIN, {}, GO),
    ("no-breach", {**ABSTAIN, **BREACHED}, {}, BACK),
    ("no-breach", {**ABSTAIN, "abstain_reason": "non_identifiable"}, {}, HOLD),
    ("no-breach", {"verdict": "rollback", **LIFT}, {}, BACK),
]


@pytest.mark.parametrize(("policy", "answer", "known", "phase"), PHASES)
def test_a_rollout_goes_on_back_or_neither_as_its_policy_says(
    canary, policy: str, answer: dict[str, Any], known: dict[str, Any], phase: str
) -> None:
    asked(canary)
    published(canary, answer, **known)

    found = asked(canary, policy=policy)
    assert found["phase"] == phase
    assert found["verdict"] == answer["verdict"]
    assert found["sentence"].endswith(" What is known.")

    told = flagged(canary, {"policy": policy})
    assert (told.status_code, told.text) == (200 if phase == GO else 403, found["sentence"])
    wanted = flagged(canary, {"policy": policy}, f"{GATE}?want=rollback")
    assert wanted.status_code == (200 if phase == BACK else 403)


def test_the_first_question_registers_the_change_and_no_later_one_does(canary) -> None:
    assert asked(canary) == {
        "phase": HOLD,
        "verdict": "abstain",
        "sentence": "Hold: keep is not shown yet. No look yet: nothing was measured.",
    }
    flagged(canary, {})
    asked(canary, treatment_commit=B[:7])
    (experiment,) = canary.get("/v1/reward").json()["experiments"]
    assert (experiment["treatment_commit"], experiment["control_commit"]) == (B, A)

    published(canary, {"verdict": "keep", **LIFT})
    assert asked(canary)["phase"] == GO
    assert len(canary.get("/v1/reward").json()["experiments"]) == 1


def test_a_question_names_its_change_metric_and_environment(canary) -> None:
    for sha in (A, B):
        canary.post("/v1/deploys", {"commit": {"sha": sha}, "environment": "staging"})
    asked(canary, target_metric="signup_completed")
    flagged(canary, {"environment": "staging", "treatment_commit": B})
    asked(canary, treatment_commit="c" * 40)

    found = canary.get("/v1/reward").json()["experiments"]
    assert {(one["environment"], one["metric"], one["treatment_commit"]) for one in found} == {
        ("production", "signup_completed", B),
        ("staging", "activation", B),
        ("production", "activation", "c" * 40),
    }


@pytest.mark.parametrize("policy", ["keep", "no-breach", "no-harm:1"])
def test_while_frozen_every_gate_holds_and_none_asks_to_go_back(canary, policy: str) -> None:
    asked(canary)
    canary.in_store(lambda connection: freeze(connection, "an incident"))
    for verdict in ("rollback", "keep"):
        published(canary, {"verdict": verdict, **LIFT, "decided": False}, not_worse_than=-0.01)
        found = asked(canary, policy=policy)
        assert found["phase"] == HOLD
        assert found["sentence"].startswith("Hold: frozen, an incident.")
        for address in (GATE, f"{GATE}?want=rollback"):
            assert flagged(canary, {"policy": policy}, address).status_code == 403
    shown = canary.get("/v1/reward/freeze").json()
    assert (shown["frozen"], shown["reason"]) == (True, "an incident")
    canary.in_store(unfreeze)
    assert asked(canary, policy=policy)["phase"] == GO
    assert canary.get("/v1/reward/freeze").json() == {
        "frozen": False,
        "frozen_at": None,
        "reason": None,
    }


def test_a_key_stands_in_the_header_or_in_the_metadata(canary) -> None:
    def status(headers: dict[str, str], **metadata: str) -> tuple[int, str]:
        answer = canary.client.post(GATE, json={"metadata": metadata}, headers=headers)
        return answer.status_code, answer.json().get("code") if answer.status_code == 401 else ""

    key = canary.project.keys[KeyKind.PROJECT]
    other = canary.new_key(KeyKind.PROJECT)
    assert status(canary.reward) == (403, "")
    assert status({}, key=key) == (403, "")
    assert status(canary.reward, key=key) == (403, "")
    assert status({}) == (401, "missing_key")
    assert status(canary.reward, key=other) == (401, "differing_keys")
    assert status({}, key=f"{key[:-1]}?") == (401, "malformed_key")
    assert canary.client.get(GATE).status_code == 401


@pytest.mark.parametrize(
    "policy", ["", "Keep", "keep:0.1", "no-harm", "no-harm:", "no-harm:0", "no-harm:1.5", "harm:1"]
)
def test_a_policy_that_is_none_is_refused_by_name(canary, policy: str) -> None:
    refused = canary.client.get(GATE, params={"policy": policy}, headers=canary.reward)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["parameter"] == "policy"
    posted = flagged(canary, {"policy": policy})
    assert posted.status_code == 422
    assert posted.json()["errors"][0]["pointer"] == "/metadata/policy"


def test_a_member_of_the_metadata_that_is_misspelt_is_refused_and_flaggers_own_are_not(
    canary,
) -> None:
    refused = flagged(canary, {"polcy": "keep"})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/metadata/polcy"
    assert json.dumps(canary.project.keys[KeyKind.PROJECT]) not in refused.text
