"""Whatever is claimed with the public key: no command touches what the write key sent."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from tests.world import at

A, K = "aaaaaaa1", "ccccccc3"
CUSTOMERS = [f"customer-{number}" for number in range(60)]
Event = dict[str, Any]


def arm_of(number: int) -> str:
    return K if number % 2 else A


def of_customers() -> Iterator[Event]:
    """A session of each customer, as the server sends it: 1 in 10 orders, in either arm."""
    for number, customer in enumerate(CUSTOMERS):
        session = {"session_id": f"session-{number:02}", "user_ref": customer}
        yield {**session, "event": "page_view", "commit": arm_of(number), "occurred_at": at(number)}
        if number % 20 < 2:
            yield {**session, "event": "order", "occurred_at": at(number + 1)}


def of_a_stranger() -> Iterator[Event]:
    """Chains of references, sessions of others, and forged arms."""
    for number in range(12):
        chain = {"session_id": f"foreign-{number:02}", "event": "page_view"}
        for customer in CUSTOMERS[5 * number : 5 * number + 6]:
            yield {**chain, "user_ref": customer, "occurred_at": at(number)}
    for number in range(len(CUSTOMERS)):
        hers = {"session_id": f"session-{number:02}", "occurred_at": at(number + 0.5)}
        other = K if arm_of(number) == A else A
        yield {**hers, "event": "page_view", "commit": other, "user_ref": f"invented-{number}"}
    for number in range(6):
        hers = {"session_id": "session-07", "occurred_at": at(8 + number)}
        yield {**hers, "event": "login", "user_ref": f"invented-{100 + number}"}
    for number in range(400):
        forged = {"session_id": f"forged-{number:03}", "user_ref": "stranger"}
        yield {**forged, "event": "page_view", "commit": arm_of(number), "occurred_at": at(number)}
        if arm_of(number) == K:
            yield {**forged, "event": "order", "occurred_at": at(number + 0.5)}


@pytest.fixture
def shop(stored, monkeypatch) -> Any:
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
    stored.settings(signed_assignments=True, ofrep="browser", locked=[])
    stored.deploy(A, minutes=-1440)
    stored.deploy(K, 0.5, minutes=0, base=A)
    stored.events += of_a_stranger()
    stored.send()
    with stored.store.engine.begin() as connection:
        # History needs the write key: these events are as they would have come with the public key.
        connection.execute(text("UPDATE runtime_events SET trusted = false"))
    stored.events += of_customers()
    stored.send()
    paid = [
        {
            "event": "trial_to_paid",
            "occurred_at": at(number + 2),
            "user_ref": customer,
            "idempotency_key": f"invoice-{number}",
            "amount": {"value": 1900, "currency": "EUR"},
        }
        for number, customer in enumerate(CUSTOMERS)
    ]
    for begin in range(0, len(paid), 50):
        body = {"events": paid[begin : begin + 50]}
        assert stored.post("/v1/revenue/events?replay=true", body).status_code == 200
    return stored


def of_the_write_key(shop: Any) -> list[str]:
    """Every row of the log that came with the write key."""
    with shop.store.engine.begin() as connection:
        events = text("SELECT e::text FROM runtime_events AS e WHERE trusted")
        revenue = text("SELECT r::text FROM revenue_events AS r")
        rows = (connection.execute(query).scalars() for query in (events, revenue))
        return sorted(row for query in rows for row in query)


def arms(shop: Any) -> dict[str, str]:
    with shop.store.engine.begin() as connection:
        rows = connection.execute(text("SELECT unit, arm FROM exposures_in_words ORDER BY unit"))
        return {row.unit: row.arm for row in rows}


def test_no_command_and_no_signer_does_with_another_s_data_what_an_unvouched_claim_says(
    shop, command, tmp_path
) -> None:
    asked = {"treatment_commit": K, "target_metric": "order", "guardrails": []}
    experiment = shop.post("/v1/reward/register", asked).json()["experiment_id"]
    served = {
        f"session-{number:02}": "treatment" if arm_of(number) == K else "control"
        for number in range(len(CUSTOMERS))
    }
    more = tmp_path / "more.ndjson"
    result = {"event": "page_view", "session_id": "imported", "environment": "staging"}
    more.write_text(json.dumps({**result, "occurred_at": at(1)}))
    project = ("--project", "shop")
    assert command("import", more, *project).exit_code == 0
    before = of_the_write_key(shop)
    for words in (
        ("evaluate",),
        ("audit", experiment),
        ("rebuild",),
        ("audit-trail", *project),
        ("webhooks", "list", *project),
        ("keys", "assignment", *project),
        ("freeze", "--reason", "a test"),
        ("unfreeze",),
        ("forget", "--session", "foreign-00", *project),
        ("forget", "--session", "forged-001", *project),
        ("forget", "--user-ref", "stranger", *project),
        ("forget", "--user-ref", "invented-3", *project),
        ("rebuild",),
        ("audit", experiment),
        ("close", experiment),
    ):
        done = command(*words)
        assert done.exit_code == 0, (words, done.output)
        assert of_the_write_key(shop) == before, words
        assert arms(shop) == served, words
        assert shop.get(f"/v1/reward/{experiment}").json()["verdict"] == "abstain", words
    for session in ("foreign-01", "session-07", "forged-002"):
        body = {"context": {"targetingKey": session}}
        answer = shop.client.post("/ofrep/v1/evaluate/flags", json=body, headers=shop.public)
        assert answer.status_code == 200
        assert "assignment" not in answer.text
    # A customer's session, in which seven others are named, and nobody but her.
    done = command("forget", "--session", "session-07", *project, "--json")
    erased = json.loads(done.stdout)
    assert (erased["users"], erased["sessions"], erased["revenue_events"]) == (1, 1, 1)
    gone = set(before) - set(of_the_write_key(shop))
    assert len(gone) == 2
    assert all("session-07" in row or "invoice-7" in row for row in gone)
