"""Runtime events as posted: an event, or a batch, each read on its own."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import repeat
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple

from api.wire.moment import RULE as MOMENT_RULE
from api.wire.moment import moment, plain_moment, plain_moments
from api.wire.problem import Fault, invalid
from api.wire.shape import CODES_OF_NAMES, COMMIT_RULE, FREE_FORM_BYTES, NO_VALUE
from api.wire.signature import Signatures
from api.wire.strict_json import DEEPEST, examined, plain
from domain.absence import NOTHING_RULE, is_nobody, is_nothing, is_null
from domain.document import time_text
from domain.metric import composed_name
from domain.millionths import LARGEST_VALUE, VALUE_RULE, value_in_millionths
from domain.route import canonical_route
from storage.log.events import EventColumns, EventLines, RuntimeEvent
from storage.schema.encoding import SKEW
from storage.tenants.sample import Sample
from storage.tenants.secret import Pseudonyms

EVENTS_PATH = "/v1/events"
MemberT = TypeVar("MemberT")
StoredT = TypeVar("StoredT")

MOST_EVENTS = 500
PRODUCTION = "production"
_SKEW = timedelta(microseconds=SKEW)
_FUTURE = timedelta(minutes=2)
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_MOST_IGNORED = 50
_LONGEST_IGNORED = 64

Label = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
# `$` alone would let a line feed follow.
CommitId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-fA-F]{7,64}$(?!\n)")]
_COMMIT_ID = re.compile(r"[0-9a-fA-F]{7,64}")
FlagValue = (
    Annotated[str, msgspec.Meta(max_length=256)]
    | bool
    | Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
    | Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
)
Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]

_ROUTE = msgspec.Meta(
    min_length=1, max_length=512, description="A pattern of the graph, or a path that it matches."
)
_USER_REF = msgspec.Meta(max_length=256, description="Who: stored as a pseudonym.")
_ASSIGNMENT = msgspec.Meta(
    min_length=1, max_length=256, description="The token by which the router vouches for the arm."
)

# Checked by `value_in_millionths`, whose sentence says more than msgspec's.
_VALUE = msgspec.Meta(
    description="What a metric of kind `mean` adds up; kept to six decimals.",
    extra_json_schema={"minimum": -LARGEST_VALUE, "maximum": LARGEST_VALUE},
)


def _means(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class RuntimeEventBody(msgspec.Struct, kw_only=True, gc=False):
    """A runtime event; members that are not named here are ignored, and named in the answer."""

    event: Annotated[Name, _means("Any name; a metric is named after it, or names it.")]
    session_id: Annotated[Name, _means("What the router draws by: by default the unit.")]
    occurred_at: Annotated[Time, _means("By default when it came.")] | None = None
    commit: Annotated[CommitId, _means("The build that served it: tells the arm.")] | None = None
    flags: (
        Annotated[
            dict[Name, FlagValue | None],
            msgspec.Meta(
                max_length=200, description="Values of flags that the unit was served; null: none."
            ),
        ]
        | None
    ) = None
    route: Annotated[str, _ROUTE] | None = None
    environment: Annotated[Label, _means("By default `production`.")] | None = None
    user_ref: Annotated[str, _USER_REF] | None = None
    event_id: (
        Annotated[Label, _means("The same id again adds nothing to a metric of sums.")] | None
    ) = None
    value: Annotated[float, _VALUE] | None = None
    properties: Annotated[dict[str, Any], _means("At most 4096 bytes as JSON.")] | None = None
    assignment: Annotated[str, _ASSIGNMENT] | None = None


class RuntimeEventBatch(msgspec.Struct, kw_only=True):
    """Events with the client's clock at this attempt to send them."""

    events: Annotated[list[RuntimeEventBody], msgspec.Meta(min_length=1, max_length=MOST_EVENTS)]
    sent_at: Time | None = None


class _KnownEvent(RuntimeEventBody, forbid_unknown_fields=True, gc=False):
    """An event of which every member is known, but for whether `commit` is hexadecimal."""

    commit: Annotated[str, msgspec.Meta(min_length=7, max_length=64)] | None = None


