"""Every member that takes a time, against every time that clocks, zones and calendars can tell."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from sqlalchemy import text

from storage.schema.encoding import on_our_clock

EVENTS, REPLAY, REVENUE = "/v1/events", "/v1/events?replay=true", "/v1/revenue/events"

# Each with whether it is a time of ours: RFC 3339 with seconds and offset, of a year 2000 to 2100.
PAST = {
    "2026-01-31T12:00:00Z": True,
    "2026-01-31t12:00:00z": True,
    # The hour that a change of clocks leaves out or repeats is no riddle with an offset.
    "2026-03-29T02:30:00+01:00": True,
    "2025-10-26T02:30:00+02:00": True,
    "2025-10-26T02:30:00+01:00": True,
    "2024-02-29T00:00:00Z": True,
    "2026-02-29T00:00:00Z": False,
    "2026-02-30T00:00:00Z": False,
    "2026-00-10T00:00:00Z": False,
    "2026-13-10T00:00:00Z": False,
    # A leap second is none to PostgreSQL, nor is the hour after the last.
    "2016-12-31T23:59:60Z": False,
    "2016-12-31T23:59:61Z": False,
    "2026-01-31T24:00:00Z": False,
    "2026-01-31T12:60:00Z": False,
    # The years that the store takes, in UTC: an offset can carry a time over either end.
    "0000-01-01T00:00:00Z": False,
    "0001-01-01T00:00:00Z": False,
    "0001-01-01T00:00:00+14:00": False,
    "1970-01-01T00:00:00Z": False,
    "1999-12-31T23:59:59.999999Z": False,
    "1999-12-31T23:59:59-00:01": True,
    "2000-01-01T00:00:00Z": True,
    "2000-01-01T00:00:00+00:01": False,
    "10000-01-01T00:00:00Z": False,
    # Offsets.
    "2026-01-31T12:00:00+14:00": True,
    "2026-01-31T12:00:00-12:00": True,
    "2026-01-31T12:00:00+23:59": True,
    "2026-01-31T12:00:00-23:59": True,
    "2026-01-31T12:00:00-00:00": True,
    "2026-01-31T12:00:00+24:00": False,
    "2026-01-31T12:00:00+99:99": False,
    "2026-01-31T12:00:00+01:60": False,
    "2026-01-31T12:00:00+0100": False,
    "2026-01-31T12:00:00+01": False,
    "2026-01-31T12:00:00+01:00:00": False,
    "2026-01-31T12:00:00": False,
    "2026-01-31T12:00:00 Z": False,
    # Other forms of ISO 8601, and what only looks like a time.
    "2026-01-31 12:00:00Z": False,
    "2026-01-31T12:00Z": False,
    "2026-01-31": False,
    "20260131T120000Z": False,
    "2026-W05-6T12:00:00Z": False,
    "2026-031T12:00:00Z": False,
    "+2026-01-31T12:00:00Z": False,
    "-2026-01-31T12:00:00Z": False,
    " 2026-01-31T12:00:00Z": False,
    "2026-01-31T12:00:00Z\n": False,
    "2026-01-31T12:00:00,5Z": False,
    "2026-01-31T12:00:00.Z": False,
    "\u0662\u0660\u0662\u0666-01-31T12:00:00Z": False,
    "2026-01-31T12:00:00\u2212 01:00": False,
    "now": False,
    "": False,
    "1769860800": False,
    **{f"2026-01-31T12:00:00.{'9' * digits}Z": True for digits in range(1, 31)},
}
FUTURE = {
    "2100-01-01T00:00:00Z": True,
    "2100-12-31T23:59:59.999999Z": True,
    "2100-12-31T23:59:59.9999999Z": True,
    "2100-12-31T23:59:59-00:01": False,
    "2101-01-01T00:00:00Z": False,
    "2101-01-01T00:00:00+00:01": True,
    "9999-12-31T23:59:59Z": False,
    "9999-12-31T23:59:59-23:59": False,
}


def _event(value: Any) -> Any:
    return {"event": "a", "session_id": "s", "occurred_at": value}


def _sent(value: Any) -> Any:
    return {"events": [{"event": "a", "session_id": "s"}], "sent_at": value}


def _revenue(value: Any) -> Any:
    key = f"{value!r}"[:250]
    # A body's own text may hold what no key may.
    return {"event": "activation", "user_ref": "u", "idempotency_key": key, "occurred_at": value}


def _deploy(value: Any) -> Any:
    return {"commit": {"sha": "abcdef1"}, "deployed_at": value}


def _commit(value: Any) -> Any:
    return {"commit": {"sha": "abcdef1", "committed_at": value}}


# Each member that takes a time, and whether it may lie in the future.
PLACES: list[tuple[str, str, Callable[[Any], Any], bool]] = [
    (EVENTS, "/occurred_at", _event, False),
    (EVENTS, "/sent_at", _sent, True),
    (REPLAY, "/occurred_at", _event, False),
    (REVENUE, "/occurred_at", _revenue, False),
    (f"{REVENUE}?replay=true", "/occurred_at", _revenue, False),
    ("/v1/deploys", "/deployed_at", _deploy, False),
    ("/v1/deploys", "/commit/committed_at", _commit, True),
]


@pytest.mark.requirement("revenue.occurred_at")
@pytest.mark.parametrize(("path", "pointer", "body", "future"), PLACES)
def test_a_time_is_taken_or_refused_by_one_rule(tenant, path, pointer, body, future) -> None:
    result = {**PAST, **{time: future and known for time, known in FUTURE.items()}}
    wrong: list[tuple[str, int, str]] = []
    for time, known in result.items():
        answer = tenant.post(path, body(time))
        refused = answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == pointer
        if not (answer.is_success if known else refused):
            wrong.append((time, answer.status_code, answer.text[:200]))
    assert wrong == []


@pytest.mark.parametrize("path", [EVENTS, REPLAY])
def test_a_time_is_stored_as_told_cut_to_the_microsecond(service, path) -> None:
    answer = [time for time, known in PAST.items() if known]
    events = [{**_event(time), "session_id": time} for time in answer]
    assert service.post(path, {"events": events}).json()["accepted"] == len(answer)
    stored = service.in_store(
        lambda c: c.execute(text("SELECT session_id, occurred_at FROM runtime_events")).all()
    )
    assert {row.session_id: row.occurred_at for row in stored} == {
        time: datetime.fromisoformat(time.upper()).astimezone(UTC) for time in answer
    }


def test_a_parameter_is_held_to_the_same_rule(service) -> None:
    for time, known in {**PAST, **FUTURE}.items():
        answer = service.get("/v1/reward", params={"decided_after": time})
        assert answer.status_code == (200 if known else 422), time


def _written(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
SKEWS = [
    sign * skew
    for skew in (
        *(SECOND, 4 * SECOND, 6 * SECOND, 60 * SECOND, 3600 * SECOND),
        *(DAY, 7 * DAY, 30 * DAY),
    )
    for sign in (1, -1)
]


def test_a_clock_however_wrong_tells_when_an_event_occurred(service) -> None:
    """The client's clock is ahead of ours by the skew; the event was ten seconds before it sent."""
    times: dict[str, tuple[datetime, datetime]] = {}
    for skew in SKEWS:
        before = datetime.now(UTC)
        sent_at = before + skew
        event = {**_event(_written(sent_at - 10 * SECOND)), "session_id": str(skew)}
        answer = service.post(EVENTS, {"events": [event], "sent_at": _written(sent_at)})
        assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
        times[str(skew)] = before, datetime.now(UTC)
    stored = service.in_store(
        lambda c: c.execute(
            text(f"SELECT *, {on_our_clock('e')} AS at FROM runtime_events AS e")
        ).all()
    )
    for row in stored:
        skew = next(each for each in SKEWS if str(each) == row.session_id)
        before, after = times[row.session_id]
        assert (row.sent_at, row.occurred_at) == (before + skew, before + skew - 10 * SECOND)
        # Below five seconds, what the client says stands.
        corrected = timedelta(0) if abs(skew) < 5 * SECOND else skew
        true = row.at - (skew - corrected)
        assert before - 10 * SECOND <= true <= after - 10 * SECOND, skew


def test_without_sent_at_a_clock_that_is_ahead_is_refused_from_two_minutes_on(service) -> None:
    for ahead, status in ((119, 202), (180, 422), (86_400 * 30, 422)):
        event = _event(_written(datetime.now(UTC) + ahead * SECOND))
        answer = service.post(EVENTS, event)
        assert answer.status_code == status
        assert status == 202 or answer.json()["errors"][0]["code"] == "in_the_future"


def test_a_correction_beyond_the_calendar_is_a_refusal(service) -> None:
    ends = ("2000-01-01T00:00:00Z", "2100-12-31T23:59:59Z")
    for sent_at, occurred_at in product(ends, ends):
        answer = service.post(EVENTS, {"events": [_event(occurred_at)], "sent_at": sent_at})
        assert answer.status_code == (202 if sent_at == occurred_at else 422)
