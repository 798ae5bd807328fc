"""The days of the log: history may bring some at once, and the log bears so many in all."""

from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from storage.postgres.refusal import Conflict
from storage.schema import partitions
from storage.schema.partitions import (
    MOST_NEW_DAYS,
    create_days,
    create_past_days,
    existing_days,
    partition_name,
)

FIRST = date(2017, 1, 1)


def days(begin: int, end: int) -> list[date]:
    return [FIRST + timedelta(days=number) for number in range(begin, end)]


def test_the_log_bears_so_many_days_but_always_today(store, monkeypatch) -> None:
    with store.engine.begin() as connection:
        monkeypatch.setattr(partitions, "MOST_DAYS", len(existing_days(connection)) + 3)
        create_past_days(connection, days(0, 3))
        with pytest.raises(Conflict, match="in all"):
            create_past_days(connection, days(3, 4))
        create_past_days(connection, days(0, 3))
        create_days(connection, days(3, 5))
        assert partition_name(days(4, 5)[0]) in existing_days(connection)


def test_a_request_of_too_many_days_is_409_and_nothing_of_it_is_stored(service) -> None:
    def sent(some: list[date]) -> Any:
        events = [
            {"event": "a", "session_id": "s", "occurred_at": f"{day.isoformat()}T12:00:00Z"}
            for day in some
        ]
        return service.post("/v1/events?replay=true", {"events": events})

    answer = sent(days(0, MOST_NEW_DAYS + 1))
    assert (answer.status_code, answer.json()["code"]) == (409, "history_too_wide")
    count = text("SELECT count(*) FROM runtime_events")
    assert service.in_store(lambda c: c.execute(count).scalar_one()) == 0
    assert sent(days(0, MOST_NEW_DAYS)).status_code == 202
    assert sent(days(MOST_NEW_DAYS, MOST_NEW_DAYS + 1)).status_code == 202
