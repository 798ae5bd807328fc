"""What the tools promise an agent: shapes, contents, and errors that say what to do."""

import json
from typing import Any

import pytest
from mcp import Client

from domain.registration import RegistrationAnswer
from tests.mcp_server.contracts import KEEP, WAITING, listed_row
from tests.stores.example import example_document


def texts(result: Any) -> list[str]:
    return [block.text for block in result.content]


def wire_bytes(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def error(result: Any) -> str:
    assert result.is_error
    (text,) = texts(result)
    return text


EVIDENCE = example_document(
    sentence="Can't say yet on activation.",
    known={"sentence": "A loss beyond 12 % is excluded."},
    effect={"estimate": 0.012, "standard_error": 0.009, "relative": 0.06},
    metrics=[
        {
            "metric": "activation",
            "role": "target",
            "control": 0.2,
            "treatment": 0.212,
            "interval": [-0.02, 0.044],
        }
    ],
    sessions={
        "accumulated": 9000,
        "required": 24000,
        "per_day": 8000,
        "projected_decision_at": "2026-05-04T10:00:00Z",
    },
    warnings=["metric_never_seen"],
)


class TestTheListOfTools:
    @pytest.fixture
    def tools(self, in_session) -> dict[str, Any]:
        listed = in_session(lambda client: client.list_tools()).tools
        return {tool.name: tool for tool in listed}

    def test_every_tool_describes_itself_and_every_member_it_takes_and_gives(self, tools) -> None:
        for tool in tools.values():
            assert 80 < len(tool.description) < 700
            assert "\n\n" not in tool.description
            for schema in (tool.input_schema, tool.output_schema):
                for name, member in schema["properties"].items():
                    assert member.get("description"), (tool.name, name)

    def test_no_schema_refers_to_another_or_counts_a_tuple_s_places(self, tools) -> None:
        # Clients of several agents refuse such tools, or all of a session's requests.
        for tool in tools.values():
            written = json.dumps([tool.input_schema, tool.output_schema])
            assert not [word for word in ("$ref", "$defs", "prefixItems") if word in written]
        interval = tools["get_verdict"].output_schema["properties"]["ci"]["anyOf"]
        assert {"type": "array", "items": {"type": "number"}}.items() <= interval[0].items()

    @pytest.mark.requirement(
        "mcp.action.keep", "mcp.action.rollback", "mcp.action.iterate", "mcp.action.abstain"
    )
    def test_a_poll_describes_what_each_verdict_asks_of_the_client(self, tools) -> None:
        description = tools["get_verdict"].description
        assert "`keep` means ship;" in description
        assert "`rollback` means revert;" in description
        assert "`iterate` means revise using `guardrail_breaches`;" in description
        assert "`abstain` means log `abstain_reason`." in description

    def test_the_list_leaves_an_agent_s_context_its_room(self, in_session) -> None:
        listed = in_session(lambda client: client.list_tools())
        tools = [
            tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools
        ]
        read = [
            {name: tool[name] for name in ("name", "description", "inputSchema")} for tool in tools
        ]
        assert wire_bytes(tools) < 21.5 * 1024
        # Most clients show a model no more of it.
        assert wire_bytes(read) < 7.5 * 1024

    @pytest.mark.requirement("mcp.register_experiment")
    def test_every_argument_of_a_registration_is_optional(self, tools) -> None:
        schema = tools["register_experiment"].input_schema
        assert {"deploy_id", "treatment_commit", "target_metric"} <= set(schema["properties"])
        assert "required" not in schema

    @pytest.mark.requirement("mcp.get_verdict", "mcp.subscribe")
    @pytest.mark.parametrize("name", ["get_verdict", "subscribe", "explain"])
    def test_a_poll_takes_the_experiment_alone(self, tools, name) -> None:
        schema = tools[name].input_schema
        assert list(schema["properties"]) == schema["required"] == ["experiment_id"]

    @pytest.mark.requirement("contract.mcp")
    @pytest.mark.parametrize("name", ["get_verdict", "subscribe"])
    def test_the_output_schema_of_a_poll_is_the_verdict_contract(self, tools, name) -> None:
        schema = tools[name].output_schema
        assert list(schema["properties"]) == schema["required"] == list(KEEP)
        assert schema["additionalProperties"] is False

    def test_only_what_asks_for_an_answer_is_more_than_reading(self, tools) -> None:
        reading = {name: tool.annotations.read_only_hint for name, tool in tools.items()}
        writing = dict.fromkeys(("register_experiment", "place"), False)
        assert reading == dict.fromkeys(tools, True) | writing

    def test_no_call_destroys_or_leaves_the_service_and_each_may_be_repeated(self, tools) -> None:
        for tool in tools.values():
            assert tool.annotations.idempotent_hint is True
            assert tool.annotations.destructive_hint is False
            assert tool.annotations.open_world_hint is False


class TestRegistering:
    @pytest.mark.requirement("mcp.register_experiment")
    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"target_metric": "activation"},
            {"treatment_flag": {"name": "new_cart", "treatment": True}},
            {"treatment_flag": {"name": "new_cart", "treatment": 1, "control": 0}},
            {
                "deploy_id": "dep_1",
                "treatment_commit": "abc1234",
                "target_metric": {"name": "order_placed", "value_per_conversion": 40},
                "treatment_flag": {"name": "new-cart", "treatment": True, "control": False},
                "routes": ["/cart"],
            },
        ],
        ids=[
            "nothing",
            "a metric's name",
            "a flag of one value",
            "a flag of numbers",
            "all at once",
        ],
    )
    def test_what_is_given_is_passed_on_and_nothing_else(self, service, call, given) -> None:
        service.answers_with("/v1/reward/register", {"experiment_id": "exp_1"}, status=201)
        result = call("register_experiment", given)
        assert result.structured_content == {"experiment_id": "exp_1"}
        assert json.loads(texts(result)[0]) == {"experiment_id": "exp_1"}
        assert service.requests[0]["body"] == given


