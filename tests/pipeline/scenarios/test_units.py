"""Units by name: accounts are counted, and of their names pseudonyms alone are stored."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from orchestration.pipeline.audit import audit
from storage.postgres.refusal import Invalid
from storage.tenants.secret import Pseudonyms
from storage.upkeep.forgetting import forget_person
from tests.pipeline.engines.rows import oracle_rows, stored_rows
from tests.stores.emptied import empty_derived_tables
from tests.world import DAY, A, K

ACCOUNTS, CLOSED = 40, 3 * DAY
# The service's of the fixtures (tests/conftest.py).
SECRET = b"a secret of the tests, long enough"
SPENT = {"kind": "mean", "sources": ["paid"], "cap": 100, "window_seconds": 7200}
_LOG = text(
    "SELECT e::text FROM runtime_events AS e UNION ALL SELECT r::text FROM revenue_events r"
)


def canary(story) -> str:
    """Accounts of two sessions and two persons each; most events of a session name neither."""
    story.settings(unit="account", metrics={"spent": SPENT}, grace_seconds=0)
    story.canary()
    for number in range(ACCOUNTS):
        for visit in range(2):
            session, at = f"s{number}.{visit}", 10.0 * number + 60 * visit
            seen: dict[str, Any] = {"session_id": session, "commit": (A, K)[number % 2]}
            named = {"user_ref": f"u{number}.{visit}", "properties": {"account": f"acme {number}"}}
            for event, later, more in (
                ("page_view", 0, {}),
                ("sign_in", 1, named),
                ("paid", 2, {"value": 3 + visit}),
            ):
                minutes = story.at(at + later)
                story.events.append({**seen, "event": event, "occurred_at": minutes, **more})
    story.units_of(K, minutes=30, units=3)
    return story.judged(minutes=CLOSED, target_metric="spent", guardrails=[])


def pseudonym(story, name: str, unit: str | None = "account") -> bytes:
    return Pseudonyms(SECRET).of(story.project_id, name, unit=unit)


def units(story, experiment: str) -> set[str]:
    exposed = text("SELECT unit FROM exposures WHERE experiment_id = :id")
    return set(story.in_store(lambda c: c.execute(exposed, {"id": experiment}).scalars()))


def require_equal(story, experiment: str) -> None:
    """Holds that an audit by DuckDB finds every row and document, and that the units add up."""
    assert audit(story.store.engine, experiment).differences == []
    story.require_the_counts_to_add_up()


def test_accounts_are_counted_by_whatever_session_names_them(story) -> None:
    experiment = canary(story)
    evidence = story.evidence(experiment)
    assert evidence["policy"]["unit"] == "account"
    assert units(story, experiment) == {
        pseudonym(story, f"acme {number}").hex() for number in range(ACCOUNTS)
    }
    # Both visits' payments are the account's, though they name a session alone.
    spent = text("SELECT sum(value) FROM amounts WHERE metric = 'spent'")
    assert story.in_store(lambda c: c.execute(spent).scalar_one()) == 7_000_000 * ACCOUNTS
    assert evidence["counts"]["unknown_user"] == 3
    assert (
        "3 sessions of treatment and no sessions of control, that name a build and no account"
        in (evidence["sentence"])
    )
    require_equal(story, experiment)
    until = story.begin + timedelta(minutes=CLOSED)
    with story.store.engine.connect() as connection:
        stored = stored_rows(connection, experiment)
        plain = oracle_rows(connection, experiment, until=until)
    assert [stored[name] for name in ("exposures", "cells")] == [
        plain[name] for name in ("exposures", "cells")
    ]


def test_of_accounts_and_persons_pseudonyms_alone_are_stored(story) -> None:
    canary(story)
    answer = story.post(
        "/v1/revenue/events",
        {
            "event": "trial_to_paid",
            "occurred_at": story.at(5),
            "amount": {"value": 500, "currency": "USD"},
            "user_ref": "u1.0",
            "idempotency_key": "k",
            "attributes": {"account": "acme 1"},
        },
    )
    assert answer.status_code == 200, answer.text
    rows = story.in_store(lambda connection: connection.execute(_LOG).scalars().all())
    assert not [row for row in rows if "acme" in row or "u1.0" in row]
    for name, unit in (("acme 1", "account"), ("u1.0", None)):
        assert any(pseudonym(story, name, unit).hex() in row for row in rows), name
    assert pseudonym(story, "u1.0", None) != pseudonym(story, "u1.0")


@pytest.mark.parametrize("value", [["acme"], {"id": 1}, "a" * 257, 1.5])
def test_a_value_that_names_no_account_is_refused_by_the_name_of_its_field(tenant, value) -> None:
    tenant.settings(unit="account")
    event = {"event": "page_view", "session_id": "s", "properties": {"account": value}}
    for body, place in ((event, ""), ({"events": [event]}, "/events/0")):
        refused = tenant.post("/v1/events", body).json()
        assert refused["errors"][0]["pointer"] == f"{place}/properties/account"


@pytest.mark.parametrize("nobody", [None, False, "", "undefined"])
def test_an_event_of_no_account_is_stored_without(tenant, nobody) -> None:
    tenant.settings(unit="account")
    event = {"event": "page_view", "properties": {"account": nobody, "a": 1}}
    session = f"of {nobody}"
    assert tenant.post("/v1/events", {**event, "session_id": session}).status_code == 202
    read = text("SELECT pseudonym, properties ->> 'a' FROM runtime_events WHERE session_id = :s")
    assert tuple(tenant.in_store(lambda c: c.execute(read, {"s": session}).one())) == (None, "1")


def test_who_counts_accounts_now_cannot_count_others_before_they_end(story) -> None:
    experiment = canary(story)
    with pytest.raises(Invalid, match=experiment) as refused:
        story.settings(unit="workspace")
    assert refused.value.pointer == "/unit"
    story.post(f"/v1/reward/{experiment}/close", {})
    # As the days after its end are read by now.
    story.tick()
    story.settings(unit="workspace")


@pytest.mark.parametrize("unit", ["trace_id", "k8s.pod", "session_id", "user_ref", "a b", ""])
def test_what_is_no_unit_is_refused(tenant, unit) -> None:
    with pytest.raises(Invalid) as refused:
        tenant.settings(unit=unit)
    assert refused.value.pointer == "/unit"


def test_who_is_forgotten_leaves_the_account_and_an_account_leaves_the_others(story) -> None:
    experiment = canary(story)
    before = story.evidence(experiment)["arms"]

    def forget(name: str, unit: str | None) -> Any:
        person = pseudonym(story, name, unit)
        with story.store.engine.begin() as connection:
            return forget_person(connection, story.project_id, person, is_unit=unit is not None)

    def holds(name: str, unit: str | None) -> bool:
        rows = story.in_store(lambda connection: connection.execute(_LOG).scalars().all())
        return any(pseudonym(story, name, unit).hex() in row for row in rows)

    # The session is the person's alone: its three events go.
    assert forget("u1.0", None).runtime_events == 3
    assert not holds("u1.0", None)
    assert holds("u1.1", None)
    assert pseudonym(story, "acme 1").hex() in units(story, experiment)
    require_equal(story, experiment)
    assert forget("acme 2", "account").runtime_events == 6
    assert not holds("acme 2", "account")
    assert not holds("u2.1", None)
    assert pseudonym(story, "acme 2").hex() not in units(story, experiment)
    require_equal(story, experiment)
    story.tick(minutes=CLOSED + DAY)
    assert story.evidence(experiment)["arms"] == before


def test_what_is_an_account_s_by_a_session_that_somebody_claimed_stays_the_account_s(story) -> None:
    claims = {"user_ref": "stranger", "properties": {"account": "acme 1"}}
    seen: dict[str, Any] = {"session_id": "claimed", "commit": K}
    for event, minute, more in (("sign_in", 20, claims), ("paid", 21, {"value": 7})):
        story.events.append({**seen, "event": event, "occurred_at": story.at(minute), **more})
    story.settings(unit="account")
    story.send()
    # Only the claim came with the public key.
    by_public_key = text("UPDATE runtime_events SET trusted = false WHERE event = 'sign_in'")
    story.in_store(lambda connection: connection.execute(by_public_key))
    experiment = canary(story)
    before = story.evidence(experiment)["arms"]
    with story.store.engine.begin() as connection:
        person = pseudonym(story, "stranger", None)
        assert forget_person(connection, story.project_id, person).runtime_events == 1
    require_equal(story, experiment)
    story.in_store(empty_derived_tables)
    story.tick(minutes=CLOSED)
    assert story.evidence(experiment)["arms"] == before


def test_open_telemetry_names_the_account_as_an_attribute(tenant) -> None:
    tenant.settings(unit="tenant.id")
    now = int(datetime.now(UTC).timestamp() * 10**9)
    attributes = [
        {"key": key, "value": {"stringValue": value}}
        for key, value in (
            ("session.id", "s-1"),
            ("tenant.id", "acme"),
            ("user.id", "u"),
            ("vcs.ref.head.revision", A),
        )
    ]
    record = {"eventName": "order", "timeUnixNano": str(now), "attributes": attributes}
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "kind": 2,
        "startTimeUnixNano": str(now),
        "endTimeUnixNano": str(now),
        "attributes": attributes,
    }
    for path, outer, inner, key, item in (
        ("/v1/logs", "resourceLogs", "scopeLogs", "logRecords", record),
        ("/v1/traces", "resourceSpans", "scopeSpans", "spans", span),
    ):
        answer = tenant.post(path, {outer: [{inner: [{key: [item]}]}]})
        assert answer.json() == {}, answer.text
    read = text("SELECT session_id, pseudonym FROM runtime_events WHERE project_id = :project")
    project = {"project": tenant.project_id}
    rows = tenant.in_store(lambda connection: connection.execute(read, project).all())
    known = Pseudonyms(SECRET).of(tenant.project_id, "acme", unit="tenant.id")
    assert [tuple(row) for row in rows] == [("s-1", known)] * 2
