"""`POST /v1/logs`: log events of OpenTelemetry become runtime events, whatever their encoding."""

import time
from typing import Any

import pytest

from storage.tenants.keys import KeyKind
from tests.api.otlp.exports import (
    BUILD,
    KINDS,
    PROTOBUF,
    evaluation,
    export,
    receipt,
    record,
    sent,
    stored,
)


def status_of(answer: Any) -> str:
    """The message of a failure's status, in the encoding of its request."""
    if answer.headers["Content-Type"] == "application/json":
        assert answer.json().keys() == {"message"}
        return answer.json()["message"]
    assert answer.headers["Content-Type"] == "application/x-protobuf"
    # Of google.rpc.Status the field 2 alone: its tag, its length, its text.
    assert answer.content[0] == 0x12
    skipped = 2 if answer.content[1] < 0x80 else 3
    return answer.content[skipped:].decode()


@KINDS
def test_an_evaluated_flag_is_an_exposure_and_any_other_event_an_outcome(
    tenant, *, protobuf
) -> None:
    order = record(
        "order_placed",
        session__id="s-1",
        user__id=4711,
        http__route="/checkout/[id]",
        log__record__uid="01J",
        deploy_reward__value=12.5,
    )
    moment = time.time_ns() // 10**9 * 10**9 + 250_000_000
    document = export(
        [
            evaluation("one-step", "s-1") | {"timeUnixNano": str(moment)},
            order | {"observedTimeUnixNano": str(moment)},
        ],
        deployment__environment__name="staging",
    )
    answer = sent(tenant, document, protobuf=protobuf)
    assert (answer.status_code, receipt(answer)) == (200, (0, ""))
    assert answer.content == (b"" if protobuf else b"{}")
    exposure, outcome = stored(tenant)
    assert exposure.event == "feature_flag.evaluation"
    assert exposure.flags == {"one-step": True}
    assert (outcome.event, outcome.named, outcome.route) == ("order_placed", True, "/checkout/[id]")
    assert (outcome.event_id, outcome.value, outcome.flags) == ("01J", 12_500_000, None)
    for event in (exposure, outcome):
        assert (event.session_id, event.environment) == ("s-1", "staging")
        assert (event.commit_sha, event.trusted) == (BUILD, False)
        assert event.occurred_at.timestamp() == moment / 10**9


@KINDS
def test_both_encodings_are_stored_alike(tenant, *, protobuf) -> None:
    records = [
        # OpenFeature's hook for Python writes the value as JSON.
        evaluation("layout", "s-1", value='"grid"'),
        evaluation("tries", "s-2", value=3),
        record("feature_flag.evaluation", feature_flag__key="layout")
        | {
            "attributes": [
                {"key": "feature_flag.key", "value": {"stringValue": "layout"}},
                {"key": "feature_flag.result.variant", "value": {"stringValue": "list"}},
                {"key": "feature_flag.context.id", "value": {"stringValue": "s-3"}},
                {"key": "unread", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}},
            ]
        },
        evaluation("commit", "s-4", value="c0ffee1"),
        record("", event__name="page_view", session__id="s-5", url__path="/a?who=ada"),
        record("page_view", session__id="s-6", vcs__ref__head__revision="ABCDEF1"),
        record(
            "feature_flag", session__id="s-7", feature_flag__key="f", feature_flag__variant="on"
        ),
    ]
    assert receipt(sent(tenant, export(records), protobuf=protobuf, **tenant.write)) == (0, "")
    events = stored(tenant)
    assert [event.flags for event in events] == [
        {"layout": "grid"},
        {"tries": "3"},
        {"layout": "list"},
        None,
        None,
        None,
        {"f": "on"},
    ]
    # The event's name before OpenTelemetry 1.29.
    assert events[-1].event == "feature_flag.evaluation"
    assert [event.commit_sha for event in events] == [
        *[BUILD] * 3,
        "c0ffee1",
        BUILD,
        "abcdef1",
        BUILD,
    ]
    assert (events[4].event, events[4].route) == ("page_view", "/a")
    assert all(event.trusted for event in events)


@KINDS
def test_records_that_say_too_little_are_counted_by_reason(tenant, *, protobuf) -> None:
    records = [
        record("page_view"),
        record("page_view"),
        record("", session__id="s-1"),
        evaluation("one-step", "s-2", error__type="provider_not_ready"),
        record("feature_flag.evaluation", session__id="s-3"),
        record("page_view", session__id="s" * 129),
        record("page_view", session__id="s-4", vcs__ref__head__revision="main"),
        record("page_view", session__id="s-5"),
    ]
    answer = sent(tenant, export(records), protobuf=protobuf)
    rejected, message = receipt(answer)
    assert (answer.status_code, rejected) == (200, 7)
    assert message.startswith("2 without session.id; ")
    assert "1 without an event name" in message
    assert "1 without feature_flag.key and feature_flag.result.value" in message
    assert "1 whose flags is refused: the evaluation failed" in message
    assert "main" not in message
    assert [event.session_id for event in stored(tenant)] == ["s-5"]


def test_a_version_that_is_no_commit_is_no_fault_and_an_exposure_without_a_build_is_told(
    tenant,
) -> None:
    document = export([evaluation("f", "s-1")], service__version="1.4.2")
    resource = document["resourceLogs"][0]["resource"]
    resource["attributes"] = resource["attributes"][1:]
    rejected, message = receipt(sent(tenant, document, protobuf=False))
    assert rejected == 0
    assert message.startswith("1 stored without vcs.ref.head.revision: ")
    resource["attributes"][0]["value"] = {"stringValue": "4f2a9c1"}
    assert receipt(sent(tenant, document, protobuf=False)) == (0, "")
    assert [event.commit_sha for event in stored(tenant)] == [None, "4f2a9c1"]