@pytest.fixture
def subscribed(in_session) -> Any:
    """Subscribes as a client that asks for progress: the result, and what was reported."""

    def run(**where: Any) -> tuple[Any, list[tuple[float, float | None, str | None]]]:
        reports: list[tuple[float, float | None, str | None]] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reports.append((progress, total, message))

        async def call(client: Client) -> Any:
            arguments = {"experiment_id": "exp_1"}
            return await client.call_tool("subscribe", arguments, progress_callback=report)

        # The token is the wire's: only JSON-RPC carries it.
        return in_session(call, mode="legacy", **where), reports

    return run


class TestPolling:
    @pytest.mark.requirement("contract.mcp", "mcp.get_verdict")
    @pytest.mark.parametrize("contract", [KEEP, WAITING], ids=["keep", "abstain"])
    def test_the_structured_content_is_the_contract_unchanged(
        self, service, call, contract
    ) -> None:
        service.answers_with("/v1/reward/exp_1", contract)
        result = call("get_verdict", {"experiment_id": "exp_1"})
        assert not result.is_error
        assert result.structured_content == contract
        assert list(json.loads(texts(result)[0])) == list(contract)
        assert json.loads(texts(result)[0]) == contract

    @pytest.mark.requirement("mcp.subscribe", "version.subscribe")
    def test_subscribing_is_one_poll_equal_to_get_verdict(self, service, call) -> None:
        service.answers_with("/v1/reward/exp_1", WAITING)
        polled = call("get_verdict", {"experiment_id": "exp_1"})
        asked = len(service.requests)
        subscribed = call("subscribe", {"experiment_id": "exp_1"})
        assert service.requests[asked:] == service.requests[:asked]
        assert subscribed.structured_content == polled.structured_content
        assert texts(subscribed) == texts(polled)

    @pytest.mark.requirement("mcp.subscribe")
    @pytest.mark.parametrize(
        ("status", "evidence", "reported"),
        [
            (200, EVIDENCE, [(9000, 24000, "9,000 of about 24,000 sessions.")]),
            (
                404,
                {"code": "no_evidence_yet", "detail": "No look."},
                [(0, None, "No look at the traffic yet.")],
            ),
            (500, "no", []),
        ],
        ids=["sessions", "no look", "no evidence to be had"],
    )
    def test_subscribing_reports_to_a_client_that_asks_for_progress(
        self, service, subscribed, status, evidence, reported
    ) -> None:
        service.answers_with("/v1/reward/exp_1", WAITING)
        service.answers_with("/v1/reward/exp_1/evidence", evidence, status=status)
        result, reports = subscribed()
        assert result.structured_content == WAITING
        assert reports == reported

    @pytest.mark.timeout(30)
    def test_subscribing_does_not_wait_for_evidence_that_is_long_in_coming(
        self, service, subscribed
    ) -> None:
        service.answers_with("/v1/reward/exp_1", WAITING)
        service.silent_at = {"/v1/reward/exp_1/evidence"}
        result, reports = subscribed(answer_seconds=60)
        assert result.structured_content == WAITING
        assert reports == []

    def test_subscribing_to_nothing_fails_as_a_poll_does(self, service, call, subscribed) -> None:
        for path in ("/v1/reward/exp_1", "/v1/reward/exp_1/evidence"):
            service.problem(path, 404, "None.", code="unknown_experiment")
        result, reports = subscribed()
        assert texts(result) == texts(call("get_verdict", {"experiment_id": "exp_1"}))
        assert reports == []

    def test_members_of_a_later_version_do_not_enter_the_contract(self, service, call) -> None:
        service.answers_with("/v1/reward/exp_1", KEEP | {"novelty": 1})
        result = call("get_verdict", {"experiment_id": "exp_1"})
        assert result.structured_content == KEEP

    @pytest.mark.requirement("mcp.action.abstain")
    def test_the_second_text_says_what_to_do_and_when_to_look_again(self, service, call) -> None:
        service.answers_with("/v1/reward/exp_1", WAITING, headers={"Retry-After": "280"})
        advice = texts(call("get_verdict", {"experiment_id": "exp_1"}))[1]
        assert "more traffic" in advice
        assert "abstain_reason" in advice
        assert "in 5 minutes" in advice

    @pytest.mark.parametrize(
        "name",
        [
            *("gate", "register", "checklist", "portfolio", "ledger", "freeze", "..", "."),
            *("../healthz", "../../admin?a"),
        ],
    )
    def test_another_endpoint_is_not_reached_as_if_it_were_an_experiment(
        self, service, call, name
    ) -> None:
        refused = f"{name!r} is no experiment's identifier."
        assert refused in error(call("get_verdict", {"experiment_id": name}))
        assert service.requests == []
        assert refused in error(call("explain", {"experiment_id": name}))


