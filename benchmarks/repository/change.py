"""Changes of a simulated repository, and the builds that carry them."""

from dataclasses import dataclass
from math import prod

import numpy as np

# Of a change's relative effect on the conversion rate. Most changes move nothing that is measured;
# Kohavi, Tang and Xu (2020), chapter 1, report 10 to 30 % of ideas that help where many are tried.
NULL_SHARE = 0.7
SPREAD = 0.1
HARM = -0.5


@dataclass(frozen=True, kw_only=True)
class Change:
    """A commit's change.

    Attributes:
        name: The commit that brings it first; also of the flag that it is behind, if any.
        effect: True relative effect on the conversion rate.
    """

    name: str
    effect: float


@dataclass(frozen=True, kw_only=True)
class Build:
    """A commit that can be served, with every change in it."""

    commit: str
    lineage: tuple[Change, ...]

    @property
    def factor(self) -> float:
        """The conversion rate over that of a build without any change."""
        return prod(1 + change.effect for change in self.lineage)


@dataclass(kw_only=True)
class Author:
    """Draws changes and names commits.

    Attributes:
        generator: The only source of randomness.
        harmful: Share of changes that halve the rate.
    """

    generator: np.random.Generator
    harmful: float

    def commit(self) -> str:
        """Returns a new commit's name of forty hexadecimal digits."""
        return self.generator.bytes(20).hex()

    def change(self) -> Change:
        """Draws a change."""
        return Change(name=self.commit(), effect=self._effect())

    def _effect(self) -> float:
        kind = self.generator.random()
        if kind < self.harmful:
            return HARM
        if kind < self.harmful + (1 - self.harmful) * NULL_SHARE:
            return 0.0
        # A change that helps or harms more than this is seen without a test.
        return float(np.clip(self.generator.normal(0, SPREAD), -0.4, 0.4))
