"""Flags as changes, and the names of strata."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A change behind a feature flag: the value under test, and the value it is compared with.

    Where no control value is named, each other value is control's. An event that does not carry the
    flag says nothing: its unit may not have been in the experiment.

    Attributes:
        name: The flag's name.
        treatment: The value under test.
        control: The value that it is compared with; None for every other value.
    """

    name: str
    treatment: str
    control: str | None = None

    @property
    def change(self) -> str:
        """The flag's value as a change; no commit id holds an equals sign."""
        return flag_change(self.name, self.treatment)


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
