"""What is appended stands in the log as it was sent, whatever else is appended with it."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from sqlalchemy import text

from storage.log.events import EventWriter, RuntimeEvent, event_lines

NOW = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def event(session_id: str, **members: Any) -> RuntimeEvent:
    answer = {"project_id": 1, "environment": "production", "event": "page_view"}
    return RuntimeEvent(**answer, session_id=session_id, occurred_at=NOW, **members)


def appended(url: str, requests: Sequence[Sequence[RuntimeEvent]]) -> list[Any]:
    """Appends the events of requests that wait together, and returns each request's answer."""

    async def together() -> list[Any]:
        async with EventWriter(url).running() as writer:
            waiting = [writer.append(event_lines(events)) for events in requests]
            return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(together())


def test_what_the_text_format_would_read_otherwise_is_stored_as_it_was_sent(store) -> None:
    odd = ["a\tb", "a\nb", "a\rb", "a\\b", r"\N", r"\.", "ü😀", "\\\t\n"]
    flags, pseudonym = r'{"a": "\"\\\t"}', bytes(range(32))
    appended(
        store.url,
        [
            [
                event(name, route=name, flags=flags, pseudonym=pseudonym, value=-(10**15))
                for name in odd
            ]
        ],
    )
    with store.engine.begin() as connection:
        rows = connection.execute(
            text(
                "SELECT session_id, route, flags, pseudonym, value, occurred_at FROM runtime_events"
            )
        ).all()
    assert [row.session_id for row in rows] == [row.route for row in rows] == odd
    assert {(row.flags["a"], bytes(row.pseudonym)) for row in rows} == {('"\\\t', pseudonym)}
    assert {(row.value, row.occurred_at) for row in rows} == {(-(10**15), NOW)}


def test_no_request_fails_because_of_another_s_data(store) -> None:
    # PostgreSQL holds no NUL; the API refuses it long before.
    first, bad, last = appended(store.url, [[event("a")], [event("b\0")], [event("c")]])
    assert isinstance(bad, psycopg.DataError)
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    with store.engine.begin() as connection:
        stored = connection.execute(text("SELECT session_id FROM runtime_events")).scalars().all()
    assert sorted(stored) == ["a", "c"]