@KINDS
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "1000000001"])
@pytest.mark.parametrize("as_double", [False, True])
def test_a_value_that_is_no_finite_number_rejects_its_record(
    tenant, *, protobuf, value, as_double
) -> None:
    given = {"doubleValue": value if value != "1e400" else "Infinity"} if as_double else None
    attribute = {"key": "deploy_reward.value", "value": given or {"stringValue": value}}
    event = record("order_placed", session__id="s-1")
    event["attributes"].append(attribute)
    rejected, message = receipt(sent(tenant, export([event]), protobuf=protobuf))
    assert rejected == 1
    assert message.startswith("1 whose deploy_reward.value is refused: a value is a finite number")
    assert stored(tenant) == []


@KINDS
def test_a_large_export_is_stored_whole(tenant, *, protobuf) -> None:
    records = [record("page_view", session__id=f"s-{number}") for number in range(2000)]
    records[1234] = record("page_view")
    rejected, message = receipt(sent(tenant, export(records), protobuf=protobuf))
    assert (rejected, message) == (1, "1 without session.id")
    assert len({event.session_id for event in stored(tenant)}) == 1999


BROKEN = {
    "no JSON": b"{",
    "another shape": b'{"resourceLogs": [{"scopeLogs": {}}]}',
    "a time that is none": b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano":'
    b' "soon"}]}]}]}',
    "a list": b"[]",
    "nested too deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "a number of many digits": b'{"resourceLogs": [{"resource": {"attributes": [{"key":'
    b' "user.id", "value": {"intValue": ' + b"9" * 5000 + b"}}]}}]}",
    "half a character": b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"eventName":'
    b' "\\ud800"}]}]}]}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_body_that_is_no_export_is_400(tenant, name) -> None:
    headers = tenant.public | {"Content-Type": "application/json"}
    answer = tenant.client.post("/v1/logs", content=BROKEN[name], headers=headers)
    assert answer.status_code == 400
    assert (
        status_of(answer)
        == "invalid_otlp: the body is not the export that OTLP has for this address"
    )


def test_bytes_that_are_no_protobuf_are_400_in_protobuf(tenant) -> None:
    for content in (b"\xff", b"\x0a\x05ab", b"{}"):
        answer = tenant.client.post("/v1/logs", content=content, headers=tenant.public | PROTOBUF)
        assert answer.status_code == 400
        assert status_of(answer).startswith("invalid_otlp: ")


def test_what_the_store_cannot_hold_rejects_its_record_alone(tenant) -> None:
    records = [record("page\0view", session__id="s-1"), record("page_view", session__id="s-2")]
    for protobuf in (False, True):
        rejected, _ = receipt(sent(tenant, export(records), protobuf=protobuf))
        assert rejected == 1
    assert [event.session_id for event in stored(tenant)] == ["s-2", "s-2"]


@KINDS
def test_failures_are_told_as_a_status_in_the_encoding_of_the_request(tenant, *, protobuf) -> None:
    document = export([record("page_view", session__id="s-1")])
    wrong = tenant.project.keys[KeyKind.PROJECT]
    cases = (
        ({"X-Other": "1"}, 401, "missing_key: "),
        ({"X-Service-Project-Key": wrong}, 403, "wrong_key_kind: "),
        (tenant.public | {"Content-Encoding": "br"}, 415, "unsupported_media_type: "),
        (tenant.public | {"Content-Encoding": "gzip"}, 400, "invalid_encoding: "),
    )
    for headers, status, message in cases:
        answer = sent(tenant, document, protobuf=protobuf, **headers)
        assert answer.status_code == status
        assert status_of(answer).startswith(message)


@KINDS
def test_too_many_exports_are_told_when_to_come_again(tenant, *, protobuf) -> None:
    tenant.settings(rate_limits={"per_key": 1})
    document = export([record("page_view", session__id="s-1")])
    answers = [sent(tenant, document, protobuf=protobuf) for _ in range(3)]
    limited = answers[-1]
    assert limited.status_code == 429
    assert int(limited.headers["Retry-After"]) > 0
    assert status_of(limited).startswith("rate_limited: ")


@KINDS
def test_an_export_of_too_many_records_is_refused_and_never_taken_apart(
    tenant, *, protobuf
) -> None:
    answer = sent(tenant, export([{}] * 10_001), protobuf=protobuf)
    assert answer.status_code == 413
    assert status_of(answer).startswith("body_too_large: ")
    for none in (
        {"resourceLogs": [{}] * 10_001},
        {"resourceLogs": [{"scopeLogs": [{}] * 2_001}] * 5},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{}] * 11}] * 10}] * 100},
    ):
        assert sent(tenant, none, protobuf=protobuf).status_code == 413


@KINDS
def test_a_batch_of_a_collector_is_taken_whole_and_so_is_a_long_record(tenant, *, protobuf) -> None:
    tenant.settings(rate_limits={"per_key": 100_000, "per_address": 100_000})
    read = record("page_view", session__id="s-1")
    others = export([{"severityText": "2", "body": {"stringValue": "1, 2\n"}}])["resourceLogs"]
    unread = [{"key": f"k{n}", "value": {"stringValue": "a" * 600}} for n in range(128)]
    batch = export([*[read] * 8_192, {**read, "attributes": [*read["attributes"], *unread]}])
    batch["resourceLogs"] += others
    answer = sent(tenant, batch, protobuf=protobuf)
    assert (answer.status_code, receipt(answer)[0]) == (200, 1)
    assert len(stored(tenant)) == 8_193