class _KnownBatch(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A batch of which every member is known; what stands around the events is for the reader."""

    events: Annotated[list[_KnownEvent], msgspec.Meta(min_length=1, max_length=MOST_EVENTS)]
    sent_at: str | None = None


_KNOWN_BATCH = msgspec.json.Decoder(_KnownBatch)
# Identifiers and names, which no word for nothing can be.
_NAMES = ("session_id", "event_id", "environment")
EVENT_MEMBERS = frozenset(RuntimeEventBody.__struct_fields__)
_BATCH_MEMBERS = frozenset(RuntimeEventBatch.__struct_fields__)


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """An event of a batch that is not stored, and why."""

    index: int
    faults: Sequence[Fault]


@dataclass(kw_only=True)
class Batch:
    """The result of reading a request; `sampled_out` counts valid events that are not stored.

    The events are lines already where none of them needed a look of its own. `unknown` counts, by
    member, words for nothing and null ids: their events are stored as if they named none. `notes`
    counts the checklist's remarks about spans.
    """

    lines: EventLines | None = None
    events: list[RuntimeEvent] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    ignored: set[str] = field(default_factory=set)
    unknown: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    sampled_out: int = 0

    @property
    def accepted(self) -> int:
        """How many events are to be stored."""
        return len(self.events if self.lines is None else self.lines.names)

    @property
    def faults(self) -> list[Fault]:
        """Why events were rejected."""
        return [fault for event in self.rejected for fault in event.faults]

    @property
    def ignored_names(self) -> list[str]:
        """The unknown members, each once; some of them, when a client sends very many."""
        return sorted({name[:_LONGEST_IGNORED] for name in self.ignored})[:_MOST_IGNORED]


class _Clock(NamedTuple):
    """The sender's clock: its time as the request was sent, and how far it was behind ours.

    A slow request looks like a clock that is behind, so that no event is moved by it here: how
    far a session's are, its requests together tell (`storage.pipeline.steps`).
    """

    sent_at: str | None = None
    behind: timedelta = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class EventReader:
    """Reads the events of a request.

    Attributes:
        signatures: Which events a router vouches for; None where signatures are not asked for.
        sample: The units whose events are stored; None for all.
        unit: The property that names the unit, whose pseudonym stands in the place of the user's:
            that goes to the properties. None where sessions or users are units.
    """

    project_id: int
    now: datetime
    trusted: bool
    history: bool
    pseudonyms: Pseudonyms
    signatures: Signatures | None = None
    epochs: Sequence[int] = ()
    sample: Sample | None = None
    unit: str | None = None
    latest: datetime = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "latest", self.now + _FUTURE)

    def read(self, raw: bytes) -> Batch:
        """Returns the events of a body, as `batch` does, in the quickest way that it allows."""
        if not self.history and self.sample is None:
            read = self.columns(raw)
            if read is not None:
                columns, unknown = read
                return Batch(lines=columns.lines(), unknown=unknown)
        return self.batch(raw)

    def columns(self, raw: bytes) -> tuple[EventColumns, Counter[str]] | None:
        """Returns the events of a batch by their members, or None if they must be read in turn.

        Most batches hold nothing to explain, to correct or to leave out. Beside them it returns
        how many members said nothing, as `Batch` counts them.
        """
        known = _known(raw)
        if known is None:
            return None
        around: list[Fault] = []
        clock = self._clock(known.sent_at, around)
        if clock.behind or around:
            return None
        try:
            return self._columns(zip(*map(astuple, known.events), strict=True), clock.sent_at)
        except _RefusedError:
            return None

    def _columns(
        self, columns: Iterable[Sequence[Any]], sent_at: str | None
    ) -> tuple[EventColumns, Counter[str]] | None:
        """Returns events by the columns of their members, in the order of `_KnownEvent`."""
        commits, names, sessions, texts, flags, routes, *others = columns
        environments, user_refs, event_ids, values, properties, tokens = others
        if (self.signatures is not None and any(tokens)) or (self.history and None in texts):
            return None
        times = [self._now_text if text is None else text for text in texts]
        moments = plain_moments(times, latest=self.latest)
        if moments is None:
            return None
        for member, column in zip(_NAMES, (sessions, event_ids, environments), strict=True):
            _require_values(member, set(column))
        _require_values("flags", {name for named in flags if named for name in named})
        sent = {"commit": commits, "route": routes, "user_ref": user_refs}
        stored = {member: _each(form, sent[member]) for member, form in self._forms.items()}
        pseudonyms: Sequence[bytes | None] = stored["user_ref"]
        if self.unit is not None:
            of_units = map(self._of_unit, pseudonyms, properties)
            pseudonyms, properties = zip(*of_units, strict=True)
        unknown = Counter(
            {name: stored[name].count(None) - sent[name].count(None) for name in sent}
        )
        read = EventColumns(
            project_id=repeat(self.project_id),
            environment=[_environment(environment) for environment in environments],
            event=[_composed(name) for name in names],
            session_id=sessions,
            occurred_at=moments,
            occurred_text=times,
            commit_sha=stored["commit"],
            route=stored["route"],
            pseudonym=pseudonyms,
            trusted=repeat(self.trusted),
            event_id=event_ids,
            value=_each(_in_millionths, values),
            flags=_each(_encoded_flags, flags),
            properties=_each(_encoded, properties),
            signed=[False] * len(names),
            sent_at=[None if text is None else sent_at for text in texts],
        )
        return read, +unknown

    @cached_property
    def _forms(self) -> Mapping[str, Callable[[str], Any]]:
        """The stored forms of the members that may say nothing: then there is none."""
        project_id, pseudonyms = self.project_id, self.pseudonyms
        return {
            "commit": lambda commit: None if is_null(commit) else commit.lower(),
            # Without the query, which may name a person.
            "route": lambda route: None if is_nothing(route) else canonical_route(route),
            "user_ref": lambda user: None if is_nobody(user) else pseudonyms.of(project_id, user),
        }

    def _of_unit(
        self, user: bytes | None, properties: Mapping[str, object] | None
    ) -> tuple[bytes | None, dict[str, object]]:
        """Returns the pseudonym of the unit that an event names, and properties with its user's."""
        unit = self.unit or ""
        try:
            return self.pseudonyms.of_unit(self.project_id, unit, properties or {}, user=user)
        except ValueError as broken:
            raise _RefusedError(f"/properties/{unit}", "invalid_member", str(broken)) from None

    def batch(self, raw: bytes) -> Batch:
        """Returns the events of a body, each read on its own.

        Raises:
            Problem: It is not JSON, or what stands around the events breaks a rule.
        """
        document, faults = _document(raw)
        if not isinstance(document, dict):
            raise invalid(faults or [Fault(at="", code="object_type", detail="must be an object")])
        if "events" not in document:
            return self._read([(document, "", faults)], _Clock())
        events = document["events"]
        around, of_events = _sorted_faults(faults)
        if not isinstance(events, list) or not 1 <= len(events) <= MOST_EVENTS:
            detail = f"must be an array of 1 to {MOST_EVENTS} events"
            around.append(Fault(at="/events", code="events_count", detail=detail))
        clock = self._clock(document.get("sent_at"), around)
        if around:
            raise invalid(around)
        batch = self._read(
            [
                (event, f"/events/{index}", of_events.get(index, ()))
                for index, event in enumerate(events)
            ],
            clock,
        )
        batch.ignored |= document.keys() - _BATCH_MEMBERS
        return batch

    def _clock(self, sent_at: object, around: list[Fault]) -> _Clock:
        if sent_at is None:
            return _Clock()
        try:
            shown = moment(sent_at)
        except ValueError:
            around.append(Fault(at="/sent_at", code="invalid_time", detail=MOMENT_RULE))
            return _Clock()
        behind = self.now - shown
        if self.history:
            return _Clock()
        return _Clock(shown.isoformat(), behind if abs(behind) > _SKEW else timedelta(0))

    def _read(self, documents: Sequence[tuple[Any, str, Sequence[Fault]]], clock: _Clock) -> Batch:
        batch = Batch()
        for index, (document, pointer, faults) in enumerate(documents):
            read = faults or self._event(document, pointer, clock, batch.unknown)
            if isinstance(read, RuntimeEvent):
                self._keep(read, batch)
            else:
                batch.rejected.append(Rejected(index=index, faults=read))
            if isinstance(document, dict) and not document.keys() <= EVENT_MEMBERS:
                batch.ignored |= document.keys() - EVENT_MEMBERS
        return batch

    def _keep(self, event: RuntimeEvent, batch: Batch) -> None:
        if self.sample is None or self.sample.takes(event.session_id, event.pseudonym):
            batch.events.append(event)
        else:
            batch.sampled_out += 1

    def _event(
        self, document: object, pointer: str, clock: _Clock, unknown: Counter[str]
    ) -> RuntimeEvent | Sequence[Fault]:
        try:
            return self._stored(msgspec.convert(document, RuntimeEventBody), clock, unknown)
        except msgspec.ValidationError as error:
            return [_fault(str(error), pointer)]
        except _RefusedError as refused:
            return [refused.fault(pointer)]

    def _stored(
        self, event: RuntimeEventBody, clock: _Clock, unknown: Counter[str]
    ) -> RuntimeEvent:
        """Returns an event as it is stored; of its members that say nothing it counts each."""
        for member in _NAMES:
            _require_values(member, (getattr(event, member),))
        _require_values("flags", event.flags or ())
        occurred_at, occurred_text = self._occurred(event.occurred_at, clock.behind)
        sent = {name: text for name in self._forms if (text := getattr(event, name)) is not None}
        known = {name: self._forms[name](text) for name, text in sent.items()}
        pseudonym, properties = known.get("user_ref"), event.properties
        if self.unit is not None:
            pseudonym, properties = self._of_unit(pseudonym, properties)
        stored = RuntimeEvent(
            project_id=self.project_id,
            environment=_environment(event.environment),
            event=_composed(event.event),
            session_id=event.session_id,
            occurred_at=occurred_at,
            occurred_text=occurred_text,
            commit_sha=known.get("commit"),
            route=known.get("route"),
            pseudonym=pseudonym,
            trusted=self.trusted,
            event_id=event.event_id,
            value=None if event.value is None else _in_millionths(event.value),
            flags=None if event.flags is None else _encoded_flags(event.flags),
            properties=None if properties is None else _encoded(properties),
            signed=event.assignment is not None
            and self._is_signed(event, event.assignment, known.get("commit")),
            sent_at=None if event.occurred_at is None else clock.sent_at,
        )
        unknown.update(name for name, text in known.items() if text is None)
        return stored

    def _is_signed(self, event: RuntimeEventBody, token: str, commit: str | None) -> bool:
        """Tells whether a router vouches for the session that the event claims.

        An event is stored in either case, and its sender reads the same.
        """
        return self.signatures is not None and self.signatures.hold(
            token,
            project_id=self.project_id,
            epochs=self.epochs,
            environment=_environment(event.environment),
            session_id=event.session_id,
            commit=commit,
            flags=_as_texts(event.flags or {}),
        )

    def _occurred(self, text: str | None, behind: timedelta) -> tuple[datetime, str]:
        """Returns an event's time by our clock, and by its sender's as PostgreSQL reads it."""
        if text is None:
            if self.history:
                raise _RefusedError("/occurred_at", "missing", "history must say when it occurred")
            return self.now, self._now_text
        if not behind and (plain := plain_moment(text, latest=self.latest)) is not None:
            return plain, text
        occurred_at = self._explained_moment(text, behind)
        return occurred_at, (occurred_at - behind).isoformat()

    @cached_property
    def _now_text(self) -> str:
        return time_text(self.now)

    def _explained_moment(self, text: str, behind: timedelta) -> datetime:
        try:
            occurred_at = moment(text) + behind
        except ValueError:
            raise _RefusedError("/occurred_at", "invalid_time", MOMENT_RULE) from None
        if occurred_at > self.latest:
            detail = "more than 2 minutes in the future"
            if behind:
                seconds = behind.total_seconds()
                detail += f", once moved by the {seconds:.0f} s that sent_at is behind our clock"
            raise _RefusedError("/occurred_at", "in_the_future", detail)
        if occurred_at < _FIRST:
            raise _RefusedError("/occurred_at", "invalid_time", MOMENT_RULE)
        return occurred_at


class _RefusedError(Exception):
    """A member of an event breaks a rule."""

    def __init__(self, member: str, code: str, detail: str) -> None:
        super().__init__(detail)
        self._member, self._code, self._detail = member, code, detail

    def fault(self, pointer: str) -> Fault:
        """Returns the fault, at a pointer below the event's."""
        return Fault(at=pointer + self._member, code=self._code, detail=self._detail)


def _require_values(member: str, names: Iterable[str | None]) -> None:
    if any(is_nothing(name) for name in names if name is not None):
        raise _RefusedError(f"/{member}", NO_VALUE, NOTHING_RULE)


def _environment(name: str | None) -> str:
    """Returns where an event was: a shell or a form may leave spaces around the name."""
    return PRODUCTION if name is None else name.strip()


def _composed(name: str) -> str:
    try:
        return composed_name(name)
    except ValueError as broken:
        raise _RefusedError("/event", CODES_OF_NAMES[str(broken)], str(broken)) from None


def _in_millionths(value: float) -> int:
    try:
        return value_in_millionths(value)
    except ValueError:
        raise _RefusedError("/value", "out_of_range", VALUE_RULE) from None


def _each(
    convert: Callable[[MemberT], StoredT], column: Sequence[MemberT | None]
) -> list[StoredT | None]:
    # Most members are left out by all events, or by none.
    if column.count(None) == len(column):
        return [None] * len(column)
    return [None if member is None else convert(member) for member in column]


def _encoded_flags(flags: Mapping[str, FlagValue | None]) -> str:
    return msgspec.json.encode(_as_texts(flags)).decode()


def _as_texts(flags: Mapping[str, FlagValue | None]) -> dict[str, str | bool]:
    """Returns flags with their numbers spelled, since databases print a number each in its way.

    Spaces around a name tell nothing, and a flag of null was not served.
    """
    return {
        name.strip(): value
        if isinstance(value, (bool, str))
        else msgspec.json.encode(value).decode()
        for name, value in flags.items()
        if value is not None
    }


def _encoded(properties: dict[str, object]) -> str:
    encoded = msgspec.json.encode(properties)
    if len(encoded) > FREE_FORM_BYTES:
        detail = f"at most {FREE_FORM_BYTES} bytes as JSON"
        raise _RefusedError("/properties", "too_large", detail)
    return encoded.decode()


def _holds_nul(raw: bytes) -> bool:
    # To look for a backslash alone is ten times as fast, and most bodies have none.
    return b"\\" in raw and rb"\u0000" in raw


def _known(raw: bytes) -> _KnownBatch | None:
    """Returns a typed batch, or None if some of the body must be looked at, or explained, in turn.

    This is how nearly every batch is read: a single pass, in C. The checks that a typed pass lacks
    are made on the bytes, or in the few members that can hold it.
    """
    if b'"events"' not in raw or _holds_nul(raw):
        return None
    try:
        batch = _KNOWN_BATCH.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return batch if _is_within(batch.events) else None


# How deep `properties` may nest: they stand in an event, and that in a list in an object.
_ROOM = DEEPEST - 3
# From here on a number may be an integer beyond 64 bits.
_LARGE = 2.0**63


def _is_within(events: Sequence[_KnownEvent]) -> bool:
    """Tells whether the members that hold more than a typed pass sees are plain."""
    # Many events name few commits.
    commits = {event.commit for event in events if event.commit is not None}
    if not all(map(_COMMIT_ID.fullmatch, commits)):
        return False
    return all(
        (value is None or -_LARGE < value < _LARGE)
        and (properties is None or plain(properties, room=_ROOM))
        for value, properties in [
            (event.value, event.properties)
            for event in events
            if event.value is not None or event.properties is not None
        ]
    )


def _document(raw: bytes) -> tuple[Any, Sequence[Fault]]:
    """Returns the document of a body: by the fast reader, unless there is something to explain."""
    if not _holds_nul(raw):
        try:
            document = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        else:
            if plain(document):
                return document, ()
    return examined(raw, last_wins=True)


_OF_EVENT = re.compile(r"/events/(\d+)(?:/|$)", re.ASCII)


def _sorted_faults(faults: Sequence[Fault]) -> tuple[list[Fault], dict[int, list[Fault]]]:
    """Returns the faults around the events, and those of each event."""
    around: list[Fault] = []
    of_events: dict[int, list[Fault]] = {}
    for fault in faults:
        if (match := _OF_EVENT.match(fault.at)) is None:
            around.append(fault)
        else:
            of_events.setdefault(int(match[1]), []).append(fault)
    return around, of_events


_PLACE = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<name>\w+)`")


def _fault(message: str, pointer: str) -> Fault:
    """Returns msgspec's sentence about an event as a fault of the body."""
    if (missing := _MISSING.search(message)) is not None:
        return Fault(at=f"{pointer}/{missing['name']}", code="missing", detail="is required")
    place = _PLACE.search(message)
    # Only members that we name ourselves: `flags` and `properties` have none of their own.
    member = place["path"].split("[")[0].replace(".", "/") if place else ""
    # A commit is the only member with a pattern.
    detail = COMMIT_RULE if "matching regex" in message else _PLACE.sub("", message)
    return Fault(at=pointer + member, code="invalid_member", detail=detail)
