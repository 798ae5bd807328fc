"""Both ways to read a body, in a single pass or member by member, give the same events."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from api.wire.event_batch import EventReader
from api.wire.problem import Problem
from domain.absence import WORDS
from storage.log.events import event_lines
from storage.tenants.secret import Pseudonyms
from tests.repetition import examples

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
READER = EventReader(
    project_id=1,
    now=NOW,
    trusted=False,
    history=False,
    pseudonyms=Pseudonyms(b"a secret of the tests, long enough"),
)


def nested(depth: int) -> dict[str, Any]:
    return {"in": nested(depth - 1)} if depth else {}


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAME = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), st.sampled_from(WORDS)
)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.one_of(st.none(), st.booleans(), st.integers(), NUMBER, TEXT, st.lists(TEXT))
LARGE = st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2.0**63, 1e300])
TIMES = st.sampled_from(
    [
        "2026-01-31T11:59:59Z",
        "2026-01-31t11:59:59.1234567z",
        "2026-01-31T12:59:59+01:00",
        "2026-01-31T12:03:00Z",
        "2026-01-31T12:00:60Z",
        "1999-12-31T23:59:59Z",
        "2026-01-31",
    ]
)
PROPERTIES = st.one_of(
    st.dictionaries(TEXT, st.one_of(ANYTHING, LARGE), max_size=3), st.just({"long": "x" * 4096})
)
MEMBERS = {
    "occurred_at": TIMES,
    "commit": st.sampled_from(["4F2A9C1D", "4f2a9c1d", "4f2a9c1d\n", "xyz", "0" * 40]),
    "flags": st.dictionaries(TEXT, st.one_of(TEXT, st.booleans()), max_size=3),
    "route": st.one_of(NAME, st.sampled_from(["/a/?q=1", "/(group)/a/"])),
    "environment": NAME,
    "user_ref": st.one_of(NAME, st.sampled_from(["", "Null"])),
    "event_id": NAME,
    "value": st.one_of(LARGE, NUMBER, st.integers()),
    "properties": PROPERTIES,
}
# Nearly right, in all that only a look at a member tells; or right but for anything at all.
EVENT = st.one_of(
    st.fixed_dictionaries({"event": NAME, "session_id": NAME}, optional=MEMBERS),
    st.fixed_dictionaries(
        {"event": TEXT, "session_id": NAME},
        optional={name: st.one_of(valid, ANYTHING) for name, valid in MEMBERS.items()},
    ),
)
BATCH = st.fixed_dictionaries(
    {"events": st.lists(EVENT, max_size=3)}, optional={"sent_at": st.one_of(TIMES, ANYTHING)}
)


def outcome(document: dict[str, Any]) -> object:
    try:
        batch = READER.batch(json.dumps(document).encode())
    except Problem as problem:
        return problem.code, [asdict(fault) for fault in problem.faults]
    events = [msgspec.structs.asdict(event) for event in batch.events]
    return events, [asdict(each) for each in batch.rejected], batch.unknown


def deep(depth: int) -> dict[str, Any]:
    return {"event": "page_view", "session_id": "s", "properties": nested(depth)}


# The deepest that is stored, and a level deeper.
@example(document=deep(30))
@example(document=deep(31))
@example(document={"events": [deep(28)]})
@example(document={"events": [deep(29)]})
@example(document={"event": "page_view", "session_id": "s", "value": 2**63})
@example(document={"event": "page_view", "session_id": "s", "value": -(2**63) - 1})
@examples(gate=100, deep=4_000)
@given(document=st.one_of(EVENT, BATCH))
def test_an_unknown_member_changes_nothing_of_what_is_read(document) -> None:
    # Unknown members are set aside before an event is read.
    assert outcome(document) == outcome({**document, "unknown": 1})


FULL = {
    "event": "order\tplaced",
    "session_id": "s\n1",
    "occurred_at": "2026-01-31T11:59:59.5Z",
    "commit": "4F2A9C1D",
    "flags": {"new": True, "tone": "a\tb"},
    "route": "/(group)/a/?q=1",
    "environment": "staging",
    "user_ref": "u-1",
    "event_id": "e-1",
    "value": -12.5,
    "properties": {"a": "\\"},
}


@example(document={"events": [FULL, {"event": "page_view", "session_id": "s-2"}], "sent_at": None})
@examples(gate=100, deep=4_000)
@given(document=BATCH)
def test_a_batch_is_stored_alike_by_column_and_event_by_event(document) -> None:
    raw = json.dumps(document).encode()
    read = READER.columns(raw)
    if read is None:
        assert document["events"][:1] != [FULL]
        return
    batch = READER.batch(raw)
    assert batch.rejected == []
    columns, unknown = read
    assert (columns.lines(), unknown) == (event_lines(batch.events), batch.unknown)