NOT_OURS = {
    "/v1/reward/exp_1": [
        {name: value for name, value in KEEP.items() if name != "cadence"},
        *(KEEP | wrong for wrong in ({"lift": "0.01"}, {"verdict": "maybe"}, {"ci": [0.1]})),
        *([], "[" * 100_000, '{"lift": NaN}', "\u00ed\u00b2\u0080", ""),
    ],
    "/v1/reward?status=open&limit=5": [
        [],
        *({"experiments": rows, "next_cursor": None} for rows in ([{}], None)),
        *(
            {"experiments": [listed_row(**wrong)] * times, "next_cursor": None}
            for wrong, times in (({"metric": 7}, 1), ({"experiment_id": "x" * 5000}, 1), ({}, 6))
        ),
    ],
    "/v1/reward/checklist": [[1, 2]],
}
ASKED = dict(zip(NOT_OURS, ("get_verdict", "list_experiments", "set_up"), strict=True))


@pytest.mark.parametrize("path", NOT_OURS)
def test_what_is_no_answer_of_the_service_is_an_error(service, call, path) -> None:
    for body in NOT_OURS[path]:
        service.answers_with(path, body)
        arguments = {"experiment_id": "exp_1"} if "exp_1" in path else {}
        assert "SERVICE_API_URL" in error(call(ASKED[path], arguments)), body


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("get_verdict", {}, ["experiment_id: Field required"]),
        (
            "register_experiment",
            {"treatment_comit": "abc1234"},
            ["treatment_comit", "treatment_commit"],
        ),
        ("register_experiment", {"routes": {"secret": "canary"}}, ["routes"]),
        (
            "register_experiment",
            {"target_metric": 5},
            ["target_metric: must be a string or an object of name (a string), value_per_conver"],
        ),
        (
            "register_experiment",
            {"target_metric": {"name": "order", "value_per_conversion": True}},
            ["value_per_conversion (a number)"],
        ),
        ("register_experiment", {"metadata": {"note": "\ud800"}}, ["Correct the arguments"]),
        ("launch", {}, ["Unknown tool: launch", "get_verdict"]),
    ],
    ids=[
        "missing",
        "unknown",
        "of another type",
        "a number",
        "a yes for a number",
        "half a surrogate pair",
        "no such tool",
    ],
)
def test_a_wrong_call_is_an_error_that_names_what_is_wrong_and_asks_nobody(
    service, call, tool, arguments, said
) -> None:
    text = error(call(tool, arguments))
    assert all(word in text for word in said)
    assert "canary" not in text, "a wrong value is not repeated"
    assert "pydantic" not in text
    assert service.requests == []


