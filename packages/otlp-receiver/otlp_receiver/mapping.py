"""The mapping of log records and spans to runtime events: which attribute becomes which member."""

import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from api.wire.problem import Fault
from domain.absence import is_nobody, is_nothing, is_null
from domain.lineage.flag import COMMIT_FLAG
from domain.millionths import VALUE_RULE
from otlp_receiver.http_route import graph_route
from otlp_receiver.record import ADDRESSES, HTTP_CODES, RPC_CODES, LogRecord, Scalar, Span, path_of

# The event of an evaluated flag, and its name before OpenTelemetry 1.29.
EVALUATION = "feature_flag.evaluation"
_OLDER_EVALUATION = "feature_flag"

# Attributes that may hold each member: the first present counts. Earlier names stand behind
# their successors: OpenTelemetry's conventions 1.27 had `vcs.repository.ref.revision`.
# `vercel.sha` is @vercel/otel's, whose `service.version` is no commit.
ATTRIBUTES: Mapping[str, Sequence[str]] = {
    "event": ("event.name",),
    "session_id": ("session.id",),
    "user_ref": ("user.id", "enduser.id"),
    "route": ("http.route", *ADDRESSES),
    "commit": (
        "vcs.ref.head.revision",
        "vcs.repository.ref.revision",
        "vercel.sha",
        "service.version",
    ),
    "environment": ("deployment.environment.name", "deployment.environment"),
    "event_id": ("log.record.uid",),
    "value": ("deploy_reward.value",),
    "assignment": ("deploy_reward.assignment",),
}
_KEY = "feature_flag.key"
_RESULTS = ("feature_flag.result.value", "feature_flag.result.variant", "feature_flag.variant")
_UNIT = "feature_flag.context.id"
_REASON = "feature_flag.result.reason"
_FAILURE = "error.type"
NAMES = frozenset(
    {name for names in ATTRIBUTES.values() for name in names}
    | {_KEY, *_RESULTS, _UNIT, _REASON, _FAILURE}
    | {*HTTP_CODES, *RPC_CODES, "service.name", "service.instance.id"}
)

# A `service.version` such as 1.4.2 names no commit, nor does 20261128, a date. `git describe` and
# setuptools_scm write v1.4-3-g4f2a9c1 and 0.1.dev3+g4f2a9c1, dunamai 0.1.post1.dev0+4f2a9c1.
_COMMIT = re.compile(
    r"(?:.*(?:-g|\+g?))?((?![0-9]{1,39}(?:\.d[0-9]{8})?$)[0-9a-fA-F]{7,64})(?:\.d[0-9]{8})?",
    re.ASCII,
)
_SAYS_NOTHING: Mapping[str, Callable[[str], bool]] = {
    "commit": lambda text: is_null(text) or is_nothing(text),
    "user_ref": is_nobody,
}
_EXACT = 2**53
_1970 = datetime(1970, 1, 1, tzinfo=UTC)

_IDS = frozenset({"session_id", "user_ref", "event_id"})
_TEXTS = tuple(member for member in ATTRIBUTES if member != "route")
# Members of a span beside its unit, and the event of a failed span.
_OF_SPANS = ("user_ref", "commit", "environment", "assignment")
_ERROR = "error"
_NO_UNIT = (
    "session.id or user.id, and so without a unit: a baggage processor puts session.id on"
    " server spans, or the setting span_unit names the attribute that has it"
)
_TRACE_ID = (
    "it is the trace's or the span's own id: a visitor makes many, which are not independent"
)

Draft = dict[str, object]


def draft(record: LogRecord, *, named: str | None = None) -> Draft | Fault:
    """Returns a log record as `POST /v1/events` would be sent it, or why it is no event of ours.

    The reader of events says if a member lacks, or has the wrong form.

    Args:
        named: The attribute that names the unit; None where sessions or users are units.
    """
    attributes = record.attributes
    draft: Draft = {member: text for member in _TEXTS if (text := _member(attributes, member))}
    draft |= _of_unit(attributes, named)
    draft |= _route(attributes)
    event = record.event or draft.pop("event", "")
    if not event:
        return Fault(at="/event", code="missing", detail="an event name")
    draft["event"] = event = EVALUATION if event == _OLDER_EVALUATION else event
    if record.nanoseconds:
        draft["occurred_at"] = _moment(record.nanoseconds)
    if "value" in draft:
        value = draft["value"] = _number(attributes[ATTRIBUTES["value"][0]])
        # As JSON has it, such a number would be none at all.
        if isinstance(value, float) and not math.isfinite(value):
            return Fault(at="/value", code="out_of_range", detail=VALUE_RULE)
    return _exposure(draft, attributes) if event == EVALUATION else draft


