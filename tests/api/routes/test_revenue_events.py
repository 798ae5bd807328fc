"""`POST /v1/revenue/events`: what counts as money, and what counts once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Text, cast, func, select

from storage.schema.tables import revenue_events
from tests.world import World

PATH = "/v1/revenue/events"
MONETARY = ("trial_to_paid", "subscription_renewed", "expansion")
FUNNEL = ("signup_completed", "trial_started", "paywall_viewed", "activation")


@pytest.fixture
def service(tenant: World) -> World:
    """A project of the test's own: no test here asks of its store what else is in it."""
    return tenant


def rows(service: Any, *others: int) -> list[Any]:
    """The stored events of the project, and of others."""
    told = select(revenue_events).where(
        revenue_events.c.project_id.in_([service.project_id, *others])
    )
    return service.in_store(lambda connection: connection.execute(told).all())


def faults(answer: Any) -> list[tuple[str, str]]:
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


def without(event: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


@pytest.mark.requirement("revenue.user_ref", "endpoint.revenue", "endpoint.revenue.single")
def test_an_event_is_stored_once_with_a_pseudonym_for_its_user(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    event = {**revenue_event, "attributes": {"provider": "stripe", "environment": "staging"}}
    answer = service.post(PATH, event)
    assert answer.status_code == 200
    assert answer.json() == {
        "accepted": 1,
        "duplicates": 0,
        "results": [{"index": 0, "idempotency_key": "invoice-1", "status": "accepted"}],
    }
    (row,) = rows(service)
    assert (row.amount_value, row.amount_currency, row.environment) == (4900, "USD", "staging")
    whole = select(cast(func.to_jsonb(revenue_events.table_valued()), Text)).where(
        revenue_events.c.project_id == service.project_id
    )
    assert "workspace-17" not in service.in_store(lambda c: c.execute(whole).scalar_one())


@pytest.mark.requirement("revenue.idempotency_key")
def test_the_same_event_again_is_a_duplicate_however_it_is_written(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    assert service.post(PATH, revenue_event).json()["accepted"] == 1
    again = {
        **revenue_event,
        "occurred_at": "2026-01-31T14:00:00.000+02:00",
        "amount": {"currency": "usd", "value": 4900},
    }
    assert service.post(PATH, again).json()["results"][0]["status"] == "duplicate"
    assert len(rows(service)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"amount": {"value": 4901, "currency": "USD"}},
        {"amount": {"value": 4900, "currency": "EUR"}},
        {"occurred_at": "2026-01-31T12:00:01Z"},
        {"user_ref": "workspace-18"},
        {"event": "expansion"},
        {"attributes": {"plan": "team"}},
    ],
)
def test_a_key_used_with_another_payload_is_a_conflict_and_nothing_is_stored(
    service: Any, revenue_event: dict[str, Any], change: dict[str, Any]
) -> None:
    service.post(PATH, revenue_event)
    fresh = {**revenue_event, "idempotency_key": "invoice-2"}
    answer = service.post(PATH, {"events": [fresh, {**revenue_event, **change}]})
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")
    assert "invoice-1" in answer.json()["detail"]
    assert len(rows(service)) == 1


def test_duplicates_inside_one_batch_count_as_duplicates_of_each_other(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    told = service.post(PATH, {"events": [revenue_event, revenue_event]}).json()
    assert (told["accepted"], told["duplicates"]) == (1, 1)
    assert [one["status"] for one in told["results"]] == ["accepted", "duplicate"]


def test_two_payloads_under_one_key_in_one_batch_are_a_conflict(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    other = {**revenue_event, "user_ref": "workspace-18"}
    assert service.post(PATH, {"events": [revenue_event, other]}).status_code == 409
    assert rows(service) == []


def test_a_batch_is_stored_whole_or_not_at_all(service: Any, revenue_event: dict[str, Any]) -> None:
    bad = {**without(revenue_event, "user_ref"), "idempotency_key": "2"}
    worse = {**revenue_event, "amount": {"value": "1", "currency": "USDX"}, "event": "refund"}
    answer = service.post(PATH, {"events": [revenue_event, bad, worse]})
    assert answer.status_code == 422
    assert faults(answer) == [
        ("/events/1/user_ref", "missing"),
        ("/events/2/event", "literal_error"),
        ("/events/2/amount/value", "int_type"),
        ("/events/2/amount/currency", "string_pattern_mismatch"),
    ]
    assert rows(service) == []


@pytest.mark.requirement("limit.idempotency-scope", "revenue.user_ref")
def test_keys_are_of_one_project(service: Any, revenue_event: dict[str, Any]) -> None:
    other = service.new_project(f"beside {service.project.name}")
    for key in (service.write, {"X-Service-Project-Key": other.keys["write"]}):
        answer = service.post(PATH, revenue_event, headers=key)
        assert answer.json()["accepted"] == 1
    mine, theirs = (row.pseudonym for row in rows(service, other.project_id))
    assert mine != theirs


@pytest.mark.requirement("auth.revenue.bearer")
def test_a_forwarder_may_send_the_write_key_as_bearer(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    key = service.write["X-Service-Project-Key"]
    answer = service.post(PATH, revenue_event, headers={"Authorization": f"bearer {key}"})
    assert answer.status_code == 200


@pytest.mark.requirement("revenue.amount", "endpoint.revenue.monetary")
@pytest.mark.parametrize("event", MONETARY)
def test_a_monetary_event_carries_an_amount(
    service: Any, revenue_event: dict[str, Any], event: str
) -> None:
    assert service.post(PATH, {**revenue_event, "event": event}).status_code == 200
    answer = service.post(PATH, {**without(revenue_event, "amount"), "event": event})
    assert (answer.status_code, faults(answer)) == (422, [("/amount", "missing")])


@pytest.mark.requirement("revenue.amount", "endpoint.revenue.funnel")
@pytest.mark.parametrize("event", FUNNEL)
def test_a_funnel_event_carries_no_amount(
    service: Any, revenue_event: dict[str, Any], event: str
) -> None:
    assert (
        service.post(PATH, {**without(revenue_event, "amount"), "event": event}).status_code == 200
    )
    answer = service.post(PATH, {**revenue_event, "event": event})
    assert (answer.status_code, faults(answer)) == (422, [("/amount", "amount_of_funnel_event")])


def test_a_churn_may_carry_an_amount(service: Any, revenue_event: dict[str, Any]) -> None:
    churned = {**revenue_event, "event": "subscription_churned"}
    assert service.post(PATH, churned).status_code == 200
    free = {**without(churned, "amount"), "idempotency_key": "2"}
    assert service.post(PATH, free).status_code == 200


@pytest.mark.requirement("revenue.amount.value")
@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("0", 200),
        ("9223372036854775807", 200),
        ("9223372036854775808", 422),
        ("-1", 422),
        ("12.0", 422),
        ("1e2", 422),
        ("true", 422),
        ('"12"', 422),
        ("null", 422),
    ],
)
def test_an_amount_is_a_whole_number_of_minor_units(service: Any, value: str, status: int) -> None:
    content = (
        '{"event": "expansion", "occurred_at": "2026-01-31T12:00:00Z", "user_ref": "u",'
        f' "idempotency_key": "k", "amount": {{"value": {value}, "currency": "EUR"}}}}'
    )
    answer = service.client.post(
        PATH, content=content, headers={**service.write, "Content-Type": "application/json"}
    )
    assert answer.status_code == status
    if status == 422:
        assert answer.json()["errors"][0]["pointer"] == "/amount/value"


@pytest.mark.requirement("revenue.amount.currency")
@pytest.mark.parametrize(
    ("currency", "status"),
    [("JPY", 200), ("eur", 200), ("EURO", 422), ("E1R", 422), ("ZZZ", 422), ("ﬀa", 422), ("", 422)],
)
def test_a_currency_is_known_to_iso_4217(
    service: Any, revenue_event: dict[str, Any], currency: str, status: int
) -> None:
    event = {**revenue_event, "amount": {"value": 1, "currency": currency}}
    assert service.post(PATH, event).status_code == status


@pytest.mark.parametrize("member", ["event", "occurred_at", "user_ref", "idempotency_key"])
def test_a_required_member_is_named_when_it_is_missing(
    service: Any, revenue_event: dict[str, Any], member: str
) -> None:
    assert (f"/{member}", "missing") in faults(service.post(PATH, without(revenue_event, member)))


@pytest.mark.parametrize(
    ("member", "value", "status"),
    [
        ("user_ref", "x" * 256, 200),
        ("user_ref", "x" * 257, 422),
        ("user_ref", "", 422),
        ("idempotency_key", "x" * 255, 200),
        ("idempotency_key", "x" * 256, 422),
        ("attributes", {"a": "x" * (4096 - 8)}, 200),
        ("attributes", {"a": "x" * (4096 - 7)}, 422),
        ("attributes", "text", 422),
    ],
)
def test_a_member_is_held_to_its_rule(
    service: Any, revenue_event: dict[str, Any], member: str, value: Any, status: int
) -> None:
    answer = service.post(PATH, {**revenue_event, member: value})
    assert answer.status_code == status
    if status == 422:
        assert faults(answer)[0][0] == f"/{member}"


@pytest.mark.requirement("endpoint.revenue.batch", "limit.revenue-batch")
def test_a_batch_holds_one_to_fifty_events(service: Any, revenue_event: dict[str, Any]) -> None:
    for count, status in ((0, 422), (50, 200), (51, 422)):
        assert service.post(PATH, {"events": [revenue_event] * count}).status_code == status


@pytest.mark.requirement("revenue.occurred_at")
@pytest.mark.parametrize(
    ("time", "status"),
    [
        ("2026-01-31T12:00:00Z", 200),
        ("2026-01-31t12:00:00.123456789z", 200),
        ("2026-01-31T12:00:00-23:59", 200),
        ("2000-01-01T00:00:00Z", 200),
        ("2100-12-31T23:59:59Z", 200),
        ("2026-01-31T12:00Z", 422),
        ("2026-01-31T12:00:00", 422),
        ("2026-01-31 12:00:00Z", 422),
        ("2026-01-31", 422),
        ("2026-01-31T23:59:60Z", 422),
        ("2026-01-31T24:00:00Z", 422),
        ("2026-02-30T12:00:00Z", 422),
        ("1999-12-31T23:59:59Z", 422),
        ("2101-01-01T00:00:00Z", 422),
        ("2000-01-01T00:00:00+00:01", 422),
        ("0001-01-01T00:00:00+23:59", 422),
        ("9999-12-31T23:59:59-23:59", 422),
        ("٢٠٢٦-01-31T12:00:00Z", 422),
        (1769860800, 422),
    ],
)
def test_a_time_is_rfc_3339_with_seconds_and_offset(
    service: Any, revenue_event: dict[str, Any], time: Any, status: int
) -> None:
    answer = service.post(PATH, {**revenue_event, "occurred_at": time})
    assert answer.status_code == status
    if status == 422:
        assert faults(answer) == [("/occurred_at", "invalid_time")]


def test_fractions_of_a_second_are_cut_to_microseconds(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    service.post(PATH, {**revenue_event, "occurred_at": "2026-01-31T12:00:00.9999999Z"})
    assert rows(service)[0].occurred_at.microsecond == 999_999


def test_history_is_received_when_it_occurred_until_an_experiment_is_bound(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    assert service.post(f"{PATH}?replay=true", revenue_event).status_code == 200
    (row,) = rows(service)
    assert row.received_at == row.occurred_at
    for sha, day in (("aaaaaaa", "01"), ("bbbbbbb", "02")):
        body = {"commit": {"sha": sha}, "deployed_at": f"2026-01-{day}T00:00:00Z"}
        service.post("/v1/deploys", body)
    service.post("/v1/reward/register", {})
    answer = service.post(f"{PATH}?replay=true", {**revenue_event, "idempotency_key": "2"})
    assert (answer.status_code, answer.json()["code"]) == (409, "history_closed")
    assert len(rows(service)) == 1


def test_one_key_from_many_clients_is_stored_once(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    with ThreadPoolExecutor(12) as clients:
        for n in range(5):
            event = {**revenue_event, "idempotency_key": f"key-{n}"}
            answers = list(clients.map(lambda _, sent=event: service.post(PATH, sent), range(12)))
            assert [answer.status_code for answer in answers] == [200] * 12
            assert sum(answer.json()["accepted"] for answer in answers) == 1
    assert len(rows(service)) == 5


def test_one_key_with_two_payloads_is_stored_once_and_refused_otherwise(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    with ThreadPoolExecutor(12) as clients:
        for n in range(5):
            events = [
                {**revenue_event, "idempotency_key": f"key-{n}", "user_ref": f"user-{client}"}
                for client in range(12)
            ]
            answers = list(clients.map(lambda event: service.post(PATH, event), events))
            statuses = sorted(answer.status_code for answer in answers)
            assert statuses == [200] + [409] * 11
    assert len(rows(service)) == 5


def test_revenue_and_deploys_of_one_project_do_not_wait_for_one_another(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    def one(n: int) -> int:
        if n % 2:
            return service.post("/v1/deploys", {"commit": {"sha": f"{n:07x}"}}).status_code
        return service.post(PATH, {**revenue_event, "idempotency_key": str(n)}).status_code

    with ThreadPoolExecutor(8) as clients:
        statuses = list(clients.map(one, range(80)))
    assert sorted(statuses) == [200] * 40 + [201] * 40
