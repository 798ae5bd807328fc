"""The TOML of an import: the experiments of its events, and the commits that words stand for."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from api.wire.event_batch import PRODUCTION, CommitId, Label
from cli.imports.faults import ImportFailedError, name_list, suggestion
from domain.currency import CODES
from domain.metric import composed_name

_DURATION = re.compile(r"(\d+) ?(s|m|min|h|d)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment: its deploys, its registration, and what defines its target."""

    control_commit: CommitId
    treatment_commit: CommitId
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
        if self.control_commit == self.treatment_commit:
            raise ValueError("control_commit and treatment_commit are the same")
        for member in ("window", "grace"):
            length = getattr(self, member)
            if length is not None and _DURATION.fullmatch(length) is None:
                raise ValueError(f"{member} is {length!r}: write 90s, 30m, 72h or 14d")
        if self.currency is not None and self.currency not in CODES:
            raise ValueError(
                f"currency is {self.currency!r}, which is no code of ISO 4217 such as 'USD'"
            )
        # Events are stored under the names that this gives.
        msgspec.structs.force_setattr(self, "target_metric", composed_name(self.target_metric))


def length_in_seconds(length: str) -> int:
    """Returns the seconds of a length of time that an experiment names."""
    number, unit = re.findall(r"\d+|[a-z]+", length)
    return int(number) * _SECONDS[unit]


class ExperimentsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The experiments of a query's events.

    Attributes:
        commits: Word of the query's column `arm` -> the commit that it stands for.
        totals: Whether rows that look like totals of a day are taken as units.
    """

    experiment: Experiment | list[Experiment] = msgspec.field(default_factory=list)
    commits: Mapping[str, CommitId] = msgspec.field(default_factory=dict)
    environment: Label = PRODUCTION
    totals: bool = False

    @property
    def experiments(self) -> Sequence[Experiment]:
        """The experiments, in the file's order."""
        return self.experiment if isinstance(self.experiment, list) else [self.experiment]

    @property
    def arms(self) -> set[str]:
        """The commits that expose a unit to an arm."""
        named = {e.control_commit for e in self.experiments}
        return named | {e.treatment_commit for e in self.experiments} | {*self.commits.values()}


_PLACE = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>\w+)`")


def read_experiments(path: Path) -> ExperimentsFile:
    """Reads the experiments of an import from TOML."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), ExperimentsFile)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ImportFailedError(f"{path.name}: is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ImportFailedError(f"{path.name}: {_explained(str(error))}") from None


def _explained(message: str) -> str:
    """Returns a sentence of msgspec's with the member's place first, and known members last."""
    place = _PLACE.search(message)
    path = "" if place is None else place["path"].strip(".")
    rule = _PLACE.sub("", message)
    if (unknown := _UNKNOWN.search(rule)) is not None:
        table = Experiment if path.startswith("experiment") else ExperimentsFile
        rule = _unknown(unknown["name"], table.__struct_fields__)
    elif (missing := _MISSING.search(rule)) is not None:
        rule = f"{missing['name']} is missing"
    elif "matching regex" in rule:
        rule = "a commit has 7 to 64 hexadecimal digits, as for POST /v1/deploys"
    return f"{path}: {rule}" if path else rule


def _unknown(name: str, known: Iterable[str]) -> str:
    members = sorted(known)
    return f"there is no member {name!r}: {suggestion(name, members)}known are {name_list(members)}"
