"""`/v1/reward/gate`: Argo Rollouts and Flagger, with the requests that they send."""

import json
from typing import Any

import pytest

from storage.releases.freeze import freeze, unfreeze
from storage.tenants.keys import KeyKind
from tests.stores.publication import publish

GATE = "/v1/reward/gate"
A, B, C, D = "a" * 40, "b" * 40, "c" * 40, "d" * 40
LIFT = {"lift": 0.1, "confidence": 0.999, "ci": (0.05, 0.15), "cadence": "fast"}
ABSTAIN = {"verdict": "abstain", "abstain_reason": "power", "decided": False}
ENDED = {**ABSTAIN, "decided": True}
BREACHED = {"guardrail_breaches": ["error"]}
GO, BACK, HOLD = "Successful", "Failed", "Running"


@pytest.fixture
def canary(tenant) -> Any:
    """A service in whose production a canary runs."""
    tenant.deploy(A)
    tenant.deploy(B, 0.1)
    return tenant


def asked(tenant: Any, **parameters: Any) -> dict[str, Any]:
    """What a web metric of Argo Rollouts gets."""
    answer = tenant.client.get(GATE, params=parameters, headers=tenant.reward)
    assert answer.status_code == 200, answer.text
    return answer.json()


def flagged(tenant: Any, metadata: dict[str, Any], address: str = GATE) -> Any:
    """What Flagger gets, which sends no header of ours, to an address that is fixed."""
    key = tenant.project.keys[KeyKind.PROJECT]
    body = {
        "name": "shop",
        "namespace": "production",
        "phase": "Progressing",
        "checksum": "85d557f47b",
        "metadata": {"key": key, **metadata},
    }
    return tenant.client.post(address, json=body)


def published(tenant: Any, answer: dict[str, Any], **known: Any) -> None:
    """Publishes a verdict, by default of the only experiment, as a tick does."""
    experiment = known.pop("experiment", None)
    if experiment is None:
        (only,) = tenant.get("/v1/reward").json()["experiments"]
        experiment = only["experiment_id"]
    members = {"abstain_reason": None, "decided": True, **answer}
    shortfall = known.pop("shortfall", None)
    document = {
        "gates": {"shortfall": shortfall},
        **dict.fromkeys(("sentence", "reason"), "What is known."),
        "policy": {"target": {"better": known.pop("better", "higher")}},
        "known": {"not_worse_than": None, **known},
    }
    tenant.in_store(lambda connection: publish(connection, experiment, members, document))


SHORT = {"guardrail_breaches": ["arrival"]}
STEADY = {"shortfall": {"declared": 0.5, "seen": 0.35, "steady": True}}
FELL = {"shortfall": {"declared": 0.5, "seen": 0.35, "steady": False}}
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
    ("no-harm:0.2", {**ABSTAIN, "abstain_reason": "interacting"}, {"not_worse_than": -0.1}, HOLD),
    ("no-harm:1", {"verdict": "rollback", **LIFT}, {"not_worse_than": -0.1}, BACK),
    ("no-breach", ABSTAIN, {}, GO),
    ("no-breach", {**ABSTAIN, **BREACHED}, {}, BACK),
    ("no-breach", {**ABSTAIN, "abstain_reason": "non_identifiable"}, {}, HOLD),
    ("no-breach", {"verdict": "rollback", **LIFT}, {}, BACK),
    ("keep", {**ABSTAIN, **SHORT}, STEADY, HOLD),
    ("no-breach", {**ABSTAIN, **SHORT, "abstain_reason": "interacting"}, STEADY, HOLD),
    ("no-harm:0.2", {**ENDED, **SHORT}, {"not_worse_than": -0.1, **STEADY}, HOLD),
    ("no-breach", {"verdict": "iterate", **LIFT, **SHORT}, STEADY, HOLD),
    ("no-breach", {**ABSTAIN, **SHORT}, FELL, BACK),
    ("no-breach", {**ABSTAIN, **SHORT}, {}, BACK),
    ("no-breach", {"verdict": "iterate", **LIFT, **SHORT}, FELL, BACK),
    ("no-breach", {**ABSTAIN, "guardrail_breaches": ["error", "arrival"]}, STEADY, BACK),
    ("no-breach", {"verdict": "rollback", **LIFT, **SHORT}, STEADY, BACK),
]


