"""`sample_rate` at ingress: whose events are stored, and how the others are counted."""

from typing import Any

import pytest
from sqlalchemy import select

from domain.draw import position_of
from storage.postgres.refusal import Invalid
from storage.schema.tables import runtime_events
from storage.tenants.sample import Sample, salt_of
from tests.world import World

pytestmark = pytest.mark.shared_store(sample_rate=0.1)

PATH = "/v1/events"
SESSIONS = [f"s-{number}" for number in range(400)]


def stored(service: World) -> list[Any]:
    query = select(runtime_events).where(runtime_events.c.project_id == service.project_id)
    return service.in_store(lambda connection: connection.execute(query).all())


def sample(service: World, rate: float = 0.1) -> Sample:
    return Sample(salt=salt_of(service.project_id), rates={"session": rate})


def inside(service: World) -> list[str]:
    return [each for each in SESSIONS if sample(service).takes(each, None)]


def outside(service: World) -> list[str]:
    return [each for each in SESSIONS if not sample(service).takes(each, None)]


def events(sessions: list[str], **members: Any) -> dict[str, Any]:
    return {"events": [{"event": "a", "session_id": each, **members} for each in sessions]}


def sent(service: World, body: Any, **options: Any) -> Any:
    return service.client.post(PATH, json=body, **{"headers": service.public, **options})


@pytest.mark.parametrize("kind", ["public", "write"])
def test_the_events_of_a_tenth_of_the_sessions_are_stored_and_the_others_counted(
    service, kind
) -> None:
    answer = sent(service, events(SESSIONS), headers=getattr(service, kind))
    taken = inside(service)
    assert 20 < len(taken) < 70
    assert (answer.status_code, answer.json()) == (
        202,
        {
            "accepted": len(taken),
            "late": 0,
            "rejected": [],
            "sampled_out": len(SESSIONS) - len(taken),
            "sampling": {"salt": f"sample:{service.project_id}", "session": 0.1},
        },
    )
    assert sorted(row.session_id for row in stored(service)) == sorted(taken)


def test_an_event_that_breaks_a_rule_is_rejected_whether_or_not_it_is_in_the_sample(
    service,
) -> None:
    left_out, taken = outside(service)[0], inside(service)[0]
    wrong = [{"event": "", "session_id": each} for each in (left_out, taken)]
    answer = sent(service, {"events": [*wrong, {"event": "a", "session_id": left_out}]})
    receipt = answer.json()
    assert (answer.status_code, receipt["accepted"], receipt["sampled_out"]) == (202, 0, 1)
    assert [each["index"] for each in receipt["rejected"]] == [0, 1]
    assert sent(service, {"events": wrong}).status_code == 422
    assert stored(service) == []


def test_a_single_event_outside_the_sample_is_acknowledged_and_not_stored(service) -> None:
    answer = sent(service, {"event": "a", "session_id": outside(service)[0]})
    assert (answer.status_code, answer.json()["accepted"]) == (202, 0)
    assert answer.json()["sampled_out"] == 1
    assert stored(service) == []


def test_history_is_stored_whole(service) -> None:
    body = events(SESSIONS, occurred_at="2026-10-01T00:00:00Z")
    answer = service.client.post(f"{PATH}?replay=true", json=body, headers=service.write)
    assert (answer.status_code, answer.json()["accepted"]) == (202, len(SESSIONS))
    assert "sampled_out" not in answer.json()


def test_revenue_of_a_session_outside_the_sample_is_stored(service) -> None:
    body = {
        "event": "activation",
        "occurred_at": "2026-10-01T00:00:00Z",
        "user_ref": "someone",
        "idempotency_key": "k",
        "attributes": {"session_id": outside(service)[0]},
    }
    assert service.post("/v1/revenue/events", body).json()["accepted"] == 1


def test_users_are_sampled_by_their_pseudonym_and_who_names_none_by_the_session(service) -> None:
    service.settings(unit="user")
    users = [f"user-{number}" for number in range(300)]
    body = [{"event": "a", "session_id": f"of-{each}", "user_ref": each} for each in users]
    assert sent(service, {"events": body}).json()["sampling"]["user"] == 0.1
    salt, bound = salt_of(service.project_id), f"{round(0.1 * 2**32):08x}"
    kept = stored(service)
    assert 12 < len(kept) < 55
    assert all(position_of(row.pseudonym.hex(), salt=salt) < bound for row in kept)
    # The same users in other sessions: the same ones again.
    again = [{**each, "session_id": f"again-{number}"} for number, each in enumerate(body)]
    assert sent(service, {"events": again}).json()["accepted"] == len(kept)
    nameless = sent(service, events(SESSIONS)).json()
    assert nameless["accepted"] == len(inside(service))


@pytest.mark.parametrize("rate", [0, -0.1, 1.01, 0.00001])
def test_a_rate_that_measures_nothing_or_more_than_all_is_no_setting(service, rate) -> None:
    with pytest.raises(Invalid) as refused:
        service.settings(sample_rate=rate)
    assert refused.value.pointer == "/sample_rate"
