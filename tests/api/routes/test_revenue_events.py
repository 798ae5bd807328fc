"""`POST /v1/revenue/events`: what counts as money, and what counts once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Text, cast, func, select

from storage.schema.tables import revenue_events

PATH = "/v1/revenue/events"
MONETARY = ("trial_to_paid", "subscription_renewed", "expansion")
FUNNEL = ("signup_completed", "trial_started", "paywall_viewed", "activation")


def rows(tenant: Any, *others: int) -> list[Any]:
    """The stored events of the project, and of others."""
    answer = select(revenue_events).where(
        revenue_events.c.project_id.in_([tenant.project_id, *others])
    )
    return tenant.in_store(lambda connection: connection.execute(answer).all())


def faults(answer: Any) -> list[tuple[str, str]]:
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


def without(event: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


@pytest.mark.requirement("revenue.user_ref", "endpoint.revenue", "endpoint.revenue.single")
def test_an_event_is_stored_once_with_a_pseudonym_for_its_user(tenant, revenue_event) -> None:
    event = {**revenue_event, "attributes": {"provider": "stripe", "environment": "staging"}}
    answer = tenant.post(PATH, event)
    assert answer.status_code == 200
    assert answer.json() == {
        "accepted": 1,
        "duplicates": 0,
        "results": [{"index": 0, "idempotency_key": "invoice-1", "status": "accepted"}],
    }
    (row,) = rows(tenant)
    assert (row.amount_value, row.amount_currency, row.environment) == (4900, "USD", "staging")
    whole = select(cast(func.to_jsonb(revenue_events.table_valued()), Text)).where(
        revenue_events.c.project_id == tenant.project_id
    )
    assert "workspace-17" not in tenant.in_store(lambda c: c.execute(whole).scalar_one())


@pytest.mark.requirement("revenue.idempotency_key")
def test_the_same_event_again_is_a_duplicate_however_it_is_written(tenant, revenue_event) -> None:
    assert tenant.post(PATH, revenue_event).json()["accepted"] == 1
    again = {
        **revenue_event,
        "occurred_at": "2026-01-31T14:00:00.000+02:00",
        "amount": {"currency": "usd", "value": 4900},
    }
    assert tenant.post(PATH, again).json()["results"][0]["status"] == "duplicate"
    assert len(rows(tenant)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"amount": {"value": 4901, "currency": "USD"}},
        {"amount": {"value": 4900, "currency": "EUR"}},
        {"user_ref": "workspace-18"},
        {"event": "expansion"},
        {"attributes": {"plan": "team"}},
    ],
)
def test_a_key_used_with_another_payload_is_a_conflict_and_nothing_is_stored(
    tenant, revenue_event, change
) -> None:
    tenant.post(PATH, revenue_event)
    fresh = {**revenue_event, "idempotency_key": "invoice-2"}
    answer = tenant.post(PATH, {"events": [fresh, {**revenue_event, **change}]})
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")
    assert "invoice-1" in answer.json()["detail"]
    assert len(rows(tenant)) == 1


def test_a_retry_that_stamps_its_time_anew_is_the_same_event_and_holds_up_no_other(
    tenant, revenue_event
) -> None:
    tenant.post(PATH, revenue_event)
    retried = {**revenue_event, "occurred_at": "2026-01-31T12:00:05Z"}
    others = [{**revenue_event, "idempotency_key": f"invoice-{n}"} for n in range(2, 51)]
    receipt = tenant.post(PATH, {"events": [retried, *others]}).json()
    assert (receipt["accepted"], receipt["duplicates"]) == (49, 1)
    assert receipt["restamped"] == ["invoice-1"]
    assert {row.occurred_at.second for row in rows(tenant)} == {0}


def test_a_payment_of_nobody_is_stored_and_counted_as_of_an_unknown_user(
    tenant, revenue_event
) -> None:
    attributes = {"session_id": "undefined", "plan": "None"}
    nobody = {**revenue_event, "user_ref": "None", "attributes": attributes}
    named = {**revenue_event, "user_ref": "Null", "idempotency_key": "invoice-2"}
    receipt = tenant.post(PATH, {"events": [nobody, named]}).json()
    assert (receipt["accepted"], receipt["unknown"]) == (2, {"session_id": 1, "user_ref": 1})
    unknown, known = sorted(rows(tenant), key=lambda row: row.idempotency_key)
    assert (unknown.pseudonym, unknown.session_id, unknown.attributes) == (None, None, attributes)
    assert known.pseudonym is not None


def test_duplicates_inside_one_batch_count_as_duplicates_of_each_other(
    tenant, revenue_event
) -> None:
    receipt = tenant.post(PATH, {"events": [revenue_event, revenue_event]}).json()
    assert (receipt["accepted"], receipt["duplicates"]) == (1, 1)
    assert [each["status"] for each in receipt["results"]] == ["accepted", "duplicate"]


def test_two_payloads_under_one_key_in_one_batch_are_a_conflict(tenant, revenue_event) -> None:
    other = {**revenue_event, "user_ref": "workspace-18"}
    assert tenant.post(PATH, {"events": [revenue_event, other]}).status_code == 409
    assert rows(tenant) == []


def test_a_batch_is_stored_whole_or_not_at_all(tenant, revenue_event) -> None:
    bad = {**without(revenue_event, "user_ref"), "idempotency_key": "2"}
    worse = {**revenue_event, "amount": {"value": "1", "currency": "USDX"}, "event": "refund"}
    answer = tenant.post(PATH, {"events": [revenue_event, bad, worse]})
    assert answer.status_code == 422
    assert faults(answer) == [
        ("/events/1/user_ref", "missing"),
        ("/events/2/event", "literal_error"),
        ("/events/2/amount/value", "int_type"),
        ("/events/2/amount/currency", "string_pattern_mismatch"),
    ]
    assert tenant.post(PATH, {"events": []}).status_code == 422
    assert rows(tenant) == []


@pytest.mark.requirement("limit.idempotency-scope", "revenue.user_ref")
@pytest.mark.parametrize("address", [PATH, f"{PATH}?replay=true"])
def test_an_event_of_the_future_is_refused_by_name_and_makes_no_history(
    tenant, revenue_event, address
) -> None:
    ahead = {**revenue_event, "occurred_at": "2099-01-01T00:00:00Z", "idempotency_key": "k-2"}
    answer = tenant.post(address, {"events": [revenue_event, ahead]})
    assert faults(answer) == [("/events/1/occurred_at", "in_the_future")]
    assert rows(tenant) == []
    assert faults(tenant.post(address, ahead)) == [("/occurred_at", "in_the_future")]


def test_keys_are_of_one_project(tenant, revenue_event) -> None:
    other = tenant.new_project(f"beside {tenant.project.name}")
    for key in (tenant.write, {"X-Service-Project-Key": other.keys["write"]}):
        answer = tenant.post(PATH, revenue_event, headers=key)
        assert answer.json()["accepted"] == 1
    mine, theirs = (row.pseudonym for row in rows(tenant, other.project_id))
    assert mine != theirs


@pytest.mark.requirement("auth.revenue.bearer")
def test_a_forwarder_may_send_the_write_key_as_bearer(tenant, revenue_event) -> None:
    key = tenant.write["X-Service-Project-Key"]
    answer = tenant.post(PATH, revenue_event, headers={"Authorization": f"bearer {key}"})
    assert answer.status_code == 200


@pytest.mark.requirement("revenue.event", "revenue.amount", "endpoint.revenue.monetary")
@pytest.mark.parametrize("event", MONETARY)
def test_a_monetary_event_carries_an_amount(tenant, revenue_event, event) -> None:
    assert tenant.post(PATH, {**revenue_event, "event": event}).status_code == 200
    answer = tenant.post(PATH, {**without(revenue_event, "amount"), "event": event})
    assert (answer.status_code, faults(answer)) == (422, [("/amount", "missing")])
    for member in ("value", "currency"):
        amount = without(revenue_event["amount"], member)
        answer = tenant.post(PATH, {**revenue_event, "event": event, "amount": amount})
        assert (answer.status_code, faults(answer)) == (422, [(f"/amount/{member}", "missing")])


@pytest.mark.requirement(
    "revenue.event", "inbound.revenue", "revenue.amount", "endpoint.revenue.funnel"
)
@pytest.mark.parametrize("event", FUNNEL)
def test_a_funnel_event_carries_no_amount(tenant, revenue_event, event) -> None:
    assert (
        tenant.post(PATH, {**without(revenue_event, "amount"), "event": event}).status_code == 200
    )
    answer = tenant.post(PATH, {**revenue_event, "event": event})
    assert (answer.status_code, faults(answer)) == (422, [("/amount", "amount_of_funnel_event")])


@pytest.mark.requirement("revenue.event")
def test_a_churn_may_carry_an_amount(tenant, revenue_event) -> None:
    churned = {**revenue_event, "event": "subscription_churned"}
    assert tenant.post(PATH, churned).status_code == 200
    free = {**without(churned, "amount"), "idempotency_key": "2"}
    assert tenant.post(PATH, free).status_code == 200


@pytest.mark.requirement("revenue.amount.value")
@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("0", 200),
        ("9223372036854", 200),
        ("9223372036855", 422),
        ("-1", 422),
        ("12.0", 422),
        ("1e2", 422),
        ("true", 422),
        ('"12"', 422),
        ("null", 422),
        ("[1]", 422),
    ],
)
def test_an_amount_is_a_whole_number_of_minor_units(tenant, value, status) -> None:
    content = (
        '{"event": "expansion", "occurred_at": "2026-01-31T12:00:00Z", "user_ref": "u",'
        f' "idempotency_key": "k", "amount": {{"value": {value}, "currency": "EUR"}}}}'
    )
    answer = tenant.client.post(
        PATH, content=content, headers={**tenant.write, "Content-Type": "application/json"}
    )
    assert answer.status_code == status
    if status == 422:
        assert answer.json()["errors"][0]["pointer"] == "/amount/value"


@pytest.mark.requirement("revenue.amount.currency")
@pytest.mark.parametrize(
    ("currency", "status"),
    [
        ("JPY", 200),
        ("eur", 200),
        ("EURO", 422),
        ("E1R", 422),
        ("ZZZ", 422),
        ("XXX", 422),
        ("xts", 422),
        ("ﬀa", 422),
        ("", 422),
    ],
)
def test_a_currency_is_known_to_iso_4217(tenant, revenue_event, currency, status) -> None:
    event = {**revenue_event, "amount": {"value": 1, "currency": currency}}
    assert tenant.post(PATH, event).status_code == status


@pytest.mark.requirement("revenue.attributes", "revenue.attributes.provider")
def test_attributes_are_free_and_the_provider_changes_nothing(tenant, revenue_event) -> None:
    attributes = {"plan": "team", "environment": "production", "anything": {"nested": [1, None]}}
    providers = [{}, {"provider": "stripe"}, {"provider": "homegrown"}, {"provider": 7}]
    for number, provider in enumerate(providers):
        event = {**revenue_event, "idempotency_key": str(number)}
        answer = tenant.post(PATH, {**event, "attributes": {**attributes, **provider}})
        assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    stored = rows(tenant)
    assert [without(row.attributes, "provider") for row in stored] == [attributes] * len(providers)
    assert {
        (row.event, row.amount_value, row.pseudonym, row.environment, row.session_id)
        for row in stored
    } == {("trial_to_paid", 4900, stored[0].pseudonym, "production", None)}


def test_history_is_received_when_it_occurred_until_an_experiment_is_bound(
    tenant, revenue_event
) -> None:
    assert tenant.post(f"{PATH}?replay=true", revenue_event).status_code == 200
    (row,) = rows(tenant)
    assert row.received_at == row.occurred_at
    for sha, day in (("aaaaaaa", "01"), ("bbbbbbb", "02")):
        tenant.deploy(sha, deployed_at=f"2026-01-{day}T00:00:00Z")
    tenant.register()
    answer = tenant.post(f"{PATH}?replay=true", {**revenue_event, "idempotency_key": "2"})
    assert (answer.status_code, answer.json()["code"]) == (409, "history_closed")
    assert len(rows(tenant)) == 1


def test_revenue_and_deploys_of_one_project_do_not_wait_for_one_another(
    tenant, revenue_event
) -> None:
    def posted(n: int) -> int:
        if n % 2:
            return tenant.post("/v1/deploys", {"commit": {"sha": f"{n:07x}"}}).status_code
        return tenant.post(PATH, {**revenue_event, "idempotency_key": str(n)}).status_code

    with ThreadPoolExecutor(8) as clients:
        statuses = list(clients.map(posted, range(80)))
    assert sorted(statuses) == [200] * 40 + [201] * 40
