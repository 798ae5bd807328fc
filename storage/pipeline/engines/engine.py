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
