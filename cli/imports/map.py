"""The map of an import: the meaning of a file's columns, and the experiments of the file."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from api.wire.event_batch import EVENT_MEMBERS
from cli.imports.faults import MapError, name_list, suggestion
from domain.currency import CODES
from domain.metric import composed_name

Values = str | int | float | bool | list[str | int | float | bool]
# The members of an event that a map may fill; its time stands in [times].
MEMBERS = EVENT_MEMBERS - {"occurred_at", "assignment"}
# Those that name a unit, a person or an event; a column of two is that of the last.
IDENTIFIERS = ("session_id", "event_id", "user_ref")
# Those that a row of layout `unit` gives to all its events.
UNIT_MEMBERS = frozenset({"route", "environment", "user_ref"})

_DURATION = re.compile(r"(\d+) ?(s|m|min|h|d)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}

# Codes of strptime that say the year.
_WITH_YEAR = re.compile(r"(?<!%)(?:%%)*%[YyGcx]")


class Times(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a row happened: in a column, or spread evenly at random over some days by a seed."""

    column: str | None = None
    zone: str = "UTC"
    unit: Literal["s", "ms", "us", "ns"] | None = None
    format: str | None = None
    ambiguous: Literal["refuse", "earlier", "later"] = "refuse"
    nonexistent: Literal["refuse", "shift_forward"] = "refuse"
    spread_days: Annotated[float, msgspec.Meta(gt=0)] | None = None
    start: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks that there is a single way to know the time, in a zone that exists."""
        if (self.column is None) == (self.spread_days is None):
            raise ValueError("names either column, a column of times, or spread_days")
        if self.spread_days is not None and self.start is None:
            raise ValueError("start is missing: the time that spread_days begin at")
        if self.unit is not None and self.format is not None:
            raise ValueError("names both unit and format: a time is a number or a text")
        if self.format is not None and not _WITH_YEAR.search(self.format):
            raise ValueError(
                f'format is {self.format!r}, which has no year (%Y or %y), as "%Y-%m-%d %H:%M" has'
            )
        zone = self.zone
        try:
            ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            # KeyError: there is none of the name; the others: it is no name at all.
            zones = available_timezones()
            same_city = {name for name in zones if name.split("/")[-1].lower() == zone.lower()}
            like = sorted(same_city) or [suggestion(zone, zones).removeprefix("did you mean ")]
            named = f": did you mean {like[0].rstrip('? ')}?" if like[0] else ""
            raise ValueError(f"zone is {zone!r}, which is no time zone{named}") from None


class Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The meaning of a column of outcomes.

    Attributes:
        value: Whether the column is an amount, which becomes the event's `value`.
        currency: Of the amount, which then is kept in minor units.
        at: The column of the time of the outcome; by default it is that of the exposure.
    """

    event: str
    value: bool = False
    currency: str | None = None
    at: str | None = None
    yes: Annotated[list[str | int | float], msgspec.Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        """Holds that only amounts have a currency, and a known currency, and are no yes."""
        if self.value and self.yes is not None:
            raise ValueError("names both value and yes: a column is an amount, or yes and no")
        if self.currency is None:
            return
        if not self.value:
            raise ValueError("names a currency but no amount: set value = true")
        _require_currency(self.currency)


def _require_currency(currency: str) -> None:
    if currency not in CODES:
        raise ValueError(f"currency is {currency!r}, which is no code of ISO 4217 such as 'USD'")


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment of the file: its deploys, its registration, and what defines its target."""

    control_commit: str
    treatment_commit: str
    target_metric: str
    value_per_conversion: float | None = None
    routes: list[str] | None = None
    guardrails: list[str] | None = None
    allocation: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    sources: Annotated[list[str], msgspec.Meta(min_length=1)] | None = None
    window: str | None = None
    grace: str | None = None
    kind: Literal["conversion", "mean"] | None = None
    better: Literal["higher", "lower"] | None = None
    currency: str | None = None
    cap: Annotated[float, msgspec.Meta(gt=0)] | None = None
    horizon_days: Annotated[int, msgspec.Meta(ge=1, le=366)] | None = None

    def __post_init__(self) -> None:
        """Holds that lengths of time and the currency can be read."""
        if self.control_commit == self.treatment_commit:
            raise ValueError("control_commit and treatment_commit are the same")
        for member in ("window", "grace"):
            length = getattr(self, member)
            if length is not None and _DURATION.fullmatch(length) is None:
                raise ValueError(f"{member} is {length!r}: write 90s, 30m, 72h or 14d")
        if self.currency is not None:
            _require_currency(self.currency)
        # Events are stored under the names that this gives.
        msgspec.structs.force_setattr(self, "target_metric", composed_name(self.target_metric))


def length_in_seconds(length: str) -> int:
    """Returns the seconds of a length of time that a map names."""
    number, unit = re.findall(r"\d+|[a-z]+", length)
    return int(number) * _SECONDS[unit]


class ImportMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read a file.

    Attributes:
        layout: `event`: a row an event. `unit`: a row a unit, exposed at its time, with a column
            that names its arm and columns that hold its outcomes.
        where: A row is taken if it fulfils any of these: each column equals any of its values.
            A value `@other` means the value of column `other` in the same row.
        unit: The column of the unit; None numbers the rows.
        exposures: The events that expose a unit (layout `event`); by default all with a commit.
        metrics: Column -> event that a unit sent where the column says yes (layout `unit`).
        both_arms: Which rows count of a unit that has rows of several arms: those of the arm of its
            first row, of its last, or none; None refuses such a file.
    """

    layout: Literal["event", "unit"]
    times: Times
    where: list[dict[str, Values]] = []
    unit: str | None = None
    columns: dict[str, str] = {}
    constants: dict[str, Any] = {}
    arm: str | None = None
    commits: dict[str, str] = {}
    exposures: list[str] = []
    metrics: dict[str, str | Outcome] = {}
    both_arms: Literal["first", "last", "leave_out"] | None = None
    totals: bool = False
    decimal: Literal[".", ","] = "."
    experiment: Experiment | list[Experiment] | None = None

    def __post_init__(self) -> None:
        """Checks that each layout has all its members, and no others."""
        for name, table in (("columns", self.columns), ("constants", self.constants)):
            for member in table:
                if member not in MEMBERS:
                    raise ValueError(f"{name}: {_unknown(member, MEMBERS)}")
        if self.layout == "unit":
            self._require_unit_layout()
        else:
            self._require_event_layout()

    def _require_unit_layout(self) -> None:
        if self.arm is None or not self.commits:
            raise ValueError("layout 'unit' needs arm, a column, and [commits], its values")
        if self.exposures:
            raise ValueError("layout 'unit' has no exposures: each of its rows is an exposure")
        for member in self.columns:
            if member not in UNIT_MEMBERS:
                raise ValueError(
                    f"[columns] names {member!r}: in layout 'unit' it may name"
                    f" {name_list(sorted(UNIT_MEMBERS))}"
                )

    def _require_event_layout(self) -> None:
        if self.metrics:
            raise ValueError("layout 'event' has no metrics: that is of layout 'unit'")
        if (self.arm is None) is bool(self.commits) or (self.commits and "commit" in self.columns):
            raise ValueError(
                "commits stand in a column of their own, columns.commit; or arm, a column of words,"
                " and [commits] name them together"
            )
        if self.exposures and self.arm is None and "commit" not in {*self.columns, *self.constants}:
            raise ValueError("exposures needs a commit: columns.commit, or arm and [commits]")
        if "event" not in self.columns and "event" not in self.constants:
            raise ValueError("no member names the event: add event to [columns] or [constants]")
        if self.unit is not None and "session_id" in self.columns:
            raise ValueError("both unit and columns.session_id name the column of the unit")

    @property
    def experiments(self) -> list[Experiment]:
        """The experiments of the file, in the map's order."""
        if self.experiment is None:
            return []
        return self.experiment if isinstance(self.experiment, list) else [self.experiment]

    @property
    def identifiers(self) -> dict[str, str]:
        """Column -> the identifier of an event that it fills."""
        columns = {"session_id": self.unit, **self.columns}
        return {
            column: member for member in IDENTIFIERS if (column := columns.get(member)) is not None
        }

    @property
    def environment(self) -> str:
        """The environment of rows whose own names none, and of the experiments."""
        return str(self.constants.get("environment", "production"))

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """Column -> its meaning, for columns of outcomes."""
        return {
            column: Outcome(event=meaning) if isinstance(meaning, str) else meaning
            for column, meaning in self.metrics.items()
        }

    @property
    def column_names(self) -> dict[str, str]:
        """Column -> the member of the map that names it, in the map's order."""
        named = {
            "times.column": self.times.column,
            "unit": self.unit,
            "arm": self.arm,
            **{f"columns.{member}": column for member, column in self.columns.items()},
        }
        meanings = {column: member for member, column in named.items() if column is not None}
        for column, outcome in self.outcomes.items():
            meanings.setdefault(column, "metrics")
            if outcome.at is not None:
                meanings.setdefault(outcome.at, f"metrics.{column}.at")
        for alternative in self.where:
            for column, values in alternative.items():
                meanings.setdefault(column, "where")
                if isinstance(values, str) and values.startswith("@"):
                    meanings.setdefault(values[1:], "where")
        return meanings


_PLACE = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>\w+)`")
# The tables of a map, by where they stand.
_TABLES: Mapping[str, type[msgspec.Struct]] = {
    "": ImportMap,
    "times": Times,
    "experiment": Experiment,
    "metrics": Outcome,
}


def _unknown(name: str, known: Iterable[str]) -> str:
    members = sorted(known)
    return f"there is no member {name!r}: {suggestion(name, members)}known are {name_list(members)}"


def read_map(path: Path) -> ImportMap:
    """Reads a map from TOML.

    Raises:
        MapError: It is not TOML, or a member breaks its rule; the message names the member.
    """
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MapError(f"{path.name}: is not TOML: {error}") from error
    for place, number in _infinite_numbers(document):
        raise MapError(f"{path.name}: {place} is {number}, which is no number of a cell or event")
    try:
        return msgspec.convert(_with_text_of_times(document), ImportMap)
    except msgspec.ValidationError as error:
        raise MapError(f"{path.name}: {_explained(str(error))}") from None


def _infinite_numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:  # noqa: ANN401
    """Yields where a value of TOML holds `inf` or `nan`."""
    if isinstance(value, float) and not isfinite(value):
        yield place, value
    elif isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            yield from _infinite_numbers(part, f"{place}.{name}" if place else str(name))


def _with_text_of_times(document: dict[str, Any]) -> dict[str, Any]:
    """Returns a document in which times that TOML has read are text again."""
    return {
        name: _with_text_of_times(value)
        if isinstance(value, dict)
        else value.isoformat()
        if isinstance(value, date | datetime)
        else value
        for name, value in document.items()
    }


def _explained(message: str) -> str:
    """Returns a sentence of msgspec's with the member's place first, and known members last."""
    place = _PLACE.search(message)
    path = "" if place is None else place["path"].strip(".")
    said = _PLACE.sub("", message)
    table = _TABLES.get(re.split(r"[.\[]", path)[0], ImportMap)
    if (unknown := _UNKNOWN.search(said)) is not None:
        said = _unknown(unknown["name"], table.__struct_fields__)
    elif (missing := _MISSING.search(said)) is not None:
        said = f"{missing['name']} is missing"
    return f"{path}: {said}" if path else said
