"""A rebuild: everything derived, computed anew from the log beside what is served."""

from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection

from orchestration.evidence import Drafted, draft_evidence
from storage.cells import extend_cells
from storage.exposures import extend_exposures
from storage.observations import cells_unlike_served, keep_to_days, verdicts_unlike_served
from storage.verdicts import stage_evidence


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a rebuild tells otherwise than the served tables.

    Attributes:
        experiments: How many were rebuilt.
        cells: The cells of these days that only one side holds, in words.
        verdicts: The experiments whose contract or evidence differs in a byte.
    """

    experiments: int
    cells: list[str]
    verdicts: list[str]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.cells and not self.verdicts


def rebuild(separate: Connection, *, as_of: datetime) -> list[Drafted]:
    """Walks from the log to evidence in one go and stages it.

    Args:
        separate: A separate reading of the store: its derived tables are empty and its own.
        as_of: How far the log is read.

    Returns:
        The drafts of all experiments that the reading does not hold for decided.
    """
    extend_exposures(separate, as_of=as_of)
    extend_cells(separate)
    drafted = draft_evidence(separate, as_of=as_of)
    stage_evidence(separate, [one.draft for one in drafted])
    return drafted


def compare_days(separate: Connection, first: date, last: date, *, as_of: datetime) -> Comparison:
    """Rebuilds the experiments that counted units on some days, and compares what is served.

    Args:
        separate: A separate reading of the store.
        first: The first day of exposure, in UTC.
        last: The last day, itself included.
        as_of: How far the log is read.
    """
    keep_to_days(separate, first, last)
    drafted = rebuild(separate, as_of=as_of)
    cells = [
        f"{row.experiment_id} {row.metric} {row.block.isoformat()} {row.stratum} {row.side}:"
        f" n1={row.n1} x1={row.x1} n0={row.n0} x0={row.x0}"
        for row in cells_unlike_served(separate, first, last)
    ]
    return Comparison(
        experiments=len(drafted), cells=cells, verdicts=verdicts_unlike_served(separate)
    )
