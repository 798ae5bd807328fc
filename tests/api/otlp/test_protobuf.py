"""The reader of protobuf, against the library of those who write it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from api.adapters.otlp.json import records_of_json, spans_of_json
from api.adapters.otlp.mapping import as_text
from api.adapters.otlp.protobuf import records_of_protobuf, spans_of_protobuf
from api.adapters.otlp.record import LogRecord, Span
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
EXPORTS = st.fixed_dictionaries({"resourceLogs": st.lists(LOGS, max_size=3)})
MOST_FIELDS = 10_000


def read(raw: bytes) -> list[LogRecord] | str:
    try:
        return records_of_protobuf(raw, NAMES, most_fields=MOST_FIELDS)
    except Problem as problem:
        return problem.code


def in_texts(parts: Sequence[LogRecord] | Sequence[Span] | str) -> list[Any]:
    """Records or spans with the texts of their attributes: JSON has whole numbers as text."""
    assert not isinstance(parts, str)
    return [
        replace(part, attributes={k: as_text(v) for k, v in part.attributes.items()})
        for part in parts
    ]


@given(document=EXPORTS, resources=st.lists(TRACES, max_size=3))
@examples(gate=100, deep=5_000)
def test_what_the_library_writes_is_read_as_the_same_export_in_json(document, resources) -> None:
    in_json = records_of_json(json.dumps(document).encode(), NAMES)
    assert in_texts(read(encoded(document))) == in_texts(in_json)
    document = {"resourceSpans": resources}
    spans = spans_of_protobuf(encoded(document), NAMES, most_fields=MOST_FIELDS)
    assert in_texts(spans) == in_texts(spans_of_json(json.dumps(document).encode(), NAMES))


@given(document=EXPORTS, data=st.data())
@examples(gate=200, deep=20_000)
def test_damaged_bytes_are_refused_or_read_as_the_library_reads_them(document, data) -> None:
    raw = bytearray(encoded(document))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw)))
        raw[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    answer = read(bytes(raw))
    export = ExportLogsServiceRequest()
    try:
        export.ParseFromString(bytes(raw))
    except DecodeError:
        return
    if isinstance(answer, list):
        assert len(answer) == sum(
            len(scope.log_records) for logs in export.resource_logs for scope in logs.scope_logs
        )
        assert MessageToDict(export) or not answer
    else:
        # Groups, which proto3 has not, and members that come twice.
        assert answer in ("invalid_otlp", "body_too_large")


def test_fields_are_counted_wherever_they_stand() -> None:
    attributes = b"\x32\x00" * MOST_FIELDS
    for inner in (attributes, b"\x0a\x00" * MOST_FIELDS, b"\x08\x01" * MOST_FIELDS):
        scope = b"\x12" + length(inner) + inner
        logs = b"\x12" + length(scope) + scope
        assert read(b"\x0a" + length(logs) + logs) == "body_too_large"


def length(content: bytes) -> bytes:
    size, parts = len(content), bytearray()
    while size > 0x7F:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*parts, size])