def row(number: int, **members: Any) -> dict[str, Any]:
    commit = {"treatment_commit": "4f2a9c1d4f2a9c1d4f2a9c1d"}
    return listed_row(**{"experiment_id": f"exp_{number}", **commit, **members})


def page(*rows: dict[str, Any], next_cursor: str | None = None) -> dict[str, Any]:
    return {"experiments": list(rows), "next_cursor": next_cursor}


FIRST = "/v1/reward?status=open&limit=5"


class TestListing:
    def test_the_open_experiments_are_told_by_what_finds_them(self, service, call) -> None:
        service.answers_with(FIRST, page(row(1)))
        result = call("list_experiments")
        assert result.structured_content == {
            "experiments": [
                {
                    "experiment_id": "exp_1",
                    "treatment_commit": "4f2a9c1d4f2a9c1d4f2a9c1d",
                    "metric": "activation",
                    "headline": "Can't say yet",
                    "action": "wait",
                    "contract": WAITING,
                }
            ],
            "next_cursor": None,
        }
        assert texts(result)[1] == "There are no more."

    def test_decided_experiments_are_listed_on_demand(self, service, call) -> None:
        decided = row(1, contract=KEEP, treatment_commit=None)
        service.answers_with("/v1/reward?status=decided&limit=5", page(decided))
        (listed,) = call("list_experiments", {"status": "decided"}).structured_content[
            "experiments"
        ]
        assert (listed["contract"], listed["treatment_commit"]) == (KEEP, None)

    def test_without_any_it_says_how_one_begins(self, service, call) -> None:
        service.answers_with(FIRST, page())
        assert "register_experiment begins an experiment" in texts(call("list_experiments"))[1]


CHECKLIST = [
    {"check": "events", "ok": True, "seen": "3.", "fix": ""},
    {"check": "commit on events", "ok": False, "seen": "0.", "fix": "Send commit."},
]


REGISTRATION = {
    **dict.fromkeys(name for name in RegistrationAnswer.__struct_fields__),
    "retrospective": False,
    "experiment_id": "exp_1",
    "registered_at": "2026-05-02T10:00:00Z",
    "environment": "production",
    "metric": "activation",
    **dict.fromkeys(("joint_with", "never_received", "received"), ()),
    "attempt": 1,
    "situation": {"state": "comparing", "action": "wait", "advice": ["Leave it running."]},
}


def registration(state: str, action: str, sentence: str, **members: Any) -> dict[str, Any]:
    known = {"state": state, "action": action, "sentence": sentence}
    return {**REGISTRATION, "situation": {**REGISTRATION["situation"], **known}, **members}


MOVED = {
    "rebase_on": "b1" * 20,
    "changes": ["c0ffee12"],
    "since": "2026-05-02T10:00:00Z",
    "continues": True,
}


class TestWhatNoWaitingBrings:
    """A deploy that did not come, and a control that nobody gets any more."""

    def test_a_poll_of_what_waits_for_its_deploy_says_so_and_asks_for_no_more_polls(
        self, service, call
    ) -> None:
        service.answers_with("/v1/reward/exp_1", WAITING)
        sentence = "It begins with a deploy of c0ffee12 to production."
        waits = registration("waits_for_deploy", "wait", sentence)
        service.answers_with("/v1/reward/exp_1/registration", waits)
        result = call("get_verdict", {"experiment_id": "exp_1"})
        assert result.structured_content == WAITING
        said = texts(result)[1]
        assert said.startswith(sentence)
        assert "Do not poll" in said
        assert len(said) <= 300

    def test_registering_names_what_an_effect_is_measured_together_with(
        self, service, call
    ) -> None:
        service.answers_with("/v1/reward/register", {"experiment_id": "exp_1"}, status=201)
        service.answers_with(
            "/v1/reward/exp_1/registration", {**REGISTRATION, "joint_with": ["b0b0b0b0"]}
        )
        assert "together with that of b0b0b0b0" in texts(call("register_experiment"))[1]

    def test_a_moved_base_is_told_by_a_poll_and_explained_with_what_to_post(
        self, service, call
    ) -> None:
        service.answers_with("/v1/reward/exp_1", WAITING)
        service.answers_with("/v1/reward/exp_1/evidence", EVIDENCE)
        service.answers_with("/v1/reward/checklist", CHECKLIST)
        moved = registration("base_gone", "rebase", "Users have b1b1b1b1b1b1.", base_moved=MOVED)
        service.answers_with("/v1/reward/exp_1/registration", moved)
        said = texts(call("get_verdict", {"experiment_id": "exp_1"}))[1]
        assert "Users have b1b1b1b1b1b1." in said
        assert "Call explain" in said
        explained = call("explain", {"experiment_id": "exp_1"}).structured_content
        assert explained["evidence"]["base_moved"] == {
            "rebase_on": "b1" * 20,
            "changes": ["c0ffee12"],
            "continues": True,
        }


