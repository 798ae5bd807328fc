"""Flags as changes, and the names of strata."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from domain.absence import NOT_SERVED

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
# Whose value is the build, in OpenFeature's clients and their telemetry.
COMMIT_FLAG = "commit"
_OPPOSITE = {"true": "false", "false": "true"}


def flag_value(value: object) -> str:
    """Returns a flag's value as values are compared: trimmed, true and false in any case."""
    text = str(value).strip(" \t\r\n")
    return text.lower() if text.lower() in _OPPOSITE else text


def number_of(value: str) -> int | float | None:
    """Returns the number that a value is spelled as, in digits alone; None if it is a text."""
    return json.loads(value) if _NUMBER.fullmatch(value) else None


def spellings(value: str) -> tuple[str, str]:
    """Returns a value as it is spelled and as other clients do: JavaScript prints 10.0 as 10."""
    number = number_of(value)
    if number is None or number % 1:
        return value, value
    return value, value.removesuffix(".0") if isinstance(number, float) else f"{value}.0"


def signed_value(value: object) -> str:
    """Returns a flag's value as tokens hold it, however a client prints it on the way."""
    text = flag_value(value)
    number = number_of(text)
    if number is None:
        return text
    return str(number if number % 1 else int(number))


def says_nothing(value: str) -> bool:
    """Tells whether providers report a value of units that are not in the experiment."""
    return value.lower() in NOT_SERVED


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A change behind a feature flag: the value under test, and the value it is compared with.

    Of true and false the other is control. Else, where no control is named, it is the only
    other value that events carry (docs/statistics.md, 'Control of a flag'). An event that does not
    carry the flag says nothing: its unit may not have been in the experiment.
    """

    name: str
    treatment: str
    control: str | None = None

    def __post_init__(self) -> None:
        treatment = flag_value(self.treatment)
        control = _OPPOSITE.get(treatment) if self.control is None else flag_value(self.control)
        object.__setattr__(self, "treatment", treatment)
        object.__setattr__(self, "control", control)

    @property
    def change(self) -> str:
        """The flag's value as a change; no commit id holds an equals sign."""
        return flag_change(self.name, self.treatment)

    @property
    def named(self) -> dict[str, str]:
        """Its members that a registration names: without `control` any control is meant."""
        members = {"name": self.name, "treatment": self.treatment, "control": self.control}
        return {name: value for name, value in members.items() if value is not None}


def flag_change(name: str, value: str) -> str:
    """Returns a flag's value as a change."""
    return f"{name}={value}"


_SEGMENT = "properties."


def segment_name(property_name: str) -> str:
    """Returns the name by which strata know a property of events; no flag is called so."""
    return f"{_SEGMENT}{property_name}"


def is_segment(name: str) -> bool:
    """Tells whether a trait of strata is a property of events rather than a flag."""
    return name.startswith(_SEGMENT)


def stratum_name(changes: Iterable[str]) -> str:
    """Returns the name of a stratum: a digest, because a lineage can be thousands of changes."""
    return hashlib.sha256("\n".join(sorted(changes)).encode()).hexdigest()[:16]