@pytest.mark.parametrize(("policy", "answer", "known", "phase"), PHASES)
def test_a_rollout_goes_on_back_or_neither_as_its_policy_says(
    canary, policy, answer, known, phase
) -> None:
    canary.register(treatment_commit=B)
    published(canary, answer, **known)

    result = asked(canary, policy=policy)
    assert result["phase"] == phase
    assert result["verdict"] == answer["verdict"]
    assert " What is known." in result["sentence"]

    reply = flagged(canary, {"policy": policy})
    assert (reply.status_code, reply.text) == (200 if phase == GO else 403, result["sentence"])
    wanted = flagged(canary, {"policy": policy}, f"{GATE}?want=rollback")
    assert wanted.status_code == (200 if phase == BACK else 403)


def test_a_post_registers_a_deployed_commit_once_and_a_get_never_does(canary) -> None:
    assert asked(canary) == {
        "phase": HOLD,
        "verdict": "abstain",
        "sentence": f"Hold: commit {B[:12]} has no experiment on activation yet. Register it by"
        " POST /v1/reward/register; a POST of this question registers it, too.",
    }
    asked(canary, treatment_commit=B, policy="no-breach")
    assert experiments(canary) == []

    answer = flagged(canary, {})
    starts = "It starts with the next run of the pipeline. The pipeline has not run yet."
    assert (answer.status_code, answer.text) == (403, f"Hold: keep is not shown yet. {starts}")
    flagged(canary, {"treatment_commit": B[:7]})
    (experiment,) = experiments(canary)
    assert (experiment["treatment_commit"], experiment["control_commit"]) == (B, A)

    published(canary, {"verdict": "keep", **LIFT})
    assert asked(canary)["phase"] == GO
    assert flagged(canary, {}).status_code == 200
    assert len(experiments(canary)) == 1


def experiments(tenant: Any) -> list[dict[str, Any]]:
    return tenant.get("/v1/reward").json()["experiments"]


def held(tenant: Any, **question: Any) -> str:
    """The sentence of a gate that holds whoever asks, and however; nothing is registered."""
    before = experiments(tenant)
    result = asked(tenant, **question)
    assert result["phase"] == HOLD
    for address in (GATE, f"{GATE}?want=rollback"):
        answer = flagged(tenant, question, address)
        assert (answer.status_code, answer.text) == (403, result["sentence"])
    assert experiments(tenant) == before
    return result["sentence"]


def test_a_question_names_its_change_metric_and_environment(canary) -> None:
    canary.deploy(A, environment="staging")
    canary.deploy(B, environment="staging")
    flagged(canary, {"target_metric": "signup_completed"})
    flagged(canary, {"environment": "staging", "treatment_commit": B})

    assert {
        (each["environment"], each["metric"], each["treatment_commit"])
        for each in experiments(canary)
    } == {("production", "signup_completed", B), ("staging", "activation", B)}


def test_a_commit_that_no_deploy_has_is_held_and_not_registered(canary) -> None:
    canary.deploy(C, 0.5, environment="staging")
    # Known as a base by its name alone, and awaited by an experiment: neither is a deploy.
    canary.deploy(B, 0.2, diff={"base_commit": D, "files": []})
    canary.register(treatment_commit=C)
    for commit in (C, D):
        assert held(canary, treatment_commit=commit) == (
            f"Hold: no deploy of this environment is of commit {commit[:12]}. Check the commit, or"
            " post its deploy."
        )


def test_a_change_that_was_built_again_on_another_base_is_answered_by_its_experiment(
    canary,
) -> None:
    canary.register(treatment_commit=B)
    published(canary, {"verdict": "rollback", **LIFT})
    canary.deploy(C)
    rebased = {"commit": {"sha": D, "changes": [B]}, "diff": {"base_commit": C, "files": []}}
    assert canary.post("/v1/deploys", {**rebased, "allocation": 0.1}).status_code == 201
    assert asked(canary, treatment_commit=D)["phase"] == BACK
    assert asked(canary, treatment_commit=C)["phase"] == HOLD


