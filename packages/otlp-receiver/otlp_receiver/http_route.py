"""The `http.route` of a span, a pattern in its framework's language, in the form of graphs."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from domain.route import RouteTable, canonical_route, is_expression

# Go writes a method and a host before the pattern, Rocket and Micronaut the query behind it.
_AROUND = re.compile(r"^[A-Z]+ [^/]*|\?(?:<|[\w.-]+=).*$|\{[?&][^{}]*\}$")
# Spring, chi, ASP.NET, Slim and Symfony write an expression, a converter or a default behind it.
_CONSTRAINT = re.compile(
    r"\{[\s!]*(\w+)\s*(?:=[^{}]*|<[^<>]*>(?:\?[^{}]*)?"
    r"|:(?!path\})(?:[^{}]|\{{1,2}[^{}]*\}{1,2})*?(\??))?\}"
)
# Express 5 and Rails write an optional part in brackets, Django's expressions with a question mark,
# Express 4, Hono and Laravel behind the parameter, Slim and SvelteKit in square brackets.
_OPTIONAL = (
    re.compile(r"\{(?P<part>[/.-][^{}]*)\}"),
    re.compile(r"\((?P<part>[./]:?\w[^()?]*)\)"),
    re.compile(r"\(\?:(?P<part>[^()]*)\)\?"),
    re.compile(r"(?P<part>/:\w+)\?"),
    re.compile(r"/\{(?P<name>\w+)\?\}"),
    re.compile(r"\[(?P<part>/[^\[\]]*)\]"),
    re.compile(r"/\[\[(?P<name>\w+)(?:=\w+)?\]\]"),
)
_PARAMETERS = (
    # Flask and Django: <int:pk>; a path takes several segments.
    (re.compile(r"<path(?:\([^)]*\))?:(\w+)>"), r"{\1:path}"),
    (re.compile(r"(?<!\?)(?<!\?P)<(?:[^<>:]*:)?(\w+)>"), r"{\1}"),
    # Express 4, Fastify and Hono: a parameter with its expression.
    (re.compile(r":(\w+)(?:\((?!\.\*)[^()]*\)|\{[^{}]*\})"), r":\1"),
    # A rest: Express 5 and Gin *name, ASP.NET {*name}, Go {name...}, Hapi {name*}, Rocket <name..>,
    # Nuxt **:name, Koa (.*), Spring **.
    (
        re.compile(
            r"(?<=/)(?:\{[*+]+(\w+)\}|\{(\w+)(?:\.\.\.|\*\d*)\}|\*(?:\*:)?(\w+)|<(\w+)\.\.>"
            r"|\(\.\*\)|\*\*)"
        ),
        r"{\1\2\3\4:path}",
    ),
    (re.compile(r"\{:path\}"), "{rest:path}"),
    (re.compile(r"\{\$\}"), ""),
)
# A sender chooses the text: its length and its optional parts bound the cost of a translation.
_LONGEST, _MOST_FORMS = 512, 16
_ANCHORS = re.compile(r"^\^|(?:/\?)?(?:\$|\\Z)$|/\?$")
_GROUP = re.compile(r"\((?:\?P?<(?P<name>\w+)>|\?:)?(?:[^()\\\[]|\\.|\[[^\]]*\])*\)")
_ESCAPED = re.compile(r"\\([^0-9A-Za-z])")
# Graphs write parameters in these forms, and groups that are no part of the path. A pattern with
# more of a framework's language than these is none of a graph's.
_GRAPH_FORM = re.compile(
    r"\[\[\.{3}[^\[\]]+\]\]|\[[^\[\]]+\]|:\w+[*+]?|\{[\w-]+(?::path)?\}|/\([\w@.-]+\)(?=/)|(?<=/)\*(?=/|$)"
)
_LEFT = re.compile(r"[\\^$?|+*()<>{}\[\]\s]")


def graph_route(route: str, path: str) -> str | None:
    """Returns the route of a request as a static graph writes it.

    A pattern with optional parts is the form that the request's path fits. A pattern that fits only
    the beginning of the path is that of a mounted application, which says nothing of the route.

    Args:
        route: `http.route`; empty if the span has none.
        path: The path that was asked for; empty if the span has none.

    Returns:
        A pattern, or else the path; None if neither can be read.
    """
    if len(route) > _LONGEST or len(path) > _LONGEST:
        return path or route
    return _translated(route, path)


def is_translatable(route: str) -> bool:
    """Tells whether a pattern has a form that graphs write; else the path stands for it."""
    return len(route) <= _LONGEST and bool(_few_forms(route))


@lru_cache(maxsize=65_536)
def _few_forms(route: str) -> list[str]:
    forms = [*dict.fromkeys(islice(_forms(route), _MOST_FORMS + 1))] if route else []
    return forms if len(forms) <= _MOST_FORMS else []


@lru_cache(maxsize=65_536)
def _translated(route: str, path: str) -> str | None:
    forms = _few_forms(route)
    if path:
        fitting = RouteTable(forms).match(path)
        mounted = any(RouteTable([f"{form}/{{rest:path}}"]).match(path) for form in forms)
        if fitting or mounted or len(forms) != 1:
            return fitting or path
        if not route.startswith("/") and not RouteTable([f"/{{at:path}}{forms[0]}"]).match(path):
            # The name that Symfony gives a route, or a controller's.
            return path
    return forms[0] if len(forms) == 1 else None


def _forms(route: str) -> Iterator[str]:
    """Yields each pattern that a route stands for, none if it cannot be translated."""
    if route.startswith("/^") and (end := route.rfind("/")) > 1:
        # A regular expression as JavaScript prints it.
        route = route[1:end]
    # Express 5 joins a list by commas.
    for part in route.split(",/") if route.startswith("/") else [route]:
        plain = (_ANCHORS if is_expression(part) else _AROUND).sub("", part)
        named = _CONSTRAINT.sub(r"{\1\2}", plain)
        for form in _without_options(f"/{named.lstrip('/')}"):
            pattern = _pattern(form)
            if not _LEFT.search(_GRAPH_FORM.sub("", pattern)):
                yield canonical_route(pattern)


def _without_options(route: str) -> Iterator[str]:
    """Yields a route with and without each of its optional parts."""
    for optional in _OPTIONAL:
        if option := optional.search(route):
            name = option.groupdict().get("name")
            for kept in ("", f"/{{{name}}}" if name else option["part"]):
                yield from _without_options(
                    f"{route[: option.start()]}{kept}{route[option.end() :]}"
                )
            return
    yield route


def _pattern(route: str) -> str:
    for parameter, form in _PARAMETERS:
        route = parameter.sub(form, route)
    return _groups(route) if is_expression(route) else route


def _groups(route: str) -> str:
    """Returns an expression with its groups, innermost first, as parameters."""
    before = None
    while before != route:
        before = route
        route = _GROUP.sub(lambda group: f"{{{group['name'] or 'value'}}}", route)
    return _ESCAPED.sub(r"\1", route)
