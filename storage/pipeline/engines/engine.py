"""Engine: what runs the pipeline's text, each in a file of its own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from storage.pipeline.steps import Dialect, Step

# Arrow's record batches: pyarrow has no types.
Batch: TypeAlias = Any
Batches: TypeAlias = Iterable[Any]

# The columns of an input and their types: `int`, `bigint`, `bool`, `text`, or `json` (text of JSON,
# which PostgreSQL holds as JSONB) and `experiment` (what derived relations know it by).
Columns = Mapping[str, str]


class EngineError(RuntimeError):
    """An engine cannot be used as it is set up, or is away; the message says what to do."""


class EngineMemoryError(EngineError):
    """A computation needs more memory than the engine may take."""


class Engine(Protocol):
    """Holds relations by name, and makes new ones by statements of the text."""

    dialect: Dialect

    def register(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> None:
        """Makes a small input of rows."""
        ...

    def define(self, name: str, sql: str) -> None:
        """Gives a relation's name to a statement, which may be run whenever it is read."""
        ...

    def run(self, step: Step) -> None:
        """Materializes a step."""
        ...

    def rows(self, sql: str) -> Iterable[Sequence[Any]]:
        """Returns the rows of a statement."""
        ...

    def each_part(self) -> Iterator[int]:
        """Yields the number of each part, while that part is computed."""
        ...

    def experiment_key(self, number: int, experiment_id: str) -> object:
        """Returns an experiment's key in the derived relations."""
        ...


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
        """Returns SQL, to stand after FROM, that reads these Parquet files; there is at least one.

        Their columns are taken by name.
        """
        ...

    def batches(self, sql: str) -> Iterable[Batch]:
        """Yields the rows of a statement, which may be many, as Arrow."""
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
