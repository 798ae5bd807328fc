"""Columns: values whose members are arrays with an entry a row, selected and joined together."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64] | slice | NDArray[np.bool_]


class Columns:
    """A dataclass of arrays with an entry a row.

    A member may be columns itself; any other value is the same for all rows.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __getitem__(self, rows: Rows) -> Self:
        # Not built anew: a batch selects rows thousands of times, and rows of valid columns are
        # valid.
        selected = object.__new__(type(self))
        selected.__dict__.update(
            {
                name: column[rows] if isinstance(column, np.ndarray | Columns) else column
                for name, column in self._columns().items()
            }
        )
        return selected

    def then(self, later: Self) -> Self:
        """These rows, and later ones after them."""
        joined = dict(later._columns())
        for name, column in self._columns().items():
            if isinstance(column, np.ndarray):
                joined[name] = np.concatenate((column, joined[name]))
            elif isinstance(column, Columns):
                joined[name] = column.then(joined[name])
        return type(self)(**joined)

    def _columns(self) -> Mapping[str, Any]:
        members = self.__dict__
        return {name: members[name] for name in self.__dataclass_fields__}


class BlockColumns(Columns):
    """Columns with the start of a block among them."""

    block: NDArray[np.int64]

    def between(self, begin: int, end: int) -> Self:
        """The rows of the blocks from a given block on, up to before another."""
        return self[(self.block >= begin) & (self.block < end)]