def span_drafts(
    span: Span, *, event: str, unit: str, named: str | None, pseudonym: Callable[[str], str]
) -> list[Draft] | Fault:
    """Returns a span as `POST /v1/events` would be sent it: a request, and the error that it had.

    It occurred when it began, slow or not, so that its duration moves no unit to another block.

    Args:
        unit: The attribute that holds the unit; where `session.id` lacks, the user is it.
        named: As `draft` has it.
    """
    attributes, persons = span.attributes, ATTRIBUTES["user_ref"]
    units = (unit, *persons) if unit in ATTRIBUTES["session_id"] else (unit,)
    users = (*persons, named)
    texts = {name: _as_id(attributes.get(name, "")) for name in units}
    known = [
        name
        for name, text in texts.items()
        if not (is_nobody if name in users else is_nothing)(text)
    ]
    # Where no attribute names a unit, a word for nothing is passed on, and refused by name.
    name = next(iter(known), unit if texts[unit] and unit not in users else None)
    if name is None:
        detail = f"{unit}, as the setting span_unit has it" if len(units) == 1 else _NO_UNIT
        return Fault(at="/session_id", code="missing", detail=detail)
    text = texts[name]
    if text.lower() in (span.identity[:32], span.identity[32:]):
        return Fault(at="/session_id", code="invalid_member", detail=_TRACE_ID)
    draft: Draft = {member: value for member in _OF_SPANS if (value := _member(attributes, member))}
    draft |= {"event": event, "session_id": pseudonym(text) if name in users else text}
    draft |= _of_unit(attributes, named)
    draft |= _route(attributes)
    if span.started:
        draft["occurred_at"] = _moment(span.started)
    error = draft | {"event": _ERROR}
    # By these a retry adds nothing to a metric of sums.
    # Zeros are the ids of a span outside any trace, as of others.
    if span.identity.strip("0"):
        draft["event_id"], error["event_id"] = span.identity, f"{span.identity}-{_ERROR}"
    if span.ended >= span.started > 0:
        draft["value"] = (span.ended - span.started) / 1e6
    return [draft, error] if span.is_failed_request else [draft]


def _of_unit(attributes: Mapping[str, Scalar], named: str | None) -> Draft:
    return {"properties": {named: attributes[named]}} if named and named in attributes else {}


def _moment(nanoseconds: int) -> str:
    return (_1970 + timedelta(microseconds=nanoseconds // 1000)).isoformat()


def _route(attributes: Mapping[str, Scalar]) -> Draft:
    texts = {name: as_text(attributes.get(name, "")) for name in ATTRIBUTES["route"]}
    known = {name: text for name, text in texts.items() if not is_nothing(text)}
    route = graph_route(known.get("http.route", ""), path_of(known))
    return {"route": route} if route else {}


def _member(attributes: Mapping[str, Scalar], member: str) -> str:
    spelled = _as_id if member in _IDS else as_text
    texts = [spelled(attributes.get(name, "")) for name in ATTRIBUTES[member]]
    if member == "commit":
        build = _COMMIT.fullmatch(as_text(attributes.get("service.version", "")))
        texts[ATTRIBUTES[member].index("service.version")] = build[1] if build else ""
    says_nothing = _SAYS_NOTHING.get(member, is_nothing)
    # A word for nothing stands only where no better value does: the reader refuses or counts it.
    return next(
        (text for text in texts if text and not says_nothing(text)), next(filter(None, texts), "")
    )


def _number(value: Scalar) -> Scalar:
    """Returns an attribute's number; any other text stays as it is, for the reader to refuse."""
    try:
        return float(value)
    except ValueError:
        return value


def _exposure(draft: Draft, attributes: Mapping[str, Scalar]) -> Draft | Fault:
    """Returns the draft of an evaluated flag, or that it served no arm."""
    key = as_text(attributes.get(_KEY, ""))
    values = [_plain(attributes[name]) for name in _RESULTS if name in attributes]
    value = next(
        (each for each in values if not is_nothing(as_text(each))), next(iter(values), None)
    )
    if _FAILURE in attributes or as_text(attributes.get(_REASON, "")).lower() == "error":
        return Fault(at="/flags", code="evaluation_failed", detail="the evaluation failed")
    if not key or value is None:
        return Fault(at="/flags", code="missing", detail=f"{_KEY} and {_RESULTS[0]}")
    is_known = not is_nothing(str(draft.get("session_id", "")))
    if not is_known and (unit := _as_id(attributes.get(_UNIT, ""))):
        draft["session_id"] = unit
    if key == COMMIT_FLAG:
        return draft | {"commit": as_text(value)}
    return draft | {"flags": {key: value if isinstance(value, bool) else as_text(value)}}


def _plain(value: Scalar) -> Scalar:
    """Returns a flag's value without the quotation marks of OpenFeature's hook for Python."""
    if isinstance(value, str) and value.startswith('"'):
        with contextlib.suppress(ValueError):
            return str(json.loads(value))
    return value


def _as_id(value: Scalar) -> str:
    """Returns an identifying attribute as text; `undefined` and the like where it has no value.

    True and false are what `user && user.id` makes of nobody. A floating number is the id of many
    where it is beyond its exact integers.
    """
    if isinstance(value, bool):
        return "null"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else "NaN"
    return as_text(value)


def as_text(value: Scalar) -> str:
    """Returns an attribute's value as text; yes and no as JSON writes them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)
