"""Exports in protobuf, which are read as the same exports in JSON are."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from otlp_receiver.decoding import records_of, spans_of
from otlp_receiver.mapping import as_text
from otlp_receiver.record import LogRecord, Span

from api.wire.problem import Problem
from tests.api.otlp.exports import encoded
from tests.repetition import examples

NAMES = frozenset({"session.id", "a", "ä"})
KEYS = st.sampled_from([*sorted(NAMES), "", "b", "unread"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
VALUES = st.one_of(
    st.just({}),
    st.builds(lambda text: {"stringValue": text}, TEXTS),
    st.builds(lambda yes: {"boolValue": yes}, st.booleans()),
    st.builds(lambda whole: {"intValue": str(whole)}, st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda real: {"doubleValue": real}, st.floats(allow_nan=False, allow_infinity=False)),
    st.just({"arrayValue": {"values": [{"stringValue": "x"}]}}),
)
ATTRIBUTES = st.lists(st.fixed_dictionaries({"key": KEYS}, optional={"value": VALUES}), max_size=4)
MOMENTS = st.integers(0, 2**63 - 1).map(str)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "timeUnixNano": MOMENTS,
        "observedTimeUnixNano": MOMENTS,
        "eventName": TEXTS,
        "severityNumber": st.integers(0, 24),
        "body": VALUES,
        "attributes": ATTRIBUTES,
        "traceId": st.just("AAAA"),
        "flags": st.integers(0, 2**32 - 1),
    },
)
LOGS = st.fixed_dictionaries(
    {"scopeLogs": st.lists(st.fixed_dictionaries({"logRecords": st.lists(RECORDS, max_size=3)}))},
    optional={"resource": st.fixed_dictionaries({"attributes": ATTRIBUTES})},
)
IDS = st.binary(max_size=16).map(bytes.hex)
SPANS = st.fixed_dictionaries(
    {},
    optional={
        "traceId": IDS,
        "spanId": IDS,
        "name": TEXTS,
        "kind": st.integers(0, 5),
        "startTimeUnixNano": MOMENTS,
        "endTimeUnixNano": MOMENTS,
        "attributes": ATTRIBUTES,
        "status": st.fixed_dictionaries({}, optional={"code": st.integers(0, 2), "message": TEXTS}),
        "events": st.just([{"name": "exception"}]),
    },
)
TRACES = st.fixed_dictionaries(
    {"scopeSpans": st.lists(st.fixed_dictionaries({"spans": st.lists(SPANS, max_size=3)}))},
    optional={"resource": st.fixed_dictionaries({"attributes": ATTRIBUTES})},
)


def in_texts(parts: Sequence[LogRecord] | Sequence[Span]) -> list[Any]:
    """Records or spans with the texts of their attributes: JSON has whole numbers as text."""
    return [
        replace(part, attributes={k: as_text(v) for k, v in part.attributes.items()})
        for part in parts
    ]


def read_alike(
    read: Callable[..., Sequence[LogRecord] | Sequence[Span]], document: dict[str, Any]
) -> bool:
    in_json = read(json.dumps(document).encode(), NAMES, protobuf=False)
    return in_texts(read(encoded(document), NAMES, protobuf=True)) == in_texts(in_json)


@given(logs=st.lists(LOGS, max_size=3), resources=st.lists(TRACES, max_size=3))
@examples(gate=30, deep=5_000)
def test_what_the_library_writes_is_read_as_the_same_export_in_json(logs, resources) -> None:
    assert read_alike(records_of, {"resourceLogs": logs})
    assert read_alike(spans_of, {"resourceSpans": resources})


@given(logs=st.lists(LOGS, max_size=3), data=st.data())
@examples(gate=60, deep=20_000)
def test_damaged_bytes_are_read_or_refused_as_no_export(logs, data) -> None:
    raw = bytearray(encoded({"resourceLogs": logs}))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw)))
        raw[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with suppress(Problem):
        in_texts(records_of(bytes(raw), NAMES, protobuf=True))
