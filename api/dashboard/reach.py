"""The picture of a deploy's reach: a line from each changed file to each route that it affects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Beyond these a list is read more easily.
_MOST_FILES, _MOST_ROUTES = 14, 14
_MOST_LETTERS = 42
_ROW, _WIDTH = 34, 950
# Where the names on the left end, and those on the right begin.
_LEFT, _RIGHT = 400, 610


@dataclass(frozen=True, kw_only=True)
class Node:
    """A name in the picture, and the height of its middle."""

    name: str
    shown: str
    y: float


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The data of the picture: names in two columns, and the paths between."""

    width: int
    height: int
    left: int
    right: int
    files: Sequence[Node]
    routes: Sequence[Node]
    lines: Sequence[str]


def reach_of(routes: Mapping[str, Sequence[str]]) -> Reach | None:
    """Returns the picture of routes with the changed files that reach each.

    Returns:
        None where it would leave a route out, or hold too much.
    """
    names = sorted({file for files in routes.values() for file in files})
    if not all(routes.values()) or not 0 < len(routes) <= _MOST_ROUTES or len(names) > _MOST_FILES:
        return None
    height = _ROW * max(len(names), len(routes))
    left, right = _column(names, height), _column(list(routes), height)
    middle = (_LEFT + _RIGHT) / 2
    begin, end = ({node.name: node.y for node in column} for column in (left, right))
    return Reach(
        width=_WIDTH,
        height=height,
        left=_LEFT,
        right=_RIGHT,
        files=left,
        routes=right,
        lines=[
            f"M{_LEFT} {begin[file]:g}C{middle:g} {begin[file]:g} {middle:g} {end[route]:g}"
            f" {_RIGHT} {end[route]:g}"
            for route, files in routes.items()
            for file in files
        ],
    )


def _column(names: Sequence[str], height: float) -> list[Node]:
    step = height / len(names)
    return [
        Node(name=name, shown=_shortened(name), y=step * (place + 0.5))
        for place, name in enumerate(names)
    ]


def _shortened(name: str) -> str:
    # The end of a path tells more than its beginning.
    return name if len(name) <= _MOST_LETTERS else f"…{name[1 - _MOST_LETTERS :]}"
