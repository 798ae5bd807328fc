"""A section of the calibration's page: its heading, its text and its rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.calibration.proportion import Proportion

HEAD = (
    "| | replications | share | Monte-Carlo error | 95 % bounds | claim | |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, what was simulated, its rows, and lines that come after them."""

    title: str
    text: str
    rows: Sequence[Proportion] = ()
    after: Sequence[str] = ()

    def lines(self) -> list[str]:
        table = ["", *HEAD, *map(_line, self.rows)] if self.rows else []
        return [f"## {self.title}", "", self.text, *table, "", *self.after, ""]


def _line(one: Proportion) -> str:
    low, high = one.interval
    digits = 4 if one.at_most is not None and one.at_most < 0.02 else 3
    return (
        f"| {one.name} | {one.count:,} | {one.share:.{digits}f} | {one.error:.{digits}f} | "
        f"{low:.{digits}f}–{high:.{digits}f} | {one.claim} | {one.judgement} |"
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """How much is simulated, and where it is said what is being simulated."""

    scale: float
    say: Callable[[str], None]

    def replications(self, count: int) -> int:
        return max(20, round(count * self.scale))
