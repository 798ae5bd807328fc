"""An engine of whole days: it reads the files of the log, and computes large days in parts."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from storage.pipeline.engines.engine import Batch, Batches, Engine
from storage.pipeline.steps import Step


class DayEngine(Engine, Protocol):
    """An engine that reads whole days: Parquet files in place, and Arrow batches.

    It may compute the units of a large day part by part. Then each relation that is distributed,
    copied or materialized for a part holds the rows of that part's units until the next part
    begins, and those of all units after the last.
    """

    def copy(self, name: str, batches: Batches) -> None:
        """Makes a relation of Arrow batches, which may be many and are read once."""
        ...

    def parquet(self, uris: Sequence[str]) -> str:
        """Returns SQL, to stand after FROM, that reads these Parquet files; the list is not empty.

        Their columns are taken by name.
        """
        ...

    def batches(self, sql: str) -> Iterable[Batch]:
        """Yields the rows of a statement, which may be many, as Arrow."""
        ...

    def keep_few(self, name: str, counted: str) -> None:
        """May copy a relation's rows where another relation, with at least as many, has few."""
        ...

    def split(self, readings: Iterable[int]) -> None:
        """Chooses in how many parts units are computed.

        Args:
            readings: Upper bounds of how many events are read, each counted for every experiment
                that reads it. Each is closer than the last, and takes longer.
        """
        ...

    def distribute(self, name: str, sql: str, keys: Sequence[str]) -> None:
        """Gives a relation's name to a statement, and distributes its rows to the parts."""
        ...

    def drop(self, steps: Iterable[Step]) -> None:
        """Drops the rows of those steps that are temporary."""
        ...
