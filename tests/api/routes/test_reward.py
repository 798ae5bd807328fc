"""`/v1/reward`: registering, polling, listing, closing; a verdict is only ever read."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from domain.contract import Contract
from domain.metric import MONETARY
from storage.views.audit_trail import read_trail
from storage.views.recent_traffic import read_names
from tests.mcp_server.contracts import WAITING
from tests.processes.api_process import eventually
from tests.stores.example import example_document
from tests.stores.publication import publish
from tests.world import T

REGISTER = "/v1/reward/register"


def deployed(tenant: Any, *commits: str) -> list[str]:
    return [tenant.deploy(commit)["deploy_id"] for commit in commits]


def published(
    tenant: Any, experiment_id: str, *, next_look: timedelta | None = None, **members: Any
) -> str:
    """Publishes a verdict, decided unless there is a next look, with members even if not valid."""
    answer = {"verdict": "keep", "abstain_reason": None, "decided": next_look is None}
    answer |= {"lift": 0.1, "confidence": 0.999, "ci": (0.05, 0.15), "cadence": "fast"}
    at = None if next_look is None else datetime.now(UTC) + next_look
    return tenant.in_store(
        lambda c: publish(c, experiment_id, answer, {}, next_look_at=at, wrong=members)
    )


def sent(tenant: Any, name: str, **keys: Any) -> None:
    """Sends an event of this name, and waits until the name is noted."""
    event = {"event": name, "session_id": "s"}
    assert tenant.post("/v1/events", event, **keys).status_code == 202
    eventually(lambda: name in tenant.in_store(lambda c: read_names(c, tenant.project_id)))


class TestRegistering:
    @pytest.mark.requirement(
        "service.deploy-triggers",
        "endpoint.register.optional",
        "endpoint.register.response",
        "experiment.experiment_id",
        "status.register",
    )
    def test_without_members_measures_the_latest_production_deploy(self, tenant) -> None:
        _, latest = deployed(tenant, "aaaaaaa", "bbbbbbb")
        answer = tenant.post(REGISTER, {})
        (listed,) = tenant.listed()
        assert answer.status_code == 201
        assert answer.json() == {"experiment_id": listed["experiment_id"]}
        assert listed["deploy_id"] == latest
        assert (listed["treatment_commit"], listed["control_commit"]) == ("bbbbbbb", "aaaaaaa")
        assert (listed["environment"], listed["metric"]) == ("production", "activation")

    def test_a_commit_that_no_deploy_has_is_waited_for_and_a_typing_error_is_named(
        self, tenant
    ) -> None:
        deployed(tenant, "4f2a9c1d" * 5, "9e107d9d" * 5)
        mistyped = "4f2a9cd1" + "4f2a9c1d" * 4
        slipped = tenant.register(treatment_commit=mistyped)
        short = tenant.register(treatment_commit="9e107dd9")
        other = tenant.register(treatment_commit="1234567890")
        awaited = {
            experiment: tenant.get(f"/v1/reward/{experiment}/registration").json()
            for experiment in (slipped, short, other)
        }
        assert awaited[slipped]["waits_for_deploy"] == {
            "commit": mistyped,
            "elsewhere": [],
            "nearest": "4f2a9c1d" * 5,
            "unshared": False,
        }
        assert awaited[short]["waits_for_deploy"]["nearest"] == "9e107d9d" * 5
        assert awaited[other]["waits_for_deploy"]["nearest"] is None
        assert awaited[other]["first_look_at"] is None
        evidence = tenant.get(f"/v1/reward/{slipped}/evidence")
        assert evidence.json()["detail"].startswith("It starts with the deploy of 4f2a9cd14f2a")

    def test_says_when_the_target_can_be_looked_at_first(self, tenant) -> None:
        tenant.settings(metrics={"slow": {"window_seconds": 14 * 86_400}})
        deployed(tenant, "4f2a9c1d", "9e107d9d")
        said = tenant.post(REGISTER, {"target_metric": "slow"})
        # The pipeline freezes its policy first.
        assert 0 < int(said.headers["Retry-After"]) <= 60
        registration = tenant.bound(said.json()["experiment_id"])
        said = tenant.post(REGISTER, {"target_metric": "slow"})
        first = datetime.fromisoformat(registration["first_look_at"])
        begun = datetime.fromisoformat(registration["starts_at"])
        # A block of 5 minutes, its grace of 2, and the window.
        assert timedelta(days=14, minutes=2) <= first - begun <= timedelta(days=14, minutes=7)
        # A guardrail may be breached before, so that an hourly pace is worth its while.
        assert said.headers["Retry-After"] == "3600"

    def test_before_any_deploy_waits_for_the_next_one(self, tenant) -> None:
        deployed(tenant, "aaaaaaa")
        experiment_id = tenant.register(treatment_commit="BBBBBBB", target_metric="signup")
        assert tenant.listed()[0]["deploy_id"] is None
        (deploy_id,) = deployed(tenant, "bbbbbbb")
        (listed,) = tenant.listed()
        assert (listed["experiment_id"], listed["deploy_id"]) == (experiment_id, deploy_id)

    @pytest.mark.requirement(
        "endpoint.register.deploy_id",
        "endpoint.register.treatment_commit",
        "endpoint.register.target_metric",
        "experiment.members",
        "experiment.target_metric.string",
    )
    def test_the_same_change_and_metric_is_the_same_experiment(self, tenant) -> None:
        _, latest = deployed(tenant, "aaaaaaa", "bbbbbbb")
        first = tenant.register()
        assert tenant.register(treatment_commit="bbbbbbb") == first
        assert tenant.register(deploy_id=latest) == first
        assert tenant.register(deploy_id=latest, treatment_commit="bbbbbbb") == first
        assert tenant.register(target_metric="activation") == first
        assert tenant.register(target_metric="other") != first

    def test_without_a_metric_it_is_on_the_first_event_that_servers_send_and_stays_so(
        self, tenant
    ) -> None:
        def paid(*names: str) -> None:
            for name in names:
                event = {"event": name, "occurred_at": T.isoformat(), "user_ref": "u"}
                if name in MONETARY:
                    event["amount"] = {"value": 1, "currency": "USD"}
                body = {**event, "idempotency_key": name}
                assert tenant.post("/v1/revenue/events", body).status_code == 200

        def targets() -> list[str]:
            return [listed["metric"] for listed in tenant.listed()]

        deployed(tenant, "aaaaaaa", "bbbbbbb")
        # Anybody with the public key can send these.
        for name in ("trial_started", "activation"):
            sent(tenant, name, headers=tenant.public)
        paid("subscription_churned")
        tenant.register()
        assert targets() == ["activation"]
        paid("expansion", "trial_to_paid")
        chosen = tenant.register()
        assert targets()[0] == "trial_to_paid"
        assert tenant.policy(chosen)["target"]["window_seconds"] == 14 * 86_400
        paid("signup_completed", "activation")
        assert tenant.register() == chosen
        (entry,) = (
            entry
            for entry in tenant.in_store(lambda c: read_trail(c, tenant.project_id, limit=10))
            if entry.action == "default_metric_settled"
        )
        assert (entry.changes[0].before, entry.changes[0].after) == ("activation", "trial_to_paid")

    def test_without_a_metric_it_is_on_activation_where_the_write_key_sent_it(self, tenant) -> None:
        deployed(tenant, "aaaaaaa", "bbbbbbb")
        sent(tenant, "activation")
        event = {"event": "signup_completed", "occurred_at": T.isoformat(), "user_ref": "u"}
        body = {**event, "idempotency_key": "1"}
        assert tenant.post("/v1/revenue/events", body).status_code == 200
        tenant.register()
        assert [listed["metric"] for listed in tenant.listed()] == ["activation"]

    def test_the_same_change_in_another_environment_is_an_experiment_of_its_own(
        self, tenant
    ) -> None:
        experiments: dict[str, str] = {}
        for environment in ("staging", "production"):
            for commit in ("aaaaaaa", "bbbbbbb"):
                deploy_id = tenant.deploy(commit, environment=environment)["deploy_id"]
            experiments[environment] = tenant.register(deploy_id=deploy_id)
        listed = tenant.listed()
        assert {each["environment"]: each["experiment_id"] for each in listed} == experiments

    @pytest.mark.parametrize(
        ("members", "named"),
        [
            ({"routes": ["/a"]}, "routes"),
            ({"guardrails": ["latency"]}, "guardrails"),
            (
                {"target_metric": {"name": "activation", "value_per_conversion": 12.5}},
                "value_per_conversion",
            ),
        ],
    )
    def test_with_other_members_while_open_is_a_conflict_that_names_the_member(
        self, tenant, members, named
    ) -> None:
        deployed(tenant, "aaaaaaa", "bbbbbbb")
        tenant.register()
        answer = tenant.post(REGISTER, members)
        assert (answer.status_code, answer.json()["code"]) == (409, "experiment_open")
        assert named in answer.json()["detail"]

    @pytest.mark.parametrize(
        ("member", "body"),
        [
            ("target_metric", {"target_metric": "clicks"}),
            ("guardrails", {"guardrails": []}),
            ("routes", {"routes": ["/a"]}),
            ("control_commit", {"control_commit": "aaaaaaa"}),
            ("value", {"target_metric": {"name": "activation", "value_per_conversion": 9.0}}),
        ],
    )
    def test_what_the_project_keeps_for_itself_is_refused_by_name(
        self, tenant, member, body
    ) -> None:
        deployed(tenant, "aaaaaaa", "bbbbbbb")
        tenant.settings(locked=[member])
        answer = tenant.post(REGISTER, body)
        assert (answer.status_code, answer.json()["code"]) == (403, "locked")
        assert member in answer.json()["detail"]
        assert tenant.listed() == []
        tenant.settings(locked=[])
        assert tenant.post(REGISTER, body).status_code == 201

    def test_a_registration_adds_guardrails_to_the_project_s(self, tenant) -> None:
        deployed(tenant, "aaaaaaa", "bbbbbbb")
        experiment = tenant.register(guardrails=["latency"])
        assert tenant.register(guardrails=["latency", "error"]) == experiment
        guardrails = tenant.policy(experiment)["guardrails"]
        assert [guardrail["name"] for guardrail in guardrails] == ["error", "latency"]

    def test_registrations_of_one_key_are_limited(self, tenant) -> None:
        deployed(tenant, "aaaaaaa", "bbbbbbb")
        tenant.settings(rate_limits={"registrations_per_key": 2})
        answers = [tenant.post(REGISTER, {}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [201, 201, 429]
        assert answers[0].headers["RateLimit"].startswith('"registration";r=1;t=')
        assert answers[2].json()["detail"] == "more than 2 registrations a minute by a key"

    @pytest.mark.requirement(
        "endpoint.register.deploy_id",
        "endpoint.register.treatment_commit",
        "endpoint.register.target_metric",
    )
    @pytest.mark.parametrize(
        ("members", "pointer", "code"),
        [
            ({"deploy_id": "dep_none"}, "/deploy_id", "unknown_deploy"),
            ({"deploy_id": 7}, "/deploy_id", "string_type"),
            ({"treatment_commit": "x"}, "/treatment_commit", "string_pattern_mismatch"),
            ({"control_commit": "bbbbbbb"}, "/control_commit", "no_change"),
            ({"target_metric": 5}, "/target_metric", "string_type"),
            ({"target_metric": {"name": "a"}}, "/target_metric/value_per_conversion", "missing"),
            (
                {"target_metric": {"name": "a", "value_per_conversion": "1"}},
                "/target_metric/value_per_conversion",
                "float_type",
            ),
            (
                {"target_metric": {"name": "a", "value_per_conversion": 1e13}},
                "/target_metric/value_per_conversion",
                "less_than_equal",
            ),
            ({"routes": "/a"}, "/routes", "list_type"),
            (
                {"treatment_flag": {"name": "f", "treatment": True, "control": True}},
                "/treatment_flag",
                "same_value",
            ),
            (
                {"treatment_flag": {"name": "commit ", "treatment": "new"}},
                "/treatment_flag/name",
                "reserved_name",
            ),
            (
                {"treatment_flag": {"name": "f", "treatment": 1.0, "control": "1"}},
                "/treatment_flag",
                "same_value",
            ),
        ],
    )
    def test_what_breaks_a_rule_is_refused_with_where(self, tenant, members, pointer, code) -> None:
        deployed(tenant, "aaaaaaa", "bbbbbbb")
        answer = tenant.post(REGISTER, members)
        assert answer.status_code == 422
        (fault,) = answer.json()["errors"]
        assert (fault["pointer"], fault["code"]) == (pointer, code)
        assert tenant.listed() == []

    def test_a_deploy_of_another_commit_contradicts(self, tenant) -> None:
        (deploy_id,) = deployed(tenant, "aaaaaaa")
        members = {"deploy_id": deploy_id, "treatment_commit": "bbbbbbb"}
        (fault,) = tenant.post(REGISTER, members).json()["errors"]
        assert fault["code"] == "commit_contradicts_deploy"

    @pytest.mark.requirement(
        "endpoint.register", "experiment.members", "experiment.target_metric.object"
    )
    def test_every_member_at_once_is_accepted(self, tenant) -> None:
        _, deploy_id = deployed(tenant, "aaaaaaa", "bbbbbbb")
        tenant.register(
            deploy_id=deploy_id,
            treatment_commit="bbbbbbb",
            target_metric={"name": "trial_to_paid", "value_per_conversion": 49},
            control_commit="aaaaaaa",
            routes=["/checkout/[id]"],
            guardrails=["error"],
            metadata={"ticket": "SHOP-1"},
            treatment_flag=None,
        )


class TestPolling:
    @pytest.mark.requirement(
        "contract.rest",
        "contract.experiment_id",
        "contract.lift.null",
        "contract.confidence.null",
        "contract.ci.null",
        "contract.power_state",
        "contract.guardrail_breaches",
        "verdict.abstain",
        "power_state.open",
        "endpoint.poll",
        "status.poll",
        "status.abstain",
        "endpoint.poll.experiment_id",
    )
    def test_a_new_experiment_abstains_for_power_and_has_no_evidence_yet(self, tenant) -> None:
        experiment_id, _ = [tenant.register(target_metric=metric) for metric in ("a", "b")]
        answer = tenant.get(f"/v1/reward/{experiment_id}")
        assert answer.status_code == 200
        assert tuple(answer.json()) == Contract.__struct_fields__
        assert answer.json() == {**WAITING, "experiment_id": experiment_id}
        assert answer.headers["Retry-After"] == "60"
        evidence = tenant.get(f"/v1/reward/{experiment_id}/evidence")
        assert (evidence.status_code, evidence.json()["code"]) == (404, "no_evidence_yet")
        assert evidence.headers["Retry-After"] == "60"
        assert tenant.get("/v1/reward/exp_00000000000000000000").status_code == 404
        assert tenant.get(REGISTER).status_code == 405

    @pytest.mark.requirement(
        "contract.verdict", "contract.abstain_reason", "contract.guardrail_breaches"
    )
    @pytest.mark.parametrize(
        ("verdict", "reason"),
        [
            *((verdict, None) for verdict in ("keep", "rollback", "iterate")),
            *(("abstain", reason) for reason in ("power", "non_identifiable", "interacting")),
        ],
    )
    def test_every_word_of_the_contract_can_be_served(self, tenant, verdict, reason) -> None:
        experiment_id, breaches = tenant.register(), ["error", "slow"]
        answer = {"verdict": verdict, "abstain_reason": reason, "guardrail_breaches": breaches}
        published(tenant, experiment_id, **answer)
        assert tenant.contract(experiment_id).items() >= answer.items()

    @pytest.mark.requirement("contract.verdict", "contract.abstain_reason")
    @pytest.mark.parametrize(
        ("verdict", "reason"),
        [("maybe", None), ("abstain", "tired"), ("abstain", None), ("keep", "power")],
    )
    def test_no_other_word_can_be_served(self, tenant, verdict, reason) -> None:
        experiment_id = tenant.register()
        with pytest.raises(IntegrityError):
            published(tenant, experiment_id, verdict=verdict, abstain_reason=reason)

    def test_what_was_published_is_served_to_the_byte(self, tenant) -> None:
        experiment_id = tenant.register()
        text = published(tenant, experiment_id)
        answer = tenant.get(f"/v1/reward/{experiment_id}")
        assert answer.text == text
        # Decided: there is nothing to come back for.
        assert "Retry-After" not in answer.headers
        evidence = tenant.get(f"/v1/reward/{experiment_id}/evidence")
        assert evidence.headers["Content-Type"] == "application/json"
        words = {"headline": "Keep", "advice": tenant.bound(experiment_id)["situation"]["advice"]}
        assert evidence.json() == {**example_document(), **words}

    @pytest.mark.parametrize(
        ("next_look", "least", "most"),
        [(timedelta(seconds=300), 280, 300), (timedelta(seconds=-5), 1, 1)],
    )
    def test_says_when_the_next_look_can_come(self, tenant, next_look, least, most) -> None:
        experiment_id = tenant.register()
        published(tenant, experiment_id, next_look=next_look)
        seconds = int(tenant.get(f"/v1/reward/{experiment_id}").headers["Retry-After"])
        assert least <= seconds <= most

    def test_an_answer_that_the_client_has_is_not_sent_again(self, tenant) -> None:
        path = f"/v1/reward/{tenant.register()}"
        etag = tenant.get(path).headers["ETag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            answer = tenant.get(path, headers={**tenant.reward, "If-None-Match": known})
            assert (answer.status_code, answer.content) == (304, b"")
            assert answer.headers["ETag"] == etag
        other = tenant.get(path, headers={**tenant.reward, "If-None-Match": '"other"'})
        assert other.status_code == 200


def test_closing_answers_with_the_contract_and_frees_the_change_for_another_attempt(tenant) -> None:
    deployed(tenant, "aaaaaaa", "bbbbbbb")
    experiment_id = tenant.register()
    for body in ({"json": {}}, {}):
        answer = tenant.client.post(
            f"/v1/reward/{experiment_id}/close", headers=tenant.reward, **body
        )
        assert answer.status_code == 200
        assert tuple(answer.json()) == Contract.__struct_fields__
        assert answer.json()["verdict"] == "abstain"
    assert tenant.register() != experiment_id


class TestTheList:
    @pytest.fixture
    def three(self, tenant) -> Sequence[str]:
        """Three experiments, the oldest first; the second is decided."""
        _, deploy_id = deployed(tenant, "aaaaaaa", "bbbbbbb")
        ids = [
            tenant.register(target_metric="a", deploy_id=deploy_id),
            tenant.register(target_metric="b"),
            tenant.register(target_metric="c", treatment_commit="ccccccc"),
        ]
        published(tenant, ids[1])
        return ids

    def listed(self, tenant: Any, **filters: Any) -> list[str]:
        answer = tenant.get("/v1/reward", params=filters)
        assert answer.status_code == 200
        return [each["experiment_id"] for each in answer.json()["experiments"]]

    def test_shows_each_with_its_contract(self, tenant, three) -> None:
        shown = tenant.get("/v1/reward", params={"metric": "b"}).json()["experiments"][0]
        served = tenant.get(f"/v1/reward/{three[1]}").text
        assert json.dumps(shown["contract"]) == json.dumps(json.loads(served))
        assert shown["as_of"].endswith("Z")

    def test_is_narrowed_by_each_filter(self, tenant, three) -> None:
        first, second, third = three
        deploy_id = tenant.get("/v1/deploys/last").json()["deploy"]["deploy_id"]
        assert self.listed(tenant, status="open") == [third, first]
        assert self.listed(tenant, status="decided") == [second]
        assert self.listed(tenant, metric="a") == [first]
        assert self.listed(tenant, treatment_commit="CCCCCCC") == [third]
        assert self.listed(tenant, deploy_id=deploy_id) == [second, first]
        assert self.listed(tenant, decided_after="2026-01-01T00:00:00Z") == [second]
        assert self.listed(tenant, decided_after="2100-01-01T00:00:00Z") == []
        assert self.listed(tenant, status="decided", metric="a") == []

    def test_comes_in_pages(self, tenant, three) -> None:
        page = tenant.get("/v1/reward", params={"limit": 2}).json()
        rest = tenant.get("/v1/reward", params={"limit": 2, "cursor": page["next_cursor"]}).json()
        ids = [each["experiment_id"] for each in (*page["experiments"], *rest["experiments"])]
        assert ids == list(reversed(three))
        assert rest["next_cursor"] is None

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("status", "closed"),
            ("treatment_commit", "xyz"),
            ("deploy_id", "a\0b"),
            ("metric", "\0"),
            ("metric", "x" * 129),
            ("decided_after", "yesterday"),
            ("limit", "0"),
            ("limit", "201"),
            ("limit", "many"),
            ("cursor", "abc"),
            ("cursor", "ééé"),
            ("cursor", "bm8gY3Vyc29y"),
            ("cursor", ""),
        ],
    )
    def test_names_a_parameter_that_breaks_its_rule(self, tenant, name, value) -> None:
        answer = tenant.get("/v1/reward", params={name: value})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["parameter"] == name