def test_a_beginning_of_several_commits_is_held_by_their_names(canary) -> None:
    canary.deploy("b" * 39 + "a", 0.1)
    assert held(canary, treatment_commit=B[:9]) == (
        f"Hold: {B[:9]} begins 2 commits: {'b' * 39}a, {B}. Send more of it."
    )
    assert "has no experiment" in asked(canary, treatment_commit=B)["sentence"]


def test_without_a_commit_the_one_declared_canary_is_meant_and_no_other_deploy(canary) -> None:
    experiment = canary.register(treatment_commit=B)
    published(canary, {"verdict": "rollback", **LIFT}, experiment=experiment)
    # A hotfix; a second service; another commit promoted; another withdrawn.
    for number, share in enumerate((None, None, 1, 0)):
        canary.deploy(f"{number + 1}" * 40, share)
        assert asked(canary, policy="no-breach")["phase"] == BACK
        assert flagged(canary, {}, f"{GATE}?want=rollback").status_code == 200
        assert flagged(canary, {"policy": "no-breach"}).status_code == 403
    # A later step of its own ramp.
    canary.deploy(B, 0.5)
    assert asked(canary)["phase"] == BACK


def test_without_a_declared_canary_it_holds_and_says_what_to_send(canary) -> None:
    answer = (
        "Hold: no canary is declared in this environment. Post the canary's deploy with its"
        " allocation, a share between 0 and 1, or name it by treatment_commit."
    )
    canary.register(treatment_commit=B)
    for ended in (1, None, 0):
        published(canary, {**ABSTAIN}, not_worse_than=-0.1)
        assert asked(canary, policy="no-harm:0.2")["phase"] == GO
        canary.deploy(B, ended)
        assert held(canary, policy="no-harm:0.2") == answer
        canary.deploy(B, 0.25)


def test_of_several_canaries_it_holds_and_names_them_with_their_shares(canary) -> None:
    published(canary, {"verdict": "keep", **LIFT}, experiment=canary.register(treatment_commit=B))
    canary.deploy(C, 0.025)
    answer = held(canary)
    assert answer == (
        f"Hold: 2 canaries are declared here: {B[:12]} at 10 %, {C[:12]} at 2.5 %. Name"
        " a canary by treatment_commit, or post allocation 0 for what is withdrawn and 1 for what"
        " is promoted."
    )
    assert asked(canary, treatment_commit=B)["phase"] == GO
    canary.deploy(C, 0)
    assert asked(canary)["phase"] == GO


HELD_BACK = (
    f"{A[:12]} is a hold-back: users have {B[:12]}, which carries all its changes, so there is"
    " nothing to judge"
)


@pytest.mark.parametrize("decided", [True, False])
def test_a_hold_back_is_no_canary_and_is_refused_by_its_name(canary, decided) -> None:
    verdict = {"verdict": "keep", **LIFT} if decided else ABSTAIN
    published(canary, verdict, experiment=canary.register(treatment_commit=B))
    canary.deploy(B, 1)
    canary.deploy(A, 0.1)
    assert held(canary, policy="no-breach") == (
        f"Hold: no canary is declared in this environment. {HELD_BACK}. Post the canary's deploy"
        " with its allocation, a share between 0 and 1, or name it by treatment_commit."
    )
    assert held(canary, policy="no-breach", treatment_commit=A[:8]) == f"Hold: {HELD_BACK}."
    for registration in ({}, {"treatment_commit": A}):
        refused = canary.post("/v1/reward/register", registration)
        (fault,) = refused.json()["errors"]
        assert (refused.status_code, fault["code"]) == (422, "no_change")
        assert fault["detail"] == f"{HELD_BACK}: name the canary's commit"
    # Its own verdict of old is no answer, and a canary beside it is meant.
    canary.deploy(C, 0.2)
    published(canary, ABSTAIN, experiment=canary.register(treatment_commit=C), not_worse_than=-0.1)
    assert asked(canary, policy="no-harm:0.2")["phase"] == GO


def test_a_kept_build_that_is_held_back_later_lets_nothing_go_on(canary) -> None:
    published(canary, {"verdict": "keep", **LIFT}, experiment=canary.register(treatment_commit=B))
    canary.deploy(B, 1)
    canary.deploy(C, 1)
    canary.deploy(B, 0.1)
    assert f"{B[:12]} is a hold-back: users have {C[:12]}" in held(canary)


