"""`POST /v1/events`: what is stored of which events, and what is answered."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from storage.log.events import note_names
from storage.postgres.refusal import Invalid
from storage.schema.tables import runtime_events
from storage.tenants.keys import KeyKind
from storage.upkeep.retention import delete_old_names
from tests.processes.api_process import eventually

PATH = "/v1/events"


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


def rows(tenant: Any) -> list[Any]:
    query = select(runtime_events).where(runtime_events.c.project_id == tenant.project_id)
    ordered = query.order_by(runtime_events.c.session_id)
    return tenant.in_store(lambda connection: connection.execute(ordered).all())


def sent(tenant: Any, body: Any, **options: Any) -> Any:
    return tenant.client.post(PATH, json=body, **{"headers": tenant.public, **options})


@pytest.mark.requirement("endpoint.events", "inbound.runtime", "runtime-event.sender")
def test_one_event_is_stored_with_every_member_it_names(tenant) -> None:
    occurred_at = datetime.now(UTC) - timedelta(hours=1)
    answer = sent(
        tenant,
        {
            "event": "page_view",
            "session_id": "s-1",
            "occurred_at": occurred_at.isoformat(),
            "commit": "ABCDEF1",
            "flags": {"new_checkout": True, "theme": "dark"},
            "route": "/checkout/[id]/?email=someone@example.org",
            "environment": "staging",
            "user_ref": "someone",
            "event_id": "e-1",
            "value": 12,
            "properties": {"deep": [1, {"er": None}]},
        },
    )
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1, "late": 0, "rejected": []})
    (row,) = rows(tenant)
    assert (row.event, row.session_id, row.environment) == ("page_view", "s-1", "staging")
    assert (row.occurred_at, row.commit_sha) == (occurred_at, "abcdef1")
    assert row.route == "/checkout/[id]"
    assert (row.flags, row.value) == ({"new_checkout": True, "theme": "dark"}, 12_000_000)
    assert row.properties == {"deep": [1, {"er": None}]}
    assert (row.event_id, len(row.pseudonym), row.trusted) == ("e-1", 32, False)


def test_an_event_without_a_time_occurred_when_it_was_received_and_the_write_key_s_is_trusted(
    tenant, runtime_event
) -> None:
    assert sent(tenant, runtime_event).status_code == 202
    (row,) = rows(tenant)
    assert abs(row.occurred_at - row.received_at) < timedelta(seconds=5)
    assert (row.environment, row.trusted) == ("production", False)
    assert tenant.post(PATH, runtime_event).status_code == 202
    assert {row.trusted for row in rows(tenant)} == {False, True}


def test_valid_events_of_a_batch_are_stored_although_others_are_rejected(tenant) -> None:
    answer = sent(
        tenant,
        {
            "events": [
                {"event": "a", "session_id": "s-0"},
                {"event": "a"},
                {"event": "a", "session_id": "s-2", "occurred_at": "2026-01-01 00:00"},
                {"event": "", "session_id": "s-3"},
                7,
                {"event": "a", "session_id": "s-5", "commit": "abcdefg"},
                {"event": "a", "session_id": "s-6"},
            ]
        },
    )
    assert answer.status_code == 202
    document = answer.json()
    assert (document["accepted"], document["late"]) == (2, 0)
    assert [
        (each["index"], [(error["pointer"], error["code"]) for error in each["errors"]])
        for each in document["rejected"]
    ] == [
        (1, [("/events/1/session_id", "missing")]),
        (2, [("/events/2/occurred_at", "invalid_time")]),
        (3, [("/events/3/event", "invalid_member")]),
        (4, [("/events/4", "invalid_member")]),
        (5, [("/events/5/commit", "invalid_member")]),
    ]
    assert [row.session_id for row in rows(tenant)] == ["s-0", "s-6"]


def test_a_batch_without_a_valid_event_is_422_with_the_same_errors(tenant) -> None:
    answer = sent(tenant, {"events": [{"event": "a"}, {"session_id": "s"}]})
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [
        "/events/0/session_id",
        "/events/1/event",
    ]
    for events in ([], {}):
        answer = sent(tenant, {"events": events})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/events")
    assert rows(tenant) == []


def test_unknown_members_are_ignored_and_named_once(tenant) -> None:
    event = {"event": "a", "session_id": "s", "colour": 1}
    answer = sent(tenant, {"events": [event, {**event, "shape": [[]]}], "sdk": "2"})
    assert (answer.status_code, answer.json()["ignored"]) == (202, ["colour", "sdk", "shape"])
    assert answer.json()["accepted"] == 2


# The longest window of the defaults is 14 days, the grace two minutes.
@pytest.mark.parametrize(
    ("chosen", "age", "late"),
    [
        ({}, {"days": 14}, 0),
        ({}, {"days": 14, "minutes": 2, "seconds": 1}, 1),
        ({"metrics": {"slow": {"window_seconds": 28 * 86_400}}}, {"days": 20}, 0),
        (
            {"metrics": {"order": {"window_seconds": 86_400, "grace_seconds": 7 * 86_400}}},
            {"days": 7.9},
            0,
        ),
    ],
    ids=["in the window", "after its grace", "in the longest window", "in a metric's own grace"],
)
def test_late_events_are_accepted_and_counted(tenant, chosen, age, late) -> None:
    tenant.settings(**chosen)
    event = {"event": "a", "session_id": "1", "occurred_at": ago(**age)}
    answer = sent(tenant, event).json()
    assert (answer["accepted"], answer["late"]) == (1, late)


class TestAHistory:
    def test_is_received_when_it_occurred(self, tenant) -> None:
        occurred_at = datetime(2025, 3, 1, 12, tzinfo=UTC)
        event = {"event": "a", "session_id": "s", "occurred_at": occurred_at.isoformat()}
        answer = tenant.post(f"{PATH}?replay=true", event)
        assert (answer.status_code, answer.json()["late"]) == (202, 0)
        (row,) = rows(tenant)
        assert row.received_at == row.occurred_at == occurred_at

    def test_is_asked_for_by_true_and_the_write_key_and_says_when_its_events_occurred(
        self, tenant, runtime_event
    ) -> None:
        assert sent(tenant, runtime_event, params={"replay": "true"}).status_code == 403
        answer = tenant.post(f"{PATH}?replay=yes", runtime_event)
        assert answer.json()["errors"][0]["parameter"] == "replay"
        answer = tenant.post(f"{PATH}?replay=true", runtime_event)
        assert answer.json()["errors"][0] == {
            "pointer": "/occurred_at",
            "code": "missing",
            "detail": "history must say when it occurred",
        }

    def test_is_closed_where_a_bound_experiment_measures(self, tenant) -> None:
        for sha, day in (("aaaaaaa", "01"), ("bbbbbbb", "02")):
            tenant.deploy(sha, deployed_at=f"2026-01-{day}T00:00:00Z")
        tenant.register()
        before, after = (
            {"event": "a", "session_id": "s", "occurred_at": f"2026-01-0{day}T12:00:00Z"}
            for day in (1, 3)
        )
        refused = tenant.post(f"{PATH}?replay=true", {"events": [before, after]})
        assert (refused.status_code, refused.json()["code"]) == (409, "history_closed")
        assert rows(tenant) == []
        assert tenant.post(f"{PATH}?replay=true", before).status_code == 202
        elsewhere = {**after, "environment": "staging"}
        assert tenant.post(f"{PATH}?replay=true", elsewhere).status_code == 202


class TestABrowser:
    def test_sends_a_beacon_as_text_with_the_key_in_the_address(
        self, tenant, runtime_event
    ) -> None:
        key = tenant.project.keys[KeyKind.PUBLIC]
        answer = tenant.client.post(
            f"{PATH}?key={key}",
            content=json.dumps(runtime_event),
            headers={"Content-Type": "text/plain;charset=UTF-8", "Origin": "https://shop.example"},
        )
        assert answer.status_code == 202
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"

    def test_may_ask_first(self, tenant) -> None:
        answer = tenant.client.options(
            PATH,
            headers={
                "Origin": "https://shop.example",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "x-service-project-key,content-type",
            },
        )
        assert answer.status_code == 204
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        assert "X-Service-Project-Key" in answer.headers["Access-Control-Allow-Headers"]
        assert "POST" in answer.headers["Access-Control-Allow-Methods"]

    def test_of_an_origin_that_the_project_does_not_name_is_refused(
        self, tenant, runtime_event
    ) -> None:
        tenant.settings(allowed_origins=["https://shop.example"])
        key = tenant.project.keys[KeyKind.PUBLIC]
        for origin, status in (("https://evil.example", 403), ("https://shop.example", 202)):
            answer = sent(tenant, runtime_event, headers={**tenant.public, "Origin": origin})
            assert answer.status_code == status
            allowed = "Access-Control-Allow-Origin" in answer.headers
            assert allowed == (status == 202)
        asked = tenant.client.options(
            f"{PATH}?key={key}", headers={"Origin": "https://evil.example"}
        )
        assert asked.status_code == 403
        assert "Access-Control-Allow-Origin" not in asked.headers
        # A server sends no Origin.
        assert sent(tenant, runtime_event).status_code == 202

    def test_reads_problems_too(self, tenant) -> None:
        answer = tenant.client.post(PATH, json={}, headers={"Origin": "https://shop.example"})
        assert answer.status_code == 401
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"

    @pytest.mark.requirement("key.write.secret")
    def test_is_let_in_where_events_come_alone(self, tenant) -> None:
        origin = {"Origin": "https://shop.example"}
        documented = tenant.client.get("/openapi.json").json()["paths"]
        paths = {path: operations for path, operations in documented.items() if path[:4] == "/v1/"}
        for path, operations in paths.items():
            for method in ("options", *operations):
                answer = tenant.client.request(method, path, headers={**tenant.write, **origin})
                let_in = "Access-Control-Allow-Origin" in answer.headers
                assert let_in == (path in (PATH, "/v1/logs")), (method, path)


def test_gzip_is_inflated_and_400_where_it_is_broken(tenant, runtime_event) -> None:
    whole = gzip.compress(json.dumps(runtime_event).encode())
    encoded = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    for content, status in ((whole, 202), (b"{}", 400), (whole[:-9], 400), (whole + b"x", 400)):
        answer = tenant.client.post(PATH, content=content, headers={**tenant.public, **encoded})
        assert answer.status_code == status
        assert answer.json().get("code") == (None if status == 202 else "invalid_encoding")


class TestTheLimits:
    @pytest.mark.requirement("limit.rate.key")
    def test_end_a_keys_minute_with_when_to_come_back(self, tenant, runtime_event) -> None:
        tenant.settings(rate_limits={"per_key": 3, "per_address": 100})
        answers = [sent(tenant, runtime_event) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [202, 202, 202, 429]
        left = [answer.headers["RateLimit"].partition(";t=")[0] for answer in answers]
        assert left == ['"key";r=2', '"key";r=1', '"key";r=0', '"key";r=0']
        assert answers[0].headers["RateLimit-Policy"] == '"key";q=3;w=60'
        refused = sent(tenant, runtime_event)
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert refused.headers["RateLimit-Policy"] == '"key";q=3;w=60'
        assert refused.headers["RateLimit"].startswith('"key";r=0;t=')
        # Another key of the same project has a minute of its own.
        other = {"X-Service-Project-Key": tenant.new_key(KeyKind.PUBLIC)}
        assert sent(tenant, runtime_event, headers=other).status_code == 202

    @pytest.mark.requirement("limit.rate.address")
    def test_end_an_addresss_minute(self, tenant, runtime_event) -> None:
        tenant.settings(rate_limits={"per_key": 100, "per_address": 2})
        other = {"X-Service-Project-Key": tenant.new_key(KeyKind.PUBLIC)}
        statuses = [
            sent(tenant, runtime_event, headers=key).status_code
            for key in (tenant.public, other, tenant.public, other)
        ]
        assert statuses == [202, 202, 429, 429]


@pytest.mark.parametrize(
    ("member", "value", "status"),
    [
        ("properties", [], 422),
        ("flags", {"f": 1}, 202),
        ("flags", {"f": [1]}, 422),
        ("value", 1e9, 202),
        ("value", -1e9, 202),
        ("value", 1_000_000_000.0000002, 422),
        ("value", True, 422),
        ("value", "1", 422),
        ("commit", "f" * 64, 202),
        ("commit", None, 202),
        ("session_id", "", 422),
        ("session_id", 5, 422),
    ],
)
def test_a_member_is_held_to_its_rule(tenant, member, value, status) -> None:
    answer = sent(tenant, {"event": "a", "session_id": "s", member: value})
    assert answer.status_code == status
    if status == 422:
        assert answer.json()["errors"][0]["pointer"].startswith(f"/{member}")


@pytest.mark.parametrize("more", [{}, {"unheard_of": 1}], ids=["known members", "an unknown one"])
@pytest.mark.parametrize("path", ["/v1/events", "/v1/events?replay=true"])
def test_a_value_beyond_the_bound_rejects_its_own_event_alone(
    tenant, runtime_event, path, more
) -> None:
    event = {**runtime_event, "occurred_at": "2026-10-01T00:00:00Z"}
    batch = [event, {**event, "value": 1e200, **more}, {**event, "value": 40.25}]
    answer = tenant.post(path, {"events": batch})
    assert answer.status_code == 202
    (rejected,) = answer.json()["rejected"]
    assert rejected["index"] == 1
    (error,) = rejected["errors"]
    assert (error["pointer"], error["code"]) == ("/events/1/value", "out_of_range")
    assert "from -1000000000 to 1000000000" in error["detail"]
    assert sorted(str(row.value) for row in rows(tenant)) == ["40250000", "None"]


def test_the_database_refuses_a_value_beyond_the_bound(tenant, runtime_event) -> None:
    assert sent(tenant, {**runtime_event, "value": 1e9}).status_code == 202
    with pytest.raises(IntegrityError, match="ck_runtime_events_value"):
        tenant.in_store(lambda c: c.execute(text("UPDATE runtime_events SET value = value + 1")))


# An accent typed as a character of its own, and as a single character with its letter.
APART, TOGETHER = "cafe\u0301", "caf\u00e9"


def test_a_name_is_the_same_however_its_accents_are_typed(tenant) -> None:
    tenant.settings(default_metric=APART, metrics={APART: {"sources": [APART]}})
    events = [{"event": name, "session_id": name} for name in (APART, TOGETHER)]
    assert sent(tenant, events[0]).status_code == 202
    assert sent(tenant, {"events": events}).json()["accepted"] == 2
    assert {row.event for row in rows(tenant)} == {TOGETHER}
    # A session is whatever its sender calls it.
    assert {row.session_id for row in rows(tenant)} == {APART, TOGETHER}
    registered = {
        tenant.post("/v1/reward/register", body).json()["experiment_id"]
        for body in (
            {"target_metric": {"name": TOGETHER, "value_per_conversion": 1}},
            {"target_metric": APART},
            {},
        )
    }
    assert len(registered) == 1
    listed = tenant.get("/v1/reward", params={"metric": APART}).json()["experiments"]
    assert [experiment["metric"] for experiment in listed] == [TOGETHER]


@pytest.mark.parametrize("name", ["a\nb", "a\u2028b", " a", "a ", "a\u00a0", "\t", "a\r"])
def test_a_name_with_a_line_break_or_spaces_around_it_is_refused(tenant, name) -> None:
    rule = "must be 1 to 128 characters without line breaks, and without spaces around them"
    fault = {"pointer": "/event", "code": "invalid_name", "detail": rule}
    wrong, right = {"event": name, "session_id": "s"}, {"event": "a b", "session_id": "s"}
    answer = sent(tenant, wrong)
    assert (answer.status_code, answer.json()["errors"]) == (422, [fault])
    answer = sent(tenant, {"events": [right, wrong]})
    assert answer.json()["accepted"] == 1
    assert answer.json()["rejected"] == [
        {"index": 1, "errors": [{**fault, "pointer": "/events/1/event"}]}
    ]
    for member, value in (("target_metric", name), ("guardrails", [name])):
        answer = tenant.post("/v1/reward/register", {member: value})
        assert (answer.status_code, answer.json()["errors"][0]["detail"]) == (422, rule)
    gate = tenant.get("/v1/reward/gate", params={"target_metric": name})
    assert (gate.status_code, gate.json()["errors"][0]["parameter"]) == (422, "target_metric")
    for chosen, pointer in (
        ({"default_metric": name}, "/default_metric"),
        ({"guardrails": ["error", name]}, "/guardrails/1"),
        ({"metrics": {name: {}}}, "/metrics/*"),
        ({"metrics": {"a": {"sources": [name]}}}, "/metrics/*/sources/0"),
    ):
        with pytest.raises(Invalid) as refused:
            tenant.settings(**chosen)
        assert refused.value.pointer == pointer


@pytest.mark.parametrize("commit", ["", "abc", "4f2a9c1d\n"])
def test_a_commit_that_is_none_is_refused_in_words(tenant, commit) -> None:
    answer = sent(tenant, {"event": "a", "session_id": "s", "commit": commit})
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == "/commit"
    assert fault["detail"] == (
        "must be 7 to 64 hexadecimal digits, as `git rev-parse HEAD` prints them"
    )


def test_a_member_named_twice_counts_as_the_last(tenant) -> None:
    content = b'{"event": "a", "event": "b", "session_id": "s"}'
    answer = tenant.client.post(
        PATH, content=content, headers={**tenant.public, "Content-Type": "application/json"}
    )
    assert answer.status_code == 202
    assert rows(tenant)[0].event == "b"


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800", "\\udc00", "\\udc00\\ud800"])
def test_text_that_the_store_cannot_hold_rejects_its_event_alone(tenant, text) -> None:
    first = f'{{"event": "a", "session_id": "s", "properties": {{"x": "{text}"}}}}'
    content = f'{{"events": [{first}, {{"event": "a", "session_id": "\\ud83d\\ude00"}}]}}'
    answer = tenant.client.post(
        PATH, content=content, headers={**tenant.public, "Content-Type": "application/json"}
    )
    assert answer.status_code == 202
    assert answer.json()["rejected"][0]["errors"] == [
        {
            "pointer": "/events/0/properties/x",
            "code": "unstorable_text",
            "detail": answer.json()["rejected"][0]["errors"][0]["detail"],
        }
    ]
    assert [row.session_id for row in rows(tenant)] == ["😀"]


def test_a_redelivered_event_is_stored_again_and_left_to_the_reader(tenant, runtime_event) -> None:
    for _ in range(2):
        assert sent(tenant, {**runtime_event, "event_id": "e"}).status_code == 202
    assert len(rows(tenant)) == 2


def test_the_name_of_every_event_is_noted_where_a_project_has_more_than_a_hundred(tenant) -> None:
    names = {*(f"event {number}" for number in range(120)), "order"}
    times = {"session_id": "s-1", "occurred_at": ago(minutes=1)}
    assert sent(tenant, {"events": [{**times, "event": name} for name in sorted(names)]}).is_success
    eventually(lambda: names_noted(tenant) == names)


def names_noted(tenant: Any) -> set[str]:
    noted = text("SELECT event FROM seen_names WHERE project_id = :id")
    return set(tenant.in_store(lambda c: c.execute(noted, {"id": tenant.project_id}).scalars()))


def test_names_that_a_public_key_invents_keep_no_other_waiting_and_are_bounded(tenant) -> None:
    unlimited = {"per_key": 100_000, "per_address": 100_000}
    tenant.settings(rate_limits=unlimited, metrics={"signup": {"sources": ["signed_up"]}})
    for batch in range(4):
        invented = [f"invented {batch} {number}" for number in range(500)]
        events = [{"event": name, "session_id": "s-1"} for name in invented]
        assert sent(tenant, {"events": events}).status_code == 202
    # A write key's name, and that of a project's metric by whatever key.
    assert tenant.post(PATH, {"event": "order_real", "session_id": "s-2"}).status_code == 202
    assert sent(tenant, {"event": "signed_up", "session_id": "s-3"}).status_code == 202

    eventually(lambda: {"order_real", "signed_up"} <= names_noted(tenant), seconds=10)
    # All that will ever be noted: a bound in the process, and another in the store.
    eventually(lambda: len(names_noted(tenant)) >= 1001)
    noted = names_noted(tenant)
    more = [f"another server's {number}" for number in range(50)]
    tenant.in_store(lambda c: note_names(c, {tenant.project_id: more}, vouched=False))
    assert names_noted(tenant) == noted

    in_a_month = datetime.now(UTC) + timedelta(days=29)
    assert tenant.in_store(lambda c: delete_old_names(c, as_of=in_a_month)) >= 1001
    assert names_noted(tenant) == set()