class TestExplaining:
    def test_it_says_what_is_known_how_far_and_what_is_wired_wrong(self, service, call) -> None:
        service.answers_with("/v1/reward/exp_1/evidence", EVIDENCE)
        own = {"check": "target seen", "ok": False, "seen": "None.", "fix": "Send it."}
        mine = {**own, "experiment_id": "exp_1"}
        service.answers_with("/v1/reward/checklist", [*CHECKLIST, own, mine])
        assert call("explain", {"experiment_id": "exp_1"}).structured_content == {
            "evidence": {
                "experiment_id": "exp_1",
                "policy": {"attempt": 1},
                "sentence": "Can't say yet on activation.",
                "known": {"sentence": "A loss beyond 12 % is excluded."},
                "effect": {
                    "estimate": 0.012,
                    "standard_error": 0.009,
                    "relative": 0.06,
                    "likelihood": None,
                    "final": False,
                    "trainable": False,
                    "learned": None,
                    "credible": None,
                    "reward_at": "2026-10-08T00:00:00Z",
                },
                "metrics": [
                    {
                        "metric": "activation",
                        "state": "not_known",
                        "control": 0.2,
                        "treatment": 0.212,
                        "interval": [-0.02, 0.044],
                    }
                ],
                "base_moved": None,
                "sessions": {
                    "accumulated": 9000,
                    "required": 24000,
                    "per_day": 8000,
                    "projected_decision_at": "2026-05-04T10:00:00Z",
                },
                "warnings": ["metric_never_seen"],
            },
            "faults": [{"check": "target seen", "seen": "None.", "fix": "Send it."}],
            "left_out": 0,
        }

    def test_after_a_decision_it_gives_the_effect_that_was_measured_since(
        self, service, call
    ) -> None:
        decided = {**EVIDENCE["effect"], "basis": "at_decision"}
        service.answers_with("/v1/reward/exp_1/evidence", {**EVIDENCE, "effect": decided})
        fresh = {**decided, "basis": "at_reward", "estimate": 0.008, "final": True}
        service.answers_with("/v1/reward/exp_1/effect", {**fresh, "trainable": True})
        explained = call("explain", {"experiment_id": "exp_1"}).structured_content
        effect = explained["evidence"]["effect"]
        assert (effect["trainable"], effect["estimate"]) == (True, 0.008)

    def test_without_a_checklist_the_rest_still_stands(self, service, call) -> None:
        service.answers_with("/v1/reward/exp_1/evidence", EVIDENCE)
        explained = call("explain", {"experiment_id": "exp_1"}).structured_content
        assert explained["faults"] is None
        assert explained["evidence"]["known"]


class TestCheckingTheSetUp:
    def test_what_is_red_comes_with_what_was_seen_and_its_fix(self, service, call) -> None:
        lines = [
            {"check": "events", "ok": True, "seen": "20 events.", "fix": ""},
            {"check": "commit known", "ok": False, "seen": "0 of 20.", "fix": "Record it."},
            {"check": "routes matched", "ok": False, "seen": "None.", "fix": "Send it."},
            {"check": "crossover", "ok": None, "seen": "No experiment.", "fix": "Register."},
        ]
        service.answers_with("/v1/reward/checklist", lines)
        step = call("set_up").structured_content
        red = [{name: line[name] for name in ("check", "seen", "fix")} for line in lines[1:3]]
        assert step["red"] == red
        assert (step["step"], step["done"], step["of"]) == (red[0], 1, 4)
        assert step["left_out"] == 0

    def test_it_stays_within_four_kilobytes_and_leaves_the_red_lines_out_last(
        self, service, call
    ) -> None:
        lines = [
            {"check": f"check {number}", "ok": number > 14, "seen": "é" * 100, "fix": "x" * 100}
            for number in range(20)
        ]
        service.answers_with("/v1/reward/checklist", lines)
        (text,) = texts(call("set_up"))
        answer = json.loads(text)
        assert len(text.encode()) <= 4096
        assert answer["step"]["fix"]
        assert 0 < len(answer["red"]) == 15 - answer["left_out"] < 15