def test_a_build_that_is_kept_alive_before_the_canary_is_promoted_is_a_hold_back_too(
    canary,
) -> None:
    canary.register(treatment_commit=B)
    canary.deploy(A, 0.2)
    assert held(canary).startswith("Hold: 2 canaries are declared here")
    canary.deploy(B, 1)
    assert f"{A[:12]} is a hold-back: users have {B[:12]}" in held(canary)


def test_a_canary_that_a_hotfix_for_everybody_was_built_on_keeps_its_verdict(canary) -> None:
    published(
        canary, {"verdict": "rollback", **LIFT}, experiment=canary.register(treatment_commit=B)
    )
    canary.deploy(C, 1, diff={"base_commit": B, "files": []})
    assert asked(canary)["phase"] == BACK
    assert asked(canary, treatment_commit=B)["phase"] == BACK


def test_a_portfolio_of_a_week_does_not_answer_for_its_last_build(canary) -> None:
    published(canary, {"verdict": "keep", **LIFT}, experiment=canary.register(treatment_commit=B))
    canary.deploy(B, 1)
    canary.deploy(A, 0.1)
    week = canary.register(treatment_commit=B, control_commit=A, metadata={"portfolio": True})
    published(canary, {"verdict": "rollback", **LIFT}, experiment=week)
    assert asked(canary, treatment_commit=B)["phase"] == GO


AGAINST = [
    {"verdict": "rollback", **LIFT},
    {"verdict": "iterate", **LIFT, **BREACHED},
    {**ENDED, **BREACHED},
    {**ABSTAIN, **BREACHED},
]


@pytest.mark.parametrize("answer", AGAINST, ids=lambda answer: answer["verdict"])
def test_what_speaks_against_a_commit_is_hidden_by_no_other_experiment_of_it(
    canary, answer
) -> None:
    first = canary.register(treatment_commit=B)
    published(canary, answer, experiment=first)
    other = canary.register(treatment_commit=B, target_metric="signup_completed")
    published(canary, {"verdict": "keep", **LIFT}, experiment=other)
    if answer.get("decided", True):
        again = canary.register(treatment_commit=B)
        assert again != first
    for metric in ("activation", "signup_completed", "trial_to_paid"):
        for policy in ("keep", "no-breach", "no-harm:1"):
            result = asked(canary, policy=policy, target_metric=metric)
            assert result["phase"] == BACK
    assert f", by {first} on activation. " in result["sentence"]


def test_of_one_metric_the_newest_verdict_holds(canary) -> None:
    first = canary.register(treatment_commit=B)
    published(canary, {"verdict": "rollback", **LIFT}, experiment=first)
    second = canary.register(treatment_commit=B)
    published(canary, ABSTAIN, experiment=second, not_worse_than=-0.01)
    assert asked(canary, policy="no-harm:0.2")["phase"] == BACK
    published(canary, {"verdict": "keep", **LIFT}, experiment=second)
    assert asked(canary)["phase"] == GO


def test_a_fault_of_the_set_up_is_over_with_the_experiment_that_had_it(canary) -> None:
    first = canary.register(treatment_commit=B)
    published(canary, {**ENDED, "abstain_reason": "interacting"}, experiment=first)
    assert asked(canary, policy="no-breach")["phase"] == HOLD
    second = canary.register(treatment_commit=B)
    published(canary, ABSTAIN, experiment=second)
    assert asked(canary, policy="no-breach")["phase"] == GO


@pytest.mark.parametrize("policy", ["keep", "no-breach", "no-harm:1"])
def test_while_frozen_every_gate_holds_and_none_asks_to_go_back(canary, policy) -> None:
    canary.register(treatment_commit=B)
    canary.in_store(lambda connection: freeze(connection, "an incident"))
    for verdict in ("rollback", "keep"):
        published(canary, {"verdict": verdict, **LIFT, "decided": False}, not_worse_than=-0.01)
        answer = asked(canary, policy=policy)
        assert answer["phase"] == HOLD
        assert answer["sentence"].startswith("Hold: frozen, an incident.")
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
def test_a_policy_that_is_none_is_refused_by_name(canary, policy) -> None:
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
