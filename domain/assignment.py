"""Flags as changes, and the names of strata."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A change behind a feature flag: the value under test, and the one it is compared with.

    Where no control value is named, every unit without the value under test is control.
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


def stratum_name(changes: Iterable[str]) -> str:
    """Returns the name of a stratum: a digest, because a lineage can be thousands of changes."""
    return hashlib.sha256("\n".join(sorted(changes)).encode()).hexdigest()[:16]
