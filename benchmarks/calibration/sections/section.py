"""A section of the calibration's page: its heading, its text and its rows."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.calibration.proportion import Proportion
from benchmarks.calibration.sections.gate_rows import QUOTED

HEAD = ("| | share | 95 % bounds | claim |", "| --- | --- | --- | --- |")
_NUMBER = re.compile(r"[+−]?\d[\d.,]*")
_JUDGEMENTS = ("–", "holds", "within error", "**OUTSIDE**")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, what was simulated, its rows, and lines that come after them.

    The page shows the rows that make a claim. Rows of the same claim whose names differ in numbers
    alone are a single line: the row that is nearest to breaking it, with how many there are. The
    charts and `python -m pytest -m calibration -rP` show them all.
    """

    title: str
    text: str
    rows: Sequence[Proportion] = ()
    after: Sequence[str] = ()

    def lines(self) -> list[str]:
        table = ["", *HEAD, *_table(self.rows)] if self.rows else []
        return [f"## {self.title}", "", self.text, *table, "", *self.after, ""]


def _table(rows: Iterable[Proportion]) -> list[str]:
    families: dict[tuple[str, ...], list[Proportion]] = {}
    for row in rows:
        if row.name in QUOTED:
            families[row.name, "quoted"] = [row]
        elif row.judgement != "–":
            families.setdefault((_NUMBER.sub("#", row.name), row.claim), []).append(row)
    return [_line(max(family, key=_danger), len(family)) for family in families.values()]


def _danger(row: Proportion) -> tuple[int, float]:
    """How near a row is to breaking its claim: its judgement, then its distance."""
    above = row.share - row.at_most if row.at_most is not None else -1.0
    below = row.at_least - row.share if row.at_least is not None else -1.0
    return _JUDGEMENTS.index(row.judgement), max(above, below)


def _line(row: Proportion, of: int) -> str:
    low, high = row.interval
    digits = 4 if row.at_most is not None and row.at_most < 0.02 else 3
    name = f"{row.name} (worst of {of})" if of > 1 else row.name
    claim = row.claim if row.judgement in ("holds", "–") else f"{row.claim}, {row.judgement}"
    return (
        f"| {name} | {row.share:.{digits}f} of {row.count:,} | "
        f"{low:.{digits}f}–{high:.{digits}f} | {claim} |"
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """How much is simulated, and where it is said what is being simulated."""

    scale: float
    say: Callable[[str], None]

    def replications(self, count: int) -> int:
        return max(20, round(count * self.scale))
