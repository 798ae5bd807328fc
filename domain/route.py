"""Route patterns: how a path of the address bar finds its route in the static graph."""

import re
from collections.abc import Iterable
from functools import lru_cache

# A segment's rank, most specific first: a literal, a parameter, a rest of at least a
# segment, a rest that may be empty.
_LITERAL, _PARAMETER, _REST, _OPTIONAL_REST = range(4)

_GROUP = re.compile(r"\([^/()]+\)")
_EXPRESSION = re.compile(r"\(\?[:P<]|^/?\^|\\[AZdw]|\$$")
_SEGMENTS = (
    (_OPTIONAL_REST, re.compile(r"\[\[\.\.\.[^\]]+\]\]|:\w+\*"), r"(?:/.+)?"),
    (_REST, re.compile(r"\[\.\.\.[^\]]+\]|:\w+\+|\{\w+:path\}|\*"), r"/.+"),
    (_PARAMETER, re.compile(r"\[[^\]]+\]|:\w+|\{[^}]+\}"), r"/[^/]+"),
)


def is_expression(route: str) -> bool:
    """Tells whether a route is a regular expression, as Django names its patterns."""
    return _EXPRESSION.search(route) is not None


@lru_cache(maxsize=65_536)
def canonical_route(route: str) -> str:
    """Returns a route without query, fragment, route groups and trailing slash.

    A regular expression stays as it is: what stands behind its question marks is no query.
    """
    if is_expression(route):
        return f"/{route.lstrip('/')}"
    path = re.split(r"[?#]", route, maxsplit=1)[0]
    kept = [part for part in path.split("/") if part and not _GROUP.fullmatch(part)]
    return "/" + "/".join(kept)


def _segment(part: str) -> tuple[int, str]:
    for rank, form, expression in _SEGMENTS:
        if form.fullmatch(part):
            return rank, expression
    # A parameter may be a part of its segment: v{major}, :from-:to.
    first, *others = map(re.escape, _SEGMENTS[-1][1].split(part))
    if not others:
        return _LITERAL, f"/{first}"
    # Each ends where its literal first stands: a path of any text is matched in a single pass.
    inner = "".join(f"(?>[^/]+?{literal})" for literal in others[:-1])
    return _PARAMETER, f"/{first}{inner}[^/]+{others[-1]}"


class RouteTable:
    """The patterns of a static graph, the most specific first."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = {canonical_route(pattern) for pattern in patterns}
        ranked: list[tuple[tuple[int, ...], str, re.Pattern[str]]] = []
        for pattern in self._patterns:
            segments = [_segment(part) for part in pattern.split("/") if part]
            # Compared segment by segment from the left; an end before a segment is more
            # specific than an optional rest there and less than anything else is impossible.
            ranks = tuple(rank for rank, _ in segments)
            expression = "".join(text for _, text in segments)
            ranked.append((ranks, pattern, re.compile(expression)))
        self._ranked = sorted(ranked, key=lambda entry: (entry[0], entry[1]))

    def match(self, route: str) -> str | None:
        """Returns the pattern that a route is, or that its path most specifically fits.

        A regular expression is no path, so it fits no pattern but itself.
        """
        path = canonical_route(route)
        if path in self._patterns or is_expression(path):
            return path if path in self._patterns else None
        subject = "" if path == "/" else path
        for _, pattern, expression in self._ranked:
            if expression.fullmatch(subject):
                return pattern
        return None
