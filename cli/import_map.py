"""The map of an import: how a file's rows become events, and which experiment they are of."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

Values = str | int | float | bool | list[str | int | float | bool]


class Times(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a row happened: in a column, or spread evenly at random over some days by a seed."""

    column: str | None = None
    zone: str = "UTC"
    spread_days: Annotated[float, msgspec.Meta(gt=0)] | None = None
    start: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Holds that there is one way to know the time."""
        if (self.column is None) == (self.spread_days is None):
            raise ValueError("names either a column or spread_days")
        if self.spread_days is not None and self.start is None:
            raise ValueError("start is missing: the time that spread_days begin at")


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The experiment that the file is of: two deploys before, the registration after."""

    control_commit: str
    treatment_commit: str
    target_metric: str
    value_per_conversion: float | None = None
    routes: list[str] | None = None
    allocation: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None


class ImportMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read a file.

    Attributes:
        layout: `event`: a row an event. `unit`: a row a unit, exposed at its time, with a column
            that tells its arm and columns that tell its conversions.
        times: When a row happened.
        where: A row is taken if it fulfils one of these: each column equals one of its values.
            A value `@other` means the value of column `other` in the same row.
        unit: The column of the unit; None numbers the rows.
        columns: Event member -> column (layout `event`).
        constants: Event member -> value, for every row.
        arm: The column that tells the arm (layout `unit`).
        commits: Value of the arm column -> commit; rows of other arms are skipped.
        metrics: Column -> event that a unit sent where the column is not zero (layout `unit`).
        experiment: What to post and register.
    """

    layout: Literal["event", "unit"]
    times: Times
    where: list[dict[str, Values]] = []
    unit: str | None = None
    columns: dict[str, str] = {}
    constants: dict[str, str] = {}
    arm: str | None = None
    commits: dict[str, str] = {}
    metrics: dict[str, str] = {}
    experiment: Experiment | None = None

    def __post_init__(self) -> None:
        """Holds that each layout has what it needs."""
        if self.layout == "unit" and (self.arm is None or not self.commits):
            raise ValueError("layout 'unit' needs arm, a column, and commits, its values")
        unknown = (self.columns.keys() | self.constants.keys()) - MEMBERS
        if unknown:
            raise ValueError(f"{min(unknown)!r} is no member of an event")


# The members of an event that a map may fill.
MEMBERS = frozenset(
    {"event", "commit", "route", "environment", "user_ref", "event_id", "value", "session_id"}
)


class MapError(ValueError):
    """A map that cannot be read; the message names the member."""


def read_map(path: Path) -> ImportMap:
    """Reads a map from TOML.

    Raises:
        MapError: It is not TOML, or a member breaks its rule.
    """
    try:
        document: Mapping[str, object] = tomllib.loads(path.read_text())
        return msgspec.convert(document, ImportMap)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise MapError(f"{path.name}: {error}") from error
