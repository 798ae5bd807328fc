"""`/v1/static-graphs` and `/v1/deploys`: what is kept, handed back and refused."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.runtime.settings import ApiSettings
from storage.tenants.keys import KeyKind

GRAPHS, DEPLOYS, LAST = "/v1/static-graphs", "/v1/deploys", "/v1/deploys/last"
GRAPH = {
    "schema_version": "2.1",
    "generator": {"name": "parser", "nested": [1, 2.5, None, True]},
    "routes": [
        {"path": "/checkout/[id]", "method": "GET", "files": ["lib/cart.ts"], "hash": "x"},
        {"path": "/checkout/[id]", "method": "POST", "file": "app/checkout.ts"},
        {"path": "/about", "files": []},
    ],
}


def faults(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 422
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


class TestAStaticGraph:
    @pytest.mark.requirement(
        "graph.document", "graph.current", "endpoint.static-graphs", "endpoint.static-graphs.effect"
    )
    def test_becomes_the_projects_current_graph_and_comes_back_unchanged(self, tenant) -> None:
        tenant.post(GRAPHS, {"schema_version": 1, "routes": [{"path": "/old"}]})
        answer = tenant.post(GRAPHS, GRAPH)
        assert answer.status_code == 201
        document = answer.json()
        assert document.keys() == {
            "graph_id",
            "schema_version",
            "route_count",
            "routes_used",
            "routes_not_used",
            "uploaded_at",
            "current",
        }
        assert (document["schema_version"], document["route_count"], document["current"]) == (
            "2.1",
            3,
            True,
        )
        deploy = tenant.post(DEPLOYS, {"commit": {"sha": "abcdef1"}}).json()["deploy"]
        assert deploy["graph_id"] == document["graph_id"]
        assert tenant.get(LAST).json()["graph"] == GRAPH

    def test_sent_again_is_the_same_graph(self, tenant) -> None:
        first = tenant.post(GRAPHS, GRAPH)
        again = tenant.post(GRAPHS, dict(reversed(GRAPH.items())))
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()

    @pytest.mark.requirement("graph.current", "endpoint.deploys-last.use")
    def test_is_superseded_by_the_graph_of_a_deploy(self, tenant) -> None:
        tenant.post(GRAPHS, GRAPH)
        newer = {"schema_version": 3, "routes": [{"path": "/new"}]}
        tenant.post(DEPLOYS, {"commit": {"sha": "abcdef1"}, "graph": newer})
        assert tenant.get(LAST).json()["graph"] == newer
        tenant.post(DEPLOYS, {"commit": {"sha": "abcdef2"}})
        # An upload that no deploy points to yet is not what is out there.
        tenant.post(GRAPHS, GRAPH)
        previous = tenant.get(LAST).json()
        assert (previous["deploy"]["commit"]["sha"], previous["graph"]) == ("abcdef2", newer)

    @pytest.mark.requirement(
        "graph.schema_version", "graph.routes", "endpoint.static-graphs.request"
    )
    @pytest.mark.parametrize(
        ("graph", "expected"),
        [
            ({"schema_version": 1}, [("/routes", "missing")]),
            ({"schema_version": 1, "routes": {}}, [("/routes", "list_type")]),
            ({"schema_version": [1], "routes": []}, [("/schema_version", "list_version")]),
            ([], [("", "object_type")]),
        ],
    )
    def test_that_breaks_a_rule_is_refused_with_where(self, tenant, graph, expected) -> None:
        assert faults(tenant.post(GRAPHS, graph)) == expected
        nested = tenant.post(DEPLOYS, {"commit": {"sha": "abcdef1"}, "graph": graph})
        assert faults(nested) == [(f"/graph{pointer}", code) for pointer, code in expected]

    @pytest.mark.parametrize("member", ["schema_version", "schemaVersion", "version"])
    @pytest.mark.parametrize("version", [1, "2.1", 1.5, True, None, {"major": 1}, ""])
    def test_hands_its_version_back_as_it_was_sent(self, tenant, member, version) -> None:
        graph = {member: version, "routes": [{"path": "/a"}]}
        assert tenant.post(GRAPHS, graph).json()["schema_version"] == version
        tenant.post(DEPLOYS, {"commit": {"sha": "abcdef1"}})
        assert tenant.get(LAST).json()["graph"] == graph

    def test_is_taken_as_far_as_it_is_understood_and_says_how_far(self, tenant) -> None:
        graph = {
            "generator": {"name": "another parser"},
            "routes": [
                "/text",
                {"route": "/route", "files": ["a.ts"], "more": [1.5, {"x": None}]},
                {"pattern": "/pattern/[id]", "file": "a.ts"},
                {"path": None, "route": "/first", "files": "a.ts", "file": ["a.ts"]},
                {"path": 7},
                "",
                {"path": "/route", "files": ["b.ts"]},
                {"path": "/route", "method": "GET", "files": [["a.ts"], None, "b.ts"]},
                None,
                ["/list"],
                {"path": "x" * 513},
            ],
        }
        answer = tenant.post(GRAPHS, graph)
        assert answer.status_code == 201
        receipt = answer.json()
        assert (receipt["schema_version"], receipt["route_count"]) == (None, 11)
        assert receipt["routes_used"] == 5
        no_path, length = "it has no path, route or pattern", "its path has not 1 to 512 characters"
        assert receipt["routes_not_used"] == {
            "count": 6,
            "first": [
                {"pointer": "/routes/4", "detail": no_path},
                {"pointer": "/routes/5", "detail": length},
                {"pointer": "/routes/6", "detail": "it has the path, method and kind of /routes/1"},
                {"pointer": "/routes/8", "detail": no_path},
                {"pointer": "/routes/9", "detail": no_path},
                {"pointer": "/routes/10", "detail": length},
            ],
        }

        def affected(file: str, number: int) -> list[str]:
            diff = {"files": [{"filename": file, "status": "modified"}]}
            return tenant.deploy(f"abcdef{number}", diff=diff)["affected_routes"]

        assert affected("a.ts", 1) == ["/pattern/[id]", "/route"]
        # A route that takes no part reaches nothing.
        assert affected("b.ts", 2) == ["/route"]
        assert tenant.get(LAST).json()["graph"] == graph

    def test_names_no_more_than_ten_routes_that_take_no_part(self, tenant) -> None:
        receipt = tenant.post(GRAPHS, {"routes": [{}] * 2000}).json()
        assert (receipt["routes_used"], receipt["routes_not_used"]["count"]) == (0, 2000)
        assert len(receipt["routes_not_used"]["first"]) == 10


class TestADeploy:
    @pytest.mark.requirement(
        "deploy.payload",
        "deploy.answer",
        "endpoint.deploys",
        "endpoint.deploys.request",
        "endpoint.deploys.response",
    )
    def test_is_handed_back_with_its_lineage_and_what_it_affects(self, tenant) -> None:
        tenant.post(DEPLOYS, {"commit": {"sha": "9e107d9"}, "graph": GRAPH})
        answer = tenant.post(
            DEPLOYS,
            {
                "commit": {
                    "sha": "4F2A9C1D",
                    "message": "Shorter checkout",
                    "author": "Ada",
                    "branch": "main",
                    "url": "https://git.example/4f2a9c1d",
                    "committed_at": "2026-01-31T14:00:00+02:00",
                    "pull_request": 12,
                },
                "environment": "production",
                "deployed_at": "2026-01-31T12:00:00Z",
                "diff": {
                    "url": "https://api.git.example/compare",
                    "base_commit": {"sha": "9E107D9", "commit": {"tree": {}}},
                    "ahead_by": 1,
                    "files": [
                        {
                            "sha": "77",
                            "filename": "lib/basket.ts",
                            "previous_filename": "lib/cart.ts",
                            "status": "renamed",
                            "additions": 1,
                            "deletions": 2,
                            "changes": 3,
                            "patch": "@@ secret source @@",
                            "blob_url": "https://git.example/blob",
                        }
                    ],
                },
                "allocation": 0.1,
            },
        )
        assert answer.status_code == 201
        deploy = answer.json()["deploy"]
        assert answer.json()["dashboard_url"].endswith(f"/dashboard/deploys/{deploy['deploy_id']}")
        recorded_at = deploy.pop("recorded_at")
        assert recorded_at.endswith("Z")
        assert deploy.pop("deploy_id").startswith("dep_")
        assert deploy.pop("graph_id").startswith("gr_")
        assert deploy == {
            "environment": "production",
            "commit": {
                "sha": "4f2a9c1d",
                "message": "Shorter checkout",
                "author": "Ada",
                "branch": "main",
                "url": "https://git.example/4f2a9c1d",
                "committed_at": "2026-01-31T12:00:00Z",
                "pull_request": 12,
            },
            "base_commit": "9e107d9",
            "deployed_at": "2026-01-31T12:00:00Z",
            "diff": {
                "base_commit": "9e107d9",
                "files": [
                    {
                        "filename": "lib/basket.ts",
                        "status": "renamed",
                        "previous_filename": "lib/cart.ts",
                        "additions": 1,
                        "deletions": 2,
                    }
                ],
            },
            "allocation": 0.1,
            "base_assumed": False,
            "affected_routes": ["/checkout/[id]"],
            "affected_routes_complete": True,
        }

    def test_of_three_hundred_files_may_affect_more_than_is_known(self, tenant) -> None:
        for count, complete in ((299, True), (300, False), (301, True)):
            files = [{"filename": f"{n}.ts", "status": "added"} for n in range(count)]
            deploy = tenant.deploy(f"{count:07}", diff={"files": files})
            assert deploy["affected_routes_complete"] is complete

    def test_sent_again_is_the_same_deploy_and_with_another_body_a_conflict(self, tenant) -> None:
        body = {"commit": {"sha": "abcdef1"}, "deployed_at": "2026-01-31T12:00:00Z"}
        first = tenant.post(DEPLOYS, body)
        again = tenant.post(
            DEPLOYS, {"commit": {"sha": "ABCDEF1"}, "deployed_at": "2026-01-31T13:00:00+01:00"}
        )
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()
        assert "Idempotent-Replayed" not in first.headers
        assert again.headers["Idempotent-Replayed"] == "true"
        answer = tenant.post(DEPLOYS, {**body, "allocation": 0.5})
        assert (answer.status_code, answer.json()["code"]) == (409, "deploy_conflict")

    def test_under_the_same_idempotency_key_is_the_same_deploy(self, tenant) -> None:
        headers = {**tenant.write, "Idempotency-Key": "run 17"}
        first, again = (
            tenant.post(DEPLOYS, {"commit": {"sha": "abcdef1"}}, headers=headers) for _ in range(2)
        )
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()
        other = tenant.post(DEPLOYS, {"commit": {"sha": "abcdef2"}}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")

    def test_without_time_or_key_is_a_further_step_of_the_ramp(self, tenant) -> None:
        steps = [
            tenant.post(DEPLOYS, {"commit": {"sha": "abcdef1"}, "allocation": allocation})
            for allocation in (0.1, 0.1, 0.5, 1, None, 0)
        ]
        assert [step.status_code for step in steps] == [201] * 6
        shown = [step.json()["deploy"]["allocation"] for step in steps]
        assert shown == [0.1, 0.1, 0.5, 1.0, None, 0.0]

    def test_under_one_key_from_many_clients_is_recorded_once(self, tenant) -> None:
        with ThreadPoolExecutor(12) as clients:
            for n in range(4):
                headers = {**tenant.write, "Idempotency-Key": f"run-{n}"}
                body = {"commit": {"sha": f"abcdef{n}"}}
                answers = list(
                    clients.map(
                        lambda _, sent=body, by=headers: tenant.post(DEPLOYS, sent, headers=by),
                        range(12),
                    )
                )
                assert sorted(a.status_code for a in answers) == [200] * 11 + [201]
                assert len({a.json()["deploy"]["deploy_id"] for a in answers}) == 1

    @pytest.mark.parametrize("key", ["", "x" * 256, "é", "\t"])
    def test_needs_a_printable_idempotency_key(self, tenant, key) -> None:
        headers = {**tenant.write, "Idempotency-Key": key.encode("latin-1")}
        answer = tenant.post(DEPLOYS, {"commit": {"sha": "abcdef1"}}, headers=headers)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["header"] == "Idempotency-Key"

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({}, [("/commit", "missing")]),
            ({"commit": "abcdef1"}, [("/commit", "object_type")]),
            ({"commit": {}}, [("/commit/sha", "missing")]),
            ({"commit": {"sha": "f" * 65}}, [("/commit/sha", "string_pattern_mismatch")]),
            ({"allocation": 1.01}, [("/allocation", "less_than_equal")]),
            # No arithmetic tells these from none, and from all.
            ({"allocation": 1e-300}, [("/allocation", "out_of_range")]),
            ({"allocation": 1 - 1e-12}, [("/allocation", "out_of_range")]),
            ({"allocation": -0.1}, [("/allocation", "greater_than_equal")]),
            ({"environment": ""}, [("/environment", "string_too_short")]),
            ({"diff": {"base_commit": "x"}}, [("/diff/base_commit", "string_pattern_mismatch")]),
            ({"diff": {"base_commit": {}}}, [("/diff/base_commit/sha", "missing")]),
            ({"diff": {"files": [{"filename": "a"}]}}, [("/diff/files/0/status", "missing")]),
        ],
    )
    def test_that_breaks_a_rule_is_refused_with_where(self, tenant, body, expected) -> None:
        whole = body if not body or "commit" in body else {"commit": {"sha": "abcdef1"}, **body}
        assert faults(tenant.post(DEPLOYS, whole)) == expected

    @pytest.mark.parametrize(
        ("member", "value", "status"),
        [
            ("pull_request", 1, 201),
            ("pull_request", "https://git.example/pull/1", 201),
            ("pull_request", 0, 422),
            ("url", "javascript:alert(1)", 422),
            ("url", 'https://x/"onload=', 422),
            ("changes", ["AAAAAAA", "bbbbbbb"], 201),
            ("changes", [], 422),
            ("changes", ["x"], 422),
            ("colour", 1, 422),
        ],
    )
    def test_holds_its_commit_to_its_rules(self, tenant, member, value, status) -> None:
        answer = tenant.post(DEPLOYS, {"commit": {"sha": "abcdef1", member: value}})
        assert answer.status_code == status
        if status == 422:
            assert faults(answer)[0][0].startswith(f"/commit/{member}")

    def test_names_where_a_member_stands_that_was_put_beside_its_place(self, tenant) -> None:
        body = {"commit": {"sha": "abcdef1"}, "changes": ["abcdef1"], "base_commit": "aaaaaaa1"}
        said = [fault["detail"] for fault in tenant.post(DEPLOYS, body).json()["errors"]]
        where = "there is no such member: it stands in"
        assert said == [f"{where} commit.changes", f"{where} diff.base_commit"]

    def test_links_to_the_dashboard_that_users_see(self, tenant) -> None:
        settings = ApiSettings(
            database_url=tenant.store.url, secret=b"s", public_url="https://reward.example/"
        )
        body = {"commit": {"sha": "abcdef1"}}
        with TestClient(create_app(settings)) as client:
            answer = client.post(DEPLOYS, json=body, headers=tenant.write)
        assert answer.json()["dashboard_url"].startswith("https://reward.example/dashboard/")
        odd = {**tenant.write, "Host": "[::1"}
        assert tenant.post(DEPLOYS, body, headers=odd).status_code == 201


class TestTheLatestDeploy:
    @pytest.mark.requirement("endpoint.deploys-last", "endpoint.deploys-last.environment")
    def test_is_the_one_with_the_greatest_time_of_its_environment(self, tenant) -> None:
        for sha, environment, day in (
            ("aaaaaaa", "production", "02"),
            ("bbbbbbb", "production", "01"),
            ("ccccccc", "staging", "03"),
        ):
            at = f"2026-01-{day}T00:00:00Z"
            tenant.deploy(sha, environment=environment, deployed_at=at)
        shown = tenant.get(LAST)
        assert shown.json()["deploy"]["commit"]["sha"] == "aaaaaaa"
        assert shown.json()["graph"] is None
        staging = tenant.get(f"{LAST}?environment=staging")
        assert staging.json()["deploy"]["commit"]["sha"] == "ccccccc"

    def test_the_build_of_a_flag_s_experiment_stands(self, tenant) -> None:
        tenant.deploy("aaaaaaa1")
        tenant.register(treatment_flag={"name": "one-step", "treatment": "true"})
        answer = tenant.get(f"{LAST}?standing=true")
        assert answer.json()["deploy"]["commit"]["sha"] == "aaaaaaa1"
        # And is the control of the canary that comes next.
        tenant.deploy("bbbbbbb2", 0.1)
        tenant.register(treatment_commit="bbbbbbb2")
        (canary, _) = tenant.listed()
        assert canary["control_commit"] == "aaaaaaa1"

    def test_the_standing_one_is_what_most_users_have(self, tenant) -> None:
        def standing() -> str | None:
            answer = tenant.get(f"{LAST}?standing=true")
            return answer.json()["deploy"]["commit"]["sha"] if answer.status_code == 200 else None

        assert standing() is None
        tenant.deploy("aaaaaaa1", deployed_at="2026-01-01T00:00:00Z")
        tenant.deploy("bbbbbbb2", deployed_at="2026-01-02T00:00:00Z", allocation=0.1)
        assert tenant.get(LAST).json()["deploy"]["commit"]["sha"] == "bbbbbbb2"
        assert standing() == "aaaaaaa1"
        tenant.deploy("bbbbbbb2", deployed_at="2026-01-03T00:00:00Z", allocation=0)
        assert standing() == "aaaaaaa1"
        tenant.deploy("bbbbbbb2", deployed_at="2026-01-04T00:00:00Z", allocation=1)
        assert standing() == "bbbbbbb2"
        # Where no session tells it from a canary, the newest stands; and no registration moves it.
        tenant.deploy("ccccccc3", deployed_at="2026-01-05T00:00:00Z")
        assert standing() == "ccccccc3"
        tenant.register(treatment_commit="ccccccc3", control_commit="bbbbbbb2")
        assert standing() == "ccccccc3"

    def test_is_of_an_environment_that_exists(self, tenant) -> None:
        answer = tenant.get(f"{LAST}?environment=nowhere")
        assert (answer.status_code, answer.json()["code"]) == (404, "no_deploy")
        for environment in ("", "%00", "x" * 65):
            answer = tenant.get(f"{LAST}?environment={environment}")
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["parameter"] == "environment"


class TestTheDeploysList:
    @pytest.mark.requirement("deploy.listed")
    def test_shows_each_deploy_with_its_commit_the_newest_first(self, tenant) -> None:
        for day in ("02", "03", "01"):
            commit = {"message": f"day {day}", "author": "Mary"}
            tenant.deploy(f"aaaaa{day}", deployed_at=f"2026-01-{day}T00:00:00Z", commit=commit)
        first = tenant.get(f"{DEPLOYS}?limit=2").json()
        second = tenant.get(f"{DEPLOYS}?limit=2&cursor={first['next_cursor']}").json()
        shown = [deploy["commit"] for deploy in first["deploys"] + second["deploys"]]
        assert shown == [
            {"sha": f"aaaaa{day}", "message": f"day {day}", "author": "Mary"}
            for day in ("03", "02", "01")
        ]
        assert second["next_cursor"] is None

    def test_narrows_to_an_environment_and_to_the_project(self, tenant) -> None:
        tenant.post(DEPLOYS, {"commit": {"sha": "aaaaaaa"}, "environment": "staging"})
        assert len(tenant.get(f"{DEPLOYS}?environment=staging").json()["deploys"]) == 1
        assert tenant.get(f"{DEPLOYS}?environment=production").json()["deploys"] == []
        other = tenant.new_project(f"beside {tenant.project.name}").keys[KeyKind.WRITE]
        seen = tenant.get(DEPLOYS, headers={"X-Service-Project-Key": other})
        assert seen.json()["deploys"] == []
        answer = tenant.get(f"{DEPLOYS}?cursor=dep_{'0' * 20}")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_deploy")
