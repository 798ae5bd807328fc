"""An export of OTLP: its records become runtime events, and a receipt counts those that do not."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.intake import take_events
from api.runtime.keyring import Caller, admitted
from api.wire.body import JSON, MEBIBYTE, PROTOBUF, is_protobuf
from api.wire.documentation import reading
from api.wire.event_batch import MOST_EVENTS, Batch, EventReader, Rejected
from api.wire.problem import Fault
from otlp_receiver.answer import REJECTED, receipt
from otlp_receiver.mapping import ATTRIBUTES, Draft
from storage.tenants.keys import KeyKind

_LIMIT = 4 * MEBIBYTE
_NOTES = {
    "split_spans": "whose enclosing span came in no export with them: each counts as a request",
    "untranslated_spans": "whose http.route no graph can have: their path stands for it",
}
# An answer stays readable, whatever was sent.
_MOST_REASONS = 5
_BINARY = {"type": "string", "format": "binary"}
_STATUS: dict[str, Any] = {
    "type": "object",
    "description": "OTLP's Status: the `code` of a problem, and its `detail`.",
    "required": ["message"],
    "properties": {"message": {"type": "string"}},
}


# The events of each record, or the reason why it becomes none.
Drafts = Iterable[list[Draft] | Fault]


def attributes(texts: Mapping[str, str | bool]) -> list[dict[str, Any]]:
    """Returns attributes as OTLP's JSON has them."""
    kinds = {bool: "boolValue", str: "stringValue"}
    return [{"key": key, "value": {kinds[type(text)]: text}} for key, text in texts.items()]


def export_of(kind: str, parts: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an export of a single record, or span, of a build."""
    resource = {"attributes": attributes({"vcs.ref.head.revision": "4f2a9c1d"})}
    return {f"resource{kind}": [{"resource": resource, f"scope{kind}": [{parts: [part]}]}]}


def documented(
    path: str, *, request: str, example: Mapping[str, Any], problems: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Returns the documentation of a route that takes exports, for its decorator."""
    export = {
        "type": "object",
        "description": f"OTLP's {request}.",
        "properties": {
            member: {"type": ["array", "null"], "items": {"type": "object"}} for member in example
        },
    }
    counted = {REJECTED[path]: {"type": "string"}, "errorMessage": {"type": "string"}}
    partial_success = {"type": "object", "required": list(counted), "properties": counted}
    answer = {
        "type": "object",
        "description": f"OTLP's {request.replace('Request', 'Response')}.",
        "properties": {"partialSuccess": partial_success},
    }
    return {
        "responses": {200: {"content": {JSON: {"schema": answer}, PROTOBUF: {"schema": _BINARY}}}},
        "openapi_extra": reading(
            body={JSON: export, PROTOBUF: _BINARY},
            examples={"a record": example},
            keys=("ProjectKey", "Bearer"),
            problems=["invalid_otlp", "invalid_encoding", "rate_limited", *problems],
            last_wins=True,
            failures={JSON: _STATUS, PROTOBUF: _BINARY},
        ),
    }


async def stored(
    request: Request,
    drafts: Callable[..., Drafts],
    *kinds: KeyKind,
    exposing: Callable[[Caller], str],
) -> Response:
    """Stores the events of an export and returns its receipt.

    Args:
        drafts: Reads a body, by a reader of events, `protobuf` or not, of a `caller`, and counts in
            `notes` the remarks of the receipt and the checklist.
    """
    caller = await admitted(request, *kinds, bearer=True)
    drafts = partial(drafts, protobuf=is_protobuf(request), caller=caller)
    batch, _ = await take_events(
        request,
        caller,
        media=(JSON, PROTOBUF),
        limit=_LIMIT,
        read=partial(_batch, drafts=drafts),
        may_be_empty=True,
    )
    message = _message(batch, exposing(caller))
    return receipt(request, rejected=len(batch.rejected), message=message)


def _batch(reader: EventReader, raw: bytes, *, drafts: Callable[..., Drafts]) -> Batch:
    """Returns the records of an export as the reader of `POST /v1/events` reads them."""
    whole = Batch()
    taken: list[tuple[int, Draft]] = []
    rejected: dict[int, Rejected] = {}
    for index, drafted in enumerate(drafts(reader, raw, notes=whole.notes)):
        if isinstance(drafted, Fault):
            rejected[index] = Rejected(index=index, faults=[drafted])
        else:
            taken += [(index, draft) for draft in drafted]
    for first in range(0, len(taken), MOST_EVENTS):
        some = taken[first : first + MOST_EVENTS]
        events = [event for _, event in some]
        batch = reader.batch(msgspec.json.encode({"events": events}))
        whole.events += batch.events
        whole.sampled_out += batch.sampled_out
        whole.unknown += batch.unknown
        for event in batch.rejected:
            index = some[event.index][0]
            rejected[index] = Rejected(index=index, faults=event.faults)
    # A record of several events counts once.
    whole.rejected += rejected.values()
    return whole


def _message(batch: Batch, exposing: str) -> str:
    """Returns the reasons of rejections, and warnings about stored records; often empty."""
    reasons = Counter(_reason(event.faults[0]) for event in batch.rejected)
    lines = [f"{count} {reason}" for reason, count in reasons.most_common(_MOST_REASONS)]
    lines += [f"{count} {_NOTES[note]}" for note, count in batch.notes.items() if count]
    return "; ".join([*lines, *_warnings(batch, exposing)])


def _reason(fault: Fault) -> str:
    member = fault.at.rpartition("/")[2]
    name = next(iter(ATTRIBUTES.get(member, ())), member)
    if fault.code != "missing":
        return f"whose {name} is refused: {fault.detail}"
    return f"without {name if fault.detail == 'is required' else fault.detail}"


def _warnings(batch: Batch, exposing: str) -> Iterator[str]:
    lacking = sum(event.event == exposing and event.commit_sha is None for event in batch.events)
    if lacking:
        name = ATTRIBUTES["commit"][0]
        yield f"{lacking} stored without {name}: {exposing} that names no build exposes nobody"
    for member, count in batch.unknown.items():
        yield f"{count} stored without {ATTRIBUTES[member][0]}, whose value is a word for nothing"
