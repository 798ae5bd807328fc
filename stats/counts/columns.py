"""Columns: values whose members are arrays with one entry a row, selected and joined together."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64] | slice | NDArray[np.bool_]


class Columns:
    """A dataclass of arrays with one entry a row.

    A member may be None, or columns itself.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __getitem__(self, rows: Rows) -> Self:
        # Not built anew: a batch selects rows thousands of times, and rows of valid columns are
        # valid.
        selected = object.__new__(type(self))
        selected.__dict__.update(
            {
                name: None if column is None else column[rows]
                for name, column in self._columns().items()
            }
        )
        return selected

    def then(self, later: Self) -> Self:
        """These rows, and later ones after them."""
        after = later._columns()
        return type(self)(
            **{
                name: np.concatenate((column, after[name]))
                for name, column in self._columns().items()
            }
        )

    def _columns(self) -> Mapping[str, Any]:
        members = self.__dict__
        return {name: members[name] for name in self.__dataclass_fields__}


class BlockColumns(Columns):
    """Columns of which one is the start of a block."""

    block: NDArray[np.int64]

    def between(self, begin: int, end: int) -> Self:
        """Those of the blocks from one on, up to before another."""
        return self[(self.block >= begin) & (self.block < end)]
