"""Rows of a statement as values: each column becomes the member of its name."""

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
from sqlalchemy import Row


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


ValueT = TypeVar("ValueT", bound=_Dataclass | msgspec.Struct)


def value_of(value_type: type[ValueT], row: Row[*tuple[Any, ...]], **others: object) -> ValueT:
    """Returns a row as a value.

    Args:
        row: A row with a column for each member that is not among the others. No column is called
            `count` or `index`, which are methods of a row.
    """
    read = {name: getattr(row, name) for name in _members(value_type) if name not in others}
    if issubclass(value_type, msgspec.Struct):
        return msgspec.convert({**read, **others}, value_type)
    return value_type(**read, **others)


@cache
def _members(value_type: type[_Dataclass | msgspec.Struct]) -> Sequence[str]:
    if issubclass(value_type, msgspec.Struct):
        return value_type.__struct_fields__
    return [field.name for field in fields(value_type)]
